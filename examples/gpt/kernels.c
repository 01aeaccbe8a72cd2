/* kernels.c: matrix products go to BLAS; the rest is plain loops over rows that the compiler vectorises.
 * This file is compiled with -O3 -ffast-math (sums in any order, vector expf), see CMakeLists.txt.
 */
#include "kernels.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "each_cpu.h"

/* c[m][n] = scale * a b + keep * c, where ta, tb say whether a, b are stored transposed; ld* are row strides. */
static void matmul(float* c, int64_t ldc, const float* a, int64_t lda, CBLAS_TRANSPOSE ta, const float* b, int64_t ldb,
                   CBLAS_TRANSPOSE tb, int64_t m, int64_t n, int64_t k, float scale, float keep) {
  cblas_sgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)k, scale, a, (int)lda, b, (int)ldb, keep, c, (int)ldc);
}

/* sum[width] (+)= the rows of dy[rows][width], added up. */
FOR_EACH_CPU
static void sum_rows(float* sum, const float* dy, int64_t rows, int64_t width, int accumulate) {
  if (!accumulate) memset(sum, 0, (size_t)width * sizeof *sum);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; ++i) sum[i] += dy[r * width + i];
}

/* ---- embedding ---------------------------------------------------------------------------------------- */

void token_forward(float* x, const uint8_t* tokens, const float* table, int64_t rows, int64_t first, int64_t count,
                   int64_t width) {
  for (int64_t r = 0; r < rows; ++r, x += width) {
    const int64_t at = tokens[r] - first;
    if (at >= 0 && at < count)
      memcpy(x, table + at * width, (size_t)width * sizeof *x);
    else
      memset(x, 0, (size_t)width * sizeof *x);
  }
}

void token_backward(float* dtable, const float* dx, const uint8_t* tokens, int64_t rows, int64_t first, int64_t count,
                    int64_t width, int accumulate) {
  if (!accumulate) memset(dtable, 0, (size_t)(count * width) * sizeof *dtable);
  for (int64_t r = 0; r < rows; ++r, dx += width) {
    const int64_t at = tokens[r] - first;
    if (at < 0 || at >= count) continue;
    float* d = dtable + at * width;
    for (int64_t i = 0; i < width; ++i) d[i] += dx[i];
  }
}

void position_forward(float* y, const float* x, const float* table, int64_t n, int64_t first, int64_t here,
                      int64_t width) {
  table += first * width;
  for (int64_t s = 0; s < n; ++s, x += here * width, y += here * width)
    for (int64_t i = 0; i < here * width; ++i) y[i] = x[i] + table[i];
}

void position_backward(float* dtable, const float* dy, int64_t n, int64_t context, int64_t first, int64_t here,
                       int64_t width, int accumulate) {
  if (!accumulate) memset(dtable, 0, (size_t)(context * width) * sizeof *dtable);
  dtable += first * width;
  for (int64_t s = 0; s < n; ++s, dy += here * width)
    for (int64_t i = 0; i < here * width; ++i) dtable[i] += dy[i];
}

/* ---- linear ------------------------------------------------------------------------------------------- */

void linear_forward(float* y, const float* x, const float* w, const float* b, int64_t rows, int64_t in, int64_t out) {
  if (b)
    for (int64_t r = 0; r < rows; ++r) memcpy(y + r * out, b, (size_t)out * sizeof *y);
  matmul(y, out, x, in, CblasNoTrans, w, in, CblasTrans, rows, out, in, 1.0f, b ? 1.0f : 0.0f);
}

void linear_backward_input(float* dx, const float* dy, const float* w, int64_t rows, int64_t in, int64_t out) {
  matmul(dx, in, dy, out, CblasNoTrans, w, in, CblasNoTrans, rows, in, out, 1.0f, 0.0f);
}

void linear_backward_weight(float* dw, float* db, const float* dy, const float* x, int64_t rows, int64_t in,
                            int64_t out, int accumulate) {
  matmul(dw, in, dy, out, CblasTrans, x, in, CblasNoTrans, out, in, rows, 1.0f, accumulate ? 1.0f : 0.0f);
  if (db) sum_rows(db, dy, rows, out, accumulate);
}

/* ---- layer norm --------------------------------------------------------------------------------------- */

FOR_EACH_CPU
void layernorm_forward(float* y, float* stats, const float* x, const float* g, const float* b, int64_t rows,
                       int64_t width) {
  for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
    float mean = 0, variance = 0;
    for (int64_t i = 0; i < width; ++i) mean += x[i];
    mean /= (float)width;
    for (int64_t i = 0; i < width; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const float scale = 1 / sqrtf(variance / (float)width + 1e-5f);
    for (int64_t i = 0; i < width; ++i) y[i] = (x[i] - mean) * scale * g[i] + b[i];
    stats[2 * r] = mean;
    stats[2 * r + 1] = scale;
  }
}

