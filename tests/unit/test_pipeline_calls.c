/* What gsel_pipeline_create and its fellows take and refuse, on a world of one rank. */
#include "support/pipe_model.h"

static gsel_comm* comm;
static gsel_model* model;
static gsel_pipeline* pipeline;
static gsel_pipeline_options pipeline_options;
static pipe_model m;
static gsel_error* err;

static int open_all(void** state) {
  (void)state;
  gsel_comm_options alone = GSEL_COMM_OPTIONS_INIT;
  gsel_unique_id id;
  check_ok(gsel_unique_id_create(&id, &err), err);
  alone.world_size = 1;
  alone.id = &id;
  check_ok(gsel_comm_init(&alone, &comm, &err), err);
  check_ok(gsel_model_create(&model, &err), err);
  memset(&m, 0, sizeof m);
  m.layers = 4;
  gsel_pipeline_options_init(&pipeline_options, sizeof pipeline_options);
  pipeline_options.microbatches = 2;
  pipeline_options.microbatch_samples = 3;
  pipeline_options.data = pipe_data;
  pipeline_options.data_user_data = &m;
  pipeline = NULL;
  return 0;
}
static int close_all(void** state) {
  (void)state;
  gsel_pipeline_free(pipeline);
  gsel_model_free(model);
  gsel_comm_free(comm);
  return 0;
}

static void describe(void) {
  check_ok(pipe_describe(model, &m, &err), err);
}
static void refuse(gsel_status code, const char* text) {
  check_fails(gsel_pipeline_create(comm, model, &pipeline_options, &pipeline, &err), err, code, text);
  assert_null(pipeline);
}

static void null_is_refused_by_name(void** state) {
  (void)state;
  gsel_pipeline_stage stage = GSEL_PIPELINE_STAGE_INIT;
  check_fails(gsel_pipeline_create(NULL, model, &pipeline_options, &pipeline, &err), err, GSEL_ERR_ARG, "comm is NULL");
  check_fails(gsel_pipeline_create(comm, NULL, &pipeline_options, &pipeline, &err), err, GSEL_ERR_ARG, "model is NULL");
  check_fails(gsel_pipeline_create(comm, model, NULL, &pipeline, &err), err, GSEL_ERR_ARG, "gsel_pipeline_options");
  check_fails(gsel_pipeline_create(comm, model, &pipeline_options, NULL, &err), err, GSEL_ERR_ARG, "out is NULL");
  check_fails(gsel_pipeline_run(NULL, GSEL_FORWARD, NULL, &err), err, GSEL_ERR_ARG, "pipeline is NULL");
  check_fails(gsel_pipeline_stage_get(NULL, 0, &stage, &err), err, GSEL_ERR_ARG, "pipeline is NULL");
  check_fails(gsel_pipeline_stage_get(NULL, 0, NULL, &err), err, GSEL_ERR_ARG, "gsel_pipeline_stage");
  assert_null(gsel_pipeline_program(NULL));
  gsel_pipeline_free(NULL);
}

static void numbers_out_of_range_are_refused(void** state) {
  (void)state;
  describe();
  pipeline_options.microbatches = 0;
  refuse(GSEL_ERR_ARG, "microbatches is 0; expected 1 to 65536");
  pipeline_options.microbatches = 65537;
  refuse(GSEL_ERR_ARG, "microbatches is 65537");
  pipeline_options.microbatches = 2;
  pipeline_options.microbatch_samples = 0;
  refuse(GSEL_ERR_ARG, "microbatch_samples is 0");
  pipeline_options.microbatch_samples = 1;
  pipeline_options.chunks = -1;
  refuse(GSEL_ERR_ARG, "chunks is -1");
  pipeline_options.chunks = 0;
  pipeline_options.tensor_ranks = 2;
  refuse(GSEL_ERR_ARG, "tensor_ranks is 2, and the communicator has 1 rank; expected a number that divides them");
  pipeline_options.tensor_ranks = -1;
  refuse(GSEL_ERR_ARG, "tensor_ranks is -1");
  pipeline_options.tensor_ranks = 0;
  pipeline_options.n_first_layers = 1;
  refuse(GSEL_ERR_ARG, "n_first_layers = 1 and no list");
  pipeline_options.n_first_layers = -1;
  refuse(GSEL_ERR_ARG, "n_first_layers = -1");
}

