/* model.h: the GPT as gsel sees it: parameters, values and layers. It knows no strategy and no number of ranks. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <gsel/gsel.h>

/* Sizes. Tokens are bytes, so the vocabulary is what a byte can say. */
#define GPT_VOCAB 256
struct gpt_sizes {
  int64_t layers;
  int64_t width;
  int64_t heads;   /* divides width */
  int64_t context; /* bytes the model looks at */
  int ring;        /* attention shifts blocks round the ring of the context axis where positions are divided; ring.c */
};
#define GPT_DEFAULT_SIZES \
  { 4, 256, 4, 128, 0 }

/* What main needs of the description: the values it feeds, the one it reads to write text, sizes of parameters. */
struct gpt_model {
  gsel_model* model;
  int32_t tokens;  /* [context] u8, input */
  int32_t targets; /* [context] u8, input: the byte after each token */
  int32_t logits;  /* [context][GPT_VOCAB] f32 */
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
