/* See post_validation_trial.h. */
#include "support/post_validation_trial.h"

post_validation_outcome* post_validation_outcomes(void) {
  return (post_validation_outcome*)shared_memory(sizeof(post_validation_outcome) * RANKS_MAX);
}
void free_validation_outcomes(post_validation_outcome* o) {
  munmap(o, sizeof(post_validation_outcome) * RANKS_MAX);
}

static gsel_status validation_data(const gsel_data_request* request, void* user) {
  post_validation_session* s = (post_validation_session*)user;
  ++s->inputs;
  if (s->dies && s->step == 2) raise(SIGKILL);
  return exact_data(request, NULL);
}

/* Momentum; the gradient is overwritten. */
static gsel_status step_that_overwrites_gradients(const gsel_optimizer_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->count; ++i) {
    c->states[0][i] = 0.5f * c->states[0][i] + c->gradient[i];
    c->values[i] -= (float)c->learning_rate * c->states[0][i];
    c->gradient[i] = 1e30f;
  }
  return GSEL_OK;
}

gsel_status open_validation(rank_run* run, post_validation_session* s, gsel_error** err) {
  const post_validation_trial* t = (const post_validation_trial*)run->user;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_optimizer_options optimizer = GSEL_OPTIMIZER_OPTIONS_INIT;
  memset(s, 0, sizeof *s);
  s->m.rank = run->rank;
  s->dies = t->dies == run->rank;
  optimizer.step = step_that_overwrites_gradients;
  optimizer.n_states = 1;
  gsel_status status = rank_join(run, &s->comm, err);
  if (!status) status = gsel_config_parse(gsel_str_from(t->config), gsel_str_from("trial.toml"), &s->config, err);
  if (!status) status = gsel_model_create(&s->model, err);
  if (!status) status = long_describe(s->model, &s->m, err);
  options.config = s->config;
  options.data = validation_data;
  options.data_user_data = s;
  if (t->own_optimizer) options.optimizer = &optimizer;
  if (!status) status = gsel_trainer_create(s->comm, s->model, &options, &s->trainer, err);
  return status;
}

void close_validation(post_validation_session* s) {
  gsel_trainer_free(s->trainer);
  gsel_model_free(s->model);
  gsel_config_free(s->config);
  gsel_comm_free(s->comm);
}

static void read_validated(rank_run* run, post_validation_session* s, float* params) {
  gsel_error* err = NULL;
  for (int p = 0; p < LP_N; params += long_elems(p++))
    rank_ok(run, gsel_trainer_read_param(s->trainer, p, params, sizeof(float) * (size_t)long_elems(p), &err), err);
}

static void note_validated(rank_run* run, post_validation_outcome* out, const gsel_step_report* report) {
  const int64_t step = report->validated_step;
  if (step < 0) return;
  rank_check(run, step <= report->step && step < VALIDATION_STEPS);
  out->norm[step] = report->gradient_norm;
  out->skipped[step] = report->skipped;
  out->known[step] = 1;
}

static void note_step(rank_run* run, post_validation_session* s, post_validation_outcome* out, int i) {
  const post_validation_trial* t = (const post_validation_trial*)run->user;
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  rank_ok(run, gsel_trainer_report(s->trainer, &report, &err), err);
  out->loss[i] = report.loss_sum;
  out->weight[i] = report.weight;
  out->scale[i] = report.loss_scale;
  out->rate[i] = report.learning_rate;
  out->restarts += report.restarts;
  note_validated(run, out, &report);
  if (!t->asks_between) return;
  float params[LONG_ELEMS];
  read_validated(run, s, params);
  rank_ok(run, gsel_trainer_report(s->trainer, &report, &err), err);
  rank_check(run, report.step == i && report.validated_step == i);
  note_validated(run, out, &report);
  rank_ok(run, gsel_trainer_evaluate(s->trainer, 1000 + i, NULL, NULL, NULL, &err), err);
}

static void train_and_validate_in(rank_run* run, post_validation_session* s) {
  const post_validation_trial* t = (const post_validation_trial*)run->user;
  post_validation_outcome* out = &t->out[run->rank];
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  memset(out, 0, sizeof *out);
  for (s->step = 0; s->step < VALIDATION_STEPS; ++s->step) {
    rank_ok(run, gsel_trainer_step(s->trainer, NULL, &err), err);
    note_step(run, s, out, (int)s->step);
  }
  if (t->leaves) return;
  read_validated(run, s, out->params);
  rank_ok(run, gsel_trainer_report(s->trainer, &report, &err), err);
  rank_check(run, report.validated_step == VALIDATION_STEPS - 1);
  note_validated(run, out, &report);
  out->inputs = s->inputs;
  out->norms = trainer_counts(s->trainer, GSEL_INSTR_NORM, GSEL_AXIS_PIPELINE);
  out->overflows = trainer_counts(s->trainer, GSEL_INSTR_OVERFLOW, GSEL_AXIS_PIPELINE);
  rank_ok(run, gsel_trainer_evaluate(s->trainer, 100, NULL, NULL, &report, &err), err);
  out->evaluated = report.loss_sum;
  gsel_memory_part part = GSEL_MEMORY_PART_INIT;
  for (int i = 0; !gsel_trainer_memory(s->trainer, i, &part, NULL); ++i)
    if (strcmp(part.name, "staging")) rank_check(run, part.forecast_bytes == part.peak_bytes);
}

void train_and_validate(rank_run* run) {
  post_validation_session s;
  gsel_error* err = NULL;
  const gsel_status status = open_validation(run, &s, &err);
  if (!status) train_and_validate_in(run, &s);
  close_validation(&s);
  rank_ok(run, status, err);
}
