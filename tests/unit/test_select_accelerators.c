/* unit/test_select_accelerators.c: Gaudi, Ascend, Apple, and what TensorFlow makes of CUDA's devices, as rows. */
#include "support/emission.h"

#define HABANA .compat = "habana"
#define ASCEND .compat = "ascend"
#define TF .compat = "tensorflow"
#define MODULES "HABANA_VISIBLE_MODULES="
#define MOUNTED "HABANA_VISIBLE_DEVICES="
#define RANK "LOCAL_RANK="
#define VISIBLE "ASCEND_RT_VISIBLE_DEVICES="
#define CUDA "CUDA_VISIBLE_DEVICES="
#define SINGLE_DOCKER "Gaudi documentation, Multiple Workloads on a Single Docker"
#define DOCKERS "Gaudi documentation, Multiple Dockers Each with a Single Workload"
#define CANN "CANN environment variable reference, ASCEND_RT_VISIBLE_DEVICES"
#define CONTEXT "tensorflow/python/eager/context.py"
#define STRICT_HABANA .accelerator = "habana", .devices = "all"
#define STRICT_ASCEND .accelerator = "ascend", .devices = "all"

/* gaudi8: modules of devices 0 to 7 are 2,3,0,1,5,4,6,7. ascend8: logical ids of devices 0 to 7 are 1,3,5,7,4,6,0,2. */
static const struct selection_row habana[] = {
    {.source = SINGLE_DOCKER, .machine = "gaudi8", HABANA, .env = MODULES "0,1,2,3\n" RANK "0", .chosen = "2"},
    {.source = SINGLE_DOCKER, .machine = "gaudi8", HABANA, .env = MODULES "0,1,2,3\n" RANK "3", .chosen = "1"},
    {.source = SINGLE_DOCKER, .machine = "gaudi8", HABANA, .env = MODULES "4,5,6,7\n" RANK "0", .chosen = "5"},
    {.source = DOCKERS ": 5,4,7,6", .machine = "gaudi8", HABANA, .env = MODULES "5,4,7,6\n" RANK "0", .chosen = "4"},
    {.source = DOCKERS ": 5,4,7,6", .machine = "gaudi8", HABANA, .env = MODULES "5,4,7,6\n" RANK "2", .chosen = "7"},
    {.source = "the entry of the local rank",
     .machine = "gaudi8",
     HABANA,
     .env = MODULES "2,3\n" RANK "2",
     .code = GSEL_ERR_RANK_OVERFLOW,
     .token = "2",
     .message = "IndexError"},
    {.source = "only the own entry is read",
     .machine = "gaudi8",
     HABANA,
     .env = MODULES "2,x\n" RANK "0",
     .chosen = "0"},
    {.source = "a module that is not there",
     .machine = "gaudi8",
     HABANA,
     .env = MODULES "9\n" RANK "0",
     .chosen = "",
     .warning = "finds no device"},
    {.source = "unset: the module is the local rank", .machine = "gaudi8", HABANA, .env = RANK "4", .chosen = "5"},
    {.source = "unset: the module is the local rank", .machine = "gaudi8", HABANA, .env = RANK "9", .chosen = ""},
    {.source = "no rank: the first idle device", .machine = "gaudi8", HABANA, .chosen = "0"},
    {.source = "no rank: the first idle module", .machine = "gaudi8", HABANA, .env = MODULES "6,7", .chosen = "6"},
    {.source = "int() of the rank",
     .machine = "gaudi8",
     HABANA,
     .env = RANK "a",
     .code = GSEL_ERR_SYNTAX,
     .token = "a",
     .message = "ValueError"},
    {.source = DOCKERS ": index of the container runtime",
     .machine = "gaudi8",
     HABANA,
     .env = MOUNTED "4,5\n" RANK "5",
     .chosen = "4",
     .warning = "when a container is created"},
    {.source = DOCKERS ": index of the container runtime",
     .machine = "gaudi8",
     HABANA,
     .env = MOUNTED "4,5",
     .chosen = "4"},
    {.source = DOCKERS ": all", .machine = "gaudi8", HABANA, .env = MOUNTED "all\n" RANK "0", .chosen = "2"},
    {.source = "inside a container its indexes are gone",
     .machine = "gaudi8",
     HABANA,
     .env = MOUNTED "7,8,9\n" RANK "0",
     .chosen = "2"},
    {.source = "no Gaudi", .machine = "cpu", HABANA, .chosen = "", .warning = "finds no device"},
};

