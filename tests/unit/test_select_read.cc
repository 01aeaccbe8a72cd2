// unit/test_select_read.cc: inventories as text: what is read, what is filled in, what is refused and where, and that
// writing and reading agree for whatever bytes come.
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "select/inventory/inventory.h"
#include "select/inventory/known.h"
#include "support/check.h"

namespace {

using namespace gsel;

std::string host_of(const std::string& rest) {
  return R"({"gsel_inventory": 1, "hosts": [{"name": "h", )" + rest + "}]}";
}
std::string devices_of(const std::string& devices) {
  return host_of(R"("devices": [)" + devices + "]");
}

Inventory read(const std::string& text) {
  try {
    return parse_inventory(text, "test.json");
  } catch (const Error& e) {
    fail_msg("%s\n  expected an inventory, got: %s", text.c_str(), e.what());
  }
  throw 0;  // not reached
}

void expect(bool right, const std::string& what, const std::string& input) {
  if (!right) fail_msg("%s\n  expected %s", input.c_str(), what.c_str());
}

constexpr uint64_t kGiB = uint64_t{1} << 30;

void every_field_of_a_device_is_read(void**) {
  const Inventory inventory = read(devices_of(R"({"vendor": "nvidia", "name": "N", "uuid": "GPU-1",
      "pci": "0001:3B:00.0", "memory_bytes": 10, "free_bytes": 9, "compute_capability": "8.0", "multiprocessors": 7,
      "clock_khz": 1410000, "compute_mode": "exclusive_process", "process_count": 2, "numa": 3, "accessible": false,
      "reserved_by": 4711, "architecture": "ga100", "ordinal": 5, "module": 6, "tiles": 2, "integrated": true,
      "partitions": [{"uuid": "MIG-1", "gi": 1, "ci": 0, "memory_bytes": 5}, {"uuid": "MIG-2"}]})"));
  const Device& d = inventory.devices[0];
  assert_string_equal(d.vendor.c_str(), "nvidia");
  assert_string_equal(d.name.c_str(), "N");
  assert_string_equal(d.uuid.c_str(), "GPU-1");
  assert_string_equal(d.pci.c_str(), "00000001:3b:00.0");
  assert_string_equal(d.architecture.c_str(), "ga100");
  assert_int_equal(d.memory_bytes, 10);
  assert_int_equal(d.free_bytes, 9);
  assert_int_equal(d.capability_major, 8);
  assert_int_equal(d.capability_minor, 0);
  assert_int_equal(d.compute_units, 7);
  assert_int_equal(d.clock_khz, 1410000);
  assert_true(d.compute_mode == ComputeMode::exclusive_process);
  assert_int_equal(d.process_count, 2);
  assert_int_equal(d.numa, 3);
  assert_int_equal(d.ordinal, 5);
  assert_int_equal(d.module, 6);
  assert_int_equal(d.tiles, 2);
  assert_int_equal(d.reserved_by, 4711);
  assert_true(d.integrated && !d.accessible && d.divided);
  assert_int_equal(d.partitions.size(), 2);
  assert_string_equal(d.partitions[0].uuid.c_str(), "MIG-1");
  assert_int_equal(d.partitions[0].gi, 1);
  assert_int_equal(d.partitions[0].ci, 0);
  assert_int_equal(d.partitions[0].memory_bytes, 5);
  assert_int_equal(d.partitions[1].gi, -1);
  assert_int_equal(d.partitions[1].ci, -1);
}

void what_is_not_told_is_unknown(void**) {
  const Inventory inventory = read(devices_of(R"({"vendor": "other", "name": "N"}, {"vendor": "cpu", "name": "C"})"));
  const Device& d = inventory.devices[0];
  assert_true(d.uuid.empty() && d.pci.empty() && d.architecture.empty() && d.partitions.empty());
  assert_true(d.memory_bytes == 0 && d.free_bytes == 0 && d.compute_units == 0 && d.clock_khz == 0 && d.tiles == 0);
  assert_true(d.process_count == -1 && d.numa == -1 && d.ordinal == -1 && d.module == -1 && d.reserved_by == 0);
  assert_true(d.compute_mode == ComputeMode::standard && d.accessible && !d.divided && !d.integrated);
  assert_true(inventory.devices[1].is_cpu());
  assert_true(read(devices_of(R"({"vendor": "nvidia", "uuid": "GPU-1", "partitions": []})")).devices[0].divided);
}

void hosts_have_their_own_indexes_and_links(void**) {
  const Inventory inventory = read(R"({"gsel_inventory": 1, "hosts": [
      {"name": "a", "devices": [{"vendor": "amd", "name": "x"}, {"vendor": "amd", "name": "x"}],
       "links": [{"a": 1, "b": 0, "class": "PIX"}]},
      {"name": "b", "devices": [{"vendor": "nvidia", "uuid": "GPU-1", "pci": "0000:01:00.0"},
                                {"vendor": "nvidia", "uuid": "GPU-2", "pci": "0000:02:00.0"}],
       "links": [{"a": "GPU-1", "b": "0000:02:00.0", "class": "NV4", "bytes_per_second": 1.5, "latency_s": 0.25}]}]})");
  assert_int_equal(inventory.hosts.size(), 2);
  assert_int_equal(inventory.devices[3].host, 1);
  assert_int_equal(inventory.devices[3].index, 1);
  assert_int_equal(inventory.hosts[1].first, 2);
  const Link& first = inventory.hosts[0].links[0];
  assert_true(first.a == 0 && first.b == 1 && first.kind == "PIX");
  assert_true(first.bytes_per_second > 0 && first.latency_s > 0);  // typical ones
  const Link& second = inventory.hosts[1].links[0];
  assert_true(second.a == 0 && second.b == 1 && second.bytes_per_second == 1.5 && second.latency_s == 0.25);
}

