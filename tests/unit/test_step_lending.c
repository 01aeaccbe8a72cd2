/* What a callback is lent, and that it ends with the call: under train.lending = "moved" a kernel that keeps a pointer
 * reads NaN, and one that does not computes the same bits as ever. */
#include <math.h>

#include "support/step_model.h"
#include "support/trainer_trial.h"

/* ---- a kernel that keeps everything it gets ---- */

typedef struct keeper {
  const float *param, *input, *output, *saved, *d_output, *d_param;
  double read[6]; /* what was there at the next call of any callback */
  int calls;
} keeper;

static void look(keeper* k) {
  const float* kept[] = {k->param, k->input, k->output, k->saved, k->d_output, k->d_param};
  for (int i = 0; i < 6; ++i)
    if (kept[i]) k->read[i] += *kept[i]; /* a sum with NaN in it is NaN */
}

static gsel_status keeping_forward(const gsel_call* c, void* user) {
  keeper* k = (keeper*)((step_model*)user)->user;
  look(k);
  ++k->calls;
  k->param = (const float*)c->params[0].data;
  k->input = (const float*)c->inputs[0].data;
  k->output = (const float*)c->outputs[0].data;
  k->saved = (const float*)c->saved;
  *(float*)c->saved = 1;
  return step_forward(c, user);
}
static gsel_status keeping_backward(const gsel_call* c, void* user) {
  keeper* k = (keeper*)((step_model*)user)->user;
  if (*(const float*)c->saved != 1) return GSEL_ERR_INTERNAL;
  look(k);
  k->d_output = (const float*)c->d_outputs[0].data;
  k->d_param = (const float*)c->d_params[0].data;
  return step_backward(c, user);
}

static keeper run_keeper(const char* config) {
  keeper k;
  memset(&k, 0, sizeof k);
  step_model m;
  memset(&m, 0, sizeof m);
  m.config = config;
  m.forward = keeping_forward;
  m.backward = keeping_backward;
  m.saved_bytes_per_sample = sizeof(float);
  m.user = &k;
  rank_run* run = ranks_prepare(1, NULL);
  step_session s;
  gsel_error* err = NULL;
  check_ok(step_open(run, &m, &s, &err), err);
  for (int i = 0; i < 5; ++i) check_ok(gsel_trainer_step(s.trainer, NULL, &err), err);
  step_close(&s);
  ranks_verdict(run, 1);
  assert_int_equal(k.calls, 10); /* two micro-batches a step */
  return k;
}

static void a_kernel_that_keeps_a_pointer_reads_nan_when_lending_moves(void** state) {
  (void)state;
  static const char* const names[] = {"params", "inputs", "outputs", "saved", "d_outputs", "d_params"};
  const keeper direct = run_keeper(STEP_SIGN("4", "microbatch = 2\n"));
  const keeper moved = run_keeper(STEP_SIGN("4", "microbatch = 2\nlending = \"moved\"\n"));
  for (int i = 0; i < 6; ++i) {
    if (!isnan(direct.read[i]) && isnan(moved.read[i])) continue;
    print_error("%s kept: read %g directly, %g moved; expected a number and NaN\n", names[i], direct.read[i],
                moved.read[i]);
    fail();
  }
}

static gsel_status keep_request(const gsel_data_request* r, void* user) {
  const float** kept = (const float**)((step_model*)user)->user;
  if (*kept && !isnan(**kept)) return GSEL_ERR_INTERNAL;
  *kept = (const float*)r->dst.data;
  return step_data(r, user);
}

static void an_input_buffer_that_is_kept_reads_nan_too(void** state) {
  (void)state;
  const float* kept = NULL;
  step_model m;
  memset(&m, 0, sizeof m);
  m.config = STEP_SIGN("4", "lending = \"moved\"\n");
  m.data = keep_request;
  m.user = &kept;
  rank_run* run = ranks_prepare(1, NULL);
  step_session s;
  gsel_error* err = NULL;
  check_ok(step_open(run, &m, &s, &err), err);
  for (int i = 0; i < 3; ++i) check_ok(gsel_trainer_step(s.trainer, NULL, &err), err);
  step_close(&s);
  ranks_verdict(run, 1);
  assert_non_null(kept);
}

/* ---- kernels that keep nothing ---- */

static void correct_kernels_compute_the_same_bits_when_lending_moves(void** state) {
  (void)state;
  static const char* const trains[] = {TRAIN("6", "lending = \"moved\"\n"),
                                       TRAIN("7", "microbatch = 2\nlending = \"moved\"\nrecompute = \"all\"\n")};
  static const char* const plain_trains[] = {TRAIN("6", ""), TRAIN("7", "microbatch = 2\n")};
  static const char* const sections[] = {"", ZERO("1", ""), ZERO("2", ""), ZERO("3", ALL_SHARDED), DP("")};
  outcome* out = shared_outcomes();
  for (size_t k = 0; k < sizeof trains / sizeof *trains; ++k) {
    const trial like = plain(NULL, NULL);
    outcome* expected = exact_reference(&like, plain_trains[k]);
    for (size_t z = 0; z < sizeof sections / sizeof *sections; ++z)
      for (int n = 1; n <= 3; ++n) {
        char config[512];
        snprintf(config, sizeof config, "%s%s", sections[z], trains[k]);
        trial t = plain(config, out);
        t.expected = expected;
        print_message("  case %zu on %d ranks %s", k, n, z ? sections[z] : "by default\n");
        as_threads(n, train, &t);
      }
    free_outcomes(expected);
  }
  free_outcomes(out);
}

