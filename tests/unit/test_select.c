/* unit/test_select.c: gsel_resolve over recorded machines, strictly: what was asked, what came out. The rows of single
 * systems are in test_select_<system>.c. */
#include <stdlib.h>

#include "support/selection.h"

static const struct selection_row chosen_rows[] = {
    {.machine = "a100x8", .chosen = "0,1,2,3,4,5,6,7"},
    {.machine = "a100x8", .devices = "auto", .chosen = "0,1,2,3,4,5,6,7"},
    {.machine = "a100x8", .devices = "all", .accelerator = "cuda", .chosen = "0,1,2,3,4,5,6,7"},
    {.machine = "a100x8", .devices = "count:2", .chosen = "0,1"},
    {.machine = "a100x8", .devices = "count:8", .chosen = "0,1,2,3,4,5,6,7"},
    {.machine = "a100x8", .devices = "count:002", .chosen = "0,1"},
    {.machine = "a100x8", .devices = "index:5", .chosen = "5"},
    {.machine = "a100x8", .devices = "index:7,0,3", .chosen = "7,0,3"},
    {.machine = "a100x8", .devices = "index: 7 , 0", .chosen = "7,0"},
    {.machine = "a100x8", .devices = "uuid:GPU-e06,gpu-C4F8", .chosen = "2,0"},
    {.machine = "a100x8",
     .devices = "uuid:"
                "GPU-b27c2",
     .chosen = "4"},
    {.machine = "a100x8", .devices = "cpu", .chosen = "8"},
    {.machine = "a100x8", .accelerator = "cpu", .chosen = "8"},
    {.machine = "a100x8", .devices = "all", .accelerator = "cpu", .chosen = "8"},
    /* The mask orders and hides; counts take from the front of what is left, indexes keep meaning bus order. */
    {.machine = "a100x8", .env = "CUDA_VISIBLE_DEVICES=3,1,7", .chosen = "3,1,7"},
    {.machine = "a100x8", .devices = "count:2", .env = "CUDA_VISIBLE_DEVICES=3,1,7", .chosen = "3,1"},
    {.machine = "a100x8", .devices = "index:7,3", .env = "CUDA_VISIBLE_DEVICES=3,1,7", .chosen = "7,3"},
    {.machine = "a100x8", .devices = "all", .env = "CUDA_VISIBLE_DEVICES= 3 ,\t1", .chosen = "3,1"},
    {.machine = "a100x8", .env = "CUDA_VISIBLE_DEVICES=01,0", .chosen = "1,0"},
    {.machine = "a100x8", .env = "CUDA_VISIBLE_DEVICES=GPU-e06,GPU-c4f8", .chosen = "2,0"},
    {.machine = "a100x8", .env = "CUDA_VISIBLE_DEVICES=GPU-e06,gpu-c4f8", .chosen = "2,0", .warning = "another case"},
    {.machine = "a100x8", .env = "CUDA_VISIBLE_DEVICES=GPU-e06, GPU-c4f8", .chosen = "2,0", .warning = "after a blank"},
    {.machine = "a100x8",
     .env = "CUDA_VISIBLE_DEVICES=2,1"
            "\n"
            "CUDA_DEVICE_ORDER=FASTEST_FIRST",
     .chosen = "2,1"},
    {.machine = "a100x8",
     .env = "CUDA_VISIBLE_DEVICES=2,1"
            "\n"
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
     .chosen = "2,1"},
    {.machine = "mixed4",
     .env = "CUDA_VISIBLE_DEVICES=2,1"
            "\n"
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
     .chosen = "2,1"},
    {.machine = "mixed4", .env = "CUDA_VISIBLE_DEVICES=GPU-ba,GPU-fa", .chosen = "2,0"},
    {.machine = "mixed4", .devices = "index:3,1", .chosen = "3,1"},
    /* The CPU: asked for, it needs no mask to make sense; not asked for, it is taken with a warning. */
    {.machine = "a100x8", .devices = "cpu", .env = "CUDA_VISIBLE_DEVICES=nonsense", .chosen = "8"},
    {.machine = "cpu", .chosen = "0", .warning = "libnvidia-ml.so.1 not found"},
    {.machine = "cpu", .devices = "auto", .accelerator = "auto", .chosen = "0", .warning = "no accelerator was found"},
    {.machine = "cpu", .devices = "cpu", .chosen = "0"},
};

static void each_request_gets_the_devices_of_its_row(void** state) {
  (void)state;
  CHECK_ROWS(chosen_rows);
}

