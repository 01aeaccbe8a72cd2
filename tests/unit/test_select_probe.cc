// unit/test_select_probe.cc: probes over recorded machines (tests/data/machines) and over doubles of drivers'
// libraries, since the hardware is absent. Each recorded machine is found as it is, in bus order, and can be written
// and read.
#include <cstdlib>

#include "base/error.h"
#include "select/inventory/inventory.h"
#include "select/probe/probes.h"
#include "support/check.h"

namespace {

using namespace gsel;

// Looks with the given variables set, then unsets them.
template <class Look>
auto with(const std::vector<std::pair<const char*, std::string>>& variables, Look look) {
  for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
  struct Unset {
    const std::vector<std::pair<const char*, std::string>>& variables;
    ~Unset() {
      for (const auto& [name, value] : variables) unsetenv(name);
    }
  } unset{variables};
  return look();
}

std::string machine(const std::string& name) {
  return std::string(getenv("GSEL_TEST_DATA")) + "/machines/" + name;
}
std::string fixture(const std::string& name) {
  return std::string(getenv("GSEL_TEST_BIN")) + "/tests/fixtures/" + name;
}

Inventory detect(const std::vector<std::pair<const char*, std::string>>& variables) {
  try {
    const Inventory inventory = with(variables, detect_inventory);
    const std::string once = inventory_json(inventory);  // what is found can be written and read
    assert_string_equal(once.c_str(), inventory_json(parse_inventory(once, "again")).c_str());
    return inventory;
  } catch (const Error& e) {
    fail_msg("%s: expected an inventory, got: %s", variables.back().second.c_str(), e.what());
  }
  throw 0;  // not reached
}
Inventory recorded(const std::string& name) {
  return detect({{"GSEL_SYSFS_ROOT", machine(name)}});
}
Inventory faked(const std::string& scenario, const std::string& files = "nothing") {
  return detect({{"GSEL_NVML_LIBRARY", fixture("fake_nvml.so")},
                 {"GSEL_SYSFS_ROOT", machine(files)},
                 {"GSEL_FAKE_NVML", scenario}});
}

void check_note(const Inventory& inventory, const std::string& part) {
  for (const std::string& note : inventory.notes)
    if (note.find(part) != note.npos) return;
  fail_msg("expected a note with \"%s\", got:\n%s", part.c_str(), inventory_text(inventory).c_str());
}

// The accelerators as one line each of "pci vendor ordinal", the CPU left out; bus order is part of the text.
std::string ordinals(const Inventory& inventory) {
  std::string out;
  for (const Device& device : inventory.devices)
    if (!device.is_cpu()) out += fmt::format("{}:{} ", device.pci.substr(9, 2), device.ordinal);
  return out;
}

void every_recorded_machine_ends_with_the_cpu(void**) {
  const std::pair<const char*, size_t> machines[] = {{"mi250x4", 4},          {"pvc2", 3},      {"nvidia_files", 3},
                                                     {"gaudi2x8", 8},         {"gaudi_old", 2}, {"ascend8", 8},
                                                     {"nvidia_no_driver", 0}, {"nothing", 0}};
  for (const auto& [name, accelerators] : machines) {
    const Inventory inventory = recorded(name);
    if (inventory.devices.size() != accelerators + 1 || !inventory.devices.back().is_cpu())
      fail_msg("%s: expected %zu accelerators and the CPU, got\n%s", name, accelerators,
               inventory_text(inventory).c_str());
  }
}

void amd_devices_are_those_of_kfd(void**) {
  const Inventory inventory = recorded("mi250x4");
  assert_string_equal(ordinals(inventory).c_str(), "c1:2 c6:3 c9:0 ce:1 ");  // KFD's order is not the bus's
  const Device& d = inventory.devices[3];
  assert_string_equal(d.vendor.c_str(), "amd");
  assert_string_equal(d.name.c_str(), "AMD INSTINCT MI250 (MCM) OAM AC MBA");
  assert_string_equal(d.uuid.c_str(), "GPU-2d2c5a0b7a6b5c4e");
  assert_string_equal(d.architecture.c_str(), "gfx90a");
  assert_int_equal(d.compute_units, 104);
  assert_int_equal(d.clock_khz, 1700000);
  assert_int_equal(d.memory_bytes, (uint64_t{64} << 30) - (16 << 20));
  assert_int_equal(d.free_bytes, d.memory_bytes - 34359738368u);
  assert_int_equal(d.process_count, 2);                     // one by its memory, one too
  assert_int_equal(inventory.devices[2].process_count, 1);  // by a queue
  assert_int_equal(inventory.devices[0].process_count, 0);
  assert_int_equal(d.numa, 0);
  assert_true(d.accessible && !d.integrated && !d.divided);
  assert_string_equal(inventory.devices[1].uuid.c_str(), "GPU-0d4c5a0b7a6b5c50");  // 16 digits, with the zero
  assert_string_equal(inventory.devices[1].name.c_str(), "AMD aldebaran");         // no product name there
  assert_false(inventory.devices[1].accessible);                                   // no render node
  check_note(inventory, "00000000:c6:00.0 may not be used");
}

void amd_links_are_xgmi(void**) {
  const std::vector<Link> links = recorded("mi250x4").hosts[0].links;
  assert_int_equal(links.size(), 3);
  assert_true(links[0].a == 0 && links[0].b == 1 && links[0].kind == "XGMI" && links[0].bytes_per_second == 200e9);
  assert_true(links[1].a == 0 && links[1].b == 2 && links[1].bytes_per_second == 50e9 && links[1].latency_s > 0);
  assert_true(links[2].a == 2 && links[2].b == 3);
}

void intel_devices_are_those_of_drm(void**) {
  const Inventory inventory = recorded("pvc2");
  assert_string_equal(ordinals(inventory).c_str(), "00:2 29:0 9a:1 ");  // Level Zero lists discrete devices first
  assert_true(inventory.devices[0].integrated && inventory.devices[0].tiles == 0);  // its second gt is no tile
  for (int i = 1; i <= 2; ++i) {
    const Device& d = inventory.devices[static_cast<size_t>(i)];
    assert_string_equal(d.name.c_str(), "Intel Data Center GPU Max 1550");
    assert_string_equal(d.architecture.c_str(), "xe-hpc");
    assert_int_equal(d.tiles, 2);  // xe tells tiles, i915 gts
    assert_int_equal(d.memory_bytes, uint64_t{128} << 30);
    assert_true(!d.integrated && d.accessible && d.uuid.empty());
    assert_int_equal(d.numa, i - 1);
  }
  check_note(inventory, "Sysman is not available");
}

void sysman_tells_uuids_and_memory(void**) {
  const std::string library = fixture("fake_ze_sysman.so");
  const auto ask = [&](const char* scenario) {
    return detect({{"GSEL_SYSFS_ROOT", machine("pvc2")}, {"GSEL_ZE_LIBRARY", library}, {"GSEL_FAKE_ZE", scenario}});
  };
  const Inventory inventory = ask("");
  assert_true(inventory.devices[0].uuid.empty());  // not of Sysman's list
  assert_string_equal(inventory.devices[1].uuid.c_str(), "8680d50b-2f00-0000-2900-000000000001");
  assert_string_equal(inventory.devices[2].uuid.c_str(), "8680d50b-2f00-0000-9a00-000000000001");
  assert_string_equal(inventory.devices[1].name.c_str(), "Intel(R) Data Center GPU Max 1550");
  assert_int_equal(inventory.devices[1].memory_bytes, uint64_t{128} << 30);
  assert_int_equal(inventory.devices[1].free_bytes, uint64_t{96} << 30);
  assert_int_equal(ask("no_memory").devices[1].free_bytes, 0);
  check_note(ask("uninitialized"), "Sysman is not available");
  try {
    with({{"GSEL_SYSFS_ROOT", machine("pvc2")}, {"GSEL_ZE_LIBRARY", "fake.so"}}, detect_inventory);
    fail_msg("a relative GSEL_ZE_LIBRARY was taken");
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_ARG);
  }
}

