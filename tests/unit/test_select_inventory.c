/* unit/test_select_inventory.c: machines in and out of text, and the probes of this one, NVML by a test double. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/check.h"
#include "support/scratch.h"

#define FAKE_HOOK "GSEL_NVML_LIBRARY"

static const char* const recorded[] = {"a100x8", "mixed4", "cpu"};

static void a_recorded_machine_survives_the_way_through_json(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof recorded / sizeof *recorded; ++i) {
    char path[1024];
    snprintf(path, sizeof path, "%s/inventory/%s.json", getenv("GSEL_TEST_DATA"), recorded[i]);
    gsel_inventory *first = NULL, *second = NULL;
    gsel_error* err = NULL;
    gsel_status status = gsel_inventory_load(gsel_str_from(path), &first, &err);
    check_ok(status, err);
    status = gsel_inventory_parse(gsel_inventory_json(first), gsel_str_from("again"), &second, &err);
    check_ok(status, err);
    assert_string_equal(gsel_inventory_json(first).data, gsel_inventory_json(second).data);
    gsel_inventory_free(first);
    gsel_inventory_free(second);
  }
}

static void every_field_of_a_device_is_read(void** state) {
  (void)state;
  static const char text[] =
      "{\"gsel_inventory\": 1, \"hosts\": [{\"name\": \"h\", \"devices\": ["
      "{\"vendor\": \"nvidia\", \"name\": \"N\", \"uuid\": \"GPU-1\", \"pci\": \"0001:3B:00.0\", \"memory_bytes\": 10,"
      " \"free_bytes\": 9, \"compute_capability\": \"12.1\", \"multiprocessors\": 7, \"process_count\": 2, \"numa\": "
      "3},"
      "{\"vendor\": \"cpu\", \"name\": \"C\", \"memory_bytes\": 18446744073709551615, \"cores\": 5}]}],"
      " \"notes\": [\"looked\"]}";
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_inventory_parse(gsel_str_from(text), gsel_str_from("text"), &inventory, &err);
  check_ok(status, err);
  assert_int_equal(gsel_inventory_device_count(inventory), 2);
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  assert_int_equal(gsel_inventory_device(inventory, 0, &info, NULL), GSEL_OK);
  assert_int_equal(info.index, 0);
  assert_int_equal(info.numa, 3);
  assert_string_equal(info.vendor.data, "nvidia");
  assert_string_equal(info.name.data, "N");
  assert_string_equal(info.uuid.data, "GPU-1");
  assert_string_equal(info.pci.data, "00000001:3b:00.0");
  assert_int_equal(info.memory_bytes, 10);
  assert_int_equal(info.free_bytes, 9);
  assert_int_equal(info.capability_major, 12);
  assert_int_equal(info.capability_minor, 1);
  assert_int_equal(info.compute_units, 7);
  assert_int_equal(info.process_count, 2);
  assert_int_equal(gsel_inventory_device(inventory, 1, &info, NULL), GSEL_OK);
  assert_true(info.memory_bytes == UINT64_MAX);
  assert_int_equal(info.compute_units, 5);
  assert_int_equal(info.numa, -1);
  assert_int_equal(info.process_count, -1);
  assert_non_null(strstr(gsel_inventory_text(inventory).data, "note: looked\n"));
  gsel_inventory_free(inventory);
}

#define HOST(devices) "{\"gsel_inventory\": 1, \"hosts\": [{\"name\": \"h\", \"devices\": [" devices "]}]}"
#define GPU(uuid, pci, more) \
  "{\"vendor\": \"nvidia\", \"name\": \"N\", \"uuid\": \"" uuid "\", \"pci\": \"" pci "\"" more "}"
#define CPU "{\"vendor\": \"cpu\", \"name\": \"C\"}"
#define BUS "0000:01:00.0"

static const struct {
  const char* text;
  int line, column; /* 0 beside a line: where the path leads */
  const char* path; /* the token of the error */
  const char* message;
} malformed[] = {
    {"", 1, 1, "", "not JSON"},
    {"{", 1, 2, "", "not JSON"},
    {"{\n  \"gsel_inventory\": 1,\n  hosts: []\n}", 3, 3, "", "line 3, column 3"},
    {"{\"gsel_inventory\": 1} x", 1, 23, "", "not JSON"},
    {"{\"gsel_inventory\": 1, \"hosts\": [], \"a\": \"\xff\"}", 1, 42, "", "not JSON"},
    {"{\"gsel_inventory\": 1e999}", 0, 0, "", "too large"},
    {"[]", 0, 0, "", "an object is needed"},
    {"null", 0, 0, "", "an object is needed"},
    {"{}", 1, 0, "gsel_inventory", "is missing"},
    {"{\"gsel_inventory\": 2, \"hosts\": []}", 1, 0, "gsel_inventory", "from 1 to 1"},
    {"{\"gsel_inventory\": \"1\"}", 1, 0, "gsel_inventory", "(string)"},
    {"{\"gsel_inventory\": 1}", 1, 0, "hosts", "is missing"},
    {"{\"gsel_inventory\": 1, \"hosts\": []}", 1, 0, "hosts", "is empty"},
    {"{\"gsel_inventory\": 1, \"hosts\": {}}", 1, 0, "hosts", "an array is needed"},
    {"{\"gsel_inventory\": 1, \"host\": []}", 1, 0, "host", "known are gsel_inventory, hosts, notes"},
    {"{\"gsel_inventory\": 1, \"gsel_inventory\": 1}", 0, 0, "gsel_inventory", "twice"},
    {"{\"gsel_inventory\": 1, \"hosts\": [3]}", 1, 0, "hosts[0]", "an object is needed"},
    {"{\"gsel_inventory\": 1, \"hosts\": [{}]}", 1, 0, "hosts[0].name", "is missing"},
    {"{\"gsel_inventory\": 1, \"hosts\": [{\"name\": \"a\"}], \"notes\": [1]}", 1, 0, "notes[0]", "text is needed"},
    {HOST("{}"), 1, 0, "hosts[0].devices[0].vendor", "is missing"},
    {HOST("{\"vendor\": \"nvidia\"}"), 1, 0, "hosts[0].devices[0].name", "is missing"},
    {HOST("{\"vendor\": \"cpu\", \"name\": \"a\\nb\"}"), 1, 0, "hosts[0].devices[0].name", "control character"},
    {HOST(GPU("3", BUS, "")), 1, 0, "hosts[0].devices[0].uuid", "begins with GPU-"},
    {HOST(GPU("GPU-1", "01:00.0", "")), 1, 0, "hosts[0].devices[0].pci", "an address such as"},
    {HOST(GPU("GPU-1", "0000:0g:00.0", "")), 1, 0, "hosts[0].devices[0].pci", "an address such as"},
    {HOST(GPU("GPU-1", BUS, ", \"memory\": 1")), 1, 0, "hosts[0].devices[0].memory", "not a known field"},
    {HOST(GPU("GPU-1", BUS, ", \"cores\": 1")), 1, 0, "hosts[0].devices[0].cores", "not a known field"},
    {HOST(GPU("GPU-1", BUS, ", \"memory_bytes\": \"80 GB\"")), 1, 0, "hosts[0].devices[0].memory_bytes", "\"80 GB\""},
    {HOST(GPU("GPU-1", BUS, ", \"memory_bytes\": -1")), 1, 0, "hosts[0].devices[0].memory_bytes", "whole number"},
    {HOST(GPU("GPU-1", BUS, ", \"memory_bytes\": 1.5")), 1, 0, "hosts[0].devices[0].memory_bytes", "whole number"},
    {HOST(GPU("GPU-1", BUS, ", \"free_bytes\": 1")), 1, 0, "hosts[0].devices[0].free_bytes", "more than memory_bytes"},
    {HOST(GPU("GPU-1", BUS, ", \"numa\": 2147483648")), 1, 0, "hosts[0].devices[0].numa", "to 2147483647"},
    {HOST(GPU("GPU-1", BUS, ", \"compute_capability\": 9.0")), 1, 0, "hosts[0].devices[0].compute_capability", "text"},
    {HOST(GPU("GPU-1", BUS, ", \"compute_capability\": \"9\"")), 1, 0, "hosts[0].devices[0].compute_capability",
     "\"9.0\""},
    {HOST(GPU("GPU-1", BUS, ", \"compute_capability\": \"9.-1\"")), 1, 0, "hosts[0].devices[0].compute_capability", ""},
    {HOST(GPU("GPU-1", BUS, "") "," GPU("GPU-2", BUS, "")), 1, 0, "hosts[0].devices[1].pci", "bus order"},
    {HOST(GPU("GPU-1", "0000:02:00.0", "") "," GPU("GPU-2", BUS, "")), 1, 0, "hosts[0].devices[1].pci", "bus order"},
    {HOST(GPU("GPU-1", BUS, "") "," GPU("GPU-1", "0000:02:00.0", "")), 1, 0, "hosts", "GPU-1 twice"},
    {HOST(CPU "," GPU("GPU-1", BUS, "")), 1, 0, "hosts[0].devices[0]", "is a CPU before another device"},
    {HOST(CPU "," CPU), 1, 0, "hosts[0].devices[0]", "list one CPU, as the last device"},
    {"{\"gsel_inventory\": 1, \"hosts\": [{\"name\": \"a\", \"devices\": [" CPU "]}, {\"name\": \"a\"}]}", 1, 0,
     "hosts[1].name", "a host before"},
};

