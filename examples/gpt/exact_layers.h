/* exact_layers.h: the GPT's layers with other arithmetic, in which every number is an integer that f32 holds: the order
 * of a sum cannot matter, so whoever trains the model must come to the same parameters, bit for bit. */
#ifndef GPT_EXACT_LAYERS_H
#define GPT_EXACT_LAYERS_H

#include "layers.h"

/* Sums stay below 2^24 where rows of a step, positions of a sample, and 4 * width are at most 1024. `ring` is not
 * among them. */
extern const struct layer_kinds exact_layers;

#endif
