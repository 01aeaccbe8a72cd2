/* by_hand.h: the GPT of gpt-by-hand: fixed sizes, parameters in one array, a batch's activations. */
#ifndef GPT_BY_HAND_H
#define GPT_BY_HAND_H

#include <stdint.h>

enum { LAYERS = 4, WIDTH = 256, HEADS = 4, HEAD = WIDTH / HEADS, CONTEXT = 128, VOCAB = 256 };

/* Parameters in the order of model.c: two of the embedding, those of each block, three behind. */
enum { WTE, WPE, BLOCKS };
enum { LN1_G, LN1_B, QKV_W, QKV_B, PROJ_W, ADD1_B, LN2_G, LN2_B, FC1_W, FC1_B, FC2_W, ADD2_B, PER_BLOCK };
enum { FINAL_G = BLOCKS + LAYERS * PER_BLOCK, FINAL_B, HEAD_W, N_PARAMS };

/* What a block keeps from forward to backward, for all samples of the batch. */
struct block {
  float *x, *ln1, *stats1, *qkv, *probs, *mixed; /* x: the stream at its begin */
  float *middle, *ln2, *stats2, *fc1, *gelu;     /* middle: the stream between its halves */
};

struct gpt {
  int64_t batch;                    /* samples */
  float *w[N_PARAMS], *d[N_PARAMS]; /* parameters and their gradients */
  struct block blocks[LAYERS];
  float *x, *final, *final_stats, *logits, *log_sums; /* x: the stream at its end */
  float *branch, *wide, *wider;                       /* scratch: [rows] of WIDTH, 4 WIDTH, 4 WIDTH */
  float *tops, *sums;                                 /* scratch of the loss: [rows], [rows][2] */
  float *dx, *dlogits;
  uint8_t *tokens, *targets;
};

/* Sum of the losses of the tokens against the targets; then the gradients of all parameters, overwritten. */
double by_hand_forward(struct gpt* g);
void by_hand_backward(struct gpt* g);

#endif
