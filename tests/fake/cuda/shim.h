// fake/cuda/shim.h: what nvcc gives kernels.cu, for a host compiler: a block has one thread, which does the work of
// all.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

struct FakeIndex {
  unsigned x = 0, y = 0, z = 0;
};
inline thread_local FakeIndex blockIdx, threadIdx, gridDim;
inline constexpr FakeIndex blockDim{1, 1, 1};

#define __global__
#define __device__
#define __shared__ static thread_local
#define __constant__ static
#define __launch_bounds__(threads)
inline void __syncthreads() {}
