/* unit/test_select.c: gsel_resolve over recorded machines, each case a row: what was asked, what came out. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "support/check.h"

#define A100_PREFIX_4 "GPU-b27c2"
#define MAX_ENV 3
#define DEVICES "devices"
#define MASK "CUDA_VISIBLE_DEVICES"

static gsel_inventory* machine(const char* name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/inventory/%s.json", getenv("GSEL_TEST_DATA"), name);
  gsel_inventory* inventory = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_inventory_load(gsel_str_from(path), &inventory, &err);
  check_ok(status, err);
  return inventory;
}

struct row {
  const char* machine;
  const char* devices;     /* NULL: not given */
  const char* accelerator; /* NULL: not given */
  const char* mask;        /* CUDA_VISIBLE_DEVICES, NULL: unset */
  const char* order;       /* CUDA_DEVICE_ORDER, NULL: unset */
  /* When it succeeds: */
  const char* chosen;  /* indexes, such as "3,1" */
  const char* warning; /* a part of the warnings; NULL: there are none */
  /* When it is refused: */
  gsel_status code;
  const char* input; /* the variable or field */
  const char* token;
  int column;
  const char* message; /* a part of it */
};

static gsel_status resolve_row(const struct row* row, gsel_selection** selection, gsel_error** err) {
  gsel_inventory* inventory = machine(row->machine);
  gsel_env_var env[MAX_ENV];
  gsel_resolve_request request = GSEL_RESOLVE_REQUEST_INIT;
  request.inventory = inventory;
  request.env = env;
  if (row->mask) env[request.n_env++] = (gsel_env_var){GSEL_STR(MASK), gsel_str_from(row->mask)};
  if (row->order) env[request.n_env++] = (gsel_env_var){GSEL_STR("CUDA_DEVICE_ORDER"), gsel_str_from(row->order)};
  env[request.n_env++] = (gsel_env_var){GSEL_STR("HOME"), GSEL_STR("/nowhere")};
  request.devices = gsel_str_from(row->devices);
  request.accelerator = gsel_str_from(row->accelerator);
  const gsel_status status = gsel_resolve(&request, selection, err);
  gsel_inventory_free(inventory);
  return status;
}

static void print_row(const struct row* row) {
  print_error("machine %s, devices %s, accelerator %s, mask %s, order %s\n", row->machine,
              row->devices ? row->devices : "(none)", row->accelerator ? row->accelerator : "(none)",
              row->mask ? row->mask : "(unset)", row->order ? row->order : "(unset)");
}

static const struct row chosen_rows[] = {
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
    {.machine = "a100x8", .devices = "uuid:" A100_PREFIX_4, .chosen = "4"},
    {.machine = "a100x8", .devices = "cpu", .chosen = "8"},
    {.machine = "a100x8", .accelerator = "cpu", .chosen = "8"},
    {.machine = "a100x8", .devices = "all", .accelerator = "cpu", .chosen = "8"},
    /* The mask orders and hides; counts take from the front of what is left, indexes keep meaning bus order. */
    {.machine = "a100x8", .mask = "3,1,7", .chosen = "3,1,7"},
    {.machine = "a100x8", .devices = "count:2", .mask = "3,1,7", .chosen = "3,1"},
    {.machine = "a100x8", .devices = "index:7,3", .mask = "3,1,7", .chosen = "7,3"},
    {.machine = "a100x8", .devices = "all", .mask = " 3 ,\t1", .chosen = "3,1"},
    {.machine = "a100x8", .mask = "01,0", .chosen = "1,0"},
    {.machine = "a100x8", .mask = "GPU-e06,GPU-c4f8", .chosen = "2,0"},
    {.machine = "a100x8", .mask = "GPU-e06,gpu-c4f8", .chosen = "2,0", .warning = "another case"},
    {.machine = "a100x8", .mask = "GPU-e06, GPU-c4f8", .chosen = "2,0", .warning = "after a blank"},
    {.machine = "a100x8", .mask = "2,1", .order = "FASTEST_FIRST", .chosen = "2,1"},
    {.machine = "a100x8", .mask = "2,1", .order = "PCI_BUS_ID", .chosen = "2,1"},
    {.machine = "mixed4", .mask = "2,1", .order = "PCI_BUS_ID", .chosen = "2,1"},
    {.machine = "mixed4", .mask = "GPU-ba,GPU-fa", .chosen = "2,0"},
    {.machine = "mixed4", .devices = "index:3,1", .chosen = "3,1"},
    /* The CPU: asked for, it needs no mask to make sense; not asked for, it is taken with a warning. */
    {.machine = "a100x8", .devices = "cpu", .mask = "nonsense", .chosen = "8"},
    {.machine = "a100x8", .mask = "", .chosen = "8", .warning = "CUDA_VISIBLE_DEVICES is empty"},
    {.machine = "cpu", .chosen = "0", .warning = "libnvidia-ml.so.1 not found"},
    {.machine = "cpu", .devices = "auto", .accelerator = "auto", .chosen = "0", .warning = "no accelerator was found"},
    {.machine = "cpu", .devices = "cpu", .chosen = "0"},
};

