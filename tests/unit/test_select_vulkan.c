/* unit/test_select_vulkan.c: the numbers of Vulkan: GGML_VK_VISIBLE_DEVICES as ggml's backend reads it, the variables
 * that act inside the enumeration, and the enumeration itself over a double of the loader. */
#include <stdlib.h>
#include <sys/wait.h>

#include "support/emission.h"

#define GGML "ggml/src/ggml-vulkan/ggml-vulkan.cpp, ggml_vk_instance_init"
#define MESA "Mesa, src/vulkan/device-select-layer/device_select_layer.c"
#define LOADER "KhronosGroup/Vulkan-Loader, docs/LoaderInterfaceArchitecture.md"
#define DESK .machine = "vulkan", .compat = "vulkan"
#define MASK "GGML_VK_VISIBLE_DEVICES="

/* The machine "vulkan", by bus: 0 an RTX 3060, 1 an RX 7900 XTX, 2 a processor's GPU, 3 the CPU. Vulkan enumerates 0
 * the processor's GPU, 1 the RTX, 2 and 3 the RX under AMDVLK and RADV, 4 llvmpipe. */
static const struct selection_row rows[] = {
    {GGML ": every GPU; RADV before AMDVLK, at the end", DESK, .chosen = "2,0,1", .warning = "-"},
    {GGML, DESK, .env = MASK "1", .chosen = "0", .warning = "-"},
    {GGML, DESK, .env = MASK "3,1", .chosen = "1,0", .warning = "-"},
    {GGML ": blanks separate, too", DESK, .env = MASK " 1  3", .chosen = "0,1", .warning = "-"},
    {GGML ": empty fields are nothing", DESK, .env = MASK ",,1,", .chosen = "0"},
    {GGML ": the CPU, when it is named", DESK, .env = MASK "4", .chosen = "3"},
    {GGML ": one card as two devices", DESK, .env = MASK "2,3", .chosen = "1",
     .warning = "the card of index 2 under another driver"},
    {GGML ": twice", DESK, .env = MASK "1,1", .chosen = "0", .warning = "DUPLICATE"},
    {GGML ": an empty list", DESK, .env = MASK, .chosen = "", .warning = "Found 0 Vulkan devices"},
    {GGML ": past the end throws", DESK, .env = MASK "1,5", .code = GSEL_ERR_OUT_OF_RANGE, .token = "5", .column = 3,
     .message = "runtime_error: Invalid Vulkan device index; Vulkan enumerates 5 devices, 0 to 4",
     .input = "GGML_VK_VISIBLE_DEVICES"},
    {GGML ": -1 is the largest size_t", DESK, .env = MASK "-1", .code = GSEL_ERR_OUT_OF_RANGE, .token = "-1",
     .column = 1},
    {GGML ": no number ends the list", DESK, .env = MASK "x,1", .chosen = ""},
    {GGML ": a uuid is no number", DESK, .env = MASK "GPU-3b5e9a10", .chosen = ""},
    {GGML ": what follows the digits ends it", DESK, .env = MASK "1x,3", .chosen = "0", .warning = "SYNTAX"},
    {GGML ": decimal alone", DESK, .env = MASK "0x1,3", .chosen = "2"},
    {GGML ": a sign", DESK, .env = MASK "+1", .chosen = "0", .warning = "SYNTAX"},
    {"ollama issue 16508", DESK, .env = "CUDA_VISIBLE_DEVICES=0", .chosen = "2,0,1",
     .warning = "CUDA_VISIBLE_DEVICES=0: hides nothing from Vulkan programs"},
    {"a request over what is left", DESK, .devices = "uuid:GPU-7d2f", .chosen = "1"},
    {"a request over what is left", DESK, .devices = "visible:0", .env = MASK "3,1", .chosen = "1"},
    {"a request over what is left", DESK, .devices = "uuid:GPU-7d2f", .env = MASK "1", .code = GSEL_ERR_CONFLICT},
    /* Inside the enumeration. */
    {MESA, DESK, .env = "MESA_VK_DEVICE_SELECT=1002:164e", .chosen = "2,0,1", .warning = "-"},
    {MESA, DESK, .env = "MESA_VK_DEVICE_SELECT=igpu", .chosen = "2,0,1", .warning = "-"},
    {MESA, DESK, .env = "MESA_VK_DEVICE_SELECT=10de:2504", .chosen = "2,0,1",
     .warning = "does not begin with such a device"},
    {MESA ": not read", DESK, .env = "MESA_VK_DEVICE_SELECT=nvidia", .chosen = "2,0,1", .warning = "-"},
    {MESA ": exit(0)", DESK, .env = "MESA_VK_DEVICE_SELECT=list", .code = GSEL_ERR_CONFLICT, .token = "list",
     .column = 1},
    {LOADER, DESK, .env = "VK_LOADER_DEVICE_SELECT=0x1002:0x164e", .chosen = "2,0,1", .warning = "-"},
    {LOADER, DESK, .env = "VK_DRIVER_FILES=/x.json", .chosen = "2,0,1", .warning = "-"},
    /* Nothing is guessed. */
    {"an inventory without an enumeration", .machine = "l4x4", .compat = "vulkan", .code = GSEL_ERR_NO_DEVICES,
     .message = "the inventory does not tell what Vulkan enumerates; gsel devices --vulkan lists it"},
    {"strict reading does not look at it", .machine = "vulkan", .devices = "cuda", .env = MASK "0", .chosen = "0"},
};

