/* support/tensor_model.h: a small model of integers that a tensor axis can divide in every way: a
 * table split by vocabulary and tied to the head, columns and rows, a fused parameter in blocks, units that stay
 * together, a layer across positions, whole parameters in layers that compute each position by itself, a loss that
 * reduces in the middle. Sizes leave remainders on two ranks and on three. What a rank sees of each parameter while it
 * runs is kept, at its position in the whole, so that it can be compared with one rank's, bit for bit. */
#ifndef GSEL_TESTS_TENSOR_MODEL_H
#define GSEL_TESTS_TENSOR_MODEL_H

#include "support/check.h"

enum { T_POSITIONS = 5, T_WIDTH = 4, T_HIDDEN = 10, T_UNIT = 2, T_VOCAB = 8 };
enum { TP_TABLE, TP_SCALE, TP_POSITION, TP_W1, TP_B1, TP_W2, TP_B2, TP_PARAMS };
enum { TV_TOKENS, TV_X, TV_Y, TV_H, TV_R, TV_A, TV_O, TV_U, TV_LOGITS, TV_LOSS, TV_WEIGHT, TV_VALUES };
enum { T_LAYERS = 9 };
enum { T_MOST = T_WIDTH * 2 * T_HIDDEN };

typedef struct tensor_param {
  const char* name;
  int64_t dims[2];
  int n_dims, shard, shard_dim, blocks, unit;
} tensor_param;
extern const tensor_param kTensorParams[TP_PARAMS];

typedef struct tensor_model {
  float seen[TP_PARAMS][T_MOST]; /* as last read */
  unsigned char has_seen[TP_PARAMS][T_MOST];
  int differs_on_init;  /* initial values of whole parameters are not alike on ranks: the rank's number */
  int ring;             /* positions are mixed by passing blocks of them on */
  int overflow_at_step; /* from 1; 0 never */
  int64_t widest_h;     /* elements per position of h, as last seen */
  int frozen;           /* parameters are not trained */
  void (*vary)(gsel_layer_options* layer); /* changes a layer before it is added; NULL: nothing */
  const char* fails_in; /* layer whose forward fails: "gate", or "loss" between its phases; NULL: none */
  /* Addresses of values and gradients in the last micro-batch: as written, and as read after a redistribution. */
  const void *y, *y_read, *o, *o_read, *d_o, *d_o_read;
} tensor_model;

/* ---- positions: y = scale * x + position ---- */
gsel_status t_positions_forward(const gsel_call* c, void* user);

/* ---- description ---- */

/* By sample and position: the last ids of a batch are rare, the first frequent. */
gsel_status tensor_data(const gsel_data_request* r, void* user);

typedef struct tensor_init {
  uint64_t key;
  const tensor_model* m;
  int whole;
} tensor_init;

typedef struct tensor_value {
  const char* name;
  int64_t channels; /* 0: none */
  int placement, shard_dim, unit, blocks;
} tensor_value;
extern const tensor_value kTensorValues[TV_VALUES];

/* inits: [TP_PARAMS] of the caller, kept as long as the model. */
gsel_status tensor_describe(gsel_model* model, tensor_model* m, tensor_init* inits, gsel_error** err);

#endif
