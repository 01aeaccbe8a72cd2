/* See pipeline_trial.h. */
#include "support/pipeline_trial.h"

#include <math.h>

gsel_status open_pipeline(rank_run* run, pipeline_session* s, gsel_error** err) {
  const pipeline_trial* t = (const pipeline_trial*)run->user;
  memset(s, 0, sizeof *s);
  s->m.rank = run->rank;
  s->m.fail_in = t->fail_in;
  s->m.fail_on_rank = t->fail_on_rank;
  s->m.fail_at_step = PIPELINE_STEPS - 1;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_status status = rank_join(run, &s->comm, err);
  if (!status) status = gsel_config_parse(gsel_str_from(t->config), gsel_str_from("trial.toml"), &s->config, err);
  if (!status) status = gsel_model_create(&s->model, err);
  if (!status) status = long_describe(s->model, &s->m, err);
  options.config = s->config;
  options.data = exact_data;
  if (!status) status = gsel_trainer_create(s->comm, s->model, &options, &s->trainer, err);
  return status;
}

void close_pipeline(pipeline_session* s) {
  gsel_trainer_free(s->trainer);
  gsel_model_free(s->model);
  gsel_config_free(s->config);
  gsel_comm_free(s->comm);
}

static void compare_pipelines(rank_run* run, const pipeline_outcome* out, const pipeline_outcome* expected) {
  if (!same_params(run, out->params, expected->params, LONG_ELEMS)) return;
  rank_check(run, memcmp(out->loss, expected->loss, sizeof out->loss) == 0);
  rank_check(run, memcmp(out->weight, expected->weight, sizeof out->weight) == 0);
  rank_check(run, out->evaluated == expected->evaluated);
  for (int i = 0; i < PIPELINE_STEPS && expected->norm[i] > 0; ++i) rank_check(run, out->norm[i] == expected->norm[i]);
}

static void train_pipeline_in(rank_run* run, pipeline_session* s) {
  const pipeline_trial* t = (const pipeline_trial*)run->user;
  pipeline_outcome* out = &t->out[run->rank];
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  for (int i = 0; i < PIPELINE_STEPS; ++i) {
    rank_ok(run, gsel_trainer_step(s->trainer, &report, &err), err);
    out->loss[i] = report.loss_sum;
    out->weight[i] = report.weight;
    if (report.validated_step >= 0) out->norm[report.validated_step] = report.gradient_norm;
  }
  out->sent = trainer_counts(s->trainer, GSEL_INSTR_SEND, GSEL_AXIS_PIPELINE);
  out->tied = trainer_counts(s->trainer, GSEL_INSTR_ALLREDUCE_TIED, GSEL_AXIS_PIPELINE);
  out->largest = s->m.largest;
  out->evaluated = 0;
  if (t->evaluates) {
    rank_ok(run, gsel_trainer_evaluate(s->trainer, 100, NULL, NULL, &report, &err), err);
    out->evaluated = report.loss_sum;
  }
  float* params = out->params;
  for (int p = 0; p < LP_N; params += long_elems(p++))
    rank_ok(run, gsel_trainer_read_param(s->trainer, p, params, sizeof(float) * (size_t)long_elems(p), &err), err);
  rank_ok(run, gsel_trainer_report(s->trainer, &report, &err), err); /* reading parameters ends an optimistic step */
  rank_check(run, report.validated_step == PIPELINE_STEPS - 1);
  out->norm[PIPELINE_STEPS - 1] = report.gradient_norm;
  const gsel_comm_count forecast =
      program_traffic(gsel_trainer_program(s->trainer), 0, GSEL_INSTR_SEND, GSEL_AXIS_PIPELINE);
  rank_check(run, out->sent.calls == PIPELINE_STEPS * forecast.calls);
  rank_check(run, out->sent.bytes_sent == PIPELINE_STEPS * forecast.bytes_sent);
  gsel_memory_part part = GSEL_MEMORY_PART_INIT;
  for (int i = 0; !gsel_trainer_memory(s->trainer, i, &part, NULL); ++i)
    rank_check(run, part.forecast_bytes == part.peak_bytes);
  if (t->expected) compare_pipelines(run, out, t->expected);
}

void train_pipeline(rank_run* run) {
  pipeline_session s;
  gsel_error* err = NULL;
  const gsel_status status = open_pipeline(run, &s, &err);
  if (!status) train_pipeline_in(run, &s);
  close_pipeline(&s);
  rank_ok(run, status, err);
}

pipeline_outcome* pipeline_outcomes(void) {
  return (pipeline_outcome*)shared_memory(sizeof(pipeline_outcome) * RANKS_MAX);
}
void free_pipeline_outcomes(pipeline_outcome* o) {
  munmap(o, sizeof(pipeline_outcome) * RANKS_MAX);
}

pipeline_outcome* pipeline_reference(int batch, const char* more) {
  pipeline_outcome* out = pipeline_outcomes();
  char config[512];
  snprintf(config, sizeof config, PIPELINE_TRAIN "%s", batch, 1, more);
  pipeline_trial t = {config, NULL, -1, 1, NULL, out};
  as_threads(1, train_pipeline, &t);
  assert_true(out->largest < 16777216.0 / 64); /* with room for terms that cancel */
  for (int i = 0; i < LONG_ELEMS; ++i) assert_true(out->params[i] == floorf(out->params[i]));
  return out;
}