/* Refused on eight A100s, about the request and about the mask. */
#define SPEC(asked, kind, what, where, text)                                                           \
  {                                                                                                    \
    .machine = "a100x8", .devices = asked, .code = GSEL_ERR_##kind, .input = "devices", .token = what, \
    .column = where, .message = text                                                                   \
  }
#define MASK(mask, kind, what, where, text)                                            \
  {                                                                                    \
    .machine = "a100x8", .env = "CUDA_VISIBLE_DEVICES=" mask, .code = GSEL_ERR_##kind, \
    .input = "CUDA_VISIBLE_DEVICES", .token = what, .column = where, .message = text   \
  }

static const struct selection_row refused_rows[] = {
    /* The request. */
    /* Hidden accelerators are no reason to take the CPU unasked. */
    {.machine = "a100x8",
     .env = "CUDA_VISIBLE_DEVICES=",
     .code = GSEL_ERR_NO_DEVICES,
     .input = "devices",
     .token = "auto",
     .column = 1,
     .message = "CUDA_VISIBLE_DEVICES is empty; cpu would work"},
    SPEC("", SYNTAX, "", 1, "a request is empty"),
    SPEC("2", SYNTAX, "2", 1, "write count:N or index:N"),
    SPEC("gpu:2", SYNTAX, "gpu", 1, "cuda, hip or ze"),
    SPEC("All", SYNTAX, "All", 1, "count:N"),
    SPEC("count:", SYNTAX, "", 7, "decimal digits"),
    SPEC("count:-1", SYNTAX, "-1", 7, "decimal digits"),
    SPEC("count:1,2", SYNTAX, "2", 9, "one number"),
    SPEC("count:0", OUT_OF_RANGE, "0", 7, "at least 1"),
    SPEC("count:9", OUT_OF_RANGE, "9", 7, "count:8 would work"),
    {.machine = "a100x8",
     .devices = "count:3",
     .env = "CUDA_VISIBLE_DEVICES=0,1",
     .code = GSEL_ERR_OUT_OF_RANGE,
     .input = "devices",
     .token = "3",
     .column = 7,
     .message = "hidden by CUDA_VISIBLE_DEVICES=0,1"},
    SPEC("count:99999999999999999999", OUT_OF_RANGE, "99999999999999999999", 7, ""),
    SPEC("index:0,8", OUT_OF_RANGE, "8", 9, "8 accelerators"),
    SPEC("index:99999999999999999999", OUT_OF_RANGE, "99999999999999999999", 7, ""),
    SPEC("index:0,,1", SYNTAX, "", 9, "empty"),
    SPEC("index:0-3", SYNTAX, "0-3", 7, "ranges"),
    SPEC("index:0x1", SYNTAX, "0x1", 7, "decimal"),
    SPEC("index:1, 01", DUPLICATE, "01", 10, "already in the list"),
    SPEC("index:0,GPU-c4", TYPE, "GPU-c4", 9, "uuid:GPU-"),
    SPEC("uuid:0", TYPE, "0", 6, "index:N"),
    SPEC("uuid:GPU-", SYNTAX, "GPU-", 6, "hexadecimal"),
    SPEC("uuid:c4g8", SYNTAX, "c4g8", 6, "GPU-"),
    SPEC("uuid:GPU-xyz", SYNTAX, "GPU-xyz", 6, "hexadecimal"),
    SPEC("uuid:GPU-000", UNKNOWN_DEVICE, "GPU-000", 6, "no device"),
    SPEC("uuid:GPU-b27c", AMBIGUOUS, "GPU-b27c", 6, "2 devices"),
    SPEC("uuid:GPU-c4,GPU-c4f8", DUPLICATE, "GPU-c4f8", 13, "already in the list"),
    SPEC("uuid:MIG-1", UNKNOWN_DEVICE, "MIG-1", 6, "no device"),
    {.machine = "a100x8",
     .accelerator = "tpu",
     .code = GSEL_ERR_SYNTAX,
     .input = "accelerator",
     .token = "tpu",
     .column = 1,
     .message = "auto, cpu, cuda"},
    {.machine = "a100x8",
     .devices = "count:2",
     .accelerator = "cpu",
     .code = GSEL_ERR_CONFLICT,
     .input = "accelerator",
     .token = "cpu",
     .column = 1,
     .message = "devices=count:2"},
    {.machine = "a100x8",
     .devices = "cpu",
     .accelerator = "cuda",
     .code = GSEL_ERR_CONFLICT,
     .input = "accelerator",
     .token = "cuda",
     .column = 1,
     .message = "devices=cpu"},
    /* Asking for what the mask hides shows both. */
    {.machine = "a100x8",
     .devices = "index:1,2",
     .env = "CUDA_VISIBLE_DEVICES=0,1",
     .code = GSEL_ERR_CONFLICT,
     .input = "devices",
     .token = "2",
     .column = 9,
     .message = "hidden by CUDA_VISIBLE_DEVICES=0,1"},
    {.machine = "a100x8",
     .devices = "uuid:GPU-e06",
     .env = "CUDA_VISIBLE_DEVICES=0,1",
     .code = GSEL_ERR_CONFLICT,
     .input = "devices",
     .token = "GPU-e06",
     .column = 6,
     .message = "CUDA_VISIBLE_DEVICES=0,1"},
    {.machine = "a100x8",
     .devices = "index:0",
     .env = "CUDA_VISIBLE_DEVICES=",
     .code = GSEL_ERR_CONFLICT,
     .input = "devices",
     .token = "0",
     .column = 7,
     .message = "CUDA_VISIBLE_DEVICES is empty"},
    /* The mask. */
    MASK("0,8", OUT_OF_RANGE, "8", 3, "8 NVIDIA devices, 0 to 7"),
    MASK("0,1,0", DUPLICATE, "0", 5, "already in the list"),
    MASK("GPU-c4,GPU-c4f8", DUPLICATE, "GPU-c4f8", 8, "already in the list"),
    MASK("-1", SYNTAX, "-1", 1, "an empty value hides all"),
    MASK("NoDevFiles", SYNTAX, "NoDevFiles", 1, "decimal digits"),
    MASK("1,2gpu", SYNTAX, "2gpu", 3, "decimal digits"),
    MASK("+3", SYNTAX, "+3", 1, "decimal digits"),
    MASK("1,,2", SYNTAX, "", 3, "empty"),
    MASK("1,", SYNTAX, "", 3, "empty"),
    MASK(" ", SYNTAX, "", 1, "empty"),
    MASK("1\a2", SYNTAX, "1\a2", 1, "1\\x072"),
    MASK("0,GPU-c4", TYPE, "GPU-c4", 3, "do not mix"),
    MASK("GPU-c4,0", TYPE, "0", 8, "do not mix"),
    MASK("GPU-c4,GPU-0", UNKNOWN_DEVICE, "GPU-0", 8, "no device"),
    MASK("GPU-b27c", AMBIGUOUS, "GPU-b27c", 1, "more digits"),
    MASK("GPU-", SYNTAX, "GPU-", 1, "hexadecimal"),
    MASK("MIG-1234", UNKNOWN_DEVICE, "MIG-1234", 1, "no device"),
    {.machine = "a100x8",
     .env = "CUDA_VISIBLE_DEVICES=0"
            "\n"
            "CUDA_DEVICE_ORDER=pci",
     .code = GSEL_ERR_SYNTAX,
     .input = "CUDA_DEVICE_ORDER",
     .token = "pci",
     .column = 1,
     .message = "PCI_BUS_ID"},
    {.machine = "a100x8",
     .env = "CUDA_DEVICE_ORDER=",
     .code = GSEL_ERR_SYNTAX,
     .input = "CUDA_DEVICE_ORDER",
     .token = "",
     .column = 1,
     .message = "PCI_BUS_ID"},
    {.machine = "mixed4",
     .env = "CUDA_VISIBLE_DEVICES=2,1",
     .code = GSEL_ERR_AMBIGUOUS,
     .input = "CUDA_VISIBLE_DEVICES",
     .token = "2",
     .column = 1,
     .message = "CUDA_DEVICE_ORDER=PCI_BUS_ID"},
    {.machine = "mixed4",
     .env = "CUDA_VISIBLE_DEVICES=2,1"
            "\n"
            "CUDA_DEVICE_ORDER=FASTEST_FIRST",
     .code = GSEL_ERR_AMBIGUOUS,
     .input = "CUDA_VISIBLE_DEVICES",
     .token = "2",
     .column = 1,
     .message = "unlike devices"},
    {.machine = "cpu",
     .env = "CUDA_VISIBLE_DEVICES=0",
     .code = GSEL_ERR_OUT_OF_RANGE,
     .input = "CUDA_VISIBLE_DEVICES",
     .token = "0",
     .column = 1,
     .message = "no NVIDIA device"},
    /* Nothing there. */
    {.machine = "cpu",
     .devices = "all",
     .code = GSEL_ERR_NO_DEVICES,
     .input = "devices",
     .token = "all",
     .column = 1,
     .message = "looked for NVIDIA, AMD"},
    {.machine = "cpu",
     .devices = "count:1",
     .code = GSEL_ERR_NO_DEVICES,
     .input = "devices",
     .token = "count:1",
     .column = 1,
     .message = "cpu would work"},
    {.machine = "cpu",
     .devices = "index:0",
     .code = GSEL_ERR_NO_DEVICES,
     .input = "devices",
     .token = "index:0",
     .column = 1,
     .message = "cpu would work"},
    {.machine = "cpu",
     .accelerator = "cuda",
     .code = GSEL_ERR_NO_DEVICES,
     .input = "accelerator",
     .token = "cuda",
     .column = 1,
     .message = "cpu would work"},
    {.machine = "a100x8",
     .devices = "all",
     .env = "CUDA_VISIBLE_DEVICES=",
     .code = GSEL_ERR_NO_DEVICES,
     .input = "devices",
     .token = "all",
     .column = 1,
     .message = "8 of 8 hidden: CUDA_VISIBLE_DEVICES is empty"},
};