void gaudi_devices_keep_their_module_ids(void**) {
  const Inventory inventory = recorded("gaudi2x8");
  const int modules[] = {2, 3, 0, 1, 5, 4, 6, 7};
  for (size_t i = 0; i < 8; ++i) {
    const Device& d = inventory.devices[i];
    assert_int_equal(d.module, modules[i]);
    assert_int_equal(d.ordinal, i);
    assert_string_equal(d.architecture.c_str(), "gaudi2");
    assert_int_equal(d.memory_bytes, uint64_t{96} << 30);
    assert_int_equal(d.accessible, i != 5 && i != 7);  // in reset; no node
  }
  check_note(inventory, "9b:00.0 may not be used: its status is in reset");
  check_note(inventory, "b4:00.0 may not be used: its status is operational, /dev/accel/accel7 cannot be opened");
  const Inventory old = recorded("gaudi_old");
  assert_string_equal(old.devices[1].name.c_str(), "Intel Gaudi");
  assert_int_equal(old.devices[1].module, -1);
  assert_true(old.devices[1].accessible);
}

void ascend_devices_are_found_on_the_bus(void**) {
  const Inventory inventory = recorded("ascend8");
  assert_string_equal(ordinals(inventory).c_str(), "01:-1 02:-1 41:-1 42:-1 81:-1 82:-1 c1:-1 c2:-1 ");
  assert_string_equal(inventory.devices[0].name.c_str(), "Ascend 910B");
  assert_int_equal(inventory.devices[0].numa, 3);
  assert_true(inventory.devices[0].accessible);
  check_note(inventory, "DCMI is not available");
}

