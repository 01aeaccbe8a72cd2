/* What a model description accepts and refuses, and that a refusal leaves the model as it was. */
#include "support/check.h"

static gsel_status never_called(const gsel_call* call, void* user_data) {
  (void)call, (void)user_data;
  return GSEL_ERR_INTERNAL;
}

/* A model under construction with shorthand for adding; ids of values and parameters count from 0. */
static gsel_model* model;
static gsel_error* err;

static int setup(void** state) {
  (void)state;
  check_ok(gsel_model_create(&model, &err), err);
  return 0;
}
static int teardown(void** state) {
  (void)state;
  gsel_model_free(model);
  return 0;
}

static gsel_status add_value(const char* name, uint32_t flags, gsel_dtype dtype) {
  gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
  const int64_t dims[] = {4};
  options.name = gsel_str_from(name);
  options.flags = flags;
  options.dtype = dtype;
  options.dims = dims;
  options.n_dims = flags & GSEL_VALUE_SCALAR ? 0 : 1;
  return gsel_model_add_value(model, &options, NULL, &err);
}

static gsel_status add_param(const char* name, int64_t n) {
  gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
  options.name = gsel_str_from(name);
  options.dims = &n;
  options.n_dims = 1;
  return gsel_model_add_param(model, &options, NULL, &err);
}

/* A layer with at most one input, output and parameter; -1 leaves it out. */
static gsel_layer_options layer_options(const char* name, const int32_t* in, const int32_t* out, const int32_t* param) {
  gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
  options.name = gsel_str_from(name);
  options.inputs = in;
  options.n_inputs = in && *in >= 0;
  options.outputs = out;
  options.n_outputs = out && *out >= 0;
  options.params = param;
  options.n_params = param && *param >= 0;
  options.forward = options.backward = never_called;
  return options;
}
static gsel_status add_layer(const char* name, int32_t in, int32_t out, int32_t param) {
  const gsel_layer_options options = layer_options(name, &in, &out, &param);
  return gsel_model_add_layer(model, &options, NULL, &err);
}

/* Values 0 tokens (input), 1 x, 2 loss, 3 weight; parameter 0 w. */
static void add_pieces(void) {
  check_ok(add_value("tokens", GSEL_VALUE_INPUT, GSEL_I32), err);
  check_ok(add_value("x", 0, 0), err);
  check_ok(add_value("loss", GSEL_VALUE_SCALAR, GSEL_F64), err);
  check_ok(add_value("weight", GSEL_VALUE_SCALAR, GSEL_F64), err);
  check_ok(add_param("w", 8), err);
}

static gsel_status add_loss(const char* name, int32_t in) {
  const int32_t outputs[] = {2, 3};
  gsel_layer_options options = layer_options(name, &in, NULL, NULL);
  options.outputs = outputs;
  options.n_outputs = 2;
  options.flags = GSEL_LAYER_LOSS;
  return gsel_model_add_layer(model, &options, NULL, &err);
}

static void a_small_model_is_accepted_and_counted(void** state) {
  (void)state;
  add_pieces();
  check_ok(add_layer("embed", 0, 1, 0), err);
  check_ok(add_loss("loss", 1), err);
  check_ok(gsel_model_finish(model, &err), err);
  assert_int_equal(gsel_model_param_count(model), 1);
  assert_int_equal(gsel_model_value_count(model), 4);
  assert_int_equal(gsel_model_layer_count(model), 2);
  assert_int_equal(gsel_model_element_count(model), 8);
  check_fails(add_param("late", 1), err, GSEL_ERR_STATE, "the model is finished");
}

static void duplicate_names_are_refused_by_kind(void** state) {
  (void)state;
  add_pieces();
  check_fails(add_value("x", 0, 0), err, GSEL_ERR_MODEL, "value name \"x\" is used twice");
  check_fails(add_param("w", 1), err, GSEL_ERR_MODEL, "parameter name \"w\" is used twice");
  check_ok(add_layer("embed", 0, 1, 0), err);
  check_fails(add_loss("embed", 1), err, GSEL_ERR_MODEL, "layer name \"embed\" is used twice");
}