static void each_bad_request_is_refused_with_input_token_and_column(void** state) {
  (void)state;
  CHECK_ROWS(refused_rows);
}

static void every_candidate_has_its_place_and_reason(void** state) {
  (void)state;
  const struct selection_row row = {.devices = "count:2", .env = "CUDA_VISIBLE_DEVICES=3,1,7"};
  gsel_inventory* inventory = machine("a100x8");
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  const gsel_status status = resolve_row(&row, inventory, &selection, &err);
  gsel_inventory_free(inventory);
  check_ok(status, err);
  static const struct {
    int32_t position;
    const char* reason;
  } expected[] = {{-1, "hidden by CUDA_VISIBLE_DEVICES=3,1,7"},
                  {1, "position 1 of count:2"},
                  {-1, "hidden by"},
                  {0, "position 0 of count:2"},
                  {-1, "hidden by"},
                  {-1, "hidden by"},
                  {-1, "hidden by"},
                  {-1, "not needed: count:2 takes the first 2 of 3"},
                  {-1, "a CPU"}};
  assert_int_equal(gsel_selection_candidate_count(selection), 9);
  for (int32_t i = 0; i < 9; ++i) {
    gsel_candidate candidate = GSEL_CANDIDATE_INIT;
    assert_int_equal(gsel_selection_candidate(selection, i, &candidate, NULL), GSEL_OK);
    assert_int_equal(candidate.index, i);
    assert_int_equal(candidate.position, expected[i].position);
    if (!strstr(candidate.reason.data, expected[i].reason)) fail_msg("%d: %s", i, candidate.reason.data);
    assert_non_null(strstr(gsel_selection_text(selection).data, candidate.reason.data));
    assert_non_null(strstr(gsel_selection_json(selection).data, candidate.reason.data));
  }
  gsel_candidate candidate = GSEL_CANDIDATE_INIT;
  check_fails(gsel_selection_candidate(selection, 9, &candidate, &err), err, GSEL_ERR_ARG, "expected 0 to 8");
  gsel_selection_free(selection);
}