static void the_mask_is_read_as_ggml_reads_it(void** state) {
  (void)state;
  CHECK_ROWS(rows);
}

static const struct emission_row emitted[] = {
    {{DESK, .devices = "all"}, MASK "0,1,3", NULL},
    {{DESK, .devices = "uuid:GPU-7d2f"}, MASK "3", NULL},
    {{DESK, .devices = "uuid:GPU-7d2f", .env = MASK "2"}, MASK "3", NULL}, /* of two drivers the preferred one */
    {{DESK, .devices = "none"}, MASK, NULL},
};

static void a_child_gets_indexes_of_the_enumeration(void** state) {
  (void)state;
  CHECK_EMISSION(emitted);
}

/* Which card is Vulkan1, and which number has that card elsewhere? */
static void each_number_is_explained(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_selection* selection = NULL;
  gsel_inventory* inventory = machine("vulkan");
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.inventory = inventory;
  options.compat = gsel_str_from("vulkan");
  options.flags = GSEL_RESOLVE_NO_ENV;
  check_ok(gsel_resolve(&options, &selection, &err), err);
  const char* text = gsel_selection_text(selection).data;
  static const char* const parts[] = {
      "position 1 of what vulkan sees: Vulkan1, index 1",
      "position 2 of what vulkan sees: Vulkan2, index 3",
      "ggml: index \"1\" at column 1 became Vulkan1, device 0 (GPU-3b5e9a10-0c44-4f0e-9d0a-2f6a1d7c9e01): unset, "
      "GGML_VK_VISIBLE_DEVICES is every GPU: NVIDIA GeForce RTX 3060 (NVIDIA), discrete, 00000000:01:00.0\n",
      "ggml: index \"2\" at column 1 became nothing: the card of index 3 under another driver, of which ggml takes "
      "one\n",
      "ggml: index \"4\" at column 1 became nothing: a renderer on the CPU, which ggml takes only when it is named\n",
      "env: GGML_VK_VISIBLE_DEVICES=0,1,3\n",
  };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i)
    if (!strstr(text, parts[i])) fail_msg("expected \"%s\" in\n%s", parts[i], text);
  gsel_selection_free(selection);
  text = gsel_inventory_text(inventory).data;
  assert_non_null(
      strstr(text, "Vulkan 3: AMD Radeon RX 7900 XTX (RADV NAVI31) (radv), discrete, 00000000:03:00.0: device 1 ("));
  assert_non_null(strstr(text, "Vulkan 4: llvmpipe (LLVM 15.0.6, 256 bits) (llvmpipe), cpu: device 3"));
  gsel_inventory_free(inventory);
}

