/* support/checked_model.h: a small model of right kernels, of which a test replaces one by a kernel with a fault:
 *   embed  x = table[token]     each rank of a tensor axis for its own rows
 *   line   y = a x + b          saves x; a backward in halves and a fused one
 *   loss   half the sum of squares of y
 * Rows of a table of faults (test_model_check_faults.c) tell what a check has to find. */
#ifndef GSEL_TESTS_CHECKED_MODEL_H
#define GSEL_TESTS_CHECKED_MODEL_H

#include "support/check.h"

enum { CK_WIDTH = 3, CK_VOCAB = 8 };
enum { CK_TABLE, CK_A, CK_B, CK_PARAMS };
enum { CK_TOKENS, CK_X, CK_Y, CK_LOSS, CK_WEIGHT, CK_VALUES };
enum { CK_EMBED, CK_LINE, CK_LOSS_LAYER, CK_LAYERS };

float* ck_data(const gsel_tensor* t);
/* Gradients of parameters, unless the call adds to them. */
void ck_clear(const gsel_call* c);
/* Of a table or its gradient, the row of a sample; NULL where another rank has it. */
float* ck_row(const gsel_call* c, const gsel_tensor* table, int64_t sample);

/* ---- the right kernels ---- */
gsel_status ck_embed(const gsel_call* c, void* user);
gsel_status ck_embed_weight(const gsel_call* c, void* user);
gsel_status ck_line(const gsel_call* c, void* user);
gsel_status ck_line_input(const gsel_call* c, void* user);
gsel_status ck_line_weight(const gsel_call* c, void* user);
gsel_status ck_loss(const gsel_call* c, void* user);
gsel_status ck_loss_input(const gsel_call* c, void* user);

typedef struct checked_model {
  gsel_layer_fn callbacks[CK_LAYERS][GSEL_BACKWARD + 1]; /* in place of the right ones; by GSEL_WORK_* */
  uint32_t flags[CK_LAYERS];
  int is_centred; /* line is ck_centred, with batch statistics */
} checked_model;

gsel_status ck_describe(gsel_model* model, const checked_model* m, gsel_error** err);

#endif
