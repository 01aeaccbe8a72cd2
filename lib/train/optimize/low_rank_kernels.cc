// train/optimize/low_rank_kernels.cc: see low_rank_kernels.h.
#include "train/optimize/low_rank_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace gsel {
namespace {

constexpr int64_t kLanes = 16;
constexpr double kDependent = 1e-6;  // a remainder below this fraction of the column is rounding

// Sixteen partial sums, added in order.
float dot(const float* a, const float* b, int64_t n) {
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) sums[l] += a[i + l] * b[i + l];
  for (int64_t l = 0; i + l < n; ++l) sums[l] += a[i + l] * b[i + l];
  for (int64_t l = 1; l < kLanes; ++l) sums[0] += sums[l];
  return sums[0];
}

double wide_dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

void add_scaled(float* to, const float* from, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

// Removes components along earlier columns, twice to limit rounding (Giraud, Langou, Rozloznik, "The loss of
// orthogonality in the Gram-Schmidt process", 2005). Returns the remaining length.
double take_out(const float* columns, int64_t k, float* column, int64_t n) {
  for (int pass = 0; pass < 2; ++pass)
    for (int64_t p = 0; p < k; ++p) {
      const float* before = columns + p * n;
      add_scaled(column, before, static_cast<float>(-wide_dot(column, before, n)), n);
    }
  return std::sqrt(wide_dot(column, column, n));
}

void divide(float* column, double length, int64_t n) {
  for (int64_t i = 0; i < n; ++i) column[i] = static_cast<float>(column[i] / length);
}

}  // namespace

void multiply(const Shape& shape, const float* matrix, const float* right, float* left) {
  for (int64_t i = 0; i < shape.rows; ++i)
    for (int64_t k = 0; k < shape.rank; ++k)
      left[k * shape.rows + i] = dot(matrix + i * shape.cols, right + k * shape.cols, shape.cols);
}

void multiply_transposed(const Shape& shape, const float* matrix, const float* left, float* right) {
  std::fill_n(right, shape.rank * shape.cols, 0.0f);
  for (int64_t i = 0; i < shape.rows; ++i)
    for (int64_t k = 0; k < shape.rank; ++k)
      add_scaled(right + k * shape.cols, matrix + i * shape.cols, left[k * shape.rows + i], shape.cols);
}

void expand(const Shape& shape, const float* left, const float* right, float share, float unscale, float* matrix,
            float* error) {
  for (int64_t i = 0; i < shape.rows; ++i) {
    float *row = matrix + i * shape.cols, *row_error = error + i * shape.cols;
    std::copy_n(row, shape.cols, row_error);
    std::fill_n(row, shape.cols, 0.0f);
    for (int64_t k = 0; k < shape.rank; ++k)
      add_scaled(row, right + k * shape.cols, left[k * shape.rows + i], shape.cols);
    for (int64_t j = 0; j < shape.cols; ++j) row_error[j] = (row_error[j] - row[j] * share) * unscale;
  }
}

void orthonormalise(float* columns, int64_t n, int64_t n_columns, uint64_t key) {
  for (int64_t k = 0; k < n_columns; ++k) {
    float* column = columns + k * n;
    double length = std::sqrt(wide_dot(column, column, n));
    if (!std::isfinite(length)) {
      std::fill_n(columns, n * n_columns, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    // Normalises first: products of very short columns would underflow.
    double left = 0;
    if (length > 0) {
      divide(column, length, n);
      left = take_out(columns, k, column, n);
    }
    for (int64_t other = k; left <= kDependent; other += n_columns) {
      fill_column(column, n, key, other);
      left = take_out(columns, k, column, n);
    }
    divide(column, left, n);
  }
}

void fill_column(float* column, int64_t n, uint64_t key, int64_t index) {
  const uint64_t column_key = derive_key(key, static_cast<uint64_t>(index));
  for (int64_t i = 0; i < n; ++i) column[i] = 2 * random_uniform(column_key, static_cast<uint64_t>(i)) - 1;
}

}  // namespace gsel
