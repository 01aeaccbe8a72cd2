/* pp: pipeline parallelism. The layer list is cut into stages, a schedule assigns the stages to the ranks of the
 * pipeline axis, and each rank's step becomes its row of the schedule: forward and backward of its stages for one
 * micro-batch after another, with the values that cross cuts sent and received. All schedules are lowered in the same
 * way; they differ only in their rows. Source: gsel/schedule.h names the schedules and docs/strategies.md their
 * papers. */
#include "pp.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gsel_option_v1 options[] = {
    {sizeof(gsel_option_v1), GSEL_OPTION_TEXT, "schedule",
     "order of the work: naive, gpipe, 1f1b, interleaved-1f1b, zb-h1, interleaved-zb, zb-h2, zb-v or dualpipe-v", 0, 0,
     "1f1b"},
    {sizeof(gsel_option_v1), GSEL_OPTION_TEXT, "schedule_file",
     "file with a schedule of your own, which then counts; empty: none", 0, 0, ""},
    {sizeof(gsel_option_v1), GSEL_OPTION_INTEGER, "chunks", "stages of each rank; 0: what the schedule needs", 0, 65536,
     "0"},
    {sizeof(gsel_option_v1), GSEL_OPTION_TEXT, "cuts",
     "names of the first layers of stages 1, 2, ..., separated by commas; empty: chosen by cost", 0, 0, ""},
    {sizeof(gsel_option_v1), GSEL_OPTION_TEXT, "costs",
     "what layers cost: hints (flop_per_sample of their descriptions), or a folder or file of recorded steps "
     "(train.timeline)",
     0, 0, "hints"},
    {sizeof(gsel_option_v1), GSEL_OPTION_TEXT, "balance", "what the cuts make even: time, or memory", 0, 0, "time"},
    {sizeof(gsel_option_v1), GSEL_OPTION_TEXT, "post_validate",
     "on: step before the norm or the overflow of all ranks is known, and undo it if need be; off: wait for them; "
     "auto: "
     "on for zb-h2",
     0, 0, "auto"},
};

gsel_action action_of(const struct pp* pp, int32_t rank, int32_t i) {
  gsel_action action = {0, -1, -1};
  pp->w.api->schedule_action(pp->schedule, rank, i, &action);
  return action;
}

int32_t end_of_stage(const struct pp* pp, int32_t stage) {
  return stage + 1 < pp->n_stages ? pp->begin[stage + 1] : pp->w.n_layers;
}

void note(struct pp* pp, const char* format, ...) {
  char line[512];
  va_list arguments;
  if (pp->w.status) return;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  pp->w.api->note(pp->w.pass, line);
}

static void read_values(struct pp* pp) {
  struct rewrite* w = &pp->w;
  pp->n_values = w->api->value_count(w->pass);
  pp->values = rewrite_alloc(w, pp->n_values, sizeof *pp->values);
  for (int32_t v = 0; v < pp->n_values && !w->status; ++v) {
    pp->values[v].struct_size = sizeof *pp->values;
    rewrite_fail(w, w->api->value(w->pass, v, &pp->values[v]), NULL, NULL);
  }
}

/* A run of recomputations comes right before its backward, and is the same in every micro-batch. */
static void read_recomputation(struct pp* pp) {
  struct rewrite* w = &pp->w;
  pp->run_of_layer = rewrite_alloc(w, w->n_layers, sizeof *pp->run_of_layer);
  if (w->status) return;
  for (int32_t l = 0; l < w->n_layers; ++l) pp->run_of_layer[l] = -1;
  int32_t run = 0;
  for (int32_t i = 0; i < w->end_of_backward; ++i) {
    if (w->base[i].microbatch != 0) continue;
    if (w->base[i].kind == GSEL_INSTR_RECOMPUTE)
      pp->run_of_layer[w->base[i].layer] = run;
    else
      ++run;
  }
}

static void read_schedule(struct pp* pp) {
  struct rewrite* w = &pp->w;
  gsel_error* error = NULL;
  const char* file = w->api->option_text(w->pass, "schedule_file");
  if (w->status) return;
  const gsel_status status =
      file[0] ? w->api->schedule_file(w->pass, file, &pp->schedule, &error)
              : w->api->schedule(w->pass, w->api->option_text(w->pass, "schedule"),
                                 (int32_t)w->api->option_integer(w->pass, "chunks"), &pp->schedule, &error);
  rewrite_fail_with(w, status, error);
  if (w->status) return;
  pp->n_stages = w->api->schedule_stages(pp->schedule);
  pp->rank_of_stage = rewrite_alloc(w, pp->n_stages, sizeof *pp->rank_of_stage);
  pp->begin = rewrite_alloc(w, pp->n_stages, sizeof *pp->begin);
  pp->stage_of_layer = rewrite_alloc(w, w->n_layers, sizeof *pp->stage_of_layer);
  for (int32_t s = 0; s < pp->n_stages && !w->status; ++s)
    pp->rank_of_stage[s] = w->api->schedule_rank_of(pp->schedule, s);
}

static int has_optimistic(const struct rewrite* w) {
  for (int32_t i = 0; i < w->n_base; ++i)
    if (looks_at_all_gradients(&w->base[i])) return 1;
  return 0;
}

/* Schedules whose ranks end one after the other gain: each rank begins its next step when it has ended this one. */
static void choose_validation(struct pp* pp) {
  static const char* const words[] = {"auto", "on", "off"};
  enum { AUTO, ON, OFF };
  struct rewrite* w = &pp->w;
  const int32_t word = rewrite_word(w, "post_validate", words, 3);
  if (w->status || word == OFF) return;
  const char *schedule = w->api->option_text(w->pass, "schedule"),
             *file = w->api->option_text(w->pass, "schedule_file");
  if (word == AUTO && (file[0] || strcmp(schedule, "zb-h2") != 0)) return;
  pp->post_validates = pp->n_ranks > 1 && has_optimistic(w);
  if (pp->post_validates)
    note(pp,
         "pp: a rank steps before norm and overflow of all are known; the next step validates it, post_validate = "
         "\"%s\"",
         words[word]);
  else if (word == ON)
    note(pp, "pp: post_validate = \"on\" has nothing to do: %s",
         pp->n_ranks > 1 ? "neither train.clip_norm nor precision = \"fp16\" looks at all gradients"
                         : "the pipeline has one rank");
}

static gsel_status compile(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                           gsel_error** err) {
  struct pp pp = {0};
  struct rewrite* w = &pp.w;
  rewrite_begin(w, "pp", host, api, pass, axis);
  pp.n_ranks = w->ranks;
  pp.n_microbatches = api->microbatch_count(pass);
  read_values(&pp);
  read_recomputation(&pp);
  read_schedule(&pp);
  if (!w->status) choose_cuts(&pp);
  if (!w->status) choose_validation(&pp);
  if (!w->status) rewrite_fail(w, api->set_stages(pass, pp.stage_of_layer, pp.rank_of_stage, pp.n_stages), NULL, NULL);
  if (!w->status) write_step(&pp);
  free(pp.values);
  free(pp.rank_of_stage);
  free(pp.begin);
  free(pp.stage_of_layer);
  free(pp.run_of_layer);
  return rewrite_end(w, err);
}

GSEL_STRATEGY_DEFINE("pp", "0.1.0", .axes = 1u << GSEL_AXIS_PIPELINE, .options = options,
                     .n_options = sizeof options / sizeof *options, .compile = compile);
