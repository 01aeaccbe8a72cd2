/* Clients compiled against older and newer headers: a shorter struct is an older caller and takes defaults, a longer
 * one is accepted while its unknown tail is zero, and refused with both sizes otherwise. */
#include "abi/old_structs.h"

static gsel_error* err;

static gsel_comm* join_alone(const void* config) {
  gsel_comm* comm = NULL;
  check_ok(gsel_comm_init((const gsel_comm_options*)config, &comm, &err), err);
  return comm;
}

static void a_shorter_comm_config_joins_with_default_bounds(void** state) {
  (void)state;
  gsel_unique_id id;
  check_ok(gsel_unique_id_create(&id, &err), err);
  const first_comm_config config = {0, 0, 0, 1, &id};
  void* old = OLD(config);
  gsel_comm* comm = join_alone(old);
  GIVE_BACK(old, config);
  int32_t one = 1;
  check_ok(gsel_allreduce(comm, &one, &one, 1, GSEL_I32, GSEL_SUM, &err), err);
  assert_int_equal(one, 1);
  gsel_comm_free(comm);
}

static void a_longer_comm_config_joins_while_its_tail_is_zero(void** state) {
  (void)state;
  next_comm_config config;
  memset(&config, 0, sizeof config);
  config.known.world_size = 1;
  void* next = OLD(config);
  gsel_comm_free(join_alone(next));
  GIVE_BACK(next, config);
}

static void a_longer_comm_config_with_a_tail_is_refused_with_both_sizes(void** state) {
  (void)state;
  gsel_comm* comm = NULL;
  next_comm_config config;
  memset(&config, 0, sizeof config);
  config.known.world_size = 1;
  config.patience_s = 1;
  void* next = OLD(config);
  gsel_status status = gsel_comm_init((const gsel_comm_options*)next, &comm, &err);
  GIVE_BACK(next, config);
  assert_null(comm);
  assert_true(err && strstr(gsel_error_message(err).data, "(136 bytes)"));
  check_fails(status, err, GSEL_ERR_VERSION, "gsel_comm_options has 144 bytes with fields set");
}

static void an_initialiser_stays_within_the_size_its_caller_knows(void** state) {
  (void)state;
  first_comm_config rubbish;
  memset(&rubbish, 0xff, sizeof rubbish);
  first_comm_config* old = (first_comm_config*)OLD(rubbish);
  gsel_comm_options_init((gsel_comm_options*)old, sizeof *old);
  assert_int_equal(old->struct_size, sizeof *old);
  assert_int_equal(old->world_size, 0);
  assert_null(old->id);
  GIVE_BACK(old, rubbish);

  next_comm_config next;
  memset(&next, 0xff, sizeof next);
  gsel_comm_options_init(&next.known, sizeof next);
  assert_int_equal(next.known.struct_size, sizeof next);
  assert_true(next.patience_s == 0);

  gsel_comm_options_init(&next.known, sizeof next.known.struct_size); /* not even room for the two first fields */
  assert_int_equal(next.known.struct_size, sizeof next);
}

static void a_struct_without_a_size_is_refused_by_name(void** state) {
  (void)state;
  gsel_comm* comm = NULL;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.struct_size = 0;
  check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_VERSION, "gsel_comm_options.struct_size is 0");
  options.struct_size = 7; /* less than the two words every struct begins with */
  check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_VERSION, "gsel_comm_options.struct_size is 7");
  assert_null(comm);
}

/* ---- a trainer, described with first structs and driven by pull -------------------------------------------- */

static gsel_status unused(const gsel_call* call, void* user_data) {
  (void)call, (void)user_data;
  return GSEL_ERR_INTERNAL;
}

static void add_value(gsel_model* model, const char* name, int32_t n_dims, gsel_dtype dtype, uint32_t flags) {
  const int64_t one = 1;
  const first_value_desc desc = {0, 0, gsel_str_from(name), &one, n_dims, dtype, flags, 0};
  void* old = OLD(desc);
  check_ok(gsel_model_add_value(model, (const gsel_value_options*)old, NULL, &err), err);
  GIVE_BACK(old, desc);
}

/* Values 0 x (input), 1 loss, 2 weight; parameter 0 w, zeros; one layer, loss = (w - x)^2. */
static gsel_model* small_model(void) {
  const int32_t input = 0, param = 0, outputs[] = {1, 2};
  const int64_t one = 1;
  gsel_model* model;
  check_ok(gsel_model_create(&model, &err), err);
  add_value(model, "x", 1, GSEL_F32, GSEL_VALUE_INPUT);
  add_value(model, "loss", 0, GSEL_F64, GSEL_VALUE_SCALAR);
  add_value(model, "weight", 0, GSEL_F64, GSEL_VALUE_SCALAR);
  const first_param_desc desc = {0, 0, gsel_str_from("w"), &one, 1, GSEL_F32};
  void* old = OLD(desc);
  check_ok(gsel_model_add_param(model, (const gsel_param_options*)old, NULL, &err), err);
  GIVE_BACK(old, desc);
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
  layer.name = gsel_str_from("distance");
  layer.inputs = &input;
  layer.outputs = outputs;
  layer.params = &param;
  layer.n_inputs = layer.n_params = 1;
  layer.n_outputs = 2;
  layer.flags = GSEL_LAYER_LOSS;
  layer.forward = layer.backward = unused;
  layer.struct_size = offsetof(gsel_layer_options, user_data);
  old = at_end_of_page(&layer, layer.struct_size);
  check_ok(gsel_model_add_layer(model, (const gsel_layer_options*)old, NULL, &err), err);
  give_back(old, layer.struct_size);
  return model;
}