// ---- known products ----

struct KnownRow {
  const char *vendor, *name;
  uint64_t memory_gib;
  int major, minor;
  const char* architecture;
  int units, tiles;
  bool integrated;
};
const KnownRow kKnown[] = {
    // Names as nvidia-smi shows them; figures of the data sheets.
    {"nvidia", "Tesla K80", 12, 3, 7, "", 13, 0, false},
    {"nvidia", "Tesla V100-SXM2-32GB", 32, 7, 0, "", 80, 0, false},
    {"nvidia", "Tesla T4", 16, 7, 5, "", 40, 0, false},
    {"nvidia", "NVIDIA A100-SXM4-40GB", 40, 8, 0, "", 108, 0, false},
    {"nvidia", "NVIDIA A100 80GB PCIe", 80, 8, 0, "", 108, 0, false},
    {"nvidia", "NVIDIA A10", 24, 8, 6, "", 72, 0, false},
    {"nvidia", "NVIDIA H100 80GB HBM3", 80, 9, 0, "", 132, 0, false},
    {"nvidia", "NVIDIA H100 PCIe", 80, 9, 0, "", 114, 0, false},
    {"nvidia", "h100", 80, 9, 0, "", 132, 0, false},
    {"nvidia", "NVIDIA B200", 180, 10, 0, "", 148, 0, false},
    {"nvidia", "NVIDIA RTX A6000", 48, 8, 6, "", 84, 0, false},
    {"nvidia", "NVIDIA RTX 6000 Ada Generation", 48, 8, 9, "", 142, 0, false},
    {"nvidia", "Quadro RTX 6000", 24, 7, 5, "", 72, 0, false},
    {"nvidia", "NVIDIA TITAN RTX", 24, 7, 5, "", 72, 0, false},
    {"nvidia", "NVIDIA TITAN X (Pascal)", 12, 6, 1, "", 28, 0, false},
    {"nvidia", "GeForce GTX 1080 Ti", 11, 6, 1, "", 28, 0, false},
    {"nvidia", "NVIDIA GeForce RTX 3090 Ti", 24, 8, 6, "", 84, 0, false},
    {"nvidia", "NVIDIA GeForce RTX 5090", 32, 12, 0, "", 170, 0, false},
    {"nvidia", "Jetson AGX Orin", 0, 8, 7, "", 16, 0, true},
    {"amd", "AMD Instinct MI300X", 192, 0, 0, "gfx942", 304, 0, false},
    {"amd", "AMD INSTINCT MI250 (MCM) OAM AC MBA", 64, 0, 0, "gfx90a", 104, 0, false},
    {"amd", "Radeon RX 7900 XTX", 24, 0, 0, "gfx1100", 96, 0, false},
    {"intel", "Intel(R) Data Center GPU Max 1550", 128, 0, 0, "xe-hpc", 128, 2, false},
    {"intel", "Intel(R) Iris(R) Xe Graphics", 0, 0, 0, "xe-lp", 0, 0, true},
    {"habana", "HL-225", 96, 0, 0, "gaudi2", 24, 0, false},
    {"habana", "Intel Gaudi 3", 128, 0, 0, "gaudi3", 64, 0, false},
    {"ascend", "Ascend 910B3", 64, 0, 0, "910b", 0, 0, false},
    // Not the product whose name stands in theirs.
    {"nvidia", "NVIDIA T400 4GB", 0, 0, 0, "", 0, 0, false},
    {"nvidia", "NVIDIA GeForce RTX 4090 Laptop GPU", 16, 8, 9, "", 76, 0, false},
    {"nvidia", "NVIDIA GeForce RTX 2080 with Max-Q Design", 0, 0, 0, "", 0, 0, false},
    {"amd", "NVIDIA A100-SXM4-40GB", 0, 0, 0, "", 0, 0, false},
    {"nvidia", "made up", 0, 0, 0, "", 0, 0, false},
};

