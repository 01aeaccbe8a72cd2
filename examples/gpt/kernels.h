/* kernels.h: the arithmetic of a GPT on plain float arrays, forward and backward. It knows no model, no rank and no
 * gsel: these stand for the kernels a program brings along.
 *
 * Arrays are row-major, shapes stand in brackets, sizes count elements. Gradients of inputs (dx) are overwritten;
 * gradients of parameters (dw, db, dg) are overwritten, or added to when `accumulate` is not 0. Nothing overlaps. */
#ifndef GPT_KERNELS_H
#define GPT_KERNELS_H

#include <stdint.h>

/* x[rows][width] = wte[token] + wpe[position]; rows is a multiple of context, position is row % context. */
void embedding_forward(float* x, const uint8_t* tokens, const float* wte, const float* wpe, int64_t rows,
                       int64_t context, int64_t width);
void embedding_backward(float* dwte, float* dwpe, const float* dx, const uint8_t* tokens, int64_t rows, int64_t vocab,
                        int64_t context, int64_t width, int accumulate);

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

/* y[count] = x times the normal distribution function of x, by the tanh formula (Hendrycks and Gimpel 2016). */
void gelu_forward(float* y, const float* x, int64_t count);
void gelu_backward(float* dx, const float* dy, const float* x, int64_t count);

/* y[rows][width] = x + f + b[width]: a branch f with its bias joins the residual stream x. The gradient of x and f
 * is dy itself. */
void residual_forward(float* y, const float* x, const float* f, const float* b, int64_t rows, int64_t width);
void residual_backward_weight(float* db, const float* dy, int64_t rows, int64_t width, int accumulate);

/* Returns the sum over rows of -log softmax(logits[rows][vocab])[target].
 *   log_sums  [rows] log of the sum of exponentials, kept for backward */
double cross_entropy_forward(float* log_sums, const float* logits, const uint8_t* targets, int64_t rows, int64_t vocab);
void cross_entropy_backward(float* dlogits, const float* logits, const float* log_sums, const uint8_t* targets,
                            int64_t rows, int64_t vocab);

#endif
