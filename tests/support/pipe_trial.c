/* See pipe_trial.h. */
#include "support/pipe_trial.h"

pipe_trial trial_of(int layers, const char* schedule, int microbatches, int samples) {
  pipe_trial t;
  memset(&t, 0, sizeof t);
  t.m.layers = layers;
  gsel_pipeline_options_init(&t.options, sizeof t.options);
  t.options.schedule = gsel_str_from(schedule);
  t.options.microbatches = microbatches;
  t.options.microbatch_samples = samples;
  t.what = GSEL_FORWARD_BACKWARD;
  t.runs = 1;
  t.odd_rank = -1;
  return t;
}

/* ---- outcomes ---- */

static void expect_layers(rank_run* run, const pipe_trial* t, const pipe_session* s, const pipe_result* by_hand) {
  int here[PIPE_MOST_LAYERS] = {0}, n_stages = 0;
  gsel_pipeline_stage stage = GSEL_PIPELINE_STAGE_INIT;
  for (; !gsel_pipeline_stage_get(s->pipeline, n_stages, &stage, NULL); ++n_stages)
    for (int l = 0; l < stage.n_layers; ++l) here[stage.first_layer + l] = 1;
  rank_check(run, n_stages >= 1);
  const int backward = t->what == GSEL_FORWARD_BACKWARD;
  const int calls = 2 * t->runs * t->options.microbatches;
  for (int l = 0; l < t->m.layers; ++l) {
    rank_check(run, s->m.forwards[l] == here[l] * calls);
    rank_check(run, s->m.backwards[l] == here[l] * backward * calls);
    rank_check(run, s->m.dw[l] == here[l] * backward * by_hand->dw[l]);
  }
  rank_check(run, s->m.inputs[PIPE_TOKENS] == here[0] * calls / 2);
  rank_check(run, s->m.inputs[PIPE_LABELS] == here[t->m.layers - 1] * calls / 2);
  for (int64_t id = 0; t->m.without_loss && here[t->m.layers - 1] && id < calls / 2 * t->options.microbatch_samples;
       ++id)
    rank_check(run, !memcmp(s->m.out[id], by_hand->out[id], sizeof s->m.out[id]));
}

void expect_equal_to_by_hand(rank_run* run) {
  const pipe_trial* t = (const pipe_trial*)run->user;
  const int64_t samples = t->options.microbatches * t->options.microbatch_samples;
  pipe_session s;
  gsel_error* err = NULL;
  rank_ok(run, pipe_open(run, &t->m, &t->options, &s, &err), err);
  for (int i = 0; i < t->runs; ++i) {
    const pipe_result now = pipe_by_hand(t->m.layers, i * samples, (i + 1) * samples);
    gsel_pipeline_report report = GSEL_PIPELINE_REPORT_INIT;
    rank_ok(run, gsel_pipeline_run(s.pipeline, t->what, &report, &err), err);
    rank_check(run, report.loss_sum == (t->m.without_loss ? 0 : now.loss));
    rank_check(run, report.loss_weight == (t->m.without_loss ? 0 : (double)samples));
  }
  const pipe_result all = pipe_by_hand(t->m.layers, 0, t->runs * samples);
  expect_layers(run, t, &s, &all);
  pipe_close(&s);
}

const char* const kSchedules[] = {"naive", "gpipe",          "1f1b", "interleaved-1f1b", "zb-h1",
                                  "zb-h2", "interleaved-zb", "zb-v", "dualpipe-v"};

int schedule_exists(const char* name, int ranks, int microbatches) {
  gsel_schedule* schedule = NULL;
  const gsel_status status = gsel_schedule_create(gsel_str_from(name), ranks, microbatches, 0, &schedule, NULL);
  gsel_schedule_free(schedule);
  return status == GSEL_OK;
}