void hlml_tells_uuids(void**) {
  const Inventory inventory =
      detect({{"GSEL_HLML_LIBRARY", fixture("fake_hlml.so")}, {"GSEL_SYSFS_ROOT", machine("gaudi2x8")}});
  assert_string_equal(inventory.devices[2].uuid.c_str(), "01P4-HL2080A0-15-TNDS50-10-07-01");
  assert_true(inventory.devices[3].uuid.empty());  // HLML does not know it
}

void dcmi_tells_logical_ids_and_memory(void**) {
  const Inventory inventory =
      detect({{"GSEL_DCMI_LIBRARY", fixture("fake_dcmi.so")}, {"GSEL_SYSFS_ROOT", machine("ascend8")}});
  assert_string_equal(ordinals(inventory).c_str(), "01:1 02:3 41:5 42:7 81:4 82:6 c1:0 c2:2 ");
  const Device& d = inventory.devices[0];
  assert_string_equal(d.name.c_str(), "Ascend 910B3");
  assert_string_equal(d.architecture.c_str(), "910b");
  assert_int_equal(d.compute_units, 20);
  assert_int_equal(d.memory_bytes, uint64_t{64} << 30);
  assert_int_equal(d.free_bytes, uint64_t{61} << 30);
  assert_string_equal(inventory.devices[4].name.c_str(), "Ascend 910B");  // that chip did not answer
  assert_int_equal(inventory.devices[6].free_bytes, 0);
}

void nvidia_devices_are_listed_without_nvml(void**) {
  const Inventory inventory = recorded("nvidia_files");
  assert_string_equal(ordinals(inventory).c_str(), "0a:-1 ab:-1 b1:-1 ");
  const Device& d = inventory.devices[0];
  assert_string_equal(d.name.c_str(), "NVIDIA A100-SXM4-40GB");
  assert_string_equal(d.uuid.c_str(), "GPU-11111111-0000-0000-0000-000000000000");
  assert_int_equal(d.capability_major, 8);
  assert_int_equal(d.memory_bytes, uint64_t{40} << 30);  // nominal
  assert_int_equal(d.free_bytes, 0);                     // not told
  assert_int_equal(d.process_count, -1);
  assert_true(d.accessible && !inventory.devices[1].accessible);
  assert_true(inventory.devices[2].uuid.empty());  // the driver does not know it yet
  check_note(inventory, "NVML is missing");
  check_note(recorded("nvidia_no_driver"), "PCI: NVIDIA device at 00000000:0a:00.0 has no driver");
}