static void chosen_text(const gsel_selection* selection, char* text, size_t capacity) {
  size_t length = 0;
  text[0] = '\0';
  for (int32_t i = 0; i < gsel_selection_device_count(selection); ++i) {
    gsel_device_info info = GSEL_DEVICE_INFO_INIT;
    assert_int_equal(gsel_selection_device(selection, i, &info, NULL), GSEL_OK);
    length += (size_t)snprintf(text + length, capacity - length, "%s%d", i ? "," : "", info.index);
  }
}

static void each_request_gets_the_devices_of_its_row(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof chosen_rows / sizeof *chosen_rows; ++i) {
    const struct row* row = &chosen_rows[i];
    gsel_selection* selection = NULL;
    gsel_error* err = NULL;
    const gsel_status status = resolve_row(row, &selection, &err);
    if (status) print_row(row);
    check_ok(status, err);
    char chosen[64];
    chosen_text(selection, chosen, sizeof chosen);
    const char* json = gsel_selection_json(selection).data;
    const int no_warning = strstr(json, "\"warnings\": []") != NULL;
    const int as_warned =
        row->warning ? !no_warning && strstr(gsel_selection_text(selection).data, row->warning) != NULL : no_warning;
    if (strcmp(chosen, row->chosen) || !as_warned) {
      print_row(row);
      fail_msg("expected %s with warning %s, got %s: %s", row->chosen, row->warning ? row->warning : "(none)", chosen,
               json);
    }
    gsel_selection_free(selection);
  }
}