static const struct selection_row strict_habana[] = {
    {.source = SINGLE_DOCKER, .machine = "gaudi8", STRICT_HABANA, .chosen = "0,1,2,3,4,5,6,7", .warning = "-"},
    {.source = SINGLE_DOCKER,
     .machine = "gaudi8",
     STRICT_HABANA,
     .env = MODULES "0,1,2,3",
     .chosen = "2,3,0,1",
     .warning = "-"},
    {.source = SINGLE_DOCKER, .machine = "gaudi8", STRICT_HABANA, .env = MODULES "5, 4", .chosen = "4,5"},
    {.source = "a module that is not there",
     .machine = "gaudi8",
     STRICT_HABANA,
     .env = MODULES "0,8",
     .code = GSEL_ERR_OUT_OF_RANGE,
     .token = "8",
     .column = 3},
    {.source = "twice",
     .machine = "gaudi8",
     STRICT_HABANA,
     .env = MODULES "0,1,0",
     .code = GSEL_ERR_DUPLICATE,
     .column = 5},
    {.source = "not a number",
     .machine = "gaudi8",
     STRICT_HABANA,
     .env = MODULES "0-3",
     .code = GSEL_ERR_SYNTAX,
     .token = "0-3"},
    {.source = "uuids are not read",
     .machine = "gaudi8",
     STRICT_HABANA,
     .env = MODULES "GPU-1",
     .code = GSEL_ERR_SYNTAX,
     .message = "a module id in decimal digits"},
    {.source = "an empty entry",
     .machine = "gaudi8",
     STRICT_HABANA,
     .env = MODULES "0,",
     .code = GSEL_ERR_SYNTAX,
     .token = "",
     .column = 3},
    {.source = "an empty list is told",
     .machine = "gaudi8",
     STRICT_HABANA,
     .env = MODULES,
     .chosen = "0,1,2,3,4,5,6,7",
     .warning = "does not document"},
    {.source = DOCKERS ": acts at creation",
     .machine = "gaudi8",
     STRICT_HABANA,
     .env = MOUNTED "0,1",
     .chosen = "0,1,2,3,4,5,6,7",
     .warning = "hides nothing from a process"},
};

static const struct selection_row ascend[] = {
    {.source = CANN, .machine = "ascend8", ASCEND, .chosen = "6,0,7,1,4,2,5,3"},
    {.source = CANN, .machine = "ascend8", ASCEND, .env = VISIBLE "0,1,2", .chosen = "6,0,7", .warning = "-"},
    {.source = CANN ": 1, 2,3", .machine = "ascend8", ASCEND, .env = VISIBLE "1, 2,3", .chosen = "0"},
    {.source = CANN ": another character", .machine = "ascend8", ASCEND, .env = VISIBLE "1,2a,3", .chosen = "0"},
    {.source = CANN ": a bad id", .machine = "ascend8", ASCEND, .env = VISIBLE "1,8,3", .chosen = "0"},
    {.source = CANN ": a bad id", .machine = "ascend8", ASCEND, .env = VISIBLE "-1,0", .chosen = ""},
    {.source = CANN ": an empty field", .machine = "ascend8", ASCEND, .env = VISIBLE "0,,1", .chosen = "6"},
    {.source = CANN ": a blank first", .machine = "ascend8", ASCEND, .env = VISIBLE " 0,1", .chosen = ""},
    {.source = CANN ": no id",
     .machine = "ascend8",
     ASCEND,
     .env = VISIBLE,
     .chosen = "",
     .warning = "finds no device"},
    {.source = CANN " of CANN 6.3: 3,2,1",
     .machine = "ascend8",
     ASCEND,
     .env = VISIBLE "3,2,1",
     .chosen = "1,7,0",
     .warning = "ascending ids only"},
    {.source = "strict",
     .machine = "ascend8",
     STRICT_ASCEND,
     .env = VISIBLE "0,1,2",
     .chosen = "6,0,7",
     .warning = "-"},
    {.source = "strict: blanks",
     .machine = "ascend8",
     STRICT_ASCEND,
     .env = VISIBLE "1, 2,3",
     .chosen = "0,7,1",
     .warning = "ends the list there"},
    {.source = "strict: order",
     .machine = "ascend8",
     STRICT_ASCEND,
     .env = VISIBLE "3,1",
     .chosen = "1,0",
     .warning = "ascending ids only"},
    {.source = "strict",
     .machine = "ascend8",
     STRICT_ASCEND,
     .env = VISIBLE "0,8",
     .code = GSEL_ERR_OUT_OF_RANGE,
     .token = "8",
     .column = 3,
     .message = "8 Ascend devices, 0 to 7"},
    {.source = "strict",
     .machine = "ascend8",
     STRICT_ASCEND,
     .env = VISIBLE "1,1",
     .code = GSEL_ERR_DUPLICATE,
     .column = 3},
    {.source = "strict",
     .machine = "ascend8",
     STRICT_ASCEND,
     .env = VISIBLE "a",
     .code = GSEL_ERR_SYNTAX,
     .token = "a"},
    {.source = "strict: an empty mask is told",
     .machine = "ascend8",
     .accelerator = "ascend",
     .devices = "all | none",
     .env = VISIBLE,
     .chosen = "",
     .warning = "hides every Ascend device"},
};

