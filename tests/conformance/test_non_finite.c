/* One gradient of one rank that is not finite, as train.non_finite would have it: the step is skipped on every rank, or
 * ends training on every rank, or nothing happens; and who produced it first is told. */
#include <math.h>

#include "support/equality_model.h"
#include "support/share.h"
#include "support/step_model.h"

enum { N_ELEMS = STEP_PARAMS * STEP_WIDTH, STEPS = 4, BAD_STEP = 1 };

enum { IN_BACKWARD, IN_FORWARD, IN_LOSS, IN_DATA, IN_LOSS_BACKWARD }; /* what makes it */

typedef struct trial {
  step_model m;
  int bad_rank;
  int clips; /* the norm tells */
  int made;
} trial;

/* In the second micro-batch of the bad step, in the second parameter. */
static int is_bad(const step_model* m, int made, int64_t step, int32_t microbatch) {
  const trial* t = (const trial*)m->user;
  return t->made == made && step == BAD_STEP && microbatch == 1 && m->rank == t->bad_rank;
}
static gsel_status backward_with_nan(const gsel_call* c, void* user) {
  const gsel_status status = step_backward(c, user);
  if (is_bad((const step_model*)user, IN_BACKWARD, c->step, c->microbatch)) ((float*)c->d_params[STEP_B].data)[2] = NAN;
  return status;
}
static gsel_status forward_with_nan(const gsel_call* c, void* user) {
  const gsel_status status = step_forward(c, user);
  if (is_bad((const step_model*)user, IN_FORWARD, c->step, c->microbatch) && !c->evaluating)
    ((float*)c->outputs[0].data)[1] = NAN;
  return status;
}
static gsel_status loss_with_nan(const gsel_call* c, void* user) {
  const gsel_status status = step_loss_forward(c, user);
  if (is_bad((const step_model*)user, IN_LOSS, c->step, c->microbatch)) *(double*)c->outputs[0].data = INFINITY;
  return status;
}
/* A loss that is not finite has such a gradient, too. */
static gsel_status loss_backward_with_nan(const gsel_call* c, void* user) {
  const step_model* m = (const step_model*)user;
  const gsel_status status = step_loss_backward(c, user);
  if (is_bad(m, IN_LOSS, c->step, c->microbatch) || is_bad(m, IN_LOSS_BACKWARD, c->step, c->microbatch))
    ((float*)c->d_inputs[0].data)[0] = NAN;
  return status;
}
/* A step has 8 samples. */
static gsel_status data_with_nan(const gsel_data_request* r, void* user) {
  const gsel_status status = step_data(r, user);
  if (is_bad((const step_model*)user, IN_DATA, r->sample_ids[0] / 8, r->microbatch))
    ((float*)r->dst.data)[STEP_WIDTH - 1] = NAN;
  return status;
}

static void open_trial(rank_run* run, step_session* s) {
  const trial* t = (const trial*)run->user;
  step_model m = t->m;
  gsel_error* err = NULL;
  m.backward = backward_with_nan;
  m.forward = forward_with_nan;
  m.loss_forward = loss_with_nan;
  m.loss_backward = loss_backward_with_nan;
  m.data = data_with_nan;
  m.user = (void*)(uintptr_t)t;
  rank_ok(run, step_open(run, &m, s, &err), err);
}

/* Ids of layer, parameter and value that each case has to tell. */
static const int32_t kOrigins[][3] = {
    {0, STEP_B, -1}, {0, -1, STEP_Y}, {1, -1, STEP_LOSS}, {-1, -1, STEP_X}, {1, -1, -1}};

/* Reading parameters between steps settles an optimistic step. */
static void expect_skip(rank_run* run) {
  const trial* t = (const trial*)run->user;
  step_session s;
  gsel_error* err = NULL;
  float before[N_ELEMS], after[N_ELEMS];
  open_trial(run, &s);
  for (int i = 0; i < STEPS; ++i) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    const int bad = i == BAD_STEP;
    rank_ok(run, step_params(s.trainer, before, &err), err);
    rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
    rank_ok(run, step_params(s.trainer, after, &err), err);
    rank_ok(run, gsel_trainer_report(s.trainer, &report, &err), err);
    rank_check(run, report.validated_step == i);
    rank_check(run, report.skipped == bad);
    rank_check(run, (memcmp(before, after, sizeof before) == 0) == bad);
    rank_check(run, report.non_finite_rank == (bad ? t->bad_rank : -1));
    rank_check(run, report.non_finite_layer == (bad ? kOrigins[t->made][0] : -1));
    rank_check(run, report.non_finite_param == (bad ? kOrigins[t->made][1] : -1));
    rank_check(run, report.non_finite_value == (bad ? kOrigins[t->made][2] : -1));
    rank_check(run, report.non_finite_microbatch == bad - !bad);
    if (!bad && t->clips) rank_check(run, isfinite(report.gradient_norm) && report.gradient_norm > 0);
  }
  step_close(&s);
}

