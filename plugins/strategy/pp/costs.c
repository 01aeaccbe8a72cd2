/* pp/costs.c: see costs.h. */
#include "costs.h"

#include <stdlib.h>
#include <string.h>

/* Memory of a trained element besides itself: the gradient in f32 and two optimizer states. */
enum { GRADIENT_AND_STATE_BYTES = 12, BYTES_OF_HALF = 2, BYTES_OF_FLOAT = 4 };

static int is_produced(const gsel_layer_info* layer, uint32_t what) {
  return (layer->backward & what) != 0;
}

/* A forward and each half of backward count equally; recomputation is one more forward. */
static double hinted_time(const struct pp* pp, int32_t l) {
  const gsel_layer_info* layer = &pp->w.layers[l];
  const int times = 1 + is_produced(layer, GSEL_BACKWARD_PRODUCES_INPUT) +
                    is_produced(layer, GSEL_BACKWARD_PRODUCES_WEIGHT) + (pp->run_of_layer[l] >= 0);
  return times * layer->flop_per_sample;
}

static void take_measured(struct pp* pp, struct costs* c, const char* path) {
  struct rewrite* w = &pp->w;
  double* seconds = rewrite_alloc(w, 3 * (int64_t)w->n_layers, sizeof *seconds);
  gsel_error* error = NULL;
  const gsel_status status = w->status ? w->status : w->api->measured(w->pass, path, seconds, &error);
  rewrite_fail_with(w, status, error);
  for (int32_t l = 0; l < w->n_layers && !w->status; ++l) {
    const double* s = &seconds[3 * (int64_t)l];
    c->time[l] = s[0] * (1 + (pp->run_of_layer[l] >= 0)) + s[1] + s[2];
  }
  c->known = "measured time";
  free(seconds);
}

static void take_hints(struct pp* pp, struct costs* c) {
  double total = 0;
  for (int32_t l = 0; l < pp->w.n_layers; ++l) total += c->time[l] = hinted_time(pp, l);
  c->known = total > 0 ? "flop_per_sample" : "the number of layers, since no layer has flop_per_sample";
  for (int32_t l = 0; l < pp->w.n_layers && !(total > 0); ++l) c->time[l] = !pp->w.layers[l].redistributes;
}

static double kept_bytes(const struct pp* pp, const gsel_layer_info* layer) {
  double bytes = 0;
  for (int32_t i = 0; i < layer->n_params; ++i) {
    const gsel_param_info* param = &pp->w.params[layer->params[i]];
    const int own = param->dtype == GSEL_F32 ? BYTES_OF_FLOAT : BYTES_OF_HALF;
    bytes += (double)param->n_elems * (own + (param->flags & GSEL_PARAM_FROZEN ? 0 : GRADIENT_AND_STATE_BYTES));
  }
  return bytes;
}

static double live_bytes(const struct pp* pp, int32_t l, int64_t samples) {
  const gsel_layer_info* layer = &pp->w.layers[l];
  if (pp->run_of_layer[l] >= 0) return 0;
  double bytes = (double)layer->saved_bytes_per_sample;
  for (int32_t i = 0; i < layer->n_outputs; ++i)
    if (!(pp->values[layer->outputs[i]].flags & GSEL_VALUE_SCALAR))
      bytes += (double)pp->values[layer->outputs[i]].sample_bytes;
  return bytes * (double)samples;
}

/* On any rank, since all ranks must choose the same cuts. */
static int64_t largest_microbatch(const struct pp* pp) {
  const struct rewrite* w = &pp->w;
  const int64_t n = (int64_t)w->api->axis_size(w->pass, GSEL_AXIS_DATA) * pp->n_microbatches;
  return (w->api->batch(w->pass) + n - 1) / n;
}

/* Follows the row of every rank. */
static void find_held(struct pp* pp, struct costs* c) {
  const struct rewrite* w = &pp->w;
  int32_t* now = rewrite_alloc(&pp->w, pp->n_stages, sizeof *now);
  for (int32_t rank = 0; rank < pp->n_ranks && !w->status; ++rank)
    for (int32_t i = 0; i < w->api->schedule_length(pp->schedule, rank); ++i) {
      const gsel_action a = action_of(pp, rank, i);
      if (a.kind == GSEL_FORWARD) ++now[a.stage];
      if (a.kind == GSEL_BACKWARD || a.kind == GSEL_BACKWARD_WEIGHT) --now[a.stage];
      if (now[a.stage] > c->held[a.stage]) c->held[a.stage] = now[a.stage];
    }
  free(now);
}

void find_costs(struct pp* pp, struct costs* c) {
  struct rewrite* w = &pp->w;
  const char* source = w->api->option_text(w->pass, "costs");
  c->time = rewrite_alloc(w, w->n_layers, sizeof *c->time);
  c->kept = rewrite_alloc(w, w->n_layers, sizeof *c->kept);
  c->live = rewrite_alloc(w, w->n_layers, sizeof *c->live);
  c->held = rewrite_alloc(w, pp->n_stages, sizeof *c->held);
  if (w->status) return;
  if (strcmp(source, "hints") != 0)
    take_measured(pp, c, source);
  else
    take_hints(pp, c);
  for (int32_t l = 0; l < w->n_layers; ++l) {
    c->kept[l] = kept_bytes(pp, &w->layers[l]);
    c->live[l] = live_bytes(pp, l, largest_microbatch(pp));
  }
  find_held(pp, c);
}

void free_costs(struct costs* c) {
  free(c->time);
  free(c->kept);
  free(c->live);
  free(c->held);
}