static void first_layers_rise_and_exist(void** state) {
  (void)state;
  static const int32_t falling[] = {2, 2}, beyond[] = {1, 4}, first[] = {0};
  describe();
  pipeline_options.n_first_layers = 2;
  pipeline_options.first_layers = falling;
  refuse(GSEL_ERR_ARG, "first_layers[1] is layer 2; stage 2 begins after layer 2");
  pipeline_options.first_layers = beyond;
  refuse(GSEL_ERR_ARG, "first_layers[1] is layer 4; stage 2 begins after layer 1, and the model's last layer is 3");
  pipeline_options.n_first_layers = 1;
  pipeline_options.first_layers = first;
  refuse(GSEL_ERR_ARG, "first_layers[0] is layer 0");
}

static void inputs_need_somebody_who_fills_them(void** state) {
  (void)state;
  describe();
  pipeline_options.data = NULL;
  refuse(GSEL_ERR_ARG, "data is NULL and value \"tokens\" is an input");
}

static void layers_need_callbacks(void** state) {
  (void)state;
  static const int32_t in = PIPE_H0 + 2;
  m.without_loss = 1;
  describe();
  gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
  options.name = gsel_str_from("pulled");
  options.inputs = &in;
  options.n_inputs = 1;
  check_ok(gsel_model_add_layer(model, &options, NULL, &err), err);
  refuse(GSEL_ERR_MODEL, "layer \"pulled\" has no callbacks");
}

/* y <- x, then the loss of y: "keeps" computes without declared parameters. */
static void describe_two(uint32_t flags, gsel_layer_fn backward) {
  static const int32_t x = 0, y = 1, sums[] = {2, 3};
  check_ok(pipe_add_value(model, "x", 1, GSEL_F32, GSEL_VALUE_INPUT, &err), err);
  check_ok(pipe_add_value(model, "y", 1, GSEL_F32, 0, &err), err);
  check_ok(pipe_add_value(model, "loss", 0, GSEL_F64, GSEL_VALUE_SCALAR, &err), err);
  check_ok(pipe_add_value(model, "weight", 0, GSEL_F64, GSEL_VALUE_SCALAR, &err), err);
  gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT, end = GSEL_LAYER_OPTIONS_INIT;
  options.name = gsel_str_from("keeps");
  options.inputs = &x;
  options.outputs = &y;
  options.n_inputs = options.n_outputs = 1;
  options.flags = flags;
  options.forward = end.forward = pipe_mix;
  options.backward = backward;
  check_ok(gsel_model_add_layer(model, &options, NULL, &err), err);
  end.name = gsel_str_from("end");
  end.inputs = &y;
  end.outputs = sums;
  end.n_inputs = 1;
  end.n_outputs = 2;
  end.flags = GSEL_LAYER_LOSS;
  end.backward = pipe_mix;
  check_ok(gsel_model_add_layer(model, &end, NULL, &err), err);
}

static void a_layer_with_parameters_of_its_own_needs_a_backward(void** state) {
  (void)state;
  describe_two(GSEL_LAYER_OWN_PARAMS, NULL);
  refuse(GSEL_ERR_MODEL, "layer \"keeps\" has trainable parameters and neither backward_weight nor backward");
}

/* Its backward would never be called, and the run would learn nothing. */
static void a_backward_for_parameters_that_nobody_flagged_is_refused(void** state) {
  (void)state;
  m.unflagged = 1u << 1;
  describe();
  refuse(GSEL_ERR_MODEL,
         "layer \"mix.1\" gives backward_weight and has no parameters that it would be called for; flag "
         "the layer GSEL_LAYER_OWN_PARAMS");
}

static void a_fused_backward_that_nothing_calls_is_refused(void** state) {
  (void)state;
  describe_two(0, pipe_mix);
  refuse(GSEL_ERR_MODEL,
         "layer \"keeps\" gives backward and has nothing that it would be called for; flag the layer "
         "GSEL_LAYER_OWN_PARAMS");
}

static void a_fused_backward_that_others_need_learns_without_the_flag(void** state) {
  (void)state;
  m.unflagged = 1u << 2;
  describe();
  check_ok(gsel_pipeline_create(comm, model, &pipeline_options, &pipeline, &err), err);
  check_ok(gsel_pipeline_run(pipeline, GSEL_FORWARD_BACKWARD, NULL, &err), err);
  assert_int_equal(m.backwards[2], 2 * pipeline_options.microbatches);
}

