/* tp.c: tensor parallelism as the model declares it: every parameter with a shard rule is split, every layer reads and
 * writes its values with their declared placements, and the host inserts the collectives (Shoeybi et al., arXiv
 * 1909.08053). With sequence_parallel the other layers, which every rank would run in full, take a shard of the
 * positions each (Korthikanti et al., arXiv 2205.05198); excluded layers, whose shard rules are ignored, are among
 * these. The strategy only decides placements. */
#include <gsel/plugin.h>
#include <stdlib.h>
#include <string.h>

#include "common/advice.h"
#include "common/placements.h"
#include "tp/exclude.h"

static const gsel_option_v1 options[] = {
    {.struct_size = sizeof(gsel_option_v1),
     .name = "sequence_parallel",
     .help = "true or false: layers that compute each position by itself work on a shard of the positions on each rank",
     .type = GSEL_OPTION_BOOLEAN,
     .default_text = "false"},
    {.struct_size = sizeof(gsel_option_v1),
     .name = "exclude",
     .help = "layers that are not divided, each rank has all of their parameters: names with commas, * stands for any "
             "characters",
     .type = GSEL_OPTION_TEXT,
     .default_text = ""},
};

static int is_as_declared(const struct placements* p, const gsel_layer_info* layer, int is_excluded) {
  return !is_excluded && placements_are_declared(p, layer);
}

/* Whether a layer takes a shard of the positions because nothing else divides it. */
static int takes_positions(const struct placements* p, const gsel_layer_info* layer, int is_excluded) {
  return p->api->option_integer(p->pass, "sequence_parallel") && !is_as_declared(p, layer, is_excluded) &&
         (layer->flags & GSEL_LAYER_POSITIONWISE) && placements_all_have_positions(p, layer);
}

static void set_placements(struct placements* p, int32_t id, int is_excluded) {
  gsel_layer_info layer = {.struct_size = sizeof layer};
  if (placements_layer(p, id, &layer)) return;
  if (is_as_declared(p, &layer, is_excluded))
    placements_as_declared(p, id, &layer);
  else if (takes_positions(p, &layer, is_excluded))
    placements_by_position(p, id, &layer);
}

/* Splits the parameters of a layer that is not excluded. */
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

static int any_takes_positions(struct placements* p, const unsigned char* excluded) {
  for (int32_t l = 0; l < p->api->layer_count(p->pass); ++l) {
    gsel_layer_info layer = {.struct_size = sizeof layer};
    if (placements_layer(p, l, &layer) || takes_positions(p, &layer, excluded[l])) return 1;
  }
  return 0;
}

static gsel_status advise(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                          int32_t topic, gsel_error** err) {
  struct placements p = {.host = host, .api = api, .pass = pass};
  if (topic != GSEL_ADVICE_IDLE || api->axis_size(pass, axis) == 1 || !api->option_integer(pass, "sequence_parallel"))
    return GSEL_OK;
  unsigned char* excluded = exclude_read(&p, err);
  if (excluded && !any_takes_positions(&p, excluded))
    p.status =
        advise_idle(api, pass, "sequence_parallel",
                    "changes nothing: no layer that it could divide is flagged GSEL_LAYER_POSITIONWISE and has a "
                    "sequence_dim in all its values; flag such layers");
  free(excluded);
  placements_advise_positions(&p, "sequence_parallel");
  return placements_end(&p, "tp", err);
}

GSEL_STRATEGY_DEFINE("tp", "0.1.0", .axes = 1u << GSEL_AXIS_TENSOR, .options = options,
                     .n_options = sizeof options / sizeof *options, .compile = compile, .advise = advise);
