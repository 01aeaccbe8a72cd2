/* model.h: the GPT as gsel sees it: parameters, values and layers. It knows no strategy and no number of ranks. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <gsel/gsel.h>

/* Sizes, and how layers compute. Tokens are bytes, so the vocabulary is what a byte can say. */
#define GPT_VOCAB 256
struct gpt_sizes {
  int64_t layers;
  int64_t width;
  int64_t heads;    /* divides width */
  int64_t context;  /* bytes the model looks at */
  int attention;    /* GPT_WHOLE, GPT_RING or GPT_FUSED */
  gsel_dtype dtype; /* of parameters and values: GSEL_F32, or 0 for it; GSEL_BF16 on a GPU */
  int products;     /* on a GPU: GPT_PLAIN or GPT_CUBLASLT */
  int tied;         /* the head has the embedding of tokens as its weight */
};
/* whole: all probabilities of a sample are kept for backward. ring: blocks of keys and values go round the context axis
 * where positions are divided (ring.c). fused: the same in one block, where positions are not. */
enum { GPT_WHOLE, GPT_RING, GPT_FUSED };
enum { GPT_PLAIN, GPT_CUBLASLT };
#define GPT_DEFAULT_SIZES \
  { 4, 256, 4, 128, GPT_WHOLE, GSEL_F32, GPT_PLAIN, 0 }

/* What main needs of the description: the values it feeds, the one it reads to write text, sizes of parameters. */
struct gpt_model {
  gsel_model* model;
  int32_t tokens;  /* [context] u8, input */
  int32_t targets; /* [context] u8, input: the byte after each token */
  int32_t logits;  /* [context][GPT_VOCAB] dtype */
  gsel_dtype dtype;
  int32_t n_params;
  int64_t* param_elems; /* [n_params] */
};

/* Describes a GPT with these callbacks: &gpt_layers. sizes is kept until the model and its trainers are freed. On error
 * there is nothing to free. */
struct layer_kinds;
gsel_status gpt_model_create(const struct gpt_sizes* sizes, const struct layer_kinds* kinds, struct gpt_model* out,
                             gsel_error** err);
void gpt_model_free(struct gpt_model* gpt);

#endif
