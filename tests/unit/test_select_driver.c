/* unit/test_select_driver.c: a mask that is set after the CUDA driver of this process came up does nothing (NVIDIA CUDA
 * programming guide, CUDA_VISIBLE_DEVICES; pytorch issues 9158 and 80876), so a selection by it would be wrong and is
 * refused. The driver and NVML are doubles; the driver stands loaded, as in a program that links to CUDA. */
#include <dlfcn.h>
#include <stdlib.h>

#include "support/check.h"

#define H100 "GPU-22222222-0000-0000-0000-000000000000" /* of fixtures/fake_nvml.c: bus AB, the faster */
#define A100 "GPU-11111111-0000-0000-0000-000000000000" /* bus 0A */
#define MIG "MIG-33333333-0000-0000-0000-000000000000"  /* of the scenario "mig" */
#define OTHER_MIG "MIG-44444444-0000-0000-0000-000000000000"

static void set(const char* name, const char* value) {
  value ? setenv(name, value, 1) : unsetenv(name);
}

static void load_doubles(void) {
  char path[1024];
  snprintf(path, sizeof path, "%s/tests/fixtures/fake_nvml.so", getenv("GSEL_TEST_BIN"));
  set("GSEL_NVML_LIBRARY", path);
  snprintf(path, sizeof path, "%s/machines/nothing", getenv("GSEL_TEST_DATA"));
  set("GSEL_SYSFS_ROOT", path);
  snprintf(path, sizeof path, "%s/tests/fixtures/fake_cuda.so", getenv("GSEL_TEST_BIN"));
  assert_non_null(dlopen(path, RTLD_NOW));
  assert_non_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)); /* as gsel looks for it */
}

struct row {
  const char* driver; /* what it sees; NULL: it is not up */
  const char *mask, *order, *nvml;
  const char* refused; /* a part of the message; NULL: it succeeds */
};

static const struct row rows[] = {
    /* Not up: any mask can still take effect. */
    {NULL, NULL, NULL, "", NULL},
    {NULL, A100, NULL, "", NULL},
    {NULL, "1", "PCI_BUS_ID", "", NULL},
    /* Up and of one mind with the variable, whatever the order of unlike devices. */
    {H100 "," A100, NULL, NULL, "", NULL},
    {A100 "," H100, NULL, NULL, "", NULL},
    {A100, A100, NULL, "", NULL},
    {A100, "GPU-1", NULL, "", NULL},
    {A100, "0", "PCI_BUS_ID", "", NULL},
    {H100 "," A100, H100 "," A100, NULL, "", NULL},
    {MIG, MIG, NULL, "mig", NULL},
    /* Up with other devices: the variable was set or changed too late. */
    {H100 "," A100, A100, NULL, "", "CUDA_VISIBLE_DEVICES=" A100 ": names 1 device"},
    {A100, NULL, NULL, "", "CUDA_VISIBLE_DEVICES is unset: names 2 devices"},
    {A100, H100, NULL, "", "is up already with 1 (" A100 ")"},
    {A100, "1", "PCI_BUS_ID", "", "in a child process"},
    {"", A100, NULL, "", "is up already with 0"},
    {H100 "," A100, MIG, NULL, "mig", "CUDA_VISIBLE_DEVICES=" MIG},
    {MIG, OTHER_MIG, NULL, "mig", "is up already with 1 (" MIG ")"},
};

static int as_expected(const struct row* row) {
  set("GSEL_FAKE_CUDA", row->driver);
  set("CUDA_VISIBLE_DEVICES", row->mask);
  set("CUDA_DEVICE_ORDER", row->order);
  set("GSEL_FAKE_NVML", row->nvml);
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.devices = gsel_str_from("all");
  options.flags = GSEL_RESOLVE_PER_RANK; /* MIG instances are not the question here */
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  char message[1024] = "";
  const gsel_status status = gsel_resolve(&options, &selection, &err);
  if (err) gsel_error_format(err, message, sizeof message);
  const int good = row->refused ? status == GSEL_ERR_ALREADY_INITIALIZED && strstr(message, row->refused) &&
                                      strcmp(gsel_error_file(err).data, "CUDA_VISIBLE_DEVICES") == 0
                                : status == GSEL_OK;
  if (!good)
    print_error("driver %s, mask %s, order %s\n  expected %s, got %s %s\n", row->driver ? row->driver : "not up",
                row->mask ? row->mask : "unset", row->order ? row->order : "unset",
                row->refused ? row->refused : "success", gsel_status_name(status), message);
  gsel_error_free(err);
  gsel_selection_free(selection);
  return good;
}

static void a_mask_set_after_the_driver_came_up_is_refused(void** state) {
  (void)state;
  size_t wrong = 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) wrong += !as_expected(&rows[i]);
  assert_int_equal(wrong, 0);
}

/* A given inventory or environment is not about this process. */
static void the_driver_is_asked_only_about_this_process(void** state) {
  (void)state;
  set("GSEL_FAKE_CUDA", A100);
  set("CUDA_VISIBLE_DEVICES", H100);
  set("CUDA_DEVICE_ORDER", NULL);
  set("GSEL_FAKE_NVML", "");
  gsel_error* err = NULL;
  gsel_selection* selection = NULL;
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  const gsel_env_var env = {gsel_str_from("CUDA_VISIBLE_DEVICES"), gsel_str_from(H100)};
  options.env = &env;
  options.n_env = 1;
  check_ok(gsel_resolve(&options, &selection, &err), err);
  assert_int_equal(gsel_selection_device_count(selection), 1);
  gsel_selection_free(selection);

  gsel_inventory* inventory = NULL;
  gsel_resolve_options of_file = GSEL_RESOLVE_OPTIONS_INIT;
  check_ok(gsel_inventory_detect(&inventory, &err), err);
  of_file.inventory = inventory;
  check_ok(gsel_resolve(&of_file, &selection, &err), err);
  gsel_selection_free(selection);
  gsel_inventory_free(inventory);
}

int main(void) {
  load_doubles();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_mask_set_after_the_driver_came_up_is_refused),
      cmocka_unit_test(the_driver_is_asked_only_about_this_process),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