void files_that_lie_break_nothing(void**) {
  const Inventory inventory = recorded("broken");
  assert_true(inventory.devices.back().is_cpu());
  assert_int_equal(inventory.devices.size(), 4);
}

void a_recorded_machine_needs_an_absolute_path(void**) {
  try {
    with({{"GSEL_SYSFS_ROOT", "machines"}}, detect_inventory);
    fail_msg("a relative GSEL_SYSFS_ROOT was taken");
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_ARG);
  }
}

// ---- NVML ----

void nvml_tells_instances(void**) {
  const Inventory inventory = faked("mig");
  const Device &divided = inventory.devices[0], &other = inventory.devices[1];
  assert_true(divided.divided && !other.divided);
  assert_int_equal(divided.partitions.size(), 2);  // the slot between them is empty
  assert_string_equal(divided.partitions[0].uuid.c_str(), "MIG-33333333-0000-0000-0000-000000000000");
  assert_int_equal(divided.partitions[0].gi, 1);
  assert_int_equal(divided.partitions[0].ci, 0);
  assert_int_equal(divided.partitions[0].memory_bytes, 20937965568u);
  assert_int_equal(divided.partitions[1].gi, 9);
  const Inventory empty = faked("mig_empty"), hidden = faked("mig_hidden");
  assert_true(empty.devices[0].divided && empty.devices[0].partitions.empty());
  check_note(empty, "is in MIG mode and has no instances");
  assert_true(hidden.devices[0].divided && hidden.devices[0].partitions.empty());
  check_note(hidden, "MIG instances of GPU-11111111-0000-0000-0000-000000000000 may not be used");
}

void nvml_tells_modes_and_clocks(void**) {
  assert_true(faked("exclusive").devices[1].compute_mode == ComputeMode::exclusive_process);
  assert_true(faked("exclusive").devices[0].compute_mode == ComputeMode::standard);
  assert_true(faked("prohibited").devices[1].compute_mode == ComputeMode::prohibited);
  assert_int_equal(faked("").devices[1].clock_khz, 1980000);
}

void an_old_driver_tells_less(void**) {
  const Inventory inventory = faked("old_driver");
  const Device& d = inventory.devices[1];
  assert_true(d.compute_units == 0 && d.clock_khz == 0 && d.process_count == -1 && !d.divided);
  assert_true(d.compute_mode == ComputeMode::standard && d.memory_bytes > 0);
  assert_true(inventory.hosts[0].links.empty());
  assert_int_equal(faked("no_memory").devices[1].memory_bytes, 0);
}

void nvml_tells_links(void**) {
  const struct {
    const char *scenario, *kind;
    double bytes_per_second;
  } rows[] = {{"", "SYS", 12e9}, {"same_switch", "PIX", 24e9}, {"nvlink", "NV4", 100e9}, {"nvswitch", "NV18", 450e9}};
  for (const auto& row : rows) {
    const std::vector<Link> links = faked(row.scenario).hosts[0].links;
    if (links.size() != 1 || links[0].a != 0 || links[0].b != 1 || links[0].kind != row.kind ||
        links[0].bytes_per_second != row.bytes_per_second)
      fail_msg("%s: expected %s of %g bytes per second, got %zu links, %s of %g", row.scenario, row.kind,
               row.bytes_per_second, links.size(), links.empty() ? "" : links[0].kind.c_str(),
               links.empty() ? 0 : links[0].bytes_per_second);
  }
}

void a_refused_device_is_kept_where_files_tell_which_it_is(void**) {
  const Inventory known = faked("no_permission", "nvidia_one_more");
  assert_int_equal(known.devices.size(), 3);
  assert_string_equal(known.devices[1].uuid.c_str(), "GPU-22222222-0000-0000-0000-000000000000");
  assert_true(known.devices[0].accessible && !known.devices[1].accessible);
  check_note(known, "00000000:ab:00.0 may not be used");
  const Inventory unknown = faked("no_permission");
  assert_int_equal(unknown.devices.size(), 2);
  check_note(unknown, "device 0 may not be used");
}

