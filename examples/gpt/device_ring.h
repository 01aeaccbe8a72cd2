/* device_ring.h: ring.c on a GPU: attention block by block, and without a division fused attention. */
#ifndef GPT_DEVICE_RING_H
#define GPT_DEVICE_RING_H

#include "layers.h"

/* What goes round the ring is f32, also where values are bf16: then what a block adds to a query's result and gradient
 * is rounded to bf16, once for each block. */
extern const struct layer_kind device_ring;

#endif