static void names_that_text_cannot_carry_are_refused(void** state) {
  (void)state;
  check_fails(add_param("", 1), err, GSEL_ERR_MODEL, "without a name");
  check_fails(add_param("a b", 1), err, GSEL_ERR_MODEL, "has a blank");
  check_fails(add_param("a,b", 1), err, GSEL_ERR_MODEL, "has a blank, ','");
  check_fails(add_param("a\nb", 1), err, GSEL_ERR_MODEL, "has a blank");
}

static void impossible_shapes_are_refused(void** state) {
  (void)state;
  check_fails(add_param("w", 0), err, GSEL_ERR_MODEL, "dimension of 0 elements");
  check_fails(add_param("w", -3), err, GSEL_ERR_MODEL, "dimension of -3 elements");
  const int64_t huge[] = {INT64_C(1) << 40, INT64_C(1) << 40};
  gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
  options.name = gsel_str_from("w");
  options.dims = huge;
  options.n_dims = 2;
  check_fails(gsel_model_add_param(model, &options, NULL, &err), err, GSEL_ERR_MODEL, "more elements than memory");
  options.n_dims = GSEL_MAX_DIMS + 1;
  check_fails(gsel_model_add_param(model, &options, NULL, &err), err, GSEL_ERR_MODEL, "7 dimensions");
}

static void unknown_flags_and_rules_are_refused(void** state) {
  (void)state;
  const int64_t one = 1;
  check_fails(add_value("v", 1u << 9, 0), err, GSEL_ERR_MODEL, "value \"v\" has unknown flags 0x200");
  gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
  param.name = gsel_str_from("w");
  param.dims = &one;
  param.n_dims = 1;
  param.flags = 1u << 8;
  check_fails(gsel_model_add_param(model, &param, NULL, &err), err, GSEL_ERR_MODEL, "unknown flags 0x100");
  param.flags = 0;
  param.shard = 99;
  check_fails(gsel_model_add_param(model, &param, NULL, &err), err, GSEL_ERR_MODEL, "shard rule 99");
  gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
  value.name = gsel_str_from("v");
  value.placement = 77;
  check_fails(gsel_model_add_value(model, &value, NULL, &err), err, GSEL_ERR_MODEL, "placement 77");
  value.placement = GSEL_PLACEMENT_SHARD;
  value.shard_dim = 1;
  check_fails(gsel_model_add_value(model, &value, NULL, &err), err, GSEL_ERR_MODEL, "along dimension 1 of 1");
}

static void reading_what_is_not_written_yet_is_how_a_cycle_shows(void** state) {
  (void)state;
  add_pieces();
  check_ok(add_value("y", 0, 0), err);
  check_fails(add_layer("a", 4, 1, 0), err, GSEL_ERR_MODEL, "reads value \"y\" before any layer writes it");
  check_ok(add_layer("a", 0, 1, 0), err);
  check_fails(add_layer("b", 0, 1, 0), err, GSEL_ERR_MODEL, "which layer \"a\" already writes");
  check_fails(add_layer("b", 1, 0, 0), err, GSEL_ERR_MODEL, "which is an input");
  assert_int_equal(gsel_model_layer_count(model), 1);
}

static void unknown_ids_are_refused(void** state) {
  (void)state;
  add_pieces();
  check_fails(add_layer("a", 9, 1, 0), err, GSEL_ERR_MODEL, "value id 9; ids 0 to 3 exist");
  check_fails(add_layer("a", 0, 1, 7), err, GSEL_ERR_MODEL, "parameter id 7; ids 0 to 0 exist");
}

