/* support/long_model.h: a model of integers as exact_model.h, long enough for pipelines of many stages, with their
 * difficult cases: a table that the first and the last layer share, a value that is read again in every block (a skip
 * over several stages), an integer value that is made by the first layers and read by the last (labels that cross every
 * cut), an input that is read in the middle, a layer with two outputs, backward in halves, in one piece and both.
 *
 *   embed   tokens -> x            marks  tokens -> labels (i32)
 *   3 times:
 *     linear  (x or z) -> h        halves; in one piece; both, in turn
 *     split   h -> r, s            clip of h, and its sign, which has a gradient, too
 *     add     r, s, x -> z         clip of the sum
 *   mask    z, tokens -> y         some tokens count for nothing
 *   head    y -> logits            with the table
 *   loss    logits, labels -> loss, weight */
#ifndef GSEL_TESTS_LONG_MODEL_H
#define GSEL_TESTS_LONG_MODEL_H

#include "support/exact_model.h"

GSEL_EXTERN_C_BEGIN

enum { BLOCKS = 3, BLOCK_LAYERS = 3, BLOCK_VALUES = 4 };
enum { LP_TABLE, LP_POSITION, LP_W, LP_N = LP_W + BLOCKS };
enum {
  LV_TOKENS,
  LV_X,
  LV_LABELS,
  LV_BLOCK,
  LV_Y = LV_BLOCK + BLOCKS * BLOCK_VALUES,
  LV_LOGITS,
  LV_LOSS,
  LV_WEIGHT,
  LV_N
};
enum { LL_EMBED, LL_MARKS, LL_BLOCK, LL_MASK = LL_BLOCK + BLOCKS * BLOCK_LAYERS, LL_HEAD, LL_LOSS, LL_N };
enum { LONG_ELEMS = VOCAB * WIDTH + TOKENS * WIDTH + (int)BLOCKS * WIDTH * WIDTH };

typedef struct long_model {
  int32_t rank;
  const char* fail_in; /* a layer's name; its forward fails */
  int32_t fail_on_rank;
  int64_t fail_at_step;
  double largest; /* sum of magnitudes of a gradient, over one call */
} long_model;

int64_t long_elems(int p);

/* ---- description ---- */

/* m: user data of the layers, kept as long as the model. */
gsel_status long_describe(gsel_model* model, long_model* m, gsel_error** err);

GSEL_EXTERN_C_END

#endif