void known_products_fill_what_is_left_out(void**) {
  for (const KnownRow& row : kKnown) {
    const Device d =
        read(devices_of(fmt::format(R"({{"vendor": "{}", "name": "{}"}})", row.vendor, row.name))).devices[0];
    const bool right = d.memory_bytes == row.memory_gib * kGiB && d.capability_major == row.major &&
                       d.capability_minor == row.minor && d.architecture == row.architecture &&
                       d.compute_units == row.units && d.tiles >= row.tiles && d.integrated == row.integrated;
    if (!right)
      fail_msg("%s\n  expected %d GiB, %d.%d %s, %d units\n  got %d GiB, %d.%d %s, %d units", row.name,
               (int)row.memory_gib, row.major, row.minor, row.architecture, row.units, (int)(d.memory_bytes / kGiB),
               d.capability_major, d.capability_minor, d.architecture.c_str(), d.compute_units);
  }
}

void what_is_given_is_never_overruled(void**) {
  const Device d = read(devices_of(R"({"vendor": "intel", "name": "Max 1550", "memory_bytes": 7, "multiprocessors": 0,
      "clock_khz": 0, "architecture": "", "tiles": 0, "compute_capability": "1.2", "integrated": true})"))
                       .devices[0];
  assert_true(d.memory_bytes == 7 && d.compute_units == 0 && d.clock_khz == 0 && d.architecture.empty());
  assert_true(d.tiles == 0 && d.capability_major == 1 && d.capability_minor == 2 && d.integrated);
}

void memory_counts_as_free_where_nothing_computes(void**) {
  const auto free_of = [](const std::string& more) {
    return read(devices_of(R"({"vendor": "nvidia", "name": "H100")" + more + "}")).devices[0].free_bytes;
  };
  assert_true(free_of("") == 80 * kGiB);
  assert_true(free_of(R"(, "process_count": 0)") == 80 * kGiB);
  assert_true(free_of(R"(, "process_count": 1)") == 0);
  assert_true(free_of(R"(, "free_bytes": 5)") == 5);
  assert_true(free_of(R"(, "free_bytes": 0)") == 0);
}

// Each row is found by its own name, so no row hides another.
void every_known_product_is_found_by_its_name(void**) {
  for (const Known& row : known_table()) {
    const std::string name(row.name);
    expect(&known_accelerator(row.vendor, row.name) == &row, "the row of that name", name);
    expect(row.memory_bytes <= 512 * kGiB && row.compute_units < 1000 && row.clock_khz < 4000000,
           "figures of a plausible size", name);
    expect((row.vendor == "nvidia") == (row.capability_major > 0), "a capability for NVIDIA alone", name);
  }
}