static const struct row refused_rows[] = {
    /* The request. */
    {"a100x8", "", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "", 1, "no form of request"},
    {"a100x8", "2", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "2", 1, "write count:N or index:N"},
    {"a100x8", "gpu:2", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "gpu", 1, "count:N"},
    {"a100x8", "All", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "All", 1, "count:N"},
    {"a100x8", "count:", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "", 7, "decimal digits"},
    {"a100x8", "count:-1", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "-1", 7, "decimal digits"},
    {"a100x8", "count:1,2", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "2", 9, "one number"},
    {"a100x8", "count:0", 0, 0, 0, 0, 0, GSEL_ERR_OUT_OF_RANGE, DEVICES, "0", 7, "at least 1"},
    {"a100x8", "count:9", 0, 0, 0, 0, 0, GSEL_ERR_OUT_OF_RANGE, DEVICES, "9", 7, "count:8 would work"},
    {"a100x8", "count:3", 0, "0,1", 0, 0, 0, GSEL_ERR_OUT_OF_RANGE, DEVICES, "3", 7,
     "hidden by CUDA_VISIBLE_DEVICES=0,1"},
    {"a100x8", "count:99999999999999999999", 0, 0, 0, 0, 0, GSEL_ERR_OUT_OF_RANGE, DEVICES, "99999999999999999999", 7,
     ""},
    {"a100x8", "index:0,8", 0, 0, 0, 0, 0, GSEL_ERR_OUT_OF_RANGE, DEVICES, "8", 9, "8 accelerators"},
    {"a100x8", "index:99999999999999999999", 0, 0, 0, 0, 0, GSEL_ERR_OUT_OF_RANGE, DEVICES, "99999999999999999999", 7,
     ""},
    {"a100x8", "index:0,,1", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "", 9, "empty"},
    {"a100x8", "index:0-3", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "0-3", 7, "ranges"},
    {"a100x8", "index:0x1", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "0x1", 7, "decimal"},
    {"a100x8", "index:1, 01", 0, 0, 0, 0, 0, GSEL_ERR_DUPLICATE, DEVICES, "01", 10, "before"},
    {"a100x8", "index:0,GPU-c4", 0, 0, 0, 0, 0, GSEL_ERR_TYPE, DEVICES, "GPU-c4", 9, "uuid:GPU-"},
    {"a100x8", "uuid:0", 0, 0, 0, 0, 0, GSEL_ERR_TYPE, DEVICES, "0", 6, "index:N"},
    {"a100x8", "uuid:GPU-", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "GPU-", 6, "hexadecimal"},
    {"a100x8", "uuid:c4f8", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "c4f8", 6, "GPU-"},
    {"a100x8", "uuid:GPU-xyz", 0, 0, 0, 0, 0, GSEL_ERR_SYNTAX, DEVICES, "GPU-xyz", 6, "hexadecimal"},
    {"a100x8", "uuid:GPU-000", 0, 0, 0, 0, 0, GSEL_ERR_UNKNOWN_DEVICE, DEVICES, "GPU-000", 6, "no device"},
    {"a100x8", "uuid:GPU-b27c", 0, 0, 0, 0, 0, GSEL_ERR_AMBIGUOUS, DEVICES, "GPU-b27c", 6, "2 devices"},
    {"a100x8", "uuid:GPU-c4,GPU-c4f8", 0, 0, 0, 0, 0, GSEL_ERR_DUPLICATE, DEVICES, "GPU-c4f8", 13, "before"},
    {"a100x8", "uuid:MIG-1", 0, 0, 0, 0, 0, GSEL_ERR_UNSUPPORTED, DEVICES, "MIG-1", 6, "MIG"},
    {"a100x8", 0, "tpu", 0, 0, 0, 0, GSEL_ERR_SYNTAX, "accelerator", "tpu", 1, "auto, cpu, cuda"},
    {"a100x8", "count:2", "cpu", 0, 0, 0, 0, GSEL_ERR_CONFLICT, "accelerator", "cpu", 1, "devices=count:2"},
    {"a100x8", "cpu", "cuda", 0, 0, 0, 0, GSEL_ERR_CONFLICT, "accelerator", "cuda", 1, "devices=cpu"},
    /* Asking for what the mask hides shows both. */
    {"a100x8", "index:1,2", 0, "0,1", 0, 0, 0, GSEL_ERR_CONFLICT, DEVICES, "2", 9,
     "hidden by CUDA_VISIBLE_DEVICES=0,1"},
    {"a100x8", "uuid:GPU-e06", 0, "0,1", 0, 0, 0, GSEL_ERR_CONFLICT, DEVICES, "GPU-e06", 6, "CUDA_VISIBLE_DEVICES=0,1"},
    {"a100x8", "index:0", 0, "", 0, 0, 0, GSEL_ERR_CONFLICT, DEVICES, "0", 7, "CUDA_VISIBLE_DEVICES is empty"},
    /* The mask. */
    {"a100x8", 0, 0, "0,8", 0, 0, 0, GSEL_ERR_OUT_OF_RANGE, MASK, "8", 3, "8 NVIDIA devices, 0 to 7"},
    {"a100x8", 0, 0, "0,1,0", 0, 0, 0, GSEL_ERR_DUPLICATE, MASK, "0", 5, "before"},
    {"a100x8", 0, 0, "GPU-c4,GPU-c4f8", 0, 0, 0, GSEL_ERR_DUPLICATE, MASK, "GPU-c4f8", 8, "before"},
    {"a100x8", 0, 0, "-1", 0, 0, 0, GSEL_ERR_SYNTAX, MASK, "-1", 1, "an empty value hides all"},
    {"a100x8", 0, 0, "NoDevFiles", 0, 0, 0, GSEL_ERR_SYNTAX, MASK, "NoDevFiles", 1, "decimal digits"},
    {"a100x8", 0, 0, "1,2gpu", 0, 0, 0, GSEL_ERR_SYNTAX, MASK, "2gpu", 3, "decimal digits"},
    {"a100x8", 0, 0, "+3", 0, 0, 0, GSEL_ERR_SYNTAX, MASK, "+3", 1, "decimal digits"},
    {"a100x8", 0, 0, "1,,2", 0, 0, 0, GSEL_ERR_SYNTAX, MASK, "", 3, "empty"},
    {"a100x8", 0, 0, "1,", 0, 0, 0, GSEL_ERR_SYNTAX, MASK, "", 3, "empty"},
    {"a100x8", 0, 0, " ", 0, 0, 0, GSEL_ERR_SYNTAX, MASK, "", 1, "empty"},
    {"a100x8", 0, 0, "1\n2", 0, 0, 0, GSEL_ERR_SYNTAX, MASK, "1\n2", 1, "1\\x0a2"},
    {"a100x8", 0, 0, "0,GPU-c4", 0, 0, 0, GSEL_ERR_TYPE, MASK, "GPU-c4", 3, "do not mix"},
    {"a100x8", 0, 0, "GPU-c4,0", 0, 0, 0, GSEL_ERR_TYPE, MASK, "0", 8, "do not mix"},
    {"a100x8", 0, 0, "GPU-c4,GPU-0", 0, 0, 0, GSEL_ERR_UNKNOWN_DEVICE, MASK, "GPU-0", 8, "no device"},
    {"a100x8", 0, 0, "GPU-b27c", 0, 0, 0, GSEL_ERR_AMBIGUOUS, MASK, "GPU-b27c", 1, "more digits"},
    {"a100x8", 0, 0, "GPU-", 0, 0, 0, GSEL_ERR_SYNTAX, MASK, "GPU-", 1, "hexadecimal"},
    {"a100x8", 0, 0, "MIG-1234", 0, 0, 0, GSEL_ERR_UNSUPPORTED, MASK, "MIG-1234", 1, "MIG"},
    {"a100x8", 0, 0, "0", "pci", 0, 0, GSEL_ERR_SYNTAX, "CUDA_DEVICE_ORDER", "pci", 1, "PCI_BUS_ID"},
    {"a100x8", 0, 0, 0, "", 0, 0, GSEL_ERR_SYNTAX, "CUDA_DEVICE_ORDER", "", 1, "PCI_BUS_ID"},
    {"mixed4", 0, 0, "2,1", 0, 0, 0, GSEL_ERR_AMBIGUOUS, MASK, "2", 1, "CUDA_DEVICE_ORDER=PCI_BUS_ID"},
    {"mixed4", 0, 0, "2,1", "FASTEST_FIRST", 0, 0, GSEL_ERR_AMBIGUOUS, MASK, "2", 1, "unlike devices"},
    {"cpu", 0, 0, "0", 0, 0, 0, GSEL_ERR_OUT_OF_RANGE, MASK, "0", 1, "no NVIDIA device"},
    /* Nothing there. */
    {"cpu", "all", 0, 0, 0, 0, 0, GSEL_ERR_NO_DEVICES, DEVICES, "all", 1,
     "looked for NVIDIA (NVML: libnvidia-ml.so.1 not found"},
    {"cpu", "count:1", 0, 0, 0, 0, 0, GSEL_ERR_NO_DEVICES, DEVICES, "count:1", 1, "cpu would work"},
    {"cpu", "index:0", 0, 0, 0, 0, 0, GSEL_ERR_NO_DEVICES, DEVICES, "index:0", 1, "cpu would work"},
    {"cpu", 0, "cuda", 0, 0, 0, 0, GSEL_ERR_NO_DEVICES, "accelerator", "cuda", 1, "cpu would work"},
    {"a100x8", "all", 0, "", 0, 0, 0, GSEL_ERR_NO_DEVICES, DEVICES, "all", 1,
     "8 of 8 hidden: CUDA_VISIBLE_DEVICES is empty"},
};