static void check_env(const gsel_selection* selection, int32_t rank, const char* mask, size_t expected_count) {
  const gsel_env_var* env = NULL;
  size_t count = 0;
  gsel_error* err = NULL;
  const gsel_status status = gsel_selection_env(selection, rank, &env, &count, &err);
  check_ok(status, err);
  assert_int_equal(count, expected_count);
  assert_string_equal(env[0].name.data, "CUDA_VISIBLE_DEVICES");
  assert_string_equal(env[0].value.data, mask);
  if (count == 2) assert_string_equal(env[1].name.data, "CUDA_DEVICE_ORDER");
  if (count == 2) assert_string_equal(env[1].value.data, "PCI_BUS_ID");
}

static gsel_selection* selection_of(const char* devices) {
  const struct selection_row row = {.devices = devices};
  gsel_inventory* inventory = machine("a100x8");
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  const gsel_status status = resolve_row(&row, inventory, &selection, &err);
  gsel_inventory_free(inventory); /* a selection keeps what it needs */
  check_ok(status, err);
  return selection;
}

static void children_get_full_uuids_in_order_or_the_one_of_their_rank(void** state) {
  (void)state;
  gsel_selection* selection = selection_of("index:2,0");
  gsel_error* err = NULL;
  const char* second = "GPU-c4f82fda-f11d-4492-a176-950eab898aad";
  check_env(selection, -1, "GPU-e06ef9fc-7497-0c8b-ce6c-fb2db8673096,GPU-c4f82fda-f11d-4492-a176-950eab898aad", 2);
  check_env(selection, 0, "GPU-e06ef9fc-7497-0c8b-ce6c-fb2db8673096", 2);
  check_env(selection, 1, second, 2);
  const gsel_env_var* env = NULL;
  size_t count = 0;
  check_fails(gsel_selection_env(selection, 2, &env, &count, &err), err, GSEL_ERR_RANK_OVERFLOW, "local rank 2");
  check_fails(gsel_selection_env(selection, INT32_MAX, &env, &count, &err), err, GSEL_ERR_RANK_OVERFLOW, "local rank");
  check_fails(gsel_selection_env(selection, -2, &env, &count, &err), err, GSEL_ERR_ARG, "local_rank is -2");
  gsel_selection_free(selection);

  selection = selection_of("index:0");
  check_env(selection, 1000, second, 2);
  gsel_selection_free(selection);

  selection = selection_of("cpu");
  check_env(selection, -1, "", 1);
  check_env(selection, 5, "", 1);
  gsel_selection_free(selection);
}

