/* support/small_transformer_kernels.h: the layers of small_transformer.h, forward and backward, and what they record.
 * They take sizes from their tensors, and the position of a shard in its tensor from gsel_shard. */
#ifndef GSEL_TESTS_SMALL_TRANSFORMER_KERNELS_H
#define GSEL_TESTS_SMALL_TRANSFORMER_KERNELS_H

#include "support/check.h"

GSEL_EXTERN_C_BEGIN

enum { TM_T = 4, TM_W = 6, TM_D = 2, TM_HEADS = 4, TM_KV = 2, TM_F = 5, TM_V = 7 };
enum { TM_TABLE, TM_POSITION, TM_SCALE, TM_SHIFT, TM_WQ, TM_WKV, TM_REL, TM_WO, TM_BO, TM_WU, TM_WD, TM_PARAMS };
enum {
  TM_TOKENS,
  TM_E,
  TM_X,
  TM_N,
  TM_Q,
  TM_KVS,
  TM_A,
  TM_O,
  TM_R,
  TM_M,
  TM_G,
  TM_H,
  TM_Y,
  TM_Z,
  TM_LOGITS,
  TM_LOSS,
  TM_WEIGHT,
  TM_VALUES
};

struct tm_param {
  const char* name;
  int64_t dims[2];
  int shard_dim; /* -1: whole */
  int blocks, unit;
  uint32_t flags;
};
extern const struct tm_param kTmParams[TM_PARAMS];
enum { TM_MOST_PARAM = TM_W * 2 * TM_F };
enum {
  TM_ELEMS = TM_V * TM_W + TM_T * TM_W + 2 * TM_W + TM_W * TM_HEADS * TM_D + TM_W * 2 * TM_KV * TM_D + TM_T +
             TM_HEADS * TM_D * TM_W + TM_W + TM_W * 2 * TM_F + TM_F * TM_W
};
int64_t tm_elems(int p);

/* Mistakes, one at a time: each must be refused, or make a difference. */
enum {
  TM_RIGHT,
  TM_LOSS_NOT_REDUCED,            /* loss has parts of the logits and writes replicated sums without a phase */
  TM_PARTIAL_TAKEN_AS_REPLICATED, /* down declares its partial sums replicated */
  TM_SHARD_TAKEN_AS_REPLICATED,   /* head declares its columns replicated */
  TM_BIAS_PER_RANK,               /* project adds bo to partial sums */
  TM_SHARE_NOT_REDUCED,           /* share takes the sum of its columns for that of all */
  TM_BACKWARD_NOT_REDUCED,        /* ... in backward alone */
  TM_IGNORES_PARTS,               /* embed takes its first row for the table's first */
  TM_NOT_BY_POSITION,             /* attend says it computes each position by itself */
  TM_LINEARS_NOT_BY_POSITION,     /* queries and project do not say it */
  TM_NO_SEQUENCE_DIM,             /* o, which project writes, does not say which dimension is that of positions */
};

typedef struct small_transformer {
  int mistake;
  int group_units;      /* heads that share keys stay together */
  int count_all;        /* each token weighs 1 */
  int random;           /* initial values are no integers */
  int overflow_at_step; /* the head's gradient is infinite on one rank of the tensor axis, for the last sample; -1 never
                         */
  int fail_at_step;     /* up fails on this rank; -1 never */
  int fail_on_rank;
  int rank;
  int64_t batch;
  /* The outcome. */
  float noted[TM_PARAMS][TM_MOST_PARAM]; /* of the last evaluation: parameters as kernels saw them */
  unsigned char is_noted[TM_PARAMS][TM_MOST_PARAM];
  double magnitude[TM_PARAMS][TM_MOST_PARAM]; /* sum of |terms| of each gradient in this step */
  int64_t magnitude_step;
  double largest;
} small_transformer;

/* ---- embed and positions ---- */

gsel_status tm_embed(const gsel_call* c, void* user);
gsel_status tm_embed_weight(const gsel_call* c, void* user);
gsel_status tm_add_positions(const gsel_call* c, void* user);
gsel_status tm_add_positions_input(const gsel_call* c, void* user);
gsel_status tm_add_positions_weight(const gsel_call* c, void* user);

/* ---- norm: all in one piece ---- */

gsel_status tm_norm(const gsel_call* c, void* user);
gsel_status tm_norm_backward(const gsel_call* c, void* user);

/* ---- out[n] = in[k] . w[k][n]: queries, keys, project, up, down ---- */

gsel_status tm_linear_input(const gsel_call* c, void* user);
gsel_status tm_queries(const gsel_call* c, void* user);
gsel_status tm_queries_w(const gsel_call* c, void* user);
gsel_status tm_keys(const gsel_call* c, void* user);
gsel_status tm_keys_w(const gsel_call* c, void* user);
gsel_status tm_down(const gsel_call* c, void* user);
gsel_status tm_down_w(const gsel_call* c, void* user);
gsel_status tm_project(const gsel_call* c, void* user);
gsel_status tm_project_w(const gsel_call* c, void* user);
gsel_status tm_up(const gsel_call* c, void* user);
gsel_status tm_up_backward(const gsel_call* c, void* user);

/* ---- attend ---- */

gsel_status tm_attend(const gsel_call* c, void* user);
gsel_status tm_attend_backward(const gsel_call* c, void* user);

/* ---- add (with a bias) and last (without) ---- */

gsel_status tm_add_up(const gsel_call* c, void* user);
/* It keeps its slopes: a byte for each element, so that its backward reads nothing else. */
gsel_status tm_last(const gsel_call* c, void* user);
gsel_status tm_add_backward(const gsel_call* c, void* user);
gsel_status tm_last_backward(const gsel_call* c, void* user);

/* ---- gate: of each row the first half gates the second; share: the sum of a row is in every one of its columns ----
 */

gsel_status tm_gate(const gsel_call* c, void* user);
gsel_status tm_gate_backward(const gsel_call* c, void* user);
gsel_status tm_share(const gsel_call* c, void* user);
gsel_status tm_share_backward(const gsel_call* c, void* user);

/* ---- head, tied to embed ---- */

gsel_status tm_head(const gsel_call* c, void* user);
gsel_status tm_head_backward(const gsel_call* c, void* user);

/* ---- loss: phases give the largest logit of each token, then the sum of its logits and of their distances ---- */

gsel_status tm_loss(const gsel_call* c, void* user);
gsel_status tm_loss_backward(const gsel_call* c, void* user);

GSEL_EXTERN_C_END

#endif