static void expect_error(rank_run* run) {
  const trial* t = (const trial*)run->user;
  step_session s;
  gsel_error* err = NULL;
  static const char* const texts[] = {
      "the gradient of parameter \"b\" is not finite in step 1, first on rank %d, in the backward of layer \"line\", "
      "micro-batch 1",
      "value \"y\" is not finite in step 1, made by the forward of layer \"line\" on rank %d, micro-batch 1, and so "
      "are "
      "gradients",
      "value \"loss\" is not finite in step 1, made by the forward of layer \"loss\" on rank %d, micro-batch 1",
      "input \"x\" is not finite in step 1, on rank %d, micro-batch 1, and so are gradients",
      "the backward of layer \"loss\" gave a gradient for its inputs that is not finite in step 1, first on rank %d, "
      "micro-batch 1",
  };
  char text[160];
  gsel_status status = GSEL_OK;
  open_trial(run, &s);
  for (int i = 0; i <= BAD_STEP + 1 && !status; ++i) status = gsel_trainer_step(s.trainer, NULL, &err);
  snprintf(text, sizeof text, texts[t->made], t->bad_rank);
  rank_fails(run, status, err, status == GSEL_ERR_CALLBACK ? status : GSEL_ERR_ABORTED, text, -1);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  step_close(&s);
}

static void expect_nan_in_parameters(rank_run* run) {
  step_session s;
  gsel_error* err = NULL;
  float after[N_ELEMS];
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  open_trial(run, &s);
  for (int i = 0; i <= BAD_STEP; ++i) rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
  rank_ok(run, step_params(s.trainer, after, &err), err);
  rank_check(run, !report.skipped && report.non_finite_rank == -1);
  rank_check(run, isnan(after[STEP_WIDTH + 2]));
  step_close(&s);
}

/* In a pipeline the first rank has the layer, the second the loss. */
static void made_under_each_strategy(int made, const char* train, int clips, void (*expect)(rank_run*)) {
  char config[640];
  for (size_t z = STEP_DP; z < N_STEP_EACH_STRATEGY; ++z) {
    const int ranks = 2;
    snprintf(config, sizeof config, "%s[train]\nbatch = 8\nmicrobatches = 2\nweight_decay = 0.0\n%s",
             kStepEachStrategy[z], train);
    trial t = {.bad_rank = z >= STEP_FIRST_PIPELINE ? made == IN_LOSS || made == IN_LOSS_BACKWARD : 1,
               .clips = clips,
               .made = made};
    if (made >= IN_LOSS && z == STEP_DP) t.bad_rank = 0; /* dp's master has the data and the loss of all */
    t.m.config = config;
    print_message("  %s", kStepEachStrategy[z]);
    as_threads(ranks, expect, &t);
  }
}
static void under_each_strategy(const char* train, int clips, void (*expect)(rank_run*)) {
  made_under_each_strategy(IN_BACKWARD, train, clips, expect);
}

#define SGD "optimizer = \"sgd\"\nlearning_rate = 0.00390625\n"
#define FP16_FIXED "precision = \"fp16\"\nloss_scale = 8.0\n"

static void a_step_with_a_nan_on_one_rank_is_skipped_on_all(void** state) {
  (void)state;
  under_each_strategy(SGD "non_finite = \"skip\"\n", 0, expect_skip);
}
static void where_gradients_are_clipped_it_is_skipped_by_itself(void** state) {
  (void)state;
  under_each_strategy(SGD "clip_norm = 1.0e9\n", 1, expect_skip);
}
static void in_fp16_it_is_skipped_and_its_origin_told(void** state) {
  (void)state;
  under_each_strategy(SGD FP16_FIXED, 0, expect_skip);
}
static void an_error_ends_training_on_all_ranks_and_names_rank_layer_and_parameter(void** state) {
  (void)state;
  under_each_strategy(SGD "non_finite = \"error\"\n", 0, expect_error);
  under_each_strategy(SGD "non_finite = \"error\"\nclip_norm = 1.0e9\n", 1, expect_error);
  under_each_strategy(SGD FP16_FIXED "non_finite = \"error\"\n", 0, expect_error);
}
static void switched_off_it_trains_on(void** state) {
  (void)state;
  under_each_strategy(SGD "non_finite = \"off\"\n", 0, expect_nan_in_parameters);
  under_each_strategy(SGD "non_finite = \"off\"\nclip_norm = 1.0e9\n", 1, expect_nan_in_parameters);
}

