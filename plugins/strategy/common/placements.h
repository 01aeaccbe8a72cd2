/* placements.h: shared by strategies of the tensor and the context axis: queries the declared placements of values, and
 * sets the placements with which layers read and write them. After the first error further calls do nothing. */
#ifndef PLACEMENTS_H
#define PLACEMENTS_H

#include <gsel/plugin.h>

struct placements {
  const gsel_host_v1* host;
  const gsel_pass_api_v1* api;
  gsel_pass* pass;
  gsel_status status;
};

/* Splits a parameter that has a shard rule. */
void placements_split(struct placements* p, int32_t param);

/* Fills info; nonzero after an error. */
int placements_layer(struct placements* p, int32_t layer, gsel_layer_info* info);

/* Whether the layer is declared divided: by a sharded parameter or value, or a partial sum that it writes; whether it
 * reads a sharded value. */
int placements_are_declared(const struct placements* p, const gsel_layer_info* layer);
int placements_reads_sharded(const struct placements* p, const gsel_layer_info* layer);
/* The first non-scalar value without a sequence_dim, or NULL. */
const char* placements_value_without_positions(const struct placements* p, const gsel_layer_info* layer);
/* Whether the layer has non-scalar values and all have positions. */
int placements_all_have_positions(const struct placements* p, const gsel_layer_info* layer);

/* For layers flagged GSEL_LAYER_POSITIONWISE that `key` cannot divide because of one value: suggests what it lacks. */
void placements_advise_positions(struct placements* p, const char* key);

/* The layer reads and writes its values as declared; or with their positions sharded, and scalars as partial sums. */
void placements_as_declared(struct placements* p, int32_t id, const gsel_layer_info* layer);
void placements_by_position(struct placements* p, int32_t id, const gsel_layer_info* layer);

/* The status, with an error in the plugin's name if there is none yet. */
gsel_status placements_end(const struct placements* p, const char* plugin, gsel_error** err);

#endif
