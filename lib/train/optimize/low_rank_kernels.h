// train/optimize/low_rank_kernels.h: the arithmetic of low-rank compression on host memory. Matrices are row-major,
// factors column-major. Results do not depend on the vector width, so equal inputs give equal bits on every processor.
// Does not know ranks and steps.
#pragma once

#include <cstdint>

namespace gsel {

struct Shape {
  int64_t rows = 0, cols = 0, rank = 0;
};

// left [rank][rows] = matrix * right; right is [rank][cols].
void multiply(const Shape& shape, const float* matrix, const float* right, float* left);
// right [rank][cols] = transposed matrix * left.
void multiply_transposed(const Shape& shape, const float* matrix, const float* left, float* right);

// error = (matrix - left * transposed right * share) * unscale, then matrix = left * transposed right.
void expand(const Shape& shape, const float* left, const float* right, float share, float unscale, float* matrix,
            float* error);

// Makes n_columns columns of n elements orthonormal. A column that is zero, or depends on those before it, is replaced
// by a random one from the key. Non-finite input makes all columns NaN.
void orthonormalise(float* columns, int64_t n, int64_t n_columns, uint64_t key);

// Random numbers in [-1, 1), keyed by (key, index).
void fill_column(float* column, int64_t n, uint64_t key, int64_t index);

}  // namespace gsel
