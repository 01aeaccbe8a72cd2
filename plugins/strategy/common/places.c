/* places.c: see places.h. */
#include "common/places.h"

#include <stdio.h>
#include <stdlib.h>

static gsel_value_info value_of(const struct places* p, int32_t id) {
  gsel_value_info info = {.struct_size = sizeof info};
  p->api->value(p->pass, id, &info);
  return info;
}

static gsel_param_info param_of(const struct places* p, int32_t id) {
  gsel_param_info info = {.struct_size = sizeof info};
  p->api->param(p->pass, id, &info);
  return info;
}

void places_split(struct places* p, int32_t param) {
  if (!p->status && param_of(p, param).shard == GSEL_SHARD_DIM) p->status = p->api->split_param(p->pass, param);
}

int places_layer(struct places* p, int32_t layer, gsel_layer_info* info) {
  if (!p->status) p->status = p->api->layer(p->pass, layer, info);
  return p->status;
}

int places_reads_sharded(const struct places* p, const gsel_layer_info* layer) {
  for (int32_t i = 0; i < layer->n_inputs; ++i)
    if (value_of(p, layer->inputs[i]).place == GSEL_PLACE_SHARDED) return 1;
  return 0;
}

int places_are_declared(const struct places* p, const gsel_layer_info* layer) {
  for (int32_t i = 0; i < layer->n_params; ++i)
    if (param_of(p, layer->params[i]).shard == GSEL_SHARD_DIM) return 1;
  for (int32_t i = 0; i < layer->n_outputs; ++i)
    if (value_of(p, layer->outputs[i]).place != GSEL_PLACE_REPLICATED) return 1;
  return places_reads_sharded(p, layer);
}

static int is_scalar(const gsel_value_info* value) {
  return (value->flags & GSEL_VALUE_SCALAR) != 0;
}

int places_all_have_positions(const struct places* p, const gsel_layer_info* layer) {
  int found = 0;
  for (int32_t i = 0; i < layer->n_inputs + layer->n_outputs; ++i) {
    const gsel_value_info v = value_of(p, i < layer->n_inputs ? layer->inputs[i] : layer->outputs[i - layer->n_inputs]);
    if (!is_scalar(&v) && v.sequence_dim == 0) return 0;
    found |= v.sequence_dim > 0;
  }
  return found;
}

static gsel_place_in_layer by_position(const gsel_value_info* v) {
  if (is_scalar(v)) return (gsel_place_in_layer){GSEL_PLACE_PARTIAL, 0};
  return (gsel_place_in_layer){GSEL_PLACE_SHARDED, v->sequence_dim};
}

/* Partial sums are read summed. */
static gsel_place_in_layer as_declared(const gsel_value_info* v, int reads) {
  if (v->place == GSEL_PLACE_SHARDED) return (gsel_place_in_layer){GSEL_PLACE_SHARDED, v->place_dim};
  return (gsel_place_in_layer){v->place == GSEL_PLACE_PARTIAL && !reads ? GSEL_PLACE_PARTIAL : GSEL_PLACE_REPLICATED,
                               0};
}

static void say(struct places* p, int32_t id, const gsel_layer_info* layer, int positions) {
  const int32_t n = layer->n_inputs + layer->n_outputs;
  gsel_place_in_layer* places = calloc((size_t)n + 1, sizeof *places);
  if (!places) {
    p->status = GSEL_ERR_NOMEM;
    return;
  }
  for (int32_t i = 0; i < n; ++i) {
    const int reads = i < layer->n_inputs;
    const gsel_value_info v = value_of(p, reads ? layer->inputs[i] : layer->outputs[i - layer->n_inputs]);
    places[i] = positions ? by_position(&v) : as_declared(&v, reads);
  }
  if (!p->status) p->status = p->api->place_layer(p->pass, id, places, places + layer->n_inputs);
  free(places);
}

void places_as_declared(struct places* p, int32_t id, const gsel_layer_info* layer) {
  say(p, id, layer, 0);
}
void places_by_position(struct places* p, int32_t id, const gsel_layer_info* layer) {
  say(p, id, layer, 1);
}

gsel_status places_end(const struct places* p, const char* plugin, gsel_error** err) {
  char text[128];
  if (!p->status || *err) return p->status;
  snprintf(text, sizeof text, "%s: %s", plugin,
           p->status == GSEL_ERR_NOMEM ? "out of memory" : "the host refused what this plugin asked for");
  *err = p->host->error_new(p->status, text);
  return p->status;
}