static void a_run_backward_that_nothing_learns_from_is_refused(void** state) {
  (void)state;
  describe_two(0, NULL);
  check_ok(gsel_pipeline_create(comm, model, &pipeline_options, &pipeline, &err), err);
  check_fails(gsel_pipeline_run(pipeline, GSEL_FORWARD_BACKWARD, NULL, &err), err, GSEL_ERR_STATE,
              "no layer has parameters to learn; flag those that keep their own GSEL_LAYER_OWN_PARAMS");
}

static void a_trainer_does_not_take_what_it_could_not_step(void** state) {
  (void)state;
  gsel_trainer* trainer = NULL;
  describe();
  check_fails(gsel_trainer_create(comm, model, NULL, &trainer, &err), err, GSEL_ERR_UNSUPPORTED,
              "layer \"embed\" keeps parameters of its own");
}

static void a_model_without_a_loss_is_for_pipelines_alone(void** state) {
  (void)state;
  gsel_trainer* trainer = NULL;
  m.without_loss = 1;
  describe();
  check_fails(gsel_model_finish(model, &err), err, GSEL_ERR_MODEL, "no loss layer");
  check_ok(gsel_pipeline_create(comm, model, &pipeline_options, &pipeline, &err), err);
  check_fails(gsel_trainer_create(comm, model, NULL, &trainer, &err), err, GSEL_ERR_MODEL, "no loss layer");
  check_ok(gsel_pipeline_run(pipeline, GSEL_FORWARD, NULL, &err), err);
}

static void a_report_fits_an_older_caller(void** state) {
  (void)state;
  describe();
  check_ok(gsel_pipeline_create(comm, model, &pipeline_options, &pipeline, &err), err);
  gsel_pipeline_report report;
  memset(&report, 0x5a, sizeof report);
  gsel_pipeline_report_init(&report, 16);
  check_ok(gsel_pipeline_run(pipeline, GSEL_FORWARD_BACKWARD, &report, &err), err);
  assert_int_equal(report.struct_size, 16);
  assert_true(report.elapsed_s > 0);
  unsigned char behind;
  memcpy(&behind, &report.busy_s, 1);
  assert_int_equal(behind, 0x5a);
  report.struct_size = 0;
  check_fails(gsel_pipeline_run(pipeline, GSEL_FORWARD, &report, &err), err, GSEL_ERR_VERSION, "struct_size");
}

static void the_program_says_what_runs(void** state) {
  (void)state;
  describe();
  check_ok(gsel_pipeline_create(comm, model, &pipeline_options, &pipeline, &err), err);
  const gsel_program* program = gsel_pipeline_program(pipeline);
  assert_non_null(program);
  assert_non_null(strstr(gsel_program_text(program).data, "layer=mix.1 mb=1"));
  check_ok(gsel_program_verify(&program, 1, &err), err);
}

static void a_forked_child_is_told(void** state) {
  (void)state;
  describe();
  check_ok(gsel_pipeline_create(comm, model, &pipeline_options, &pipeline, &err), err);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) _exit(gsel_pipeline_run(pipeline, GSEL_FORWARD, NULL, NULL) == GSEL_ERR_FORKED ? 0 : 1);
  int status = -1;
  waitpid(pid, &status, 0);
  assert_int_equal(status, 0);
  check_ok(gsel_pipeline_run(pipeline, GSEL_FORWARD, NULL, &err), err);
}

#define test_of(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(void) {
  const struct CMUnitTest tests[] = {
      test_of(null_is_refused_by_name),
      test_of(numbers_out_of_range_are_refused),
      test_of(first_layers_rise_and_exist),
      test_of(inputs_need_somebody_who_fills_them),
      test_of(layers_need_callbacks),
      test_of(a_layer_with_parameters_of_its_own_needs_a_backward),
      test_of(a_backward_for_parameters_that_nobody_flagged_is_refused),
      test_of(a_fused_backward_that_nothing_calls_is_refused),
      test_of(a_fused_backward_that_others_need_learns_without_the_flag),
      test_of(a_run_backward_that_nothing_learns_from_is_refused),
      test_of(a_trainer_does_not_take_what_it_could_not_step),
      test_of(a_model_without_a_loss_is_for_pipelines_alone),
      test_of(a_report_fits_an_older_caller),
      test_of(the_program_says_what_runs),
      test_of(a_forked_child_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
