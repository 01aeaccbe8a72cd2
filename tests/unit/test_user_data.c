/* test_user_data.c: what the library keeps of an embedder is freed once, when nothing can call it any more, and not at
 * all where the call that should have kept it fails. */
#include <gsel/gsel.h>
#include <stdlib.h>

#include "support/check.h"

static int freed; /* how often, of the pieces that are counted here */

static void count_free(void* user_data) {
  assert_non_null(user_data);
  ++freed;
  free(user_data);
}

static void* piece(void) {
  return calloc(1, 8);
}

static gsel_error* err;

static gsel_status fill(const gsel_data_request* request, void* user_data) {
  (void)user_data;
  for (int64_t i = 0; i < request->dst.n_elems; ++i) ((float*)request->dst.data)[i] = 1;
  return GSEL_OK;
}

static gsel_status initial(float* dst, int64_t first, int64_t count, uint64_t seed, void* user_data) {
  (void)first, (void)seed;
  assert_non_null(user_data);
  for (int64_t i = 0; i < count; ++i) dst[i] = 2;
  return GSEL_OK;
}

static gsel_status loss(const gsel_call* call, void* user_data) {
  assert_non_null(user_data);
  *(double*)call->outputs[0].data = (double)(((const float*)call->params[0].data)[0]);
  *(double*)call->outputs[1].data = 1;
  return GSEL_OK;
}

static gsel_status gradient(const gsel_call* call, void* user_data) {
  (void)user_data;
  ((float*)call->d_params[0].data)[0] = 1 + (call->accumulate ? ((float*)call->d_params[0].data)[0] : 0);
  return GSEL_OK;
}

static gsel_status step(const gsel_optimizer_call* call, void* user_data) {
  assert_non_null(user_data);
  for (int64_t i = 0; i < call->count; ++i) call->values[i] -= call->gradient[i];
  return GSEL_OK;
}

static void add_value(gsel_model* model, const char* name, gsel_dtype dtype, int32_t n_dims, uint32_t flags) {
  const int64_t one = 1;
  gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
  value.name = gsel_str_from(name);
  value.dims = &one;
  value.n_dims = n_dims;
  value.dtype = dtype;
  value.flags = flags;
  check_ok(gsel_model_add_value(model, &value, NULL, &err), err);
}

static gsel_param_options param_options(void) {
  static const int64_t one = 1;
  gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
  param.name = gsel_str_from("w");
  param.dims = &one;
  param.n_dims = 1;
  param.init = GSEL_INIT_CALLBACK;
  param.init_fn = initial;
  param.init_user_data = piece();
  param.init_free_user_data = count_free;
  return param;
}

static gsel_layer_options layer_options(void) {
  static const int32_t input = 0, outputs[] = {1, 2}, param = 0;
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
  layer.name = gsel_str_from("loss");
  layer.inputs = &input;
  layer.outputs = outputs;
  layer.params = &param;
  layer.n_inputs = layer.n_params = 1;
  layer.n_outputs = 2;
  layer.flags = GSEL_LAYER_LOSS;
  layer.forward = loss;
  layer.backward = gradient;
  layer.user_data = piece();
  layer.free_user_data = count_free;
  return layer;
}

static gsel_model* model_of_values(void) {
  gsel_model* model;
  check_ok(gsel_model_create(&model, &err), err);
  add_value(model, "x", GSEL_F32, 1, GSEL_VALUE_INPUT);
  add_value(model, "loss", GSEL_F64, 0, GSEL_VALUE_SCALAR);
  add_value(model, "weight", GSEL_F64, 0, GSEL_VALUE_SCALAR);
  return model;
}

static gsel_model* described(void) {
  gsel_model* model = model_of_values();
  const gsel_param_options param = param_options();
  check_ok(gsel_model_add_param(model, &param, NULL, &err), err);
  const gsel_layer_options layer = layer_options();
  check_ok(gsel_model_add_layer(model, &layer, NULL, &err), err);
  return model;
}

static gsel_comm* alone(void) {
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  gsel_comm* comm;
  options.world_size = 1;
  check_ok(gsel_comm_init(&options, &comm, &err), err);
  return comm;
}