/* One sample per step, x = 2, w from 0: loss 4, derivative -4. first_work has no `input` yet, so this client has
 * nowhere to write x and knows it by heart. */
static void run_work(const first_work* work) {
  if (work->kind == GSEL_INPUT) return;
  const gsel_call* call = work->call;
  const float w = *(const float*)call->params[0].data, x = 2;
  if (work->kind == GSEL_FORWARD) {
    *(double*)call->outputs[0].data = (double)((w - x) * (w - x));
    *(double*)call->outputs[1].data = 1;
  } else {
    *(float*)call->d_params[0].data = 2 * (w - x);
  }
}

static void pull_a_step(gsel_trainer* trainer) {
  const first_work blank = {0, 0, 0, 0, 0, NULL};
  int32_t kind;
  do {
    first_work* work = (first_work*)OLD(blank);
    check_ok(gsel_trainer_next_work(trainer, (gsel_work*)work, &err), err);
    assert_int_equal(work->struct_size, sizeof *work);
    kind = work->kind;
    if (kind != GSEL_WORK_DONE) run_work(work);
    const uint64_t ticket = work->ticket;
    GIVE_BACK(work, blank);
    if (kind != GSEL_WORK_DONE)
      check_ok(gsel_trainer_complete(trainer, ticket, GSEL_OK, gsel_str_from(NULL), &err), err);
  } while (kind != GSEL_WORK_DONE);
}

static gsel_comm* own_comm;
static gsel_config* own_config;
static gsel_model* own_model;

static int open_training(void** state) {
  (void)state;
  gsel_comm_options alone = GSEL_COMM_OPTIONS_INIT;
  const gsel_str text = GSEL_STR("[train]\noptimizer = \"sgd\"\nlearning_rate = 0.25\nweight_decay = 0\nbatch = 1\n");
  alone.world_size = 1;
  own_comm = join_alone(&alone);
  check_ok(gsel_config_parse(text, gsel_str_from("old.toml"), &own_config, &err), err);
  own_model = small_model();
  return 0;
}

static int close_training(void** state) {
  (void)state;
  gsel_model_free(own_model);
  gsel_config_free(own_config);
  gsel_comm_free(own_comm);
  return 0;
}

static void a_client_of_first_structs_trains_a_step(void** state) {
  (void)state;
  gsel_trainer* trainer;
  const first_trainer_options options = {0, 0, own_config};
  void* old = OLD(options);
  check_ok(gsel_trainer_create(own_comm, own_model, (const gsel_trainer_options*)old, &trainer, &err), err);
  GIVE_BACK(old, options);
  pull_a_step(trainer);

  float w = -1;
  check_ok(gsel_trainer_read_param(trainer, 0, &w, sizeof w, &err), err);
  assert_true(w == 1); /* 0 - 0.25 * -4 */

  const first_step_report blank = {0, 0, -1, -1};
  first_step_report* report = (first_step_report*)OLD(blank);
  check_ok(gsel_trainer_report(trainer, (gsel_step_report*)report, &err), err);
  assert_int_equal(report->struct_size, sizeof *report);
  assert_int_equal(report->step, 0);
  assert_true(report->loss == 4);
  GIVE_BACK(report, blank);
  gsel_trainer_free(trainer);
}

static void a_client_of_longer_structs_trains_and_keeps_its_tail(void** state) {
  (void)state;
  gsel_trainer* trainer;
  next_trainer_options options;
  memset(&options, 0, sizeof options);
  options.known.config = own_config;
  void* next = OLD(options);
  check_ok(gsel_trainer_create(own_comm, own_model, (const gsel_trainer_options*)next, &trainer, &err), err);
  GIVE_BACK(next, options);
  pull_a_step(trainer);

  next_step_report report;
  memset(&report, 0, sizeof report);
  report.known.struct_size = sizeof report;
  report.joules = 7;
  check_ok(gsel_trainer_report(trainer, &report.known, &err), err);
  assert_true(report.known.loss == 4);
  assert_int_equal(report.known.struct_size, sizeof report);
  assert_int_equal(report.joules, 7); /* not the library's to write */
  gsel_trainer_free(trainer);
}

static void longer_trainer_options_with_a_tail_are_refused_with_both_sizes(void** state) {
  (void)state;
  gsel_trainer* trainer;
  next_trainer_options options;
  memset(&options, 0, sizeof options);
  options.known.config = own_config;
  options.progress = &options;
  void* next = OLD(options);
  const gsel_status status =
      gsel_trainer_create(own_comm, own_model, (const gsel_trainer_options*)next, &trainer, &err);
  GIVE_BACK(next, options);
  assert_null(trainer);
  assert_true(err && strstr(gsel_error_message(err).data, "(48 bytes)"));
  check_fails(status, err, GSEL_ERR_VERSION, "gsel_trainer_options has 64 bytes with fields set");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_shorter_comm_config_joins_with_default_bounds),
      cmocka_unit_test(a_longer_comm_config_joins_while_its_tail_is_zero),
      cmocka_unit_test(a_longer_comm_config_with_a_tail_is_refused_with_both_sizes),
      cmocka_unit_test(an_initialiser_stays_within_the_size_its_caller_knows),
      cmocka_unit_test(a_struct_without_a_size_is_refused_by_name),
      cmocka_unit_test_setup_teardown(a_client_of_first_structs_trains_a_step, open_training, close_training),
      cmocka_unit_test_setup_teardown(a_client_of_longer_structs_trains_and_keeps_its_tail, open_training,
                                      close_training),
      cmocka_unit_test_setup_teardown(longer_trainer_options_with_a_tail_are_refused_with_both_sizes, open_training,
                                      close_training),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