/* ---- the enumeration, over doubles of Vulkan's loader and of NVML ---- */

static void set_path(const char* name, const char* variable, const char* file) {
  char path[1024];
  snprintf(path, sizeof path, "%s%s", getenv(variable), file);
  setenv(name, path, 1);
}

static void be_on_machine(const char* scenario) {
  set_path("GSEL_VULKAN_LIBRARY", "GSEL_TEST_BIN", "/tests/fixtures/fake_vulkan.so");
  set_path("GSEL_NVML_LIBRARY", "GSEL_TEST_BIN", "/tests/fixtures/fake_nvml.so");
  set_path("GSEL_SYSFS_ROOT", "GSEL_TEST_DATA", "/machines/nothing");
  setenv("GSEL_FAKE_VULKAN", scenario, 1);
}

static void check_detected(const char* scenario, const char* part) {
  gsel_error* err = NULL;
  gsel_inventory *inventory = NULL, *again = NULL;
  be_on_machine(scenario);
  check_ok(gsel_inventory_detect(&inventory, &err), err);
  const gsel_str json = gsel_inventory_json(inventory);
  check_ok(gsel_inventory_parse(json, gsel_str_from("again"), &again, &err), err);
  assert_string_equal(json.data, gsel_inventory_json(again).data);
  const char* text = gsel_inventory_text(inventory).data;
  if (!strstr(text, part)) fail_msg("%s: expected \"%s\" in\n%s", scenario, part, text);
  gsel_inventory_free(inventory);
  gsel_inventory_free(again);
}

#define A100 "device 0 (GPU-11111111-0000-0000-0000-000000000000)" /* of fixtures/fake_nvml.c: bus 0a */
#define H100 "device 1 (GPU-22222222-0000-0000-0000-000000000000)" /* bus ab */

static void what_vulkan_enumerates_is_matched_by_bus_address_or_uuid(void** state) {
  (void)state;
  static const char both[] = "Vulkan 0: NVIDIA H100 80GB HBM3 (NVIDIA), discrete, 00000000:ab:00.0: " H100
                             "\nVulkan 1: NVIDIA A100-SXM4-40GB (NVIDIA), discrete, 00000000:0a:00.0: " A100
                             "\nVulkan 2: llvmpipe (LLVM 15.0.6, 256 bits) (llvmpipe), cpu: device 2";
  setenv("GSEL_VULKAN", "1", 1);
  check_detected("", both);
  check_detected("no_pci", "Vulkan 0: NVIDIA H100 80GB HBM3 (NVIDIA), discrete: " H100);
  check_detected("two_drivers", "Vulkan 1: NVIDIA H100 80GB HBM3 (NVIDIA), discrete, 00000000:ab:00.0: " H100);
  check_detected("no_devices", "Vulkan: no devices\n");
  check_detected("no_driver", "note: Vulkan: vkCreateInstance gave -9: no driver is installed");
  check_detected("lost", "note: Vulkan: vkEnumeratePhysicalDevices gave -3");
  setenv("MESA_VK_DEVICE_SELECT", "list", 1); /* the double ends a process that enumerates then */
  check_detected("", "note: Vulkan: MESA_VK_DEVICE_SELECT=list makes Mesa's layer end the process");
  unsetenv("MESA_VK_DEVICE_SELECT");
  unsetenv("GSEL_VULKAN");
}

static void vulkan_is_asked_only_by_those_who_want_to_know(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_inventory* inventory = NULL;
  be_on_machine("");
  check_ok(gsel_inventory_detect(&inventory, &err), err);
  assert_null(strstr(gsel_inventory_text(inventory).data, "Vulkan"));
  gsel_inventory_free(inventory);
}