/* At the name of the field, at the item, or at the object that lacks the field. */
static int is_at(const char* text, const char* path, int column) {
  if (column < 1 || column > (int)strlen(text)) return 0;
  const char *at = text + column - 1, *dot = strrchr(path, '.'), *field = dot ? dot + 1 : path;
  return *at == '{' || path[strlen(path) - 1] == ']' || (*at == '"' && !strncmp(at + 1, field, strlen(field)));
}

static void malformed_text_is_refused_with_its_place(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof malformed / sizeof *malformed; ++i) {
    gsel_inventory* inventory = NULL;
    gsel_error* err = NULL;
    const gsel_status status =
        gsel_inventory_parse(gsel_str_from(malformed[i].text), gsel_str_from("m.json"), &inventory, &err);
    assert_null(inventory);
    const char* message = gsel_error_message(err).data;
    if (status != GSEL_ERR_PARSE || gsel_error_line(err) != malformed[i].line ||
        !(gsel_error_column(err) == malformed[i].column ||
          (malformed[i].line && !malformed[i].column &&
           is_at(malformed[i].text, malformed[i].path, (int)gsel_error_column(err)))) ||
        strcmp(gsel_error_token(err).data, malformed[i].path) || strcmp(gsel_error_file(err).data, "m.json") ||
        !strstr(message, malformed[i].message) || strchr(message, '\n'))
      fail_msg("%s\n  expected line %d, column %d, path %s, \"%s\"\n  got %s line %d, column %d, path %s: %s",
               malformed[i].text, malformed[i].line, malformed[i].column, malformed[i].path, malformed[i].message,
               gsel_status_name(status), (int)gsel_error_line(err), (int)gsel_error_column(err),
               gsel_error_token(err).data, message);
    gsel_error_free(err);
  }
}