static void each_bad_request_is_refused_with_input_token_and_column(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof refused_rows / sizeof *refused_rows; ++i) {
    const struct row* row = &refused_rows[i];
    gsel_selection* selection = NULL;
    gsel_error* err = NULL;
    const gsel_status status = resolve_row(row, &selection, &err);
    assert_null(selection);
    const gsel_str token = gsel_error_token(err), input = gsel_error_file(err), message = gsel_error_message(err);
    if (status != row->code || gsel_error_code(err) != row->code || strcmp(token.data, row->token) ||
        strcmp(input.data, row->input) || gsel_error_column(err) != row->column ||
        !strstr(message.data, row->message) || !strstr(message.data, row->input) || strchr(message.data, '\n')) {
      print_row(row);
      fail_msg("expected %s about \"%s\" at %s column %d with \"%s\", got %s about \"%s\" at %s column %d: %s",
               gsel_status_name(row->code), row->token, row->input, row->column, row->message, gsel_status_name(status),
               token.data, input.data, (int)gsel_error_column(err), message.data);
    }
    gsel_error_free(err);
  }
}

static void every_candidate_has_its_place_and_reason(void** state) {
  (void)state;
  const struct row row = {.machine = "a100x8", .devices = "count:2", .mask = "3,1,7"};
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  const gsel_status status = resolve_row(&row, &selection, &err);
  check_ok(status, err);
  static const struct {
    int32_t position;
    const char* reason;
  } expected[] = {{-1, "hidden by CUDA_VISIBLE_DEVICES=3,1,7"},
                  {1, "place 1 of CUDA_VISIBLE_DEVICES=3,1,7; place 1 of count:2"},
                  {-1, "hidden by"},
                  {0, "place 0 of count:2"},
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
  check_fails(gsel_selection_candidate(selection, 9, &candidate, &err), err, GSEL_ERR_ARG, "there are 9");
  gsel_selection_free(selection);
}

static void check_env(const gsel_selection* selection, int32_t rank, const char* mask, size_t expected_count) {
  const gsel_env_var* env = NULL;
  size_t count = 0;
  gsel_error* err = NULL;
  const gsel_status status = gsel_selection_env(selection, rank, &env, &count, &err);
  check_ok(status, err);
  assert_int_equal(count, expected_count);
  assert_string_equal(env[0].name.data, MASK);
  assert_string_equal(env[0].value.data, mask);
  if (count == 2) assert_string_equal(env[1].name.data, "CUDA_DEVICE_ORDER");
  if (count == 2) assert_string_equal(env[1].value.data, "PCI_BUS_ID");
}

static void children_get_full_uuids_in_order_or_the_one_of_their_rank(void** state) {
  (void)state;
  const struct row two = {.machine = "a100x8", .devices = "index:2,0"};
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  gsel_status status = resolve_row(&two, &selection, &err);
  check_ok(status, err);
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

  const struct row one = {.machine = "a100x8", .devices = "index:0"};
  status = resolve_row(&one, &selection, &err);
  check_ok(status, err);
  check_env(selection, 1000, second, 2);
  gsel_selection_free(selection);

  const struct row cpu = {.machine = "a100x8", .devices = "cpu"};
  status = resolve_row(&cpu, &selection, &err);
  check_ok(status, err);
  check_env(selection, -1, "", 1);
  check_env(selection, 5, "", 1);
  gsel_selection_free(selection);
}

/* Resolves all devices of the 8-GPU machine with the given flags and counts them. */
static int32_t count_with_flags(uint32_t flags) {
  gsel_inventory* inventory = machine("a100x8");
  gsel_resolve_request request = GSEL_RESOLVE_REQUEST_INIT;
  request.inventory = inventory;
  request.flags = flags;
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_resolve(&request, &selection, &err);
  check_ok(status, err);
  const int32_t count = gsel_selection_device_count(selection);
  gsel_selection_free(selection);
  gsel_inventory_free(inventory);
  return count;
}

static void the_process_environment_counts_unless_told_otherwise_and_stays_as_it_was(void** state) {
  (void)state;
  setenv(MASK, "4,5,6", 1);
  assert_int_equal(count_with_flags(0), 3);
  assert_int_equal(count_with_flags(GSEL_RESOLVE_NO_ENV), 8);
  assert_string_equal(getenv(MASK), "4,5,6");
  unsetenv(MASK);
  assert_int_equal(count_with_flags(0), 8);
  assert_null(getenv("CUDA_DEVICE_ORDER"));
}

static void bad_arguments_are_named(void** state) {
  (void)state;
  gsel_selection* selection = NULL;
  gsel_error* err = NULL;
  gsel_inventory* inventory = machine("cpu");
  gsel_resolve_request request = GSEL_RESOLVE_REQUEST_INIT;
  request.inventory = inventory;
  check_fails(gsel_resolve(NULL, &selection, &err), err, GSEL_ERR_ARG, "gsel_resolve_request is NULL");
  check_fails(gsel_resolve(&request, NULL, &err), err, GSEL_ERR_ARG, "out is NULL");
  request.n_env = 1;
  check_fails(gsel_resolve(&request, &selection, &err), err, GSEL_ERR_ARG, "env is NULL");
  gsel_env_var env[] = {{GSEL_STR("A"), GSEL_STR("1")}, {GSEL_STR("A"), GSEL_STR("2")}};
  request.env = env;
  request.n_env = 2;
  check_fails(gsel_resolve(&request, &selection, &err), err, GSEL_ERR_ARG, "env names A twice");
  request.n_env = 1;
  request.flags = 6;
  check_fails(gsel_resolve(&request, &selection, &err), err, GSEL_ERR_ARG, "flags is 0x6");
  request.struct_size = 4;
  check_fails(gsel_resolve(&request, &selection, &err), err, GSEL_ERR_VERSION, "struct_size is 4");
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  check_fails(gsel_inventory_device(inventory, -1, &info, &err), err, GSEL_ERR_ARG, "index is -1");
  check_fails(gsel_inventory_device(inventory, 1, &info, &err), err, GSEL_ERR_ARG, "index is 1");
  gsel_inventory_free(inventory);
  gsel_inventory_free(NULL);
  gsel_selection_free(NULL);
  assert_int_equal(gsel_selection_device_count(NULL), 0);
}

int main(void) {
  unsetenv(MASK);
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
