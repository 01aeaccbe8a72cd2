// device/host/low_rank_kernels.cc: see kernels.h.
#include <algorithm>

#include "device/formulas/low_rank.h"
#include "device/host/kernels.h"

namespace gsel::host {
namespace {

// One thread.
struct Alone {
  template <class Body>
  void each(int64_t n, Body body) const {
    for (int64_t i = 0; i < n; ++i) body(i);
  }
  double dot(const float* a, const float* b, int64_t n) const {
    double lanes[kTeamLanes] = {};
    for (int64_t row = 0; row < n; row += kTeamLanes)
      for (int64_t lane = 0, count = std::min(kTeamLanes, n - row); lane < count; ++lane)
        lanes[lane] += static_cast<double>(a[row + lane]) * b[row + lane];
    for (int64_t half = kTeamLanes / 2; half > 0; half /= 2)
      for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
  }
};

// Sixteen partial sums, added in order.
float dot(const float* a, const float* b, int64_t n) {
  float sums[kDotLanes] = {};
  int64_t i = 0;
  for (; i + kDotLanes <= n; i += kDotLanes)
    for (int64_t l = 0; l < kDotLanes; ++l) sums[l] += a[i + l] * b[i + l];
  for (int64_t l = 0; i + l < n; ++l) sums[l] += a[i + l] * b[i + l];
  for (int64_t l = 1; l < kDotLanes; ++l) sums[0] += sums[l];
  return sums[0];
}

void add_scaled(float* to, const float* from, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

void start(const gsel_low_rank_step& s) {
  for (int64_t k = 0; k < s.rank; ++k)
    for (int64_t j = 0; j < s.cols; ++j) s.right[k * s.cols + j] = random_element(s.key, k, j);
}

void multiply(const gsel_low_rank_step& s) {
  for (int64_t i = 0; i < s.rows; ++i)
    for (int64_t k = 0; k < s.rank; ++k)
      s.left[k * s.rows + i] = dot(s.matrix + i * s.cols, s.right + k * s.cols, s.cols);
}

void multiply_transposed(const gsel_low_rank_step& s) {
  std::fill_n(s.right, s.rank * s.cols, 0.0f);
  for (int64_t i = 0; i < s.rows; ++i)
    for (int64_t k = 0; k < s.rank; ++k)
      add_scaled(s.right + k * s.cols, s.matrix + i * s.cols, s.left[k * s.rows + i], s.cols);
}

bool is_product_finite(const gsel_low_rank_step& s) {
  if (!std::all_of(s.left, s.left + s.rows * s.rank, is_finite)) return false;
  for (int64_t j = 0; j < s.cols; ++j) {
    float sum = 0;  // elements of orthonormal columns are at most 1
    for (int64_t k = 0; k < s.rank; ++k) sum += std::fabs(s.right[k * s.cols + j]);
    if (!is_finite(sum)) return false;
  }
  return true;
}

void expand(const gsel_low_rank_step& s) {
  const float share = 1.0f / static_cast<float>(s.ranks), unscale = static_cast<float>(1 / s.scale);
  for (int64_t i = 0; i < s.rows; ++i) {
    float *row = s.matrix + i * s.cols, *error = s.error + i * s.cols;
    std::copy_n(row, s.cols, error);
    std::fill_n(row, s.cols, 0.0f);
    for (int64_t k = 0; k < s.rank; ++k) add_scaled(row, s.right + k * s.cols, s.left[k * s.rows + i], s.cols);
    for (int64_t j = 0; j < s.cols; ++j) error[j] = (error[j] - row[j] * share) * unscale;
  }
}

}  // namespace

void make_orthonormal(float* columns, int64_t n, int64_t n_columns, uint64_t key) {
  orthonormalise(Alone(), columns, n, n_columns, key);
}

void low_rank_step(const gsel_low_rank_step& s) {
  const int64_t elems = s.rows * s.cols;
  switch (s.kind) {
    case GSEL_LOW_RANK_START:
      return start(s);
    case GSEL_LOW_RANK_LEFT:
      add_scaled(s.matrix, s.old_error, static_cast<float>(s.scale), elems);
      make_orthonormal(s.right, s.cols, s.rank, s.key);
      return multiply(s);
    case GSEL_LOW_RANK_RIGHT:
      make_orthonormal(s.left, s.rows, s.rank, s.key);
      return multiply_transposed(s);
    default:
      if (is_product_finite(s)) return expand(s);
      std::fill_n(s.matrix, elems, float_of(kNanBits));
      if (s.error != s.old_error) std::copy_n(s.old_error, elems, s.error);
      start(s);
  }
}

}  // namespace gsel::host
