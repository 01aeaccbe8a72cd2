/* placements.c: see placements.h. */
#include "common/placements.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/advice.h"

static gsel_value_info value_of(const struct placements* p, int32_t id) {
  gsel_value_info info = {.struct_size = sizeof info};
  p->api->value(p->pass, id, &info);
  return info;
}

static gsel_param_info param_of(const struct placements* p, int32_t id) {
  gsel_param_info info = {.struct_size = sizeof info};
  p->api->param(p->pass, id, &info);
  return info;
}

void placements_split(struct placements* p, int32_t param) {
  if (!p->status && param_of(p, param).shard == GSEL_SHARD_DIM) p->status = p->api->split_param(p->pass, param);
}

int placements_layer(struct placements* p, int32_t layer, gsel_layer_info* info) {
  if (!p->status) p->status = p->api->layer(p->pass, layer, info);
  return p->status;
}

int placements_reads_sharded(const struct placements* p, const gsel_layer_info* layer) {
  for (int32_t i = 0; i < layer->n_inputs; ++i)
    if (value_of(p, layer->inputs[i]).placement == GSEL_PLACEMENT_SHARD) return 1;
  return 0;
}

int placements_are_declared(const struct placements* p, const gsel_layer_info* layer) {
  for (int32_t i = 0; i < layer->n_params; ++i)
    if (param_of(p, layer->params[i]).shard == GSEL_SHARD_DIM) return 1;
  for (int32_t i = 0; i < layer->n_outputs; ++i)
    if (value_of(p, layer->outputs[i]).placement != GSEL_PLACEMENT_REPLICATE) return 1;
  return placements_reads_sharded(p, layer);
}

static int is_scalar(const gsel_value_info* value) {
  return (value->flags & GSEL_VALUE_SCALAR) != 0;
}

static gsel_value_info value_of_layer(const struct placements* p, const gsel_layer_info* layer, int32_t i) {
  return value_of(p, i < layer->n_inputs ? layer->inputs[i] : layer->outputs[i - layer->n_inputs]);
}

const char* placements_value_without_positions(const struct placements* p, const gsel_layer_info* layer) {
  for (int32_t i = 0; i < layer->n_inputs + layer->n_outputs; ++i) {
    const gsel_value_info v = value_of_layer(p, layer, i);
    if (!is_scalar(&v) && v.sequence_dim == 0) return v.name;
  }
  return NULL;
}

/* The first value with a sequence_dim; its name is NULL if there is none. */
static gsel_value_info value_with_positions(const struct placements* p, const gsel_layer_info* layer) {
  for (int32_t i = 0; i < layer->n_inputs + layer->n_outputs; ++i) {
    const gsel_value_info v = value_of_layer(p, layer, i);
    if (v.sequence_dim > 0) return v;
  }
  return (gsel_value_info){0};
}

int placements_all_have_positions(const struct placements* p, const gsel_layer_info* layer) {
  return !placements_value_without_positions(p, layer) && value_with_positions(p, layer).name;
}

void placements_advise_positions(struct placements* p, const char* key) {
  for (int32_t l = 0; l < p->api->layer_count(p->pass); ++l) {
    gsel_layer_info layer = {.struct_size = sizeof layer};
    if (placements_layer(p, l, &layer)) return;
    if (!(layer.flags & GSEL_LAYER_POSITIONWISE)) continue;
    const gsel_value_info with = value_with_positions(p, &layer);
    const char* without = placements_value_without_positions(p, &layer);
    if (with.name && without)
      p->status =
          advise_idle(p->api, p->pass, key,
                      "does not divide layer \"%.100s\" by positions: it is flagged GSEL_LAYER_POSITIONWISE and "
                      "its value \"%.100s\" has sequence_dim %d, but its value \"%.100s\" has none; give it the "
                      "dimension of its positions",
                      layer.name, with.name, (int)with.sequence_dim, without);
  }
}

static gsel_placement by_position(const gsel_value_info* v) {
  if (is_scalar(v)) return (gsel_placement){GSEL_PLACEMENT_PARTIAL, 0};
  return (gsel_placement){GSEL_PLACEMENT_SHARD, v->sequence_dim};
}

/* Readers get reduced values instead of partial sums. */
static gsel_placement as_declared(const gsel_value_info* v, int reads) {
  if (v->placement == GSEL_PLACEMENT_SHARD) return (gsel_placement){GSEL_PLACEMENT_SHARD, v->shard_dim};
  return (gsel_placement){
      v->placement == GSEL_PLACEMENT_PARTIAL && !reads ? GSEL_PLACEMENT_PARTIAL : GSEL_PLACEMENT_REPLICATE, 0};
}

static void say(struct placements* p, int32_t id, const gsel_layer_info* layer, int positions) {
  const int32_t n = layer->n_inputs + layer->n_outputs;
  gsel_placement* all = calloc((size_t)n + 1, sizeof *all);
  if (!all) {
    p->status = GSEL_ERR_NOMEM;
    return;
  }
  for (int32_t i = 0; i < n; ++i) {
    const int reads = i < layer->n_inputs;
    const gsel_value_info v = value_of(p, reads ? layer->inputs[i] : layer->outputs[i - layer->n_inputs]);
    all[i] = positions ? by_position(&v) : as_declared(&v, reads);
  }
  if (!p->status) p->status = p->api->set_layer_placements(p->pass, id, all, all + layer->n_inputs);
  free(all);
}

void placements_as_declared(struct placements* p, int32_t id, const gsel_layer_info* layer) {
  say(p, id, layer, 0);
}
void placements_by_position(struct placements* p, int32_t id, const gsel_layer_info* layer) {
  say(p, id, layer, 1);
}

gsel_status placements_end(const struct placements* p, const char* plugin, gsel_error** err) {
  char text[128];
  if (!p->status || *err) return p->status;
  snprintf(text, sizeof text, "%s: %s", plugin,
           p->status == GSEL_ERR_NOMEM ? "out of memory" : "the host refused what this plugin asked for");
  *err = p->host->error_new(p->status, text);
  return p->status;
}
