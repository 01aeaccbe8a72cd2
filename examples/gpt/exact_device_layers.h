/* exact_device_layers.h: exact_layers on a GPU, bit for bit. */
#ifndef GPT_EXACT_DEVICE_LAYERS_H
#define GPT_EXACT_DEVICE_LAYERS_H

#include "layers.h"

/* `ring` is not among them. */
extern const struct layer_kinds exact_device_layers;

#endif