/* ---- what a backward does not read is NULL ---- */

static gsel_status sees_unread(const gsel_call* c, void* user) {
  (void)user;
  const int good = !c->inputs[0].data && !c->outputs[0].data && !c->saved && c->params[0].data && !c->params[1].data &&
                   c->d_outputs[0].data && c->d_params[0].data && c->outputs[0].n_elems == c->n_samples;
  if (!good) return GSEL_ERR_INTERNAL;
  *(float*)c->d_params[0].data = *(float*)c->d_params[1].data = 1;
  return GSEL_OK;
}
static gsel_status one_forward(const gsel_call* c, void* user) {
  (void)user;
  if (!c->params[1].data || !c->saved) return GSEL_ERR_INTERNAL;
  for (int64_t s = 0; s < c->n_samples; ++s) ((float*)c->outputs[0].data)[s] = ((const float*)c->inputs[0].data)[s];
  return GSEL_OK;
}
static gsel_status last_forward(const gsel_call* c, void* user) {
  (void)user;
  *(double*)c->outputs[0].data = 1;
  *(double*)c->outputs[1].data = (double)c->n_samples;
  return GSEL_OK;
}
static gsel_status last_backward(const gsel_call* c, void* user) {
  (void)user;
  if (!c->inputs[0].data || c->d_outputs[0].data) return GSEL_ERR_INTERNAL;
  for (int64_t s = 0; s < c->n_samples; ++s) ((float*)c->d_inputs[0].data)[s] = 1;
  return GSEL_OK;
}

static void what_a_backward_leaves_unread_is_null(void** state) {
  (void)state;
  rank_run* run = ranks_prepare(1, NULL);
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_model* model = NULL;
  gsel_trainer* trainer = NULL;
  static const int32_t in = 0, mid = 1, ends[] = {2, 3}, params[] = {0, 1};
  check_ok(rank_join(run, &comm, &err), err);
  check_ok(gsel_model_create(&model, &err), err);
  for (int p = 0; p < 2; ++p) {
    gsel_param_options param_options = GSEL_PARAM_OPTIONS_INIT;
    param_options.name = gsel_str_from(p ? "v" : "w");
    check_ok(gsel_model_add_param(model, &param_options, NULL, &err), err);
  }
  for (int v = 0; v < 4; ++v) {
    static const char* const names[] = {"x", "y", "loss", "weight"};
    gsel_value_options value_options = GSEL_VALUE_OPTIONS_INIT;
    value_options.name = gsel_str_from(names[v]);
    value_options.dtype = v < 2 ? GSEL_F32 : GSEL_F64;
    value_options.flags = v == 0 ? GSEL_VALUE_INPUT : v == 1 ? 0 : GSEL_VALUE_SCALAR;
    check_ok(gsel_model_add_value(model, &value_options, NULL, &err), err);
  }
  gsel_layer_options one = GSEL_LAYER_OPTIONS_INIT, last = GSEL_LAYER_OPTIONS_INIT;
  one.name = gsel_str_from("one");
  one.inputs = &in;
  one.outputs = &mid;
  one.params = params;
  one.n_inputs = one.n_outputs = 1;
  one.n_params = 2;
  one.saved_bytes_per_sample = 4;
  one.forward = one_forward;
  one.backward = sees_unread;
  one.backward_input_unread = one.backward_weight_unread =
      GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_OUTPUT(0) | GSEL_UNREAD_SAVED;
  one.backward_unread_params = 2;
  check_ok(gsel_model_add_layer(model, &one, NULL, &err), err);
  last.name = gsel_str_from("last");
  last.inputs = &mid;
  last.outputs = ends;
  last.n_inputs = 1;
  last.n_outputs = 2;
  last.flags = GSEL_LAYER_LOSS;
  last.forward = last_forward;
  last.backward_input = last_backward;
  check_ok(gsel_model_add_layer(model, &last, NULL, &err), err);
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_config* config = NULL;
  check_ok(gsel_config_parse(gsel_str_from(STEP_SIGN("3", "lending = \"moved\"\n")), gsel_str_from("step.toml"),
                             &config, &err),
           err);
  options.config = config;

  check_ok(gsel_trainer_create(comm, model, &options, &trainer, &err), err);
  for (;;) {
    static const gsel_str none = {NULL, 0};
    gsel_work work = GSEL_WORK_INIT;
    check_ok(gsel_trainer_next_work(trainer, &work, &err), err);
    if (work.kind == GSEL_WORK_DONE) break;
    gsel_status status = GSEL_OK;
    if (work.input)
      for (int64_t s = 0; s < work.input->n_samples; ++s) ((float*)work.input->dst.data)[s] = 1;
    else if (work.call->layer == 0)
      status = (work.kind == GSEL_FORWARD ? one_forward : sees_unread)(work.call, NULL);
    else
      status = (work.kind == GSEL_FORWARD ? last_forward : last_backward)(work.call, NULL);
    check_ok(gsel_trainer_complete(trainer, work.ticket, status, none, &err), err);
  }
  gsel_trainer_free(trainer);
  gsel_config_free(config);
  gsel_model_free(model);
  gsel_comm_free(comm);
  ranks_verdict(run, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_kernel_that_keeps_a_pointer_reads_nan_when_lending_moves),
      cmocka_unit_test(an_input_buffer_that_is_kept_reads_nan_too),
      cmocka_unit_test(correct_kernels_compute_the_same_bits_when_lending_moves),
      cmocka_unit_test(what_a_backward_leaves_unread_is_null),
  };
  return cmocka_run_group_tests_name("step lending", tests, NULL, NULL);
}
