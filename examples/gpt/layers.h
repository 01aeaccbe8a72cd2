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
  uint32_t flags;                       /* GSEL_LAYER_* */
};

extern const struct layer_kind token_layer;     /* tokens -> x; table */
extern const struct layer_kind position_layer;  /* x -> x + table[position]; table */
extern const struct layer_kind layernorm_layer; /* x -> y; g, b; saves 2 floats per position */
extern const struct layer_kind linear_layer;    /* x -> y; w and perhaps b */
extern const struct layer_kind attention_layer; /* qkv -> y; saves context floats per position and head */
extern const struct layer_kind gelu_layer;      /* x -> y */
extern const struct layer_kind residual_layer;  /* x, f -> x + f + b; b */
/* logits, targets -> sum of losses, tokens; saves a float per position. Two phases forward: a maximum, and two sums,
 * for each position. */
extern const struct layer_kind loss_layer;

/* In ring.c. qkv -> y; saves a float per position and head. Without phases for fused attention, where all positions are
 * here; else a phase each way, which shifts blocks of keys and values
 * round the ring of the context axis, where each rank of it has some of the positions:
 *   forward   RING_HEAD floats, and 2 width for each position of a sample: keys, values
 *   backward  RING_HEAD floats, and 4 width for each position of a sample: keys, values, the gradients of both */
enum { RING_HEAD = 16 };
extern const struct layer_kind ring_layer;

/* All of them: another set gives the same model other arithmetic. */
struct layer_kinds {
  const struct layer_kind *token, *position, *layernorm, *linear, *attention, *ring, *gelu, *residual, *loss;
};
extern const struct layer_kinds gpt_layers;

#endif
