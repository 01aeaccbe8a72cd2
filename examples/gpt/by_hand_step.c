/* by_hand_step.c: forward and backward of gpt-by-hand: the kernels one after the other. The gradient of the residual
 * stream stays where it is: a branch adds to it, and reads it as its own. */
#include <stdlib.h>

#include "by_hand.h"
#include "kernels.h"

double by_hand_forward(struct gpt* g) {
  const int64_t n = g->batch, rows = n * CONTEXT;
  token_forward(g->branch, g->tokens, g->w[WTE], rows, 0, VOCAB, WIDTH);
  position_forward(g->blocks[0].x, g->branch, g->w[WPE], n, 0, CONTEXT, WIDTH);
  for (int i = 0; i < LAYERS; ++i) {
    struct block* b = &g->blocks[i];
    float* const* w = g->w + BLOCKS + i * PER_BLOCK;
    layernorm_forward(b->ln1, b->stats1, b->x, w[LN1_G], w[LN1_B], rows, WIDTH);
    linear_forward(b->qkv, b->ln1, w[QKV_W], w[QKV_B], rows, WIDTH, 3 * WIDTH);
    attention_forward(b->mixed, b->probs, b->qkv, n, CONTEXT, HEADS, HEAD);
    linear_forward(g->branch, b->mixed, w[PROJ_W], NULL, rows, WIDTH, WIDTH);
    residual_forward(b->middle, b->x, g->branch, w[ADD1_B], rows, WIDTH);
    layernorm_forward(b->ln2, b->stats2, b->middle, w[LN2_G], w[LN2_B], rows, WIDTH);
    linear_forward(b->fc1, b->ln2, w[FC1_W], w[FC1_B], rows, WIDTH, 4 * WIDTH);
    gelu_forward(b->gelu, b->fc1, rows * 4 * WIDTH);
    linear_forward(g->branch, b->gelu, w[FC2_W], NULL, rows, 4 * WIDTH, WIDTH);
    residual_forward(i + 1 < LAYERS ? b[1].x : g->x, b->middle, g->branch, w[ADD2_B], rows, WIDTH);
  }
  layernorm_forward(g->final, g->final_stats, g->x, g->w[FINAL_G], g->w[FINAL_B], rows, WIDTH);
  linear_forward(g->logits, g->final, g->w[HEAD_W], NULL, rows, WIDTH, VOCAB);
  cross_entropy_tops(g->tops, g->logits, rows, VOCAB);
  cross_entropy_sums(g->sums, g->logits, g->tops, g->targets, rows, 0, VOCAB);
  return cross_entropy_loss(g->log_sums, g->tops, g->sums, rows);
}

static void add(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

/* The gradient of the stream, in dx, goes through a norm and what lies behind it: dx += the gradient of the branch. */
static void norm_backward(struct gpt* g, float* dg, float* db, const float* dy, const float* x, const float* stats,
                          const float* gain) {
  const int64_t rows = g->batch * CONTEXT;
  layernorm_backward_weight(dg, db, dy, x, stats, rows, WIDTH, 0);
  layernorm_backward_input(g->branch, dy, x, stats, gain, rows, WIDTH);
  add(g->dx, g->branch, rows * WIDTH);
}

static void block_backward(struct gpt* g, int i) {
  const int64_t n = g->batch, rows = n * CONTEXT;
  const struct block* b = &g->blocks[i];
  float *const *w = g->w + BLOCKS + i * PER_BLOCK, *const *d = g->d + BLOCKS + i * PER_BLOCK;
  float* narrow = g->wider; /* what is left of it after the gradient before gelu is no longer needed */

  residual_backward_weight(d[ADD2_B], g->dx, rows, WIDTH, 0);
  linear_backward_weight(d[FC2_W], NULL, g->dx, b->gelu, rows, 4 * WIDTH, WIDTH, 0);
  linear_backward_input(g->wide, g->dx, w[FC2_W], rows, 4 * WIDTH, WIDTH);
  gelu_backward(g->wider, g->wide, b->fc1, rows * 4 * WIDTH);
  linear_backward_weight(d[FC1_W], d[FC1_B], g->wider, b->ln2, rows, WIDTH, 4 * WIDTH, 0);
  linear_backward_input(g->wide, g->wider, w[FC1_W], rows, WIDTH, 4 * WIDTH);
  norm_backward(g, d[LN2_G], d[LN2_B], g->wide, b->middle, b->stats2, w[LN2_G]);

  residual_backward_weight(d[ADD1_B], g->dx, rows, WIDTH, 0);
  linear_backward_weight(d[PROJ_W], NULL, g->dx, b->mixed, rows, WIDTH, WIDTH, 0);
  linear_backward_input(narrow, g->dx, w[PROJ_W], rows, WIDTH, WIDTH);
  if (attention_backward(g->wide, narrow, b->qkv, b->probs, n, CONTEXT, HEADS, HEAD)) abort();
  linear_backward_weight(d[QKV_W], d[QKV_B], g->wide, b->ln1, rows, WIDTH, 3 * WIDTH, 0);
  linear_backward_input(narrow, g->wide, w[QKV_W], rows, WIDTH, 3 * WIDTH);
  norm_backward(g, d[LN1_G], d[LN1_B], narrow, b->x, b->stats1, w[LN1_G]);
}

void by_hand_backward(struct gpt* g) {
  const int64_t rows = g->batch * CONTEXT;
  cross_entropy_backward(g->dlogits, g->logits, g->log_sums, g->targets, rows, 0, VOCAB);
  linear_backward_weight(g->d[HEAD_W], NULL, g->dlogits, g->final, rows, WIDTH, VOCAB, 0);
  linear_backward_input(g->wide, g->dlogits, g->w[HEAD_W], rows, WIDTH, VOCAB);
  layernorm_backward_weight(g->d[FINAL_G], g->d[FINAL_B], g->wide, g->x, g->final_stats, rows, WIDTH, 0);
  layernorm_backward_input(g->dx, g->wide, g->x, g->final_stats, g->w[FINAL_G], rows, WIDTH);
  for (int i = LAYERS - 1; i >= 0; --i) block_backward(g, i);
  position_backward(g->d[WPE], g->dx, g->batch, CONTEXT, 0, CONTEXT, WIDTH, 0);
  token_backward(g->d[WTE], g->dx, g->tokens, rows, 0, VOCAB, WIDTH, 0);
}