void links_without_figures_get_typical_ones(void**) {
  const struct {
    const char *name, *kind;
    double bytes_per_second;
  } rows[] = {
      {"A100-SXM4-40GB", "NV12", 300e9},  // 12 links of 25 GB/s: NVIDIA A100 white paper
      {"H100", "NV18", 450e9},            // NVIDIA H100 white paper
      {"B200", "NV18", 900e9},            // NVIDIA Blackwell architecture brief
      {"P100-SXM2-16GB", "NV1", 20e9},    // NVIDIA P100 white paper
      {"RTX A6000", "NV4", 56.25e9},      // 112.5 GB/s in both directions: data sheet
      {"H100", "NV", 0},
      {"H100", "NV0", 0},
      {"H100", "NVLink", 0},
      {"H100", "OTHER", 0},
  };
  for (const auto& row : rows) {
    const std::string device = fmt::format(R"({{"vendor": "nvidia", "name": "{}"}})", row.name);
    const Inventory inventory = read(host_of(
        fmt::format(R"("devices": [{}, {}], "links": [{{"a": 0, "b": 1, "class": "{}"}}])", device, device, row.kind)));
    expect(inventory.hosts[0].links[0].bytes_per_second == row.bytes_per_second,
           fmt::format("{} bytes per second", row.bytes_per_second), fmt::format("{} {}", row.name, row.kind));
  }
  const std::string mi300 = R"({"vendor": "amd", "name": "MI300X"})";
  const Inventory amd =
      read(host_of(R"("devices": [)" + mi300 + "," + mi300 + R"(], "links": [{"a": 0, "b": 1, "class": "XGMI"}])"));
  assert_true(amd.hosts[0].links[0].bytes_per_second == 64e9);
}

// ---- refusals ----

#define GPU(more) R"({"vendor": "nvidia", "name": "N", "uuid": "GPU-1")" more "}"
#define TWO R"("devices": [{"vendor": "amd", "name": "x"}, {"vendor": "amd", "name": "x"}], )"

