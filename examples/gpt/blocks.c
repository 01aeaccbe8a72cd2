/* blocks.c: attention of some queries to one block of keys after another. What a query has gathered so far is kept
 * normalised, with the log of its sum of exponentials, so that a block joins by weights alone (Milakov and Gimelshein,
 * arXiv 1805.02867; Dao et al., FlashAttention, arXiv 2205.14135). Compiled as kernels.c is. */
#include <cblas.h>
#include <math.h>
#include <stdlib.h>

#include "each_cpu.h"
#include "kernels.h"

static void matmul(float* c, int64_t ldc, const float* a, int64_t lda, CBLAS_TRANSPOSE ta, const float* b, int64_t ldb,
                   CBLAS_TRANSPOSE tb, int64_t m, int64_t n, int64_t k, float scale) {
  cblas_sgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)k, scale, a, (int)lda, b, (int)ldb, 1.0f, c, (int)ldc);
}

/* c[queries][keys] = scale * a b^T. */
static void compare(float* c, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t queries, int64_t keys,
                    int64_t head, float scale) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)queries, (int)keys, (int)head, scale, a, (int)lda, b,
              (int)ldb, 0.0f, c, (int)keys);
}

/* How many of the block's keys query i sees. */
static int64_t seen_by(const struct attention_queries* q, const struct attention_keys* k, int64_t i) {
  const int64_t seen = q->first + i + 1 - k->first;
  return seen < 0 ? 0 : seen < k->count ? seen : k->count;
}

/* Scores p[keys] become weights; the row y[head] gathered before, and its log sum, make room for them. */
FOR_EACH_CPU
static void join_row(float* p, int64_t seen, int64_t keys, float* y, int64_t head, float* log_sum, int begins) {
  float top = p[0], sum = 0;
  if (seen > 0) {
    for (int64_t j = 1; j < seen; ++j) top = p[j] > top ? p[j] : top;
    for (int64_t j = 0; j < seen; ++j) sum += expf(p[j] - top);
    const float own = top + logf(sum), before = begins ? own : *log_sum, high = own > before ? own : before;
    const float all = begins ? own : high + logf(expf(own - high) + expf(before - high));
    const float keep = begins ? 0 : expf(before - all);
    for (int64_t i = 0; i < head; ++i) y[i] = begins ? 0 : y[i] * keep;
    for (int64_t j = 0; j < seen; ++j) p[j] = expf(p[j] - all);
    *log_sum = all;
  }
  for (int64_t j = seen; j < keys; ++j) p[j] = 0;
}

int attention_block_forward(float* y, float* log_sums, const struct attention_queries* q,
                            const struct attention_keys* k, int begins) {
  const int64_t width = q->heads * q->head;
  if (k->first >= q->first + q->count) return 0;
  float* p = malloc((size_t)(q->count * k->count) * sizeof *p);
  if (!p) return -1;
  for (int64_t s = 0; s < q->n; ++s)
    for (int64_t h = 0; h < q->heads; ++h) {
      const float *query = q->q + s * q->count * 3 * width + h * q->head,
                  *key = k->k + s * k->count * k->stride + h * q->head;
      float *out = y + s * q->count * width + h * q->head, *sums = log_sums + (s * q->heads + h) * q->count;
      compare(p, query, 3 * width, key, k->stride, q->count, k->count, q->head, 1 / sqrtf((float)q->head));
      for (int64_t i = 0; i < q->count; ++i)
        join_row(p + i * k->count, seen_by(q, k, i), k->count, out + i * width, q->head, sums + i, begins);
      matmul(out, width, p, k->count, CblasNoTrans, key + width, k->stride, CblasNoTrans, q->count, q->head, k->count,
             1);
    }
  free(p);
  return 0;
}

/* Scores p become weights again, and d, the gradients of the weights, those of the scores. The sum over all keys of
 * weight times gradient is that over the result of value times gradient, whatever blocks it came from. */
FOR_EACH_CPU
static void scores_backward(float* p, float* d, int64_t seen, int64_t keys, float log_sum, const float* y,
                            const float* dy, int64_t head) {
  float dot = 0;
  for (int64_t i = 0; i < head; ++i) dot += y[i] * dy[i];
  for (int64_t j = 0; j < seen; ++j) {
    p[j] = expf(p[j] - log_sum);
    d[j] = p[j] * (d[j] - dot);
  }
  for (int64_t j = seen; j < keys; ++j) p[j] = d[j] = 0;
}

int attention_block_backward(float* dq, float* dk, const float* dy, const float* y, const float* log_sums,
                             const struct attention_queries* q, const struct attention_keys* k) {
  const int64_t width = q->heads * q->head, row = 3 * width;
  const float scale = 1 / sqrtf((float)q->head);
  if (k->first >= q->first + q->count) return 0;
  float *p = malloc((size_t)(2 * q->count * k->count) * sizeof *p), *d = p + q->count * k->count;
  if (!p) return -1;
  for (int64_t s = 0; s < q->n; ++s)
    for (int64_t h = 0; h < q->heads; ++h) {
      const int64_t at = s * q->count * row + h * q->head, at_key = s * k->count * k->stride + h * q->head;
      const float *query = q->q + at, *key = k->k + at_key, *sums = log_sums + (s * q->heads + h) * q->count;
      const float *out = y + s * q->count * width + h * q->head, *dout = dy + s * q->count * width + h * q->head;
      compare(p, query, row, key, k->stride, q->count, k->count, q->head, scale);
      compare(d, dout, width, key + width, k->stride, q->count, k->count, q->head, 1);
      for (int64_t i = 0; i < q->count; ++i)
        scores_backward(p + i * k->count, d + i * k->count, seen_by(q, k, i), k->count, sums[i], out + i * width,
                        dout + i * width, q->head);
      matmul(dk + at_key + width, k->stride, p, k->count, CblasTrans, dout, width, CblasNoTrans, k->count, q->head,
             q->count, 1);
      matmul(dk + at_key, k->stride, d, k->count, CblasTrans, query, row, CblasNoTrans, k->count, q->head, q->count,
             scale);
      matmul(dq + at, row, d, k->count, CblasNoTrans, key, k->stride, CblasNoTrans, q->count, q->head, k->count, scale);
    }
  free(p);
  return 0;
}
