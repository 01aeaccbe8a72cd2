// fake/cuda/test_mig.cc: MIG instances from the words of a user to the opened device: gsel_resolve over the double of
// NVML, the variables that it emits, the double of the driver under them, and the uuid that the plugin `cuda` then
// tells. A driver reads its variables once, so that each case has a process of its own.
#include <gsel/gsel.h>

#include <cstring>

#include "base/foreign.h"
#include "fake/cuda/children.h"
#include "support/fake_cuda.h"

namespace {

// Of fixtures/fake_nvml.c, scenario "mig": the first device on the bus is divided.
#define CARD "GPU-11111111-0000-0000-0000-000000000000"
#define FIRST "MIG-33333333-0000-0000-0000-000000000000"   // GPU instance 1, compute instance 0
#define SECOND "MIG-44444444-0000-0000-0000-000000000000"  // 9, 0

Settings machine(Settings more = {}) {
  more.insert({{"GSEL_NVML_LIBRARY", std::string(getenv("GSEL_TEST_BIN")) + "/tests/fixtures/fake_nvml.so"},
               {"GSEL_SYSFS_ROOT", std::string(getenv("GSEL_TEST_DATA")) + "/machines/nothing"},
               {"GSEL_FAKE_NVML", "mig"},
               {"GSEL_FAKE_CUDA_MIG", CARD ":" FIRST "," SECOND}});
  return more;
}

void stop_at(gsel_status status, gsel_error* err) {
  if (status == GSEL_OK) return;
  fprintf(stderr, "%s: %s\n", gsel_status_name(status), gsel_error_message(err).data);
  _exit(0);
}

// Sets what gsel_resolve emits for the request, and returns the uuid of the one selected.
std::string resolve(const char* devices) {
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.devices = gsel_str_from(devices);
  gsel_selection* selection = nullptr;
  gsel_error* err = nullptr;
  gsel_status status = gsel_resolve(&options, &selection, &err);
  stop_at(status, err);
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  status = gsel_selection_device(selection, 0, &info, &err);
  stop_at(status, err);
  const std::string uuid(info.partition_uuid.data, info.partition_uuid.len);
  const gsel_env_var* variables = nullptr;
  size_t n = 0;
  status = gsel_selection_env(selection, -1, &variables, &n, &err);
  stop_at(status, err);
  for (size_t i = 0; i < n; ++i) setenv(variables[i].name.data, variables[i].value.data, 1);
  gsel_selection_free(selection);
  return uuid;
}

// Opens by uuid, and says which device that is.
void open_and_tell(const char* uuid, int32_t ordinal = GSEL_DEVICE_BY_UUID) {
  const FakeCuda cuda;
  gsel_device_options options{};
  options.struct_size = sizeof options;
  options.ordinal = ordinal;
  options.uuid = gsel_str_from(uuid);
  void* ctx = nullptr;
  gsel_error* err = nullptr;
  gsel_status status = cuda.table->open(&gsel::host_services(), &options, &ctx, &err);
  stop_at(status, err);
  gsel_device_description told{};
  told.struct_size = sizeof told;
  status = cuda.table->describe(ctx, &told, &err);
  stop_at(status, err);
  fprintf(stderr, "opened %d, %.*s, %.*s\n", static_cast<int>(told.ordinal), static_cast<int>(told.uuid.len),
          told.uuid.data, static_cast<int>(told.name.len), told.name.data);
  cuda.table->close(ctx);
}

void test_what_is_resolved_is_what_is_opened(void**) {
  const struct {
    const char *mask, *devices;
  } ways[] = {
      {SECOND, "all"},
      {"MIG-44", "auto"},
      {"MIG-" CARD "/9/0", "cuda"},
      {"MIG-GPU-1/9/0", "all"},
      {SECOND "," FIRST, "visible:0"},
      {nullptr, "mig:" SECOND},
      {nullptr, "mig:mig-44"},
      {nullptr, "uuid:" SECOND},
      {nullptr, "mig:0.1"},
      {nullptr, "mig:1"},
      {nullptr, "mig:MIG-" CARD "/9/0"},
      {nullptr, "mig:" SECOND " | cpu"},
  };
  for (const auto& way : ways)
    expect(machine(way.mask ? Settings{{"CUDA_VISIBLE_DEVICES", way.mask}} : Settings{}),
           "opened 0, " SECOND ", fake GPU 0 MIG 3g.20gb", [&] {
             const std::string uuid = resolve(way.devices);
             if (strcmp(getenv("CUDA_VISIBLE_DEVICES"), SECOND) != 0)
               fprintf(stderr, "%s: CUDA_VISIBLE_DEVICES=%s\n", way.devices, getenv("CUDA_VISIBLE_DEVICES"));
             open_and_tell(uuid.c_str());
           });
}

void test_an_instance_is_opened_by_the_beginning_of_its_uuid(void**) {
  for (const char* named : {FIRST, "MIG-3", "mig-33333333-0000", "33333333"})
    expect(machine({{"CUDA_VISIBLE_DEVICES", FIRST}}), "opened 0, " FIRST, [&] { open_and_tell(named); });
  expect(machine({{"CUDA_VISIBLE_DEVICES", SECOND}}), "opened 0, " SECOND, [] { open_and_tell(SECOND, 0); });
}

// Both are named, and how to get the one that was asked for.
void test_another_instance_is_not_opened(void**) {
  const char* const both = "GSEL_ERR_NO_DEVICES: device " SECOND " was asked for; this process sees " FIRST " of " CARD
                           ": CUDA shows a process one MIG instance, the first that CUDA_VISIBLE_DEVICES names; start "
                           "this process with CUDA_VISIBLE_DEVICES=" SECOND;
  for (const char* mask : {"", FIRST, FIRST "," SECOND})
    expect(machine({{"CUDA_VISIBLE_DEVICES", mask}}), both, [] { open_and_tell(SECOND); });
  expect(machine({{"CUDA_VISIBLE_DEVICES", FIRST}}),
         "device " SECOND " was asked for; device 0 of this process is " FIRST " of " CARD,
         [] { open_and_tell(SECOND, 0); });
  expect(machine(),
         "device " CARD " was asked for; this process sees " FIRST " of " CARD
         ": that card is divided by MIG; name one of its instances",
         [] { open_and_tell(CARD); });
  expect(machine(),
         "device MIG-" CARD "/9/0 was asked for; this process sees " FIRST " of " CARD
         ": the driver tells MIG instances by uuid alone; gsel resolve --devices mig:MIG-" CARD "/9/0 prints",
         [] { open_and_tell("MIG-" CARD "/9/0"); });
}

// Should a driver show several, each is found.
void test_a_driver_may_show_several_instances(void**) {
  const Settings several{{"GSEL_FAKE_CUDA_MIG_SHOWS", "2"}};
  expect(machine(several), "opened 1, " SECOND, [] { open_and_tell(SECOND); });
  expect(machine(several), "opened 0, " FIRST, [] { open_and_tell(FIRST); });
  expect(machine(several),
         "GSEL_ERR_AMBIGUOUS: device MIG- was asked for, with which the uuids of devices 0 and 1 begin: ", [] {
           open_and_tell("MIG-");
         });
}

// A driver that does not have the call of before 11.4 for the card's uuid: the name of the device says what it is.
void test_the_name_says_that_it_is_an_instance(void**) {
  expect(machine({{"GSEL_FAKE_CUDA_LACKS", "cuDeviceGetUuid(9020)"}}),
         "this process sees " FIRST " of a card that the driver does not name: CUDA shows a process one MIG instance",
         [] { open_and_tell(SECOND); });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_what_is_resolved_is_what_is_opened),
      cmocka_unit_test(test_an_instance_is_opened_by_the_beginning_of_its_uuid),
      cmocka_unit_test(test_another_instance_is_not_opened),
      cmocka_unit_test(test_a_driver_may_show_several_instances),
      cmocka_unit_test(test_the_name_says_that_it_is_an_instance),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
