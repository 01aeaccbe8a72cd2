/* places.h: what strategies of the tensor axis share: asking how the model declares its values, and saying how a layer
 * finds and leaves them. After the first error nothing more is said. */
#ifndef PLACES_H
#define PLACES_H

#include <gsel/plugin.h>

struct places {
  const gsel_host_v1* host;
  const gsel_pass_api_v1* api;
  gsel_pass* pass;
  gsel_status status;
};

/* Splits a parameter that has a shard rule. */
void places_split(struct places* p, int32_t param);

/* Fills info; nonzero where nothing can be asked any more. */
int places_layer(struct places* p, int32_t layer, gsel_layer_info* info);

/* Whether something of the layer is declared to lie in parts: a parameter, a sharded value, a partial sum it writes; or
 * a value it reads. */
int places_are_declared(const struct places* p, const gsel_layer_info* layer);
int places_reads_sharded(const struct places* p, const gsel_layer_info* layer);
/* Whether all values but scalars, of which there is one, have positions. */
int places_all_have_positions(const struct places* p, const gsel_layer_info* layer);

/* The layer finds and leaves its values as they are declared; or a part of their positions each, and scalars as parts
 * of their sum. */
void places_as_declared(struct places* p, int32_t id, const gsel_layer_info* layer);
void places_by_position(struct places* p, int32_t id, const gsel_layer_info* layer);

/* The status, with an error in the plugin's name where there is none yet. */
gsel_status places_end(const struct places* p, const char* plugin, gsel_error** err);

#endif
