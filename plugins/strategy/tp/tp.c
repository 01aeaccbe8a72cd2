/* tp.c: tensor parallelism from what the model says of itself: every parameter with a shard rule is split, every layer
 * finds and leaves its values as they are declared, and the host puts the collectives between (Shoeybi et al.,
 * arXiv 1909.08053). With sequence_parallel the layers in between, which would run alike on every rank, take a part of
 * the positions each (Korthikanti et al., arXiv 2205.05198). Layers that are excluded are among these: their shard
 * rules are not followed. It decides placements and nothing else. */
#include <gsel/plugin.h>
#include <stdlib.h>
#include <string.h>

#include "common/placements.h"
#include "tp/exclude.h"

static const gsel_option_v1 options[] = {
    {.struct_size = sizeof(gsel_option_v1),
     .name = "sequence_parallel",
     .help = "true or false: layers that compute each position by itself take a part of the positions on each rank",
     .type = GSEL_OPTION_BOOLEAN,
     .default_text = "false"},
    {.struct_size = sizeof(gsel_option_v1),
     .name = "exclude",
     .help = "layers that are not divided, each rank has all of their parameters: names with commas, * stands for any "
             "characters",
     .type = GSEL_OPTION_TEXT,
     .default_text = ""},
};

/* Whether a layer, which nothing else divides, can take a part of the positions. */
static int takes_positions(const struct placements* p, const gsel_layer_info* layer) {
  return p->api->option_integer(p->pass, "sequence_parallel") && (layer->flags & GSEL_LAYER_POSITIONWISE) &&
         placements_all_have_positions(p, layer);
}

static void set_placements(struct placements* p, int32_t id, int is_excluded) {
  gsel_layer_info layer = {.struct_size = sizeof layer};
  if (placements_layer(p, id, &layer)) return;
  if (!is_excluded && placements_are_declared(p, &layer))
    placements_as_declared(p, id, &layer);
  else if (takes_positions(p, &layer))
    placements_by_position(p, id, &layer);
}

/* Those of layers that are not excluded. */
static void split_params(struct placements* p, int32_t id) {
  gsel_layer_info layer = {.struct_size = sizeof layer};
  if (placements_layer(p, id, &layer)) return;
  for (int32_t i = 0; i < layer.n_params; ++i) placements_split(p, layer.params[i]);
}

static gsel_status compile(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                           gsel_error** err) {
  struct placements p = {.host = host, .api = api, .pass = pass};
  (void)axis;
  unsigned char* excluded = exclude_read(&p, err);
  for (int32_t l = 0; excluded && l < api->layer_count(pass); ++l)
    if (!excluded[l]) split_params(&p, l);
  for (int32_t l = 0; excluded && l < api->layer_count(pass); ++l) set_placements(&p, l, excluded[l]);
  free(excluded);
  return placements_end(&p, "tp", err);
}

GSEL_STRATEGY_DEFINE("tp", "0.1.0", .axes = 1u << GSEL_AXIS_TENSOR, .options = options,
                     .n_options = sizeof options / sizeof *options, .compile = compile);