static void a_tower_of_brackets_is_refused(void** state) {
  (void)state;
  enum { DEPTH = 1000000 };
  char* text = malloc(DEPTH + 64);
  const int length = sprintf(text, "{\"gsel_inventory\": 1, \"hosts\": ");
  memset(text + length, '[', DEPTH);
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  const gsel_str all = {text, (size_t)length + DEPTH};
  check_fails(gsel_inventory_parse(all, gsel_str_from("m.json"), &inventory, &err), err, GSEL_ERR_PARSE, "deep");
  free(text);
}

static void every_cut_of_a_machine_is_refused(void** state) {
  (void)state;
  static const char text[] = HOST(GPU("GPU-1", BUS, ", \"memory_bytes\": 10") "," CPU);
  for (size_t length = 0; length + 1 < sizeof text; ++length) {
    gsel_inventory* inventory = NULL;
    gsel_error* err = NULL;
    const gsel_str cut = {text, length};
    check_fails(gsel_inventory_parse(cut, gsel_str_from("cut"), &inventory, &err), err, GSEL_ERR_PARSE, "cut: ");
  }
}

static void unreadable_files_are_named(void** state) {
  (void)state;
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  check_fails(gsel_inventory_load(gsel_str_from("/nonexistent/i.json"), &inventory, &err), err, GSEL_ERR_IO,
              "/nonexistent/i.json");
  check_fails(gsel_inventory_load(gsel_str_from("/"), &inventory, &err), err, GSEL_ERR_IO, "not a regular file");
  check_fails(gsel_inventory_load(gsel_str_from("/dev/zero"), &inventory, &err), err, GSEL_ERR_IO,
              "not a regular file");
  check_fails(gsel_inventory_load(gsel_str_from(""), &inventory, &err), err, GSEL_ERR_ARG, "is empty");
  const gsel_str cut = {"a\0b", 3};
  check_fails(gsel_inventory_load(cut, &inventory, &err), err, GSEL_ERR_ARG, "NUL byte");
  check_fails(gsel_inventory_load(gsel_str_from(NULL), &inventory, &err), err, GSEL_ERR_ARG, "path is NULL");
}