static void what_a_forward_or_another_backward_made_is_told_as_such(void** state) {
  (void)state;
  for (int made = IN_FORWARD; made <= IN_LOSS_BACKWARD; ++made) {
    made_under_each_strategy(made, SGD "non_finite = \"skip\"\n", 0, expect_skip);
    made_under_each_strategy(made, SGD "clip_norm = 1.0e9\n", 1, expect_skip);
    made_under_each_strategy(made, SGD "non_finite = \"error\"\n", 0, expect_error);
  }
}

/* ---- weights ---- */

static gsel_status loss_with_odd_weight(const gsel_call* c, void* user) {
  const step_model* m = (const step_model*)user;
  const double* odd = (const double*)m->user;
  const gsel_status status = step_loss_forward(c, user);
  if (c->microbatch == 1 && m->rank == 1 && c->step == BAD_STEP) *(double*)c->outputs[1].data = *odd;
  return status;
}

static const char* weights_config;

static void expect_odd_weight(rank_run* run) {
  step_model m = {.config = weights_config, .loss_forward = loss_with_odd_weight, .user = run->user};
  step_session s;
  gsel_error* err = NULL;
  static const char text[] = "that of layer \"loss\" on rank 1, micro-batch 1, is negative or not finite";
  rank_ok(run, step_open(run, &m, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_fails(run, gsel_trainer_evaluate(s.trainer, 0, NULL, NULL, NULL, &err), err, GSEL_ERR_MODEL, text, 1);
  const gsel_status status = gsel_trainer_step(s.trainer, NULL, &err);
  rank_fails(run, status, err, status == GSEL_ERR_MODEL ? status : GSEL_ERR_ABORTED, text, -1);
  step_close(&s);
}

static void a_weight_that_is_not_finite_is_told_with_rank_and_layer(void** state) {
  (void)state;
  double odd[] = {NAN, INFINITY, -100};
  char config[640];
  for (size_t z = STEP_DP + 1; z < N_STEP_EACH_STRATEGY; ++z) /* dp's master has the loss of all */
    for (size_t i = 0; i < 3; ++i) {
      snprintf(config, sizeof config, "%s[train]\nbatch = 8\nmicrobatches = 2\n", kStepEachStrategy[z]);
      weights_config = config;
      as_threads(2, expect_odd_weight, &odd[i]);
    }
}

/* ---- schedules and the tensor axis: a sample of micro-batch 2 of data coordinate 1 ---- */

enum { BATCH = 16, MICROBATCHES = 4, DATA_RANKS = 2, WITH_MICROBATCH = 2, DOWN_LAYER = 3 };

typedef struct mesh_trial {
  char config[512];
  int pipeline_rank; /* of layer "down" */
  int tensor;        /* ranks of the tensor axis */
} mesh_trial;

static void expect_skip_in_mesh(rank_run* run) {
  const mesh_trial* t = (const mesh_trial*)run->user;
  const int32_t origin = t->tensor * (1 + DATA_RANKS * t->pipeline_rank); /* the first of those that share the layer */
  eq_session s;
  gsel_error* err = NULL;
  float before[EQ_ELEMS], after[EQ_ELEMS];
  rank_ok(run, eq_open(run, t->config, &s, &err), err);
  for (int i = 0; i < STEPS; ++i) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    const int bad = i == BAD_STEP;
    rank_ok(run, eq_params(s.trainer, before, &err), err);
    rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
    if (i % 2 == 0) rank_ok(run, gsel_trainer_evaluate(s.trainer, 0, NULL, NULL, NULL, &err), err);
    rank_ok(run, eq_params(s.trainer, after, &err), err);
    rank_ok(run, gsel_trainer_report(s.trainer, &report, &err), err);
    rank_check(run, report.validated_step == i && report.skipped == bad);
    rank_check(run, (memcmp(before, after, sizeof before) == 0) == bad);
    rank_check(run, report.non_finite_rank == (bad ? origin : -1));
    rank_check(run, report.non_finite_layer == (bad ? DOWN_LAYER : -1));
    rank_check(run, report.non_finite_param == (bad ? EQ_DOWN : -1));
    rank_check(run, report.non_finite_microbatch == (bad ? WITH_MICROBATCH : -1));
  }
  eq_close(&s);
}

/* Without a look between steps, optimistic ones are run again. */
static void expect_no_nan_after_a_run(rank_run* run) {
  const mesh_trial* t = (const mesh_trial*)run->user;
  eq_session s;
  gsel_error* err = NULL;
  float after[EQ_ELEMS];
  rank_ok(run, eq_open(run, t->config, &s, &err), err);
  for (int i = 0; i < STEPS; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, eq_params(s.trainer, after, &err), err);
  for (int k = 0; k < EQ_ELEMS; ++k) rank_check(run, isfinite(after[k]));
  eq_close(&s);
}

static void every_schedule_skips_with_and_without_a_tensor_axis(void** state) {
  (void)state;
  static const char* const schedules[] = {"naive",          "gpipe", "1f1b", "interleaved-1f1b", "zb-h1",
                                          "interleaved-zb", "zb-h2", "zb-v", "dualpipe-v"};
  static const char* const kinds[] = {"non_finite = \"skip\"", "clip_norm = 1.0e9",
                                      "precision = \"fp16\"\nloss_scale = 8.0"};
  eq_poisoned = BAD_STEP * BATCH + BATCH / DATA_RANKS + WITH_MICROBATCH * BATCH / DATA_RANKS / MICROBATCHES;
  for (int k = 0; k < 9 * 2 * 2 * 3; ++k) {
    if (!in_share()) continue;
    const char* schedule = schedules[k / 12];
    const int is_v = strstr(schedule, "-v") != NULL, is_interleaved = !strncmp(schedule, "interleaved", 11);
    const int two_chunks = is_v || is_interleaved;
    mesh_trial t = {.tensor = k % 2 + 1, .pipeline_rank = !is_interleaved}; /* of stage 2 of 4, or 1 of 2 */
    snprintf(t.config, sizeof t.config,
             "[mesh]\ntensor = %d\npipeline = 2\ndata = %d\n[strategy.tensor]\nplugin = \"tp\"\n[strategy.pipeline]\n"
             "plugin = \"pp\"\nschedule = \"%s\"\npost_validate = \"%s\"\ncuts = \"%s\"\n[train]\nbatch = %d\n"
             "microbatches = %d\nlearning_rate = 0.01\n%s\n",
             t.tensor, DATA_RANKS, schedule, k / 2 % 2 ? "on" : "off", two_chunks ? "up,down,head" : "down", BATCH,
             MICROBATCHES, kinds[k / 4 % 3]);
    as_threads(2 * DATA_RANKS * t.tensor, expect_skip_in_mesh, &t);
    as_threads(2 * DATA_RANKS * t.tensor, expect_no_nan_after_a_run, &t);
  }
  eq_poisoned = -1;
}

/* ---- what is not any rank's own ---- */

/* Finite on each rank, and too large together. */
static gsel_status backward_half_of_infinity(const gsel_call* c, void* user) {
  const gsel_status status = step_backward(c, user);
  ((float*)c->d_params[STEP_A].data)[0] = 3.0e38f;
  return status;
}

static void expect_skip_of_a_sum(rank_run* run) {
  const trial* t = (const trial*)run->user;
  step_model m = t->m;
  step_session s;
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  m.backward = backward_half_of_infinity;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
  rank_check(run, report.skipped && report.non_finite_rank == -1 && report.non_finite_param == -1);
  step_close(&s);
}

static void a_sum_that_overflows_is_skipped_and_is_no_ranks_own(void** state) {
  (void)state;
  trial t = {.m = {.config = STEP_SGD("0.5", "8", "non_finite = \"skip\"\n")}};
  as_threads(2, expect_skip_of_a_sum, &t);
}

static void expect_refusal(rank_run* run) {
  const trial* t = (const trial*)run->user;
  step_session s;
  gsel_error* err = NULL;
  rank_fails(run, step_open(run, &t->m, &s, &err), err, GSEL_ERR_CONFIG,
             "step.toml:6: train.non_finite = \"off\" and train.precision = \"fp16\" with a dynamic loss scale", -1);
  step_close(&s);
}

static void a_dynamic_loss_scale_must_know(void** state) {
  (void)state;
  trial t = {.m = {.config = STEP_SGD("0.5", "8", "non_finite = \"off\"\nprecision = \"fp16\"\n")}};
  as_threads(2, expect_refusal, &t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_step_with_a_nan_on_one_rank_is_skipped_on_all),
      cmocka_unit_test(where_gradients_are_clipped_it_is_skipped_by_itself),
      cmocka_unit_test(in_fp16_it_is_skipped_and_its_origin_told),
      cmocka_unit_test(an_error_ends_training_on_all_ranks_and_names_rank_layer_and_parameter),
      cmocka_unit_test(switched_off_it_trains_on),
      cmocka_unit_test(what_a_forward_or_another_backward_made_is_told_as_such),
      cmocka_unit_test(a_weight_that_is_not_finite_is_told_with_rank_and_layer),
      cmocka_unit_test(every_schedule_skips_with_and_without_a_tensor_axis),
      cmocka_unit_test(a_sum_that_overflows_is_skipped_and_is_no_ranks_own),
      cmocka_unit_test(a_dynamic_loss_scale_must_know),
  };
  return cmocka_run_group_tests_name("non-finite gradients", tests, NULL, NULL);
}