static void a_model_keeps_its_pieces_until_its_last_trainer_is_freed(void** state) {
  (void)state;
  freed = 0;
  gsel_comm* comm = alone();
  gsel_model* model = described();
  gsel_optimizer_options optimizer = GSEL_OPTIMIZER_OPTIONS_INIT;
  optimizer.step = step;
  optimizer.user_data = piece();
  optimizer.free_user_data = count_free;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  options.data = fill;
  options.data_user_data = piece();
  options.data_free_user_data = count_free;
  options.optimizer = &optimizer;
  gsel_trainer* trainer;
  check_ok(gsel_trainer_create(comm, model, &options, &trainer, &err), err);
  gsel_model_free(model);
  check_ok(gsel_trainer_step(trainer, NULL, &err), err);
  assert_int_equal(freed, 0);
  gsel_trainer_free(trainer);
  assert_int_equal(freed, 4); /* initialiser, layer, data, optimizer */
  gsel_comm_free(comm);
}

static void a_pipeline_keeps_its_data(void** state) {
  (void)state;
  freed = 0;
  gsel_comm* comm = alone();
  gsel_model* model = model_of_values();
  gsel_layer_options layer = layer_options();
  layer.n_params = 0;
  layer.backward = NULL;
  check_ok(gsel_model_add_layer(model, &layer, NULL, &err), err);
  gsel_pipeline_options options = GSEL_PIPELINE_OPTIONS_INIT;
  options.microbatches = 1;
  options.microbatch_samples = 1;
  options.data = fill;
  options.data_user_data = piece();
  options.data_free_user_data = count_free;
  gsel_pipeline* pipeline;
  check_ok(gsel_pipeline_create(comm, model, &options, &pipeline, &err), err);
  assert_int_equal(gsel_pipeline_stage_count(pipeline), 1);
  gsel_pipeline_free(pipeline);
  assert_int_equal(freed, 1);
  gsel_model_free(model);
  assert_int_equal(freed, 2);
  gsel_comm_free(comm);
}

static int32_t add(void* accumulated, const void* next, size_t count, gsel_dtype dtype, void* user_data) {
  (void)dtype, (void)user_data;
  for (size_t i = 0; i < count; ++i) ((float*)accumulated)[i] += ((const float*)next)[i];
  return 0;
}

static void an_operation_and_a_sink_give_theirs_back(void** state) {
  (void)state;
  freed = 0;
  gsel_op op;
  check_ok(gsel_op_create(gsel_str_from("add"), 1, add, piece(), count_free, &op, &err), err);
  gsel_op_free(op);
  assert_int_equal(freed, 1);
  gsel_op_free(op); /* a number of old */
  assert_int_equal(freed, 1);
  gsel_log_set(NULL, GSEL_LOG_ERROR, piece(), count_free);
  assert_int_equal(freed, 1);
  gsel_log_set(NULL, GSEL_LOG_ERROR, NULL, NULL);
  assert_int_equal(freed, 2);
}

static void a_call_that_fails_keeps_nothing(void** state) {
  (void)state;
  freed = 0;
  gsel_comm* comm = alone();
  gsel_model* model = described();
  const gsel_param_options twin = param_options();
  check_fails(gsel_model_add_param(model, &twin, NULL, &err), err, GSEL_ERR_MODEL, "\"w\"");
  const gsel_layer_options second = layer_options();
  check_fails(gsel_model_add_layer(model, &second, NULL, &err), err, GSEL_ERR_MODEL, "\"loss\"");
  gsel_op op;
  void* kept = piece();
  check_fails(gsel_op_create(gsel_str_from("none"), 1, NULL, kept, count_free, &op, &err), err, GSEL_ERR_ARG,
              "no function");
  gsel_config* config = NULL;
  check_ok(gsel_config_parse(gsel_str_from("[strategy.data]\nplugin = \"nonesuch\"\n"), gsel_str_from("n.toml"),
                             &config, &err),
           err);
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  options.config = config;
  options.data = fill;
  options.data_user_data = kept;
  options.data_free_user_data = count_free;
  gsel_trainer* trainer;
  check_fails(gsel_trainer_create(comm, model, &options, &trainer, &err), err, GSEL_ERR_NOT_FOUND, "nonesuch");
  assert_int_equal(freed, 0);
  free(twin.init_user_data);
  free(second.user_data);
  free(kept);
  gsel_config_free(config);
  gsel_model_free(model);
  assert_int_equal(freed, 2);
  gsel_comm_free(comm);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_model_keeps_its_pieces_until_its_last_trainer_is_freed),
      cmocka_unit_test(a_pipeline_keeps_its_data),
      cmocka_unit_test(an_operation_and_a_sink_give_theirs_back),
      cmocka_unit_test(a_call_that_fails_keeps_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
