// plugins/device/cuda/kernels.h: arguments of kernels, shared by kernels.cu and launch.cc.
#pragma once

#include <gsel/types.h>

#include <cstdint>

namespace gsel_cuda {

constexpr uint64_t kChunk = 4096, kLanes = 256;  // of gsel_device_v1.sum_squares
constexpr uint64_t kStateBlock = 256;            // elements of 8-bit state that share a scale

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

}  // namespace gsel_cuda