FOR_EACH_CPU
void layernorm_backward_input(float* dx, const float* dy, const float* x, const float* stats, const float* g,
                              int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r, x += width, dx += width, dy += width) {
    const float mean = stats[2 * r], scale = stats[2 * r + 1];
    float sum = 0, dot = 0; /* of d = dy * g, alone and with the normalised x */
    for (int64_t i = 0; i < width; ++i) {
      sum += dy[i] * g[i];
      dot += dy[i] * g[i] * (x[i] - mean) * scale;
    }
    sum /= (float)width;
    dot /= (float)width;
    for (int64_t i = 0; i < width; ++i) dx[i] = scale * (dy[i] * g[i] - sum - (x[i] - mean) * scale * dot);
  }
}

FOR_EACH_CPU
void layernorm_backward_weight(float* dg, float* db, const float* dy, const float* x, const float* stats, int64_t rows,
                               int64_t width, int accumulate) {
  if (!accumulate) {
    memset(dg, 0, (size_t)width * sizeof *dg);
    memset(db, 0, (size_t)width * sizeof *db);
  }
  for (int64_t r = 0; r < rows; ++r, x += width, dy += width) {
    const float mean = stats[2 * r], scale = stats[2 * r + 1];
    for (int64_t i = 0; i < width; ++i) {
      dg[i] += dy[i] * (x[i] - mean) * scale;
      db[i] += dy[i];
    }
  }
}

/* ---- attention ---------------------------------------------------------------------------------------- */

/* Rows of scores become rows of probabilities; position i looks at positions 0..i only. */
FOR_EACH_CPU
static void causal_softmax(float* p, int64_t context) {
  for (int64_t i = 0; i < context; ++i, p += context) {
    float top = p[0], sum = 0;
    for (int64_t j = 1; j <= i; ++j) top = p[j] > top ? p[j] : top;
    for (int64_t j = 0; j <= i; ++j) {
      p[j] = expf(p[j] - top);
      sum += p[j];
    }
    const float scale = 1 / sum;
    for (int64_t j = 0; j <= i; ++j) p[j] *= scale;
    for (int64_t j = i + 1; j < context; ++j) p[j] = 0;
  }
}

/* d holds the gradient of the probabilities p and receives that of the scores. */
FOR_EACH_CPU
static void causal_softmax_backward(float* d, const float* p, int64_t context) {
  for (int64_t i = 0; i < context; ++i, p += context, d += context) {
    float dot = 0;
    for (int64_t j = 0; j <= i; ++j) dot += d[j] * p[j];
    for (int64_t j = 0; j <= i; ++j) d[j] = p[j] * (d[j] - dot);
    for (int64_t j = i + 1; j < context; ++j) d[j] = 0;
  }
}

/* Half of the scores are zero. Positions are taken in strips, each with the part of the square that is not. */
#define STRIP 32

static int64_t strip_at(int64_t i, int64_t context) {
  return context - i < STRIP ? context - i : STRIP;
}

/* c = scale * a b for rows of c that look back: a[context][context] is zero right of its diagonal. */
static void look_back(float* c, int64_t ldc, const float* a, const float* b, int64_t ldb, int64_t context, int64_t head,
                      float scale) {
  for (int64_t i = 0; i < context; i += STRIP) {
    const int64_t rows = strip_at(i, context);
    matmul(c + i * ldc, ldc, a + i * context, context, CblasNoTrans, b, ldb, CblasNoTrans, rows, head, i + rows, scale,
           0.0f);
  }
}

/* c = scale * a^T b: the gradients of what later rows have looked back at. */
static void look_ahead(float* c, int64_t ldc, const float* a, const float* b, int64_t ldb, int64_t context,
                       int64_t head, float scale) {
  for (int64_t i = 0; i < context; i += STRIP)
    matmul(c + i * ldc, ldc, a + i * context + i, context, CblasTrans, b + i * ldb, ldb, CblasNoTrans,
           strip_at(i, context), head, context - i, scale, 0.0f);
}

/* c[context][context] = scale * a b^T where it is not right of the diagonal by a strip or more. */
static void compare(float* c, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t context, int64_t head,
                    float scale) {
  for (int64_t i = 0; i < context; i += STRIP) {
    const int64_t rows = strip_at(i, context);
    matmul(c + i * context, context, a + i * lda, lda, CblasNoTrans, b, ldb, CblasTrans, rows, i + rows, head, scale,
           0.0f);
  }
}

void attention_forward(float* y, float* probs, const float* qkv, int64_t n, int64_t context, int64_t heads,
                       int64_t head) {
  const int64_t width = heads * head, row = 3 * width;
  for (int64_t s = 0; s < n; ++s)
    for (int64_t h = 0; h < heads; ++h) {
      const float *q = qkv + s * context * row + h * head, *k = q + width, *v = k + width;
      float* p = probs + (s * heads + h) * context * context;
      compare(p, q, row, k, row, context, head, 1 / sqrtf((float)head));
      causal_softmax(p, context);
      look_back(y + s * context * width + h * head, width, p, v, row, context, head, 1);
    }
}

