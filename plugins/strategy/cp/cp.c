/* cp.c: context parallelism: every positionwise layer works on a shard of the positions, with whole parameters. Layers
 * that mix positions, such as attention, get their values as declared, which is sharded by heads; the host exchanges
 * one for the other (Jacobs et al., DeepSpeed-Ulysses, arXiv 2309.14509). If such layers use ring shifts, they keep
 * their positions (Liu et al., Ring Attention, arXiv 2310.01889). */
#include <gsel/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/placements.h"

/* What the layer needs in order to take a shard of the positions. */
static void remedy(const struct placements* p, const gsel_layer_info* layer, char* text, size_t bytes) {
  const char* value = placements_value_without_positions(p, layer);
  if (!(layer->flags & GSEL_LAYER_POSITIONWISE))
    snprintf(text, bytes, "flag it GSEL_LAYER_POSITIONWISE and give each of its values a sequence_dim");
  else
    snprintf(text, bytes, "its value \"%.100s\" has no sequence_dim: give it the dimension of its positions",
             value ? value : "");
}

/* A shard of a matrix's columns would be multiplied with all of its rows. */
static gsel_status refuse_matrix(const struct placements* p, const gsel_layer_info* layer, gsel_error** err) {
  for (int32_t i = 0; i < layer->n_params; ++i) {
    gsel_param_info param = {.struct_size = sizeof param};
    char text[640], what[256];
    if (p->api->param(p->pass, layer->params[i], &param) || param.shard != GSEL_SHARD_DIM) continue;
    remedy(p, layer, what, sizeof what);
    snprintf(text, sizeof text,
             "cp: layer \"%.100s\" reads shards of values and has the whole parameter \"%.100s\"; %s, or take plugin = "
             "\"tp\"",
             layer->name, param.name, what);
    *err = p->host->error_new(GSEL_ERR_MODEL, text);
    return GSEL_ERR_MODEL;
  }
  return GSEL_OK;
}

static void set_placements(struct placements* p, int32_t id, gsel_error** err) {
  gsel_layer_info layer = {.struct_size = sizeof layer};
  if (placements_layer(p, id, &layer)) return;
  const int by_position = layer.ring_shifts || (layer.flags & GSEL_LAYER_POSITIONWISE);
  if (by_position && placements_all_have_positions(p, &layer)) {
    placements_by_position(p, id, &layer);
  } else if (placements_reads_sharded(p, &layer)) {
    p->status = refuse_matrix(p, &layer, err);
    if (!p->status) placements_as_declared(p, id, &layer);
  }
}

static gsel_status compile(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                           gsel_error** err) {
  struct placements p = {.host = host, .api = api, .pass = pass};
  (void)axis;
  for (int32_t l = 0; l < api->layer_count(pass); ++l) set_placements(&p, l, err);
  return placements_end(&p, "cp", err);
}

static gsel_status advise(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                          int32_t topic, gsel_error** err) {
  struct placements p = {.host = host, .api = api, .pass = pass};
  if (topic == GSEL_ADVICE_IDLE && api->axis_size(pass, axis) > 1) placements_advise_positions(&p, "plugin");
  return placements_end(&p, "cp", err);
}

GSEL_STRATEGY_DEFINE("cp", "0.1.0", .axes = 1u << GSEL_AXIS_CONTEXT, .compile = compile, .advise = advise);
