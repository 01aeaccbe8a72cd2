/* kernels.h: the arithmetic of a GPT on plain float arrays, forward and backward. It knows no model, no rank and no
 * gsel: these stand for the kernels a program brings along.
 *
 * Arrays are row-major, shapes stand in brackets, sizes count elements. Gradients of inputs (dx) are overwritten;
 * gradients of parameters (dw, db, dg) are overwritten, or added to when `accumulate` is not 0. Nothing overlaps. */
#ifndef GPT_KERNELS_H
#define GPT_KERNELS_H

#include <stdint.h>

/* x[rows][width] = table[token - first], and 0 for tokens that are not in [first, first + count): table[count][width]
 * is a part of a vocabulary. */
void token_forward(float* x, const uint8_t* tokens, const float* table, int64_t rows, int64_t first, int64_t count,
                   int64_t width);
void token_backward(float* dtable, const float* dx, const uint8_t* tokens, int64_t rows, int64_t first, int64_t count,
                    int64_t width, int accumulate);

/* y[n][here][width] = x + table[position]: of each sample positions [first, first + here) of `context` are here. The
 * gradient of x is dy itself; that of the table is 0 for positions that are not here. */
void position_forward(float* y, const float* x, const float* table, int64_t n, int64_t first, int64_t here,
                      int64_t width);
void position_backward(float* dtable, const float* dy, int64_t n, int64_t context, int64_t first, int64_t here,
                       int64_t width, int accumulate);

/* y[rows][out] = x[rows][in] w[out][in]^T + b[out]; b and db may be NULL. */
void linear_forward(float* y, const float* x, const float* w, const float* b, int64_t rows, int64_t in, int64_t out);
void linear_backward_input(float* dx, const float* dy, const float* w, int64_t rows, int64_t in, int64_t out);
void linear_backward_weight(float* dw, float* db, const float* dy, const float* x, int64_t rows, int64_t in,
                            int64_t out, int accumulate);

/* y[rows][width] = (x - mean) / deviation * g[width] + b[width], over each row.
 *   stats  [rows][2] mean and 1 / deviation, kept for the backward halves */
void layernorm_forward(float* y, float* stats, const float* x, const float* g, const float* b, int64_t rows,
                       int64_t width);
void layernorm_backward_input(float* dx, const float* dy, const float* x, const float* stats, const float* g,
                              int64_t rows, int64_t width);
void layernorm_backward_weight(float* dg, float* db, const float* dy, const float* x, const float* stats, int64_t rows,
                               int64_t width, int accumulate);

/* Causal self-attention of several heads: y[n][context][width] from qkv[n][context][3][width], width = heads * head.
 *   probs  [n][heads][context][context] softmax of the scores, zero above the diagonal, kept for backward
 * Backward needs memory for one head and answers 0, or -1 when there is none. */
void attention_forward(float* y, float* probs, const float* qkv, int64_t n, int64_t context, int64_t heads,
                       int64_t head);
int attention_backward(float* dqkv, const float* dy, const float* qkv, const float* probs, int64_t n, int64_t context,
                       int64_t heads, int64_t head);

/* The same attention, block of keys by block of keys (blocks.c). Of n samples queries and keys are here at positions
 * [first, first + count): a query looks at keys of no later position than its own. Rows of a sample follow each other,
 * and samples do.
 *   queries  q of row r at q + r * 3 * width, width = heads * head
 *   keys     k of row r at k + r * stride, its v a width behind
 * forward: `begins` on the first block, which has each query's own key; y[n][count][width] is complete behind the last.
 *   log_sums  [n][heads][count] logs of the sums of exponentials so far; kept for backward
 * backward, for each block: adds to dq, where q lies in dq[n][count][3][width], and to dk, where k lies in
 * keys' layout, dv a width behind. Both need memory for one head and answer 0, or -1 when there is none. */
struct attention_queries {
  const float* q;
  int64_t first, count, n, heads, head;
};
struct attention_keys {
  const float* k;
  int64_t first, count, stride;
};
int attention_block_forward(float* y, float* log_sums, const struct attention_queries* queries,
                            const struct attention_keys* keys, int begins);
int attention_block_backward(float* dq, float* dk, const float* dy, const float* y, const float* log_sums,
                             const struct attention_queries* queries, const struct attention_keys* keys);

/* y[count] = x times the normal distribution function of x, by the tanh formula (Hendrycks and Gimpel 2016). */
void gelu_forward(float* y, const float* x, int64_t count);
void gelu_backward(float* dx, const float* dy, const float* x, int64_t count);

/* y[rows][width] = x + f + b[width]: a branch f with its bias joins the residual stream x. The gradient of x and f
 * is dy itself. */
void residual_forward(float* y, const float* x, const float* f, const float* b, int64_t rows, int64_t width);
void residual_backward_weight(float* db, const float* dy, int64_t rows, int64_t width, int accumulate);

/* Sum over rows of -log softmax(logits)[target], in three pieces, because logits[rows][count] may be a part of the
 * vocabulary, words [first, first + count) of it: between the pieces parts are put together.
 *   tops  [rows] largest logit of the part; together: the largest of all parts
 *   sums  [rows][2] sum of exp(logit - top); the logit of the target, 0 where it is not in the part; together: sums
 *   log_sums  [rows] log of the sum of exponentials, kept for backward */
void cross_entropy_tops(float* tops, const float* logits, int64_t rows, int64_t count);
void cross_entropy_sums(float* sums, const float* logits, const float* tops, const uint8_t* targets, int64_t rows,
                        int64_t first, int64_t count);
double cross_entropy_loss(float* log_sums, const float* tops, const float* sums, int64_t rows);
void cross_entropy_backward(float* dlogits, const float* logits, const float* log_sums, const uint8_t* targets,
                            int64_t rows, int64_t first, int64_t count);

#endif