static void check_names_file(gsel_status status, gsel_status code, gsel_error* err, const char* path) {
  assert_int_equal(status, code);
  assert_string_equal(gsel_error_file(err).data, path);
  assert_non_null(strstr(gsel_error_message(err).data, path));
  gsel_error_free(err);
}

static void errors_name_the_file_by_its_whole_path(void** state) {
  (void)state;
  char folder[256], path[512], before[512];
  assert_true(make_scratch(folder, sizeof folder, "inventory"));
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(folder), 0);
  assert_non_null(getcwd(folder, sizeof folder));
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;

  snprintf(path, sizeof path, "%s/missing.json", folder);
  gsel_status status = gsel_inventory_load(gsel_str_from("missing.json"), &inventory, &err);
  check_names_file(status, GSEL_ERR_IO, err, path);

  snprintf(path, sizeof path, "%s/pipe", folder);
  assert_int_equal(mkfifo("pipe", 0600), 0);
  status = gsel_inventory_load(gsel_str_from("pipe"), &inventory, &err); /* waits for nobody */
  check_names_file(status, GSEL_ERR_IO, err, path);

  snprintf(path, sizeof path, "%s/big", folder);
  assert_int_equal(close(creat("big", 0600)), 0);
  assert_int_equal(truncate("big", 17 << 20), 0);
  status = gsel_inventory_load(gsel_str_from("./big"), &inventory, &err);
  check_names_file(status, GSEL_ERR_IO, err, path);

  snprintf(path, sizeof path, "%s/deep", folder);
  FILE* file = fopen("deep", "w");
  assert_non_null(file);
  for (int i = 0; i < 40; ++i) fputc('[', file);
  assert_int_equal(fclose(file), 0);
  status = gsel_inventory_load(gsel_str_from("deep"), &inventory, &err);
  check_names_file(status, GSEL_ERR_PARSE, err, path);

  unlink("pipe");
  unlink("big");
  unlink("deep");
  assert_int_equal(chdir(before), 0);
  assert_int_equal(rmdir(folder), 0);
}

static void hosts_stand_one_after_the_other(void** state) {
  (void)state;
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  const gsel_status status =
      gsel_inventory_parse(gsel_str_from("{\"gsel_inventory\": 1, \"hosts\": [{\"name\": \"a\", \"devices\": [" CPU
                                         "]}, {\"name\": \"b\", \"devices\": [" GPU("GPU-1", BUS, "") "," CPU "]}]}"),
                           gsel_str_from("two"), &inventory, &err);
  check_ok(status, err);
  assert_int_equal(gsel_inventory_device_count(inventory), 3);
  assert_non_null(strstr(gsel_inventory_text(inventory).data, "host b\n"));
  gsel_inventory_free(inventory);
}

/* ---- probes ---- */

static void use_library(const char* path, const char* scenario) {
  setenv(FAKE_HOOK, path, 1);
  setenv("GSEL_FAKE_NVML", scenario, 1);
}

static gsel_status detect_with_fake(const char* scenario, gsel_inventory** inventory, gsel_error** err) {
  char path[1024];
  snprintf(path, sizeof path, "%s/tests/fixtures/fake_nvml.so", getenv("GSEL_TEST_BIN"));
  use_library(path, scenario);
  const gsel_status status = gsel_inventory_detect(inventory, err);
  unsetenv(FAKE_HOOK);
  return status;
}

static gsel_inventory* detected(const char* scenario) {
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  const gsel_status status = detect_with_fake(scenario, &inventory, &err);
  check_ok(status, err);
  return inventory;
}

static void check_nvidia(const gsel_inventory* inventory, int32_t index, const char* uuid, const char* pci, int major,
                         int units, int processes) {
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  assert_int_equal(gsel_inventory_device(inventory, index, &info, NULL), GSEL_OK);
  assert_string_equal(info.vendor.data, "nvidia");
  assert_string_equal(info.uuid.data, uuid);
  assert_string_equal(info.pci.data, pci);
  assert_int_equal(info.capability_major, major);
  assert_int_equal(info.compute_units, units);
  assert_int_equal(info.process_count, processes);
  assert_true(info.memory_bytes > info.free_bytes && info.free_bytes > 0);
}