int attention_backward(float* dqkv, const float* dy, const float* qkv, const float* probs, int64_t n, int64_t context,
                       int64_t heads, int64_t head) {
  const int64_t width = heads * head, row = 3 * width;
  const float scale = 1 / sqrtf((float)head);
  float* d = malloc((size_t)(context * context) * sizeof *d); /* gradient of one head's probabilities, then scores */
  if (!d) return -1;
  for (int64_t s = 0; s < n; ++s)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t at = s * context * row + h * head;
      const float *q = qkv + at, *k = q + width, *v = k + width;
      float *dq = dqkv + at, *dk = dq + width, *dv = dk + width;
      const float *p = probs + (s * heads + h) * context * context, *dout = dy + s * context * width + h * head;
      look_ahead(dv, row, p, dout, width, context, head, 1);
      compare(d, dout, width, v, row, context, head, 1);
      causal_softmax_backward(d, p, context);
      look_back(dq, row, d, k, row, context, head, scale);
      look_ahead(dk, row, d, q, row, context, head, scale);
    }
  free(d);
  return 0;
}

/* ---- gelu, residual ----------------------------------------------------------------------------------- */

/* 0.5 * (1 + tanh(u)) is the logistic function of 2u; GELU_2U is 2 * sqrt(2 / pi). */
#define GELU_2U 1.5957691f
#define GELU_CUBE 0.044715f

/* exp(-|z|) gives the logistic function of z and of -z, in a form in which nothing overflows (-ffast-math knows no
 * infinity) and 1 - logistic(z) is not rounded away. */
static inline float logistic(float z, float e) {
  return (z < 0 ? e : 1) / (1 + e);
}

FOR_EACH_CPU
void gelu_forward(float* y, const float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float z = GELU_2U * (x[i] + GELU_CUBE * x[i] * x[i] * x[i]);
    y[i] = x[i] * logistic(z, expf(-fabsf(z)));
  }
}

FOR_EACH_CPU
void gelu_backward(float* dx, const float* dy, const float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float z = GELU_2U * (x[i] + GELU_CUBE * x[i] * x[i] * x[i]);
    const float slope = GELU_2U * (1 + 3 * GELU_CUBE * x[i] * x[i]), e = expf(-fabsf(z));
    dx[i] = dy[i] * logistic(z, e) * (1 + x[i] * slope * logistic(-z, e));
  }
}

FOR_EACH_CPU
void residual_forward(float* y, const float* x, const float* f, const float* b, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; ++i) y[r * width + i] = x[r * width + i] + f[r * width + i] + b[i];
}

void residual_backward_weight(float* db, const float* dy, int64_t rows, int64_t width, int accumulate) {
  sum_rows(db, dy, rows, width, accumulate);
}

/* ---- cross-entropy ------------------------------------------------------------------------------------ */

FOR_EACH_CPU
void cross_entropy_tops(float* tops, const float* logits, int64_t rows, int64_t count) {
  for (int64_t r = 0; r < rows; ++r, logits += count) {
    float top = logits[0];
    for (int64_t i = 1; i < count; ++i) top = logits[i] > top ? logits[i] : top;
    tops[r] = top;
  }
}

FOR_EACH_CPU
void cross_entropy_sums(float* sums, const float* logits, const float* tops, const uint8_t* targets, int64_t rows,
                        int64_t first, int64_t count) {
  for (int64_t r = 0; r < rows; ++r, logits += count) {
    const float top = tops[r];
    const int64_t target = targets[r] - first;
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += expf(logits[i] - top);
    sums[2 * r] = sum;
    sums[2 * r + 1] = target >= 0 && target < count ? logits[target] : 0;
  }
}

/* By itself: where the compiler calls a vector's logarithm instead, results depend on it. */
__attribute__((noinline)) static float log_sum(float top, float sum) {
  return top + logf(sum);
}

double cross_entropy_loss(float* log_sums, const float* tops, const float* sums, int64_t rows) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r) {
    log_sums[r] = log_sum(tops[r], sums[2 * r]);
    loss += log_sums[r] - sums[2 * r + 1];
  }
  return loss;
}

FOR_EACH_CPU
void cross_entropy_backward(float* dlogits, const float* logits, const float* log_sums, const uint8_t* targets,
                            int64_t rows, int64_t first, int64_t count) {
  for (int64_t r = 0; r < rows; ++r, logits += count, dlogits += count) {
    const int64_t target = targets[r] - first;
    for (int64_t i = 0; i < count; ++i) dlogits[i] = expf(logits[i] - log_sums[r]);
    if (target >= 0 && target < count) dlogits[target] -= 1;
  }
}
