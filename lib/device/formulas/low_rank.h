// device/formulas/low_rank.h: the parts of a low-rank step (gsel/device.h) that have an order: the numbers of a random
// column, and how columns are made orthonormal. Does not know who works: a team is one thread or a block of threads.
#pragma once

#include <cmath>

#include "device/formulas/floats.h"
#include "device/formulas/philox.h"

namespace gsel {

constexpr int64_t kDotLanes = 16;    // partial sums of a product with a column
constexpr int64_t kTeamLanes = 256;  // of a sum over a column
constexpr double kDependent = 1e-6;  // a remainder below this fraction of the column is rounding
constexpr double kLargestF64 = 1.7976931348623157e308;
constexpr float kLargestF32 = 3.402823466e38f;
constexpr uint32_t kNanBits = 0x7fc00000;

GSEL_INLINE bool is_finite(float x) {
  return std::fabs(x) <= kLargestF32;
}

// Element i of random column `index`: [-1, 1).
GSEL_INLINE float random_element(uint64_t key, int64_t index, int64_t i) {
  const uint64_t column = key_of(philox_block(key, static_cast<uint64_t>(index)));
  return 2 * unit_of(philox_block(column, static_cast<uint64_t>(i)).of[0]) - 1;
}

// Removes components along earlier columns, twice to limit rounding (Giraud, Langou, Rozloznik, "The loss of
// orthogonality in the Gram-Schmidt process", 2005). Returns the remaining length.
template <class Team>
GSEL_INLINE double take_out(const Team& team, const float* columns, int64_t k, float* column, int64_t n) {
  for (int pass = 0; pass < 2; ++pass)
    for (int64_t p = 0; p < k; ++p) {
      const float* before = columns + p * n;
      const auto factor = static_cast<float>(-team.dot(column, before, n));
      team.each(n, [=](int64_t i) { column[i] += factor * before[i]; });
    }
  return std::sqrt(team.dot(column, column, n));
}

// See GSEL_LOW_RANK_LEFT. Team: each(n, body) calls body(i) for i in [0, n); dot(a, b, n) is the sum of products in the
// order of kTeamLanes, on all threads. Both give the same i to the same thread.
template <class Team>
GSEL_INLINE void orthonormalise(const Team& team, float* columns, int64_t n, int64_t n_columns, uint64_t key) {
  for (int64_t k = 0; k < n_columns; ++k) {
    float* column = columns + k * n;
    const double length = std::sqrt(team.dot(column, column, n));
    if (!(length <= kLargestF64)) {
      for (int64_t c = 0; c < n_columns; ++c) team.each(n, [=](int64_t i) { columns[c * n + i] = float_of(kNanBits); });
      return;
    }
    // Normalises first: products of very short columns would underflow.
    double left = 0;
    if (length > 0) {
      team.each(n, [=](int64_t i) { column[i] = static_cast<float>(column[i] / length); });
      left = take_out(team, columns, k, column, n);
    }
    for (int64_t other = k; left <= kDependent; other += n_columns) {
      team.each(n, [=](int64_t i) { column[i] = random_element(key, other, i); });
      left = take_out(team, columns, k, column, n);
    }
    team.each(n, [=](int64_t i) { column[i] = static_cast<float>(column[i] / left); });
  }
}

}  // namespace gsel
