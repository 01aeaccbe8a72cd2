// plugins/device/cuda/kernels.h: arguments of kernels, shared by kernels.cu and launch.cc.
#pragma once

#include <gsel/device.h>

#include <cstdint>

namespace gsel_cuda {

constexpr uint64_t kChunk = 4096, kLanes = 256;  // of gsel_device_v1.sum_squares
constexpr uint64_t kStateBlock = 256;            // elements of 8-bit state that share a scale

constexpr uint64_t kElementBytes[] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1};  // by gsel_dtype

// For an optimizer step; see gsel_optimizer_step. param16 may be NULL.
struct StepMemory {
  float* param;
  const float* gradient;
  float *state0, *state1;
  uint16_t* param16;
  uint64_t count;
  gsel_dtype param16_dtype;
};

struct ByteStateMemory {
  float* param;
  const float* gradient;
  uint8_t *codes0, *codes1;
  float *scale0, *scale1;
  uint16_t* param16;
  uint64_t count;
  gsel_dtype param16_dtype;
};

// For a low-rank step; see gsel_low_rank_step.
struct LowRankMemory {
  float *matrix, *left, *right, *error;
  const float* old_error;
  int64_t rows, cols, rank;
  uint64_t key;
  float scale, share, unscale;
};

// For a reduction; see gsel_device_v1.reduce. dtype is not GSEL_BOOL, whose elements are reduced as bits of GSEL_U8.
struct ReduceMemory {
  void* dst;
  const void* srcs[GSEL_REDUCE_SOURCES];
  uint64_t count;
  int32_t n;
  gsel_dtype dtype;
  gsel_op op;
  int32_t is_aligned;  // all addresses, for four elements at a time
};

}  // namespace gsel_cuda