static const struct selection_row tensorflow[] = {
    {.source = CONTEXT ", list_physical_devices", .machine = "nvidia:4", TF, .chosen = "0,1,2,3", .warning = "-"},
    {.source = "the CUDA driver decides first", .machine = "nvidia:4", TF, .env = CUDA "3,1", .chosen = "3,1"},
    {.source = CONTEXT ", set_visible_devices", .machine = "nvidia:4", TF, .devices = "[0, 2]", .chosen = "0,2"},
    {.source = CONTEXT ", _compute_gpu_options: physical order",
     .machine = "nvidia:4",
     TF,
     .devices = "[2, 0]",
     .chosen = "0,2",
     .warning = "physical order"},
    {.source = CONTEXT ": a set", .machine = "nvidia:4", TF, .devices = "[1, 1]", .chosen = "1", .warning = "merges"},
    {.source = CONTEXT ": one device is a list of one", .machine = "nvidia:4", TF, .devices = "3", .chosen = "3"},
    {.source = CONTEXT ": no GPU",
     .machine = "nvidia:4",
     TF,
     .devices = "[]",
     .chosen = "",
     .warning = "on the CPU without"},
    {.source = "gpus[-1]", .machine = "nvidia:4", TF, .devices = "[-1]", .chosen = "3"},
    {.source = "gpus[4]",
     .machine = "nvidia:4",
     TF,
     .devices = "[0, 4]",
     .code = GSEL_ERR_OUT_OF_RANGE,
     .token = "4",
     .column = 5,
     .message = "IndexError: list index out of range"},
    {.source = "positions among what CUDA leaves",
     .machine = "nvidia:4",
     TF,
     .env = CUDA "3,1",
     .devices = "[1]",
     .chosen = "1"},
    {.source = "positions among what CUDA leaves",
     .machine = "nvidia:4",
     TF,
     .env = CUDA "3,1",
     .devices = "[2]",
     .code = GSEL_ERR_OUT_OF_RANGE,
     .message = "has 2"},
    {.source = "tensorflow issue 38367, growth of all",
     .machine = "nvidia:2",
     TF,
     .devices = "[0, 1] growth [0, 1]",
     .chosen = "0,1"},
    {.source = CONTEXT ": Memory growth cannot differ between GPU devices",
     .machine = "nvidia:2",
     TF,
     .devices = "[0, 1] growth [0]",
     .code = GSEL_ERR_CONFLICT,
     .token = "0",
     .column = 16,
     .message = "ValueError: Memory growth cannot differ between GPU devices"},
    {.source = CONTEXT ": growth of the visible ones",
     .machine = "nvidia:2",
     TF,
     .devices = "[0] growth [0]",
     .chosen = "0"},
    {.source = CONTEXT ": growth of the visible ones",
     .machine = "nvidia:2",
     TF,
     .devices = "growth [0]",
     .code = GSEL_ERR_CONFLICT,
     .message = "cannot differ"},
    {.source = CONTEXT ": growth of what is not visible",
     .machine = "nvidia:2",
     TF,
     .devices = "[0] growth [1]",
     .chosen = "0"},
    {.source = CONTEXT ", set_memory_growth",
     .machine = "nvidia:2",
     TF,
     .devices = "limit [0] growth [0]",
     .code = GSEL_ERR_CONFLICT,
     .token = "0",
     .column = 19,
     .message = "ValueError: Cannot set memory growth on device when virtual devices configured"},
    {.source = CONTEXT ": not compared with logical devices",
     .machine = "nvidia:2",
     TF,
     .devices = "limit [0] growth [1]",
     .chosen = "0,1"},
    {.source = "TF_FORCE_GPU_ALLOW_GROWTH does not make growth equal",
     .machine = "nvidia:2",
     TF,
     .env = "TF_FORCE_GPU_ALLOW_GROWTH=true",
     .devices = "growth [0]",
     .code = GSEL_ERR_CONFLICT},
    {.source = "TF_FORCE_GPU_ALLOW_GROWTH: true or false",
     .machine = "nvidia:2",
     TF,
     .env = "TF_FORCE_GPU_ALLOW_GROWTH=1",
     .chosen = "0,1",
     .warning = "neither true nor false"},
    {.source = "not a list",
     .machine = "nvidia:2",
     TF,
     .devices = "[0 1]",
     .code = GSEL_ERR_SYNTAX,
     .token = "1",
     .column = 4},
    {.source = "not a list", .machine = "nvidia:2", TF, .devices = "[0", .code = GSEL_ERR_SYNTAX, .column = 3},
    {.source = "not a list",
     .machine = "nvidia:2",
     TF,
     .devices = "[a]",
     .code = GSEL_ERR_SYNTAX,
     .token = "a",
     .column = 2},
    {.source = "not a call",
     .machine = "nvidia:2",
     TF,
     .devices = "[0] shrink [0]",
     .code = GSEL_ERR_SYNTAX,
     .token = "shrink",
     .column = 5},
};

