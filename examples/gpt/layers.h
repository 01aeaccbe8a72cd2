/* layers.h: the callbacks of the layers: what gsel calls to run the kernels. */
#ifndef GPT_LAYERS_H
#define GPT_LAYERS_H

#include <gsel/gsel.h>

/* One kind of layer. A half of backward that has nothing to compute is NULL. What a half does not read is said here:
 * gsel then need not keep it until then, nor gather it for the call. */
struct layer_kind {
  gsel_layer_fn forward, backward_input, backward_weight;
  uint64_t input_unread, weight_unread; /* GSEL_UNREAD_*, by backward_input and by backward_weight */
  uint64_t unread_params;               /* bit i: backward_input does not read params[i] */
};

extern const struct layer_kind embedding_layer; /* tokens -> x; wte, wpe */
extern const struct layer_kind layernorm_layer; /* x -> y; g, b; saves 2 floats per position */
extern const struct layer_kind linear_layer;    /* x -> y; w and perhaps b */
extern const struct layer_kind attention_layer; /* qkv -> y; saves context floats per position and head */
extern const struct layer_kind gelu_layer;      /* x -> y */
extern const struct layer_kind residual_layer;  /* x, f -> x + f + b; b */
extern const struct layer_kind loss_layer; /* logits, targets -> sum of losses, tokens; saves a float per position */

#endif