const struct {
  std::string text;
  const char *path, *message;
} kRefused[] = {
    {devices_of("{}"), "hosts[0].devices[0].vendor", "is missing"},
    {devices_of(R"({"vendor": ""})"), "hosts[0].devices[0].vendor", "is empty"},
    {devices_of(R"({"vendor": "NVIDIA", "name": "N"})"), "hosts[0].devices[0].vendor", "lower case"},
    {devices_of(R"({"vendor": "nvidia"})"), "hosts[0].devices[0].name", "is missing, and so is uuid"},
    {devices_of(R"({"vendor": "nvidia", "name": ""})"), "hosts[0].devices[0].name", "is empty, and there is no uuid"},
    {devices_of(R"({"vendor": "nvidia", "uuid": "MIG-1"})"), "hosts[0].devices[0].uuid", "begins with GPU-"},
    {devices_of(GPU(R"(, "memory": 1)")), "hosts[0].devices[0].memory", "not a known field"},
    {devices_of(GPU(R"(, "memory_byte": 1)")), "hosts[0].devices[0].memory_byte", "did you mean memory_bytes?"},
    {devices_of(GPU(R"(, "partition": [])")), "hosts[0].devices[0].partition", "did you mean partitions?"},
    {devices_of(GPU(R"(, "memory_bytes": 5, "free_bytes": 6)")), "hosts[0].devices[0].free_bytes", "more than"},
    {devices_of(GPU(R"(, "compute_mode": "Default")")), "hosts[0].devices[0].compute_mode", "exclusive_process or"},
    {devices_of(GPU(R"(, "compute_mode": 1)")), "hosts[0].devices[0].compute_mode", "text is needed"},
    {devices_of(GPU(R"(, "accessible": 1)")), "hosts[0].devices[0].accessible", "true or false"},
    {devices_of(GPU(R"(, "integrated": "yes")")), "hosts[0].devices[0].integrated", "true or false"},
    {devices_of(GPU(R"(, "clock_khz": 9223372036854775808)")), "hosts[0].devices[0].clock_khz", "to 92233720368547"},
    {devices_of(GPU(R"(, "clock_khz": -1)")), "hosts[0].devices[0].clock_khz", "whole number"},
    {devices_of(GPU(R"(, "tiles": 65)")), "hosts[0].devices[0].tiles", "from 0 to 64"},
    {devices_of(GPU(R"(, "ordinal": -1)")), "hosts[0].devices[0].ordinal", "whole number"},
    {devices_of(GPU(R"(, "module": null)")), "hosts[0].devices[0].module", "(null)"},
    {devices_of(GPU(R"(, "reserved_by": 1.5)")), "hosts[0].devices[0].reserved_by", "whole number"},
    {devices_of(GPU(R"(, "partitions": {})")), "hosts[0].devices[0].partitions", "an array is needed"},
    {devices_of(GPU(R"(, "partitions": [1])")), "hosts[0].devices[0].partitions[0]", "an object is needed"},
    {devices_of(GPU(R"(, "partitions": [{}])")), "hosts[0].devices[0].partitions[0].uuid", "is missing"},
    {devices_of(GPU(R"(, "partitions": [{"uuid": "GPU-1"}])")), "hosts[0].devices[0].partitions[0].uuid", "MIG-"},
    {devices_of(GPU(R"(, "partitions": [{"uuid": "MIG-1", "id": 1}])")), "hosts[0].devices[0].partitions[0].id",
     "not a known field"},
    {devices_of(R"({"vendor": "amd", "name": "N", "partitions": []})"), "hosts[0].devices[0].partitions",
     "only an nvidia device"},
    {devices_of(GPU(R"(, "partitions": [{"uuid": "MIG-1"}, {"uuid": "MIG-1"}])")), "hosts", "MIG-1 twice"},
    {devices_of(GPU("") "," GPU("")), "hosts", "GPU-1 twice"},
    {devices_of(R"({"vendor": "amd", "name": "x", "pci": "0000:02:00.0"}, {"vendor": "amd", "name": "x"},
                   {"vendor": "amd", "name": "x", "pci": "0000:01:00.0"})"),
     "hosts[0].devices[2].pci", "bus order"},
    {devices_of(R"({"vendor": "amd", "name": "x", "ordinal": 1}, {"vendor": "amd", "name": "x", "ordinal": 1})"),
     "hosts[0].devices[1].ordinal", "as of another amd device"},
    {devices_of(R"({"vendor": "habana", "name": "x", "module": 1}, {"vendor": "habana", "name": "x", "module": 1})"),
     "hosts[0].devices[1].module", "as of another habana device"},
    {devices_of(R"({"vendor": "other", "name": "N", "memory_bytes": 1, "speed": {}})"),
     "hosts[0].devices[0].speed.bf16_flop_per_second", "is missing; a number from 1 is needed"},
    {devices_of(R"({"vendor": "other", "name": "N", "memory_bytes": 1, "speed": {"bf16_flop_per_second": 1}})"),
     "hosts[0].devices[0].speed.memory_bytes_per_second", "is missing; a number from 1 is needed"},
    {devices_of(GPU(R"(, "speed": {"bf16_flop_per_second": -1})")), "hosts[0].devices[0].speed.bf16_flop_per_second",
     "is -1 (number), a number from 1 to 1e+24 is needed"},
    {devices_of(GPU(R"(, "speed": {"bf16_flops": 1})")), "hosts[0].devices[0].speed.bf16_flops", "not a known field"},
    {devices_of(GPU(R"(, "speed": {"bf16_flop_per_second": 1, "memory_bytes_per_second": 1})")),
     "hosts[0].devices[0].memory_bytes", "is missing, and speed is there"},
    {host_of(TWO R"("links": {})"), "hosts[0].links", "an array is needed"},
    {host_of(TWO R"("link": [])"), "hosts[0].link", "did you mean links?"},
    {host_of(TWO R"("links": [{"b": 1, "class": "SYS"}])"), "hosts[0].links[0].a", "is missing"},
    {host_of(TWO R"("links": [{"a": 0, "b": 1}])"), "hosts[0].links[0].class", "is missing"},
    {host_of(TWO R"("links": [{"a": 0, "b": 2, "class": "SYS"}])"), "hosts[0].links[0].b", "has 2 devices"},
    {host_of(TWO R"("links": [{"a": 0, "b": -1, "class": "SYS"}])"), "hosts[0].links[0].b", "whole number"},
    {host_of(TWO R"("links": [{"a": 0, "b": "GPU-9", "class": "SYS"}])"), "hosts[0].links[0].b",
     "neither uuid nor pci"},
    {host_of(TWO R"("links": [{"a": 1, "b": 1, "class": "SYS"}])"), "hosts[0].links[0].b", "joins two"},
    {host_of(TWO R"("links": [{"a": 0, "b": 1, "class": "SYS"}, {"a": 1, "b": 0, "class": "PIX"}])"),
     "hosts[0].links[1]", "as a link before it"},
    {host_of(TWO R"("links": [{"a": 0, "b": 1, "class": "SYS", "latency_s": -1}])"), "hosts[0].links[0].latency_s",
     "a number from 0"},
    {host_of(TWO R"("links": [{"a": 0, "b": 1, "class": "SYS", "bytes_per_second": "1"}])"),
     "hosts[0].links[0].bytes_per_second", "a number from 0"},
    {host_of(TWO R"("links": [{"a": 0, "b": 1, "class": "SYS", "kind": 1}])"), "hosts[0].links[0].kind",
     "known are a, b"},
};