static void the_loss_is_one_layer_of_two_f64_scalars(void** state) {
  (void)state;
  add_pieces();
  const int32_t x = 1;
  check_ok(add_layer("embed", 0, 1, 0), err);
  check_fails(gsel_model_finish(model, &err), err, GSEL_ERR_MODEL, "no loss layer");
  const int32_t one = 2;
  gsel_layer_options options = layer_options("half", &x, &one, NULL);
  options.flags = GSEL_LAYER_LOSS;
  check_fails(gsel_model_add_layer(model, &options, NULL, &err), err, GSEL_ERR_MODEL, "two f64 scalars");
  options.flags = 0;
  check_fails(gsel_model_add_layer(model, &options, NULL, &err), err, GSEL_ERR_MODEL,
              "only the loss layer writes scalars");
  check_ok(add_loss("loss", 1), err);
  check_ok(add_value("l2", GSEL_VALUE_SCALAR, GSEL_F64), err);
  check_fails(add_loss("again", 1), err, GSEL_ERR_MODEL, "already writes");
}

static void unused_pieces_are_refused_at_the_end(void** state) {
  (void)state;
  add_pieces();
  check_ok(add_layer("embed", 0, 1, -1), err);
  check_ok(add_loss("loss", 1), err);
  check_fails(gsel_model_finish(model, &err), err, GSEL_ERR_MODEL, "parameter \"w\" is used by no layer");
}

static void a_value_nobody_writes_is_refused_at_the_end(void** state) {
  (void)state;
  add_pieces();
  check_ok(add_value("orphan", 0, 0), err);
  check_ok(add_layer("embed", 0, 1, 0), err);
  check_ok(add_loss("loss", 1), err);
  check_fails(gsel_model_finish(model, &err), err, GSEL_ERR_MODEL, "value \"orphan\" is written by no layer");
}

static void missing_callbacks_are_named(void** state) {
  (void)state;
  add_pieces();
  const int32_t in = 0, out = 1, param = 0;
  gsel_layer_options options = layer_options("embed", &in, &out, &param);
  options.forward = NULL;
  check_fails(gsel_model_add_layer(model, &options, NULL, &err), err, GSEL_ERR_MODEL, "\"embed\" has no forward");
  options.forward = never_called;
  options.backward = NULL;
  check_ok(gsel_model_add_layer(model, &options, NULL, &err), err);
  check_ok(add_loss("loss", 1), err);
  check_fails(gsel_model_finish(model, &err), err, GSEL_ERR_MODEL, "trainable parameters and neither backward_weight");
}

static void null_arguments_are_errors(void** state) {
  (void)state;
  check_fails(gsel_model_create(NULL, &err), err, GSEL_ERR_ARG, "out is NULL");
  check_fails(gsel_model_add_param(NULL, NULL, NULL, &err), err, GSEL_ERR_ARG, "model is NULL");
  check_fails(gsel_model_add_param(model, NULL, NULL, &err), err, GSEL_ERR_ARG, "gsel_param_options is NULL");
  gsel_layer_options unset;
  memset(&unset, 0, sizeof unset);
  check_fails(gsel_model_add_layer(model, &unset, NULL, &err), err, GSEL_ERR_VERSION, "struct_size is 0");
  assert_int_equal(gsel_model_param_count(NULL), 0);
  gsel_model_free(NULL);
}

int main(void) {
#define test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      test(a_small_model_is_accepted_and_counted),
      test(duplicate_names_are_refused_by_kind),
      test(names_that_text_cannot_carry_are_refused),
      test(impossible_shapes_are_refused),
      test(unknown_flags_and_rules_are_refused),
      test(reading_what_is_not_written_yet_is_how_a_cycle_shows),
      test(unknown_ids_are_refused),
      test(the_loss_is_one_layer_of_two_f64_scalars),
      test(unused_pieces_are_refused_at_the_end),
      test(a_value_nobody_writes_is_refused_at_the_end),
      test(missing_callbacks_are_named),
      test(null_arguments_are_errors),
  };
  return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