static void nvml_devices_come_in_bus_order_and_the_cpu_last(void** state) {
  (void)state;
  gsel_inventory* inventory = detected("");
  assert_int_equal(gsel_inventory_device_count(inventory), 3);
  check_nvidia(inventory, 0, "GPU-11111111-0000-0000-0000-000000000000", "00000000:0a:00.0", 8, 108, 0);
  check_nvidia(inventory, 1, "GPU-22222222-0000-0000-0000-000000000000", "00000000:ab:00.0", 9, 132, 3);
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  assert_int_equal(gsel_inventory_device(inventory, 2, &info, NULL), GSEL_OK);
  assert_string_equal(info.vendor.data, "cpu");
  gsel_inventory_free(inventory);
}

static void what_nvml_cannot_show_is_a_note(void** state) {
  (void)state;
  static const struct {
    const char *scenario, *note;
    int32_t devices;
  } rows[] = {{"driver_not_loaded", "driver is not loaded", 1},
              {"no_devices", "lists no NVIDIA devices", 1},
              {"no_permission", "device 0 may not be used", 2},
              {"mig_empty", "GPU-11111111-0000-0000-0000-000000000000 is in MIG mode and has no instances", 3}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    gsel_inventory* inventory = detected(rows[i].scenario);
    assert_int_equal(gsel_inventory_device_count(inventory), rows[i].devices);
    assert_non_null(strstr(gsel_inventory_json(inventory).data, rows[i].note));
    assert_non_null(strstr(gsel_inventory_text(inventory).data, rows[i].note));
    gsel_inventory_free(inventory);
  }
}

static void a_failing_driver_is_an_error_with_its_call(void** state) {
  (void)state;
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  check_fails(detect_with_fake("unknown_error", &inventory, &err), err, GSEL_ERR_IO,
              "nvmlInit_v2 failed: Unknown Error (999)");
  check_fails(detect_with_fake("gpu_is_lost", &inventory, &err), err, GSEL_ERR_IO,
              "nvmlDeviceGetName failed: GPU is lost (15)");
  use_library("fake_nvml.so", "");
  check_fails(gsel_inventory_detect(&inventory, &err), err, GSEL_ERR_ARG, "an absolute path is needed");
  use_library("/nonexistent/fake_nvml.so", "");
  check_fails(gsel_inventory_detect(&inventory, &err), err, GSEL_ERR_IO, "/nonexistent/fake_nvml.so");
  char path[1024];
  snprintf(path, sizeof path, "%s/lib/libgsel.so", getenv("GSEL_TEST_BIN"));
  use_library(path, "");
  check_fails(gsel_inventory_detect(&inventory, &err), err, GSEL_ERR_IO, "has no nvmlInit_v2");
  unsetenv(FAKE_HOOK);
}

static void the_cpu_of_this_machine_is_found(void** state) {
  (void)state;
  gsel_inventory* inventory = detected("no_devices");
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  assert_int_equal(gsel_inventory_device_count(inventory), 1);
  assert_int_equal(gsel_inventory_device(inventory, 0, &info, NULL), GSEL_OK);
  assert_string_equal(info.vendor.data, "cpu");
  assert_true(info.name.len > 0 && info.compute_units > 0 && info.memory_bytes > 0);
  assert_true(info.free_bytes <= info.memory_bytes);
  assert_int_equal(info.uuid.len, 0);
  gsel_inventory_free(inventory);
}

static void a_detected_machine_can_be_read_back(void** state) {
  (void)state;
  gsel_inventory *inventory = detected(""), *again = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_inventory_parse(gsel_inventory_json(inventory), gsel_str_from("again"), &again, &err);
  check_ok(status, err);
  assert_string_equal(gsel_inventory_json(inventory).data, gsel_inventory_json(again).data);
  gsel_inventory_free(inventory);
  gsel_inventory_free(again);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_recorded_machine_survives_the_way_through_json),
      cmocka_unit_test(every_field_of_a_device_is_read),
      cmocka_unit_test(malformed_text_is_refused_with_its_place),
      cmocka_unit_test(a_tower_of_brackets_is_refused),
      cmocka_unit_test(every_cut_of_a_machine_is_refused),
      cmocka_unit_test(unreadable_files_are_named),
      cmocka_unit_test(errors_name_the_file_by_its_whole_path),
      cmocka_unit_test(hosts_stand_one_after_the_other),
      cmocka_unit_test(nvml_devices_come_in_bus_order_and_the_cpu_last),
      cmocka_unit_test(what_nvml_cannot_show_is_a_note),
      cmocka_unit_test(a_failing_driver_is_an_error_with_its_call),
      cmocka_unit_test(the_cpu_of_this_machine_is_found),
      cmocka_unit_test(a_detected_machine_can_be_read_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