static const struct emission_row emitted[] = {
    {{.source = "module ids in the order selected", .machine = "gaudi8", .devices = "index:2,3,0,1"},
     MODULES "0,1,2,3",
     NULL},
    {{.source = SINGLE_DOCKER ": supported sets", .machine = "gaudi8", .devices = "index:1,2"},
     MODULES "3,0",
     "no supported set"},
    {{.source = SINGLE_DOCKER ": supported sets", .machine = "gaudi8", .devices = "count:3"},
     MODULES "2,3,0",
     "no supported set"},
    {{.source = "no value hides all", .machine = "gaudi8", .devices = "none"}, MODULES, "hides every device"},
    {{.source = "ascending ids", .machine = "ascend8", .devices = "index:3,6"}, VISIBLE "0,7", "ascending"},
    {{.source = "no device", .machine = "ascend8", .devices = "none"}, VISIBLE, NULL},
};

static const char* apple =
    "{\"gsel_inventory\": 1, \"hosts\": [{\"name\": \"mac\", \"devices\": [{\"vendor\": \"apple\", \"name\": \"Apple "
    "M2 Max\"}]}]}";

static void test_a_gaudi_process_takes_one_module(void** state) {
  (void)state;
  CHECK_ROWS(habana);
}
static void test_gaudi_modules_are_read_strictly(void** state) {
  (void)state;
  CHECK_ROWS(strict_habana);
}
static void test_ascend_ids_end_at_the_first_bad_one(void** state) {
  (void)state;
  CHECK_ROWS(ascend);
}
static void test_tensorflow_keeps_physical_order_and_equal_growth(void** state) {
  (void)state;
  CHECK_ROWS(tensorflow);
}
static void test_a_child_gets_the_selection(void** state) {
  (void)state;
  CHECK_EMISSION(emitted);
}

static void test_an_apple_device_is_chosen_without_a_variable(void** state) {
  (void)state;
  gsel_inventory* inventory = NULL;
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_inventory_parse(gsel_str_from(apple), (gsel_str)GSEL_STR("apple"), &inventory, &err), err);
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.inventory = inventory;
  options.flags = GSEL_RESOLVE_NO_ENV;
  options.accelerator = gsel_str_from("mps");
  check_ok(gsel_resolve(&options, &selection, &err), err);
  assert_int_equal(gsel_selection_device_count(selection), 1);
  gsel_selection_free(selection);
  gsel_inventory_free(inventory);
}

/* A Gaudi process takes entry LOCAL_RANK of the list, so that a rank is given the list and not its own module alone. */
static void every_gaudi_rank_is_given_the_whole_list(void** state) {
  (void)state;
  const struct selection_row row = {STRICT_HABANA, .env = MODULES "4,5"};
  gsel_inventory* inventory = machine("gaudi8");
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  const gsel_status status = resolve_row(&row, inventory, &selection, &err);
  check_ok(status, err);
  for (int32_t rank = 0; rank < 2; ++rank) {
    const gsel_env_var* env = NULL;
    size_t n = 0;
    assert_int_equal(gsel_selection_env(selection, rank, &env, &n, NULL), GSEL_OK);
    assert_int_equal(n, 1);
    assert_string_equal(env[0].value.data, "4,5");
  }
  gsel_selection_free(selection);
  gsel_inventory_free(inventory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_gaudi_process_takes_one_module),
      cmocka_unit_test(test_gaudi_modules_are_read_strictly),
      cmocka_unit_test(test_ascend_ids_end_at_the_first_bad_one),
      cmocka_unit_test(test_tensorflow_keeps_physical_order_and_equal_growth),
      cmocka_unit_test(test_a_child_gets_the_selection),
      cmocka_unit_test(test_an_apple_device_is_chosen_without_a_variable),
      cmocka_unit_test(every_gaudi_rank_is_given_the_whole_list),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
