/* kernels.h: products of a matrix and a vector, as fast as memory is read; and the reading alone. */
#ifndef BENCH_TENSOR_KERNELS_H
#define BENCH_TENSOR_KERNELS_H

#include <stdint.h>

/* y[rows] = w[rows][columns] x[columns] */
void matrix_vector(const float* w, const float* x, float* y, int64_t rows, int64_t columns);
/* Of n floats, in no particular order. */
float sum_of(const float* data, int64_t n);

#endif