/* Resolves all devices of the 8-GPU machine with the given flags and counts them. */
static int32_t count_with_flags(uint32_t flags) {
  gsel_inventory* inventory = machine("a100x8");
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.inventory = inventory;
  options.flags = flags;
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_resolve(&options, &selection, &err);
  check_ok(status, err);
  const int32_t count = gsel_selection_device_count(selection);
  gsel_selection_free(selection);
  gsel_inventory_free(inventory);
  return count;
}

static void the_process_environment_counts_unless_told_otherwise_and_stays_as_it_was(void** state) {
  (void)state;
  setenv("CUDA_VISIBLE_DEVICES", "4,5,6", 1);
  assert_int_equal(count_with_flags(0), 3);
  assert_int_equal(count_with_flags(GSEL_RESOLVE_NO_ENV), 8);
  assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "4,5,6");
  unsetenv("CUDA_VISIBLE_DEVICES");
  assert_int_equal(count_with_flags(0), 8);
  assert_null(getenv("CUDA_DEVICE_ORDER"));
}

static void bad_arguments_are_named(void** state) {
  (void)state;
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  gsel_inventory* inventory = machine("cpu");
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  options.inventory = inventory;
  check_fails(gsel_resolve(NULL, &selection, &err), err, GSEL_ERR_ARG, "gsel_resolve_options is NULL");
  check_fails(gsel_resolve(&options, NULL, &err), err, GSEL_ERR_ARG, "out is NULL");
  options.n_env = 1;
  check_fails(gsel_resolve(&options, &selection, &err), err, GSEL_ERR_ARG, "env is NULL");
  gsel_env_var env[] = {{GSEL_STR("A"), GSEL_STR("1")}, {GSEL_STR("A"), GSEL_STR("2")}};
  options.env = env;
  options.n_env = 2;
  check_fails(gsel_resolve(&options, &selection, &err), err, GSEL_ERR_ARG, "env names A twice");
  options.n_env = 1;
  options.flags = 12;
  check_fails(gsel_resolve(&options, &selection, &err), err, GSEL_ERR_ARG, "flags is 0xc");
  options.struct_size = 4;
  check_fails(gsel_resolve(&options, &selection, &err), err, GSEL_ERR_VERSION, "struct_size is 4");
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  check_fails(gsel_inventory_device(inventory, -1, &info, &err), err, GSEL_ERR_ARG, "index is -1");
  check_fails(gsel_inventory_device(inventory, 1, &info, &err), err, GSEL_ERR_ARG, "index is 1");
  gsel_inventory_free(inventory);
  gsel_inventory_free(NULL);
  gsel_selection_free(NULL);
  assert_int_equal(gsel_selection_device_count(NULL), 0);
}

int main(void) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv("CUDA_DEVICE_ORDER");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_request_gets_the_devices_of_its_row),
      cmocka_unit_test(each_bad_request_is_refused_with_input_token_and_column),
      cmocka_unit_test(every_candidate_has_its_place_and_reason),
      cmocka_unit_test(children_get_full_uuids_in_order_or_the_one_of_their_rank),
      cmocka_unit_test(the_process_environment_counts_unless_told_otherwise_and_stays_as_it_was),
      cmocka_unit_test(bad_arguments_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