static void check_resolved(const char* scenario, const char* devices, const char* index, const char* uuid) {
  gsel_error* err = NULL;
  gsel_selection* selection = NULL;
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  const gsel_env_var* variables = NULL;
  size_t n = 0;
  be_on_machine(scenario);
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.compat = gsel_str_from("vulkan");
  if (devices) options.devices = gsel_str_from(devices);
  check_ok(gsel_resolve(&options, &selection, &err), err);
  check_ok(gsel_selection_device(selection, 0, &info, &err), err);
  assert_string_equal(info.uuid.data, uuid);
  check_ok(gsel_selection_env(selection, 0, &variables, &n, &err), err);
  assert_int_equal(n, 1);
  assert_string_equal(variables[0].name.data, "GGML_VK_VISIBLE_DEVICES");
  assert_string_equal(variables[0].value.data, index);
  gsel_selection_free(selection);
}

static void a_card_has_another_number_for_vulkan_than_for_cuda(void** state) {
  (void)state;
  setenv("GGML_VK_VISIBLE_DEVICES", "1", 1);
  check_resolved("", NULL, "1", "GPU-11111111-0000-0000-0000-000000000000");
  setenv("MESA_VK_DEVICE_SELECT", "10de:20b0", 1); /* the A100 comes first, and 1 is the other card */
  check_resolved("", NULL, "1", "GPU-22222222-0000-0000-0000-000000000000");
  setenv("GGML_VK_VISIBLE_DEVICES", "0", 1);
  setenv("MESA_VK_DEVICE_SELECT", "10de:20b0!", 1);
  check_resolved("", NULL, "0", "GPU-11111111-0000-0000-0000-000000000000");
  unsetenv("GGML_VK_VISIBLE_DEVICES");
  unsetenv("MESA_VK_DEVICE_SELECT");
  check_resolved("", "uuid:GPU-1", "1", "GPU-11111111-0000-0000-0000-000000000000");
  check_resolved("two_drivers", "uuid:GPU-2", "1", "GPU-22222222-0000-0000-0000-000000000000"); /* not by NVK */
}

static void why_there_is_no_enumeration_is_told(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_selection* selection = NULL;
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.compat = gsel_str_from("vulkan");
  be_on_machine("no_driver");
  check_fails(
      gsel_resolve(&options, &selection, &err), err, GSEL_ERR_NO_DEVICES,
      "compat=vulkan: the inventory does not tell what Vulkan enumerates (vkCreateInstance gave -9: no driver is "
      "installed, or VK_DRIVER_FILES names none)");
  unsetenv("GSEL_VULKAN_LIBRARY"); /* a recorded machine has no library of this one */
  check_fails(gsel_resolve(&options, &selection, &err), err, GSEL_ERR_NO_DEVICES, "(libvulkan.so.1 of version 1.1");
}

static void the_command_lists_it(void** state) {
  (void)state;
  char text[4096];
  be_on_machine("");
  FILE* out = popen("\"$GSEL_TEST_BIN/bin/gsel\" devices --vulkan", "r");
  assert_non_null(out);
  text[fread(text, 1, sizeof text - 1, out)] = '\0';
  assert_int_equal(pclose(out), 0);
  if (!strstr(text, "Vulkan 1: NVIDIA A100-SXM4-40GB (NVIDIA), discrete, 00000000:0a:00.0: " A100))
    fail_msg("%s", text);
  const int status = system(
      "\"$GSEL_TEST_BIN/bin/gsel\" devices --vulkan --inventory \"$GSEL_TEST_DATA/inventory/l4x4.json\" 2> /dev/null");
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_mask_is_read_as_ggml_reads_it),
      cmocka_unit_test(a_child_gets_indexes_of_the_enumeration),
      cmocka_unit_test(each_number_is_explained),
      cmocka_unit_test(what_vulkan_enumerates_is_matched_by_bus_address_or_uuid),
      cmocka_unit_test(vulkan_is_asked_only_by_those_who_want_to_know),
      cmocka_unit_test(a_card_has_another_number_for_vulkan_than_for_cuda),
      cmocka_unit_test(why_there_is_no_enumeration_is_told),
      cmocka_unit_test(the_command_lists_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
