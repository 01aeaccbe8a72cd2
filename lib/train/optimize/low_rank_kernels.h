// train/optimize/low_rank_kernels.h: the arithmetic of low-rank compression over host memory. Matrices are row-major,
// factors column-major. Results do not depend on the width of a processor's vectors, so equal inputs give equal bits
// everywhere. Does not know ranks and steps.
#pragma once

#include <cstdint>

namespace gsel {

struct Shape {
  int64_t rows = 0, cols = 0, rank = 0;
};

// left [rank][rows] = matrix * right, of right [rank][cols].
void multiply(const Shape& shape, const float* matrix, const float* right, float* left);
// right [rank][cols] = transposed matrix * left.
void multiply_transposed(const Shape& shape, const float* matrix, const float* left, float* right);

// matrix = left * transposed right; error = (what matrix was - matrix * share) * unscale.
void expand(const Shape& shape, const float* left, const float* right, float share, float unscale, float* matrix,
            float* error);

// Makes n_columns columns of n elements orthonormal. One that is none, or only what those before it are, becomes one of
// the key's. What is not finite becomes NaN.
void orthonormalise(float* columns, int64_t n, int64_t n_columns, uint64_t key);

// A column of numbers from [-1, 1) by (key, column).
void fill_column(float* column, int64_t n, uint64_t key, int64_t index);

}  // namespace gsel