void what_cannot_be_read_one_way_is_refused_by_its_path(void**) {
  for (const auto& row : kRefused) {
    try {
      parse_inventory(row.text, "m.json");
      fail_msg("%s\n  expected \"%s\" at %s, got an inventory", row.text.c_str(), row.message, row.path);
    } catch (const Error& e) {
      if (e.code() != GSEL_ERR_PARSE || e.place().token != row.path ||
          e.message().find(row.message) == std::string::npos)
        fail_msg("%s\n  expected \"%s\" at %s\n  got %s (at %s)", row.text.c_str(), row.message, row.path, e.what(),
                 e.place().token.c_str());
    }
  }
}

// What leads to a field may stand anywhere around it: other objects, text with brackets, the same name elsewhere.
void a_refusal_has_the_line_of_its_field(void**) {
  const char* text = R"({"gsel_inventory": 1, "notes": ["[\"hosts\": {", "}"],
 "hosts": [ {"name": "a", "devices": [{"vendor": "amd",
   "name": "x"}]},
  {"devices": [{"vendor": "amd", "name": "x", "numa": 1}, {"vendor": "amd", "name": "numa",

    "numa": NUMA}], NAME
  }]})";
  const auto replaced = [&](const std::string& numa, const std::string& name) {
    std::string out = text;
    out.replace(out.find("NUMA"), 4, numa);
    return out.replace(out.find("NAME"), 4, name);
  };
  const struct {
    std::string text;
    int32_t line;
    const char* message;
  } rows[] = {
      {replaced("-2", R"("name": "b")"), 6, "inventory m.json: line 6: hosts[1].devices[1].numa is -2 (number), "},
      {replaced("2", R"("nam": "b")"), 4, "inventory m.json: line 4: hosts[1].name is missing"},
      {replaced("2", R"("name": "a")"), 6, "inventory m.json: line 6: hosts[1].name is \"a\", as of a host before it"},
  };
  for (const auto& row : rows) {
    try {
      parse_inventory(row.text, "m.json");
      fail_msg("accepted, expected %s", row.message);
    } catch (const Error& e) {
      if (!e.message().starts_with(row.message) || e.place().line != row.line)
        fail_msg("expected line %d, \"%s\"; got line %d, \"%s\"", row.line, row.message, e.place().line, e.what());
    }
  }
}

// ---- any text ----

std::vector<std::string> recorded_texts() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(getenv("GSEL_TEST_DATA")) + "/inventory")) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    out.push_back(text.str());
  }
  assert_true(out.size() >= 12);
  return out;
}

void writing_and_reading_agree(void**) {
  for (const std::string& text : recorded_texts()) {
    const std::string once = inventory_json(read(text));
    assert_string_equal(once.c_str(), inventory_json(read(once)).c_str());
  }
}

