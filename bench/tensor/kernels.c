/* kernels.c: see kernels.h. Vectors of the compiler's; the processor's widest are chosen when the program starts. */
#include "kernels.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDEST
#endif

enum { LANES = 16, AT_ONCE = 4 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

static inline __attribute__((always_inline)) float total(const lanes* v) {
  float sum = 0;
  for (int i = 0; i < LANES; ++i) sum += (*v)[i];
  return sum;
}

WIDEST void matrix_vector(const float* w, const float* x, float* y, int64_t rows, int64_t columns) {
  const int64_t whole = columns / LANES * LANES;
  for (int64_t r = 0; r < rows; r += AT_ONCE) {
    const int n = rows - r < AT_ONCE ? (int)(rows - r) : AT_ONCE;
    lanes sums[AT_ONCE] = {{0}, {0}, {0}, {0}};
    const float* rows_of_w[AT_ONCE];
    for (int i = 0; i < AT_ONCE; ++i) rows_of_w[i] = w + (r + (i < n ? i : 0)) * columns;
    for (int64_t c = 0; c < whole; c += LANES) {
      const lanes v = *(const lanes*)(x + c);
      for (int i = 0; i < AT_ONCE; ++i) sums[i] += *(const lanes*)(rows_of_w[i] + c) * v;
    }
    for (int i = 0; i < n; ++i) {
      float sum = total(&sums[i]);
      for (int64_t c = whole; c < columns; ++c) sum += rows_of_w[i][c] * x[c];
      y[r + i] = sum;
    }
  }
}

WIDEST float sum_of(const float* data, int64_t n) {
  lanes sums[AT_ONCE] = {{0}, {0}, {0}, {0}};
  int64_t i = 0;
  for (; i + AT_ONCE * LANES <= n; i += AT_ONCE * LANES)
    for (int k = 0; k < AT_ONCE; ++k) sums[k] += *(const lanes*)(data + i + k * LANES);
  float sum = 0;
  for (int k = 0; k < AT_ONCE; ++k) sum += total(&sums[k]);
  for (; i < n; ++i) sum += data[i];
  return sum;
}