void a_missing_driver_leaves_the_files(void**) {
  const Inventory inventory = faked("driver_not_loaded", "nvidia_files");
  assert_int_equal(inventory.devices.size(), 4);
  check_note(faked("driver_not_loaded"), "driver is not loaded");
}

// Alone it is an error, as of gsel_inventory_detect; beside devices of others it is said and hides none.
void a_failing_driver_hides_no_other_vendors_devices(void**) {
  const Inventory inventory = faked("version_mismatch", "mi250x4");
  assert_int_equal(inventory.devices.size(), 5);
  check_note(inventory, "nvmlInit_v2 failed: Driver/library version mismatch (18)");
  try {
    with({{"GSEL_NVML_LIBRARY", fixture("fake_nvml.so")},
          {"GSEL_SYSFS_ROOT", machine("nothing")},
          {"GSEL_FAKE_NVML", "version_mismatch"}},
         detect_inventory);
    fail_msg("expected an error");
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_IO);
  }
}

// ---- files ----

void numbers_in_files_are_read_strictly(void**) {
  const struct {
    const char* text;
    int64_t value;  // -1: none
  } rows[] = {{"0", 0},
              {"12", 12},
              {"0x1f", 31},
              {"", -1},
              {"0x", -1},
              {"-1", -1},
              {"+1", -1},
              {" 1", -1},
              {"1 ", -1},
              {"1.5", -1},
              {"18446744073709551616", -1},
              {"ff", -1}};
  for (const auto& row : rows) {
    const auto got = parse_number(row.text);
    if (got.has_value() != (row.value >= 0) || (got && static_cast<int64_t>(*got) != row.value))
      fail_msg("\"%s\": expected %d, got %d", row.text, (int)row.value, got ? (int)*got : -1);
  }
}

void folders_of_pci_devices_have_four_digits_of_domain(void**) {
  assert_string_equal(pci_folder("00000000:3b:00.0").c_str(), "/sys/bus/pci/devices/0000:3b:00.0");
  assert_string_equal(pci_folder("00010000:3b:00.0").c_str(), "/sys/bus/pci/devices/10000:3b:00.0");
  assert_string_equal(pci_folder("12345678:3b:00.0").c_str(), "/sys/bus/pci/devices/12345678:3b:00.0");
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_recorded_machine_ends_with_the_cpu),
      cmocka_unit_test(amd_devices_are_those_of_kfd),
      cmocka_unit_test(amd_links_are_xgmi),
      cmocka_unit_test(intel_devices_are_those_of_drm),
      cmocka_unit_test(sysman_tells_uuids_and_memory),
      cmocka_unit_test(gaudi_devices_keep_their_module_ids),
      cmocka_unit_test(ascend_devices_are_found_on_the_bus),
      cmocka_unit_test(hlml_tells_uuids),
      cmocka_unit_test(dcmi_tells_logical_ids_and_memory),
      cmocka_unit_test(nvidia_devices_are_listed_without_nvml),
      cmocka_unit_test(files_that_lie_break_nothing),
      cmocka_unit_test(a_recorded_machine_needs_an_absolute_path),
      cmocka_unit_test(nvml_tells_instances),
      cmocka_unit_test(nvml_tells_modes_and_clocks),
      cmocka_unit_test(an_old_driver_tells_less),
      cmocka_unit_test(nvml_tells_links),
      cmocka_unit_test(a_refused_device_is_kept_where_files_tell_which_it_is),
      cmocka_unit_test(a_missing_driver_leaves_the_files),
      cmocka_unit_test(a_failing_driver_hides_no_other_vendors_devices),
      cmocka_unit_test(numbers_in_files_are_read_strictly),
      cmocka_unit_test(folders_of_pci_devices_have_four_digits_of_domain),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
