/* placements.h: what strategies of the tensor and the context axis share: asking how the model declares its values, and
 * saying how a layer finds and leaves them. After the first error nothing more is said. */
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

/* Fills info; nonzero where nothing can be asked any more. */
int placements_layer(struct placements* p, int32_t layer, gsel_layer_info* info);

/* Whether something of the layer is declared to lie in parts: a parameter, a sharded value, a partial sum it writes; or
 * a value it reads. */
int placements_are_declared(const struct placements* p, const gsel_layer_info* layer);
int placements_reads_sharded(const struct placements* p, const gsel_layer_info* layer);
/* The first value, scalars apart, without a sequence_dim; NULL: there is none. */
const char* placements_value_without_positions(const struct placements* p, const gsel_layer_info* layer);
/* Whether all values but scalars, of which there is one, have positions. */
int placements_all_have_positions(const struct placements* p, const gsel_layer_info* layer);

/* Suggests, of layers flagged GSEL_LAYER_POSITIONWISE that `key` cannot divide because of one value, what that lacks.
 */
void placements_advise_positions(struct placements* p, const char* key);

/* The layer finds and leaves its values as they are declared; or a part of their positions each, and scalars as parts
 * of their sum. */
void placements_as_declared(struct placements* p, int32_t id, const gsel_layer_info* layer);
void placements_by_position(struct placements* p, int32_t id, const gsel_layer_info* layer);

/* The status, with an error in the plugin's name where there is none yet. */
gsel_status placements_end(const struct placements* p, const char* plugin, gsel_error** err);

#endif