// Bytes changed, cut out and doubled: an inventory or an error of its own, and what was read can be written and read.
void damaged_text_is_an_inventory_or_an_error(void**) {
  std::minstd_rand random(7);
  const std::string splice = "\"{}[]:,0-9eE.truefalsnul \x01\xff\\";
  for (const std::string& text : recorded_texts())
    for (int round = 0; round < 300; ++round) {
      std::string damaged = text;
      for (int i = 0; i < 1 + round % 4; ++i) {
        const size_t at = random() % damaged.size();
        if (round % 3 == 0) damaged.erase(at, 1 + random() % 20);
        if (round % 3 == 1) damaged[at] = splice[random() % splice.size()];
        if (round % 3 == 2) damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 200));
        if (damaged.empty()) damaged = " ";
      }
      try {
        const Inventory inventory = parse_inventory(damaged, "damaged");
        assert_true(!inventory_text(inventory).empty());
        const std::string once = inventory_json(inventory);
        assert_string_equal(once.c_str(), inventory_json(read(once)).c_str());
      } catch (const Error& e) {
        expect(e.code() == GSEL_ERR_PARSE && e.message().find('\n') == std::string::npos, "a parse error in one line",
               e.message());
      }
    }
}

// Nothing in reading or writing looks at all devices for each device: this would not end in the time that a test has.
void long_lists_are_read_whole(void**) {
  std::string devices, links;
  constexpr int kCount = 10000;
  for (int i = 0; i < kCount; ++i) {
    devices += fmt::format(R"({}{{"vendor": "nvidia", "name": "NVIDIA H100 {}", "uuid": "GPU-{}", "ordinal": {}}})",
                           i ? "," : "", i, i, i);
    if (i) links += fmt::format(R"({}{{"a": {}, "b": "GPU-{}", "class": "NV18"}})", i > 1 ? "," : "", i - 1, i);
  }
  const Inventory inventory = read(host_of(R"("devices": [)" + devices + R"(], "links": [)" + links + "]"));
  assert_int_equal(inventory.devices.size(), kCount);
  assert_int_equal(inventory.hosts[0].links.size(), kCount - 1);
  assert_true(inventory_text(inventory).size() < size_t{kCount} * 300);  // no matrix of all with all
}

// ---- for people ----

void tables_show_what_there_is(void**) {
  const auto text_of = [](const char* name) {
    return inventory_text(load_inventory(fmt::format("{}/inventory/{}.json", getenv("GSEL_TEST_DATA"), name)));
  };
  const struct {
    const char *file, *part;
    bool there;
  } rows[] = {{"cpu", "uuid", false},         {"cpu", "links", false},
              {"a100x8", "tiles", false},     {"a100x8", "state", false},
              {"pvc4", "tiles", true},        {"gaudi8", "module", true},
              {"mig", "divided in 7", true},  {"mig", "instance gi 13 ci 0", true},
              {"mig", "MIG-", true},          {"two_hosts", "host worker-1\nindex", true},
              {"laptop", "integrated", true}, {"linked8", "\nlinks  0     1 ", true},
              {"linked8", "NV12", true},      {"mi300x8", "gfx942", true}};
  for (const auto& row : rows) {
    const std::string text = text_of(row.file);
    expect((text.find(row.part) != text.npos) == row.there,
           fmt::format("{} \"{}\"", row.there ? "to see" : "not to see", row.part), text);
  }
  const std::string states = inventory_text(read(devices_of(
      R"({"vendor": "nvidia", "name": "x", "compute_mode": "prohibited", "accessible": false, "reserved_by": 12})")));
  expect(states.find("not accessible, prohibited, reserved by process 12") != states.npos, "the states", states);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_field_of_a_device_is_read),
      cmocka_unit_test(what_is_not_told_is_unknown),
      cmocka_unit_test(hosts_have_their_own_indexes_and_links),
      cmocka_unit_test(known_products_fill_what_is_left_out),
      cmocka_unit_test(what_is_given_is_never_overruled),
      cmocka_unit_test(memory_counts_as_free_where_nothing_computes),
      cmocka_unit_test(every_known_product_is_found_by_its_name),
      cmocka_unit_test(links_without_figures_get_typical_ones),
      cmocka_unit_test(what_cannot_be_read_one_way_is_refused_by_its_path),
      cmocka_unit_test(a_refusal_has_the_line_of_its_field),
      cmocka_unit_test(writing_and_reading_agree),
      cmocka_unit_test(damaged_text_is_an_inventory_or_an_error),
      cmocka_unit_test(long_lists_are_read_whole),
      cmocka_unit_test(tables_show_what_there_is),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
