/* support/exact_model.h: a small model whose numbers are all integers, so that f32 holds every sum exactly and the
 * order of summation cannot matter: any strategy must give the single rank's parameters bit for bit. It has the
 * difficult cases of strategies: a tied parameter, a value read twice, fused and split backward, a layer that mixes a
 * tied and an untied parameter, saved bytes, layers that may be recomputed and one between them that may not, backwards
 * that read as little as they can, samples of unequal weight. It keeps the largest sum of magnitudes seen, which must
 * stay below 2^24 for the argument to hold. */
#ifndef GSEL_TESTS_EXACT_MODEL_H
#define GSEL_TESTS_EXACT_MODEL_H

#include "support/check.h"

GSEL_EXTERN_C_BEGIN

enum { TOKENS = 3, WIDTH = 4, VOCAB = 8 };
enum { P_TABLE, P_POSITION, P_W1, P_B1, P_W2, N_PARAMS };
enum { V_TOKENS, V_X, V_H, V_R, V_Y, V_Z, V_LOGITS, V_LOSS, V_WEIGHT, N_VALUES };

extern const int64_t kExactElems[N_PARAMS];
enum { EXACT_ELEMS = VOCAB * WIDTH + TOKENS * WIDTH + WIDTH * WIDTH + WIDTH + WIDTH * WIDTH };

typedef struct exact_model {
  int count_all;        /* the first token of a sample weighs 2, others 1; else those of id 0 weigh nothing */
  int wide_b1;          /* one element more in a parameter: a rank that disagrees */
  int loss_factor;      /* a mistake: the loss's gradient is this many times too large; 0 means 1 */
  int random;           /* initial values and data are no integers: sums depend on their order */
  int fail_at_step;     /* the head fails in this step, from 0; -1 never */
  int fail_on_rank;     /* ... on this rank */
  int overflow_at_step; /* the head's gradient is infinite in this step, where the step's last sample is; -1 never */
  int64_t batch;        /* samples of a step, for that */
  int rank;
  void (*at_failure)(void);
  void (*vary)(gsel_layer_options* layer);   /* changes a layer before it is added; NULL: nothing */
  void (*in_last_backward)(void* user_data); /* called in the last backward callback of a step */
  void* last_backward_user_data;
  double magnitude[N_PARAMS][VOCAB * WIDTH]; /* sum of |terms| of each gradient in this step */
  int64_t magnitude_step;
  double largest;
} exact_model;

/* What callbacks share: tensors of a call as f32, and gradients that begin at 0 unless they accumulate. */
void exact_clear(const gsel_call* call, int slot);
const float* exact_in(const gsel_call* c, int i);
float* exact_out(const gsel_call* c, int i);
const float* exact_dout(const gsel_call* c, int i);
float* exact_din(const gsel_call* c, int i);
float exact_clip(float x);
float exact_clip_slope(float x);

/* ---- embed: x = table[token] + position ---- */
gsel_status exact_embed_forward(const gsel_call* c, void* user);

/* ---- out[n] = in[k] . w[k][n] (+ b): used by fc1 (fused backward, with bias) and fc2 (split, without) ---- */
gsel_status exact_linear_forward(const gsel_call* c, void* user);
gsel_status exact_linear_backward_input(const gsel_call* c, void* user);
gsel_status exact_linear_backward(const gsel_call* c, void* user);

/* ---- head: logits = z . table^T, tied to embed ---- */
gsel_status exact_head_forward(const gsel_call* c, void* user);
gsel_status exact_head_backward(const gsel_call* c, void* user);

/* ---- loss: half the squared distance of the logits to 2 at the next id, 0 elsewhere ---- */
gsel_status exact_loss_forward(const gsel_call* c, void* user);
gsel_status exact_loss_backward_input(const gsel_call* c, void* user);

/* ---- description ---- */
gsel_status exact_initial(float* dst, int64_t first, int64_t count, uint64_t seed, void* user);

/* Samples: ids 0 .. VOCAB-1, by sample id alone. */
gsel_status exact_data(const gsel_data_request* r, void* user);

typedef struct exact_layer {
  const char* name;
  int32_t in[2], out[2], param[2]; /* -1: none */
  gsel_layer_fn forward, backward_input, backward_weight, backward;
  uint32_t flags;
  uint64_t input_unread, weight_unread, unread_params; /* of backward_input, backward_weight; of the fused one: both */
} exact_layer;

enum { L_EMBED, L_FC1, L_CLIP, L_FC2, L_ADD, L_HEAD, L_LOSS, N_LAYERS };
extern const exact_layer kExactLayers[N_LAYERS];

/* m: user data of the layers, kept as long as the model. */
gsel_status exact_describe(gsel_model* model, exact_model* m, gsel_error** err);

GSEL_EXTERN_C_END

#endif
