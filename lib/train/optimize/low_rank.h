// train/optimize/low_rank.h: the low-rank compressor, see compress.h.
#pragma once

#include <array>

#include "program/compression.h"
#include "train/optimize/compress.h"

namespace gsel {

// Whether a step may skip its update: if it checks for non-finite gradients, directly or by a norm.
bool can_skip(const Program& program);

class LowRankCompressor : public Compressor {
 public:
  LowRankCompressor(std::shared_ptr<DeviceContext> device, Ledger& ledger, const Program& program, int32_t bucket,
                    uint64_t seed);

  // keeps_two: for programs that can skip a step.
  static uint64_t bytes(const LowRankParts& parts, bool keeps_two);

  void end_step(bool taken) override;

 private:
  struct Matrix {
    int64_t first = 0;  // in the bucket
    int64_t rows = 0, cols = 0;
    float* left = nullptr;
    int64_t error = 0, right = 0;  // offsets in a Kept
    uint64_t key = 0;
  };
  // State carried from one step to the next.
  struct Kept {
    float *errors = nullptr, *rights = nullptr;  // rights: all right factors, the start of the next step
  };

  void compress(Communicator& comm, float* gradients, double scale, gsel_stream* stream) override;
  void run(int32_t kind, const Matrix& matrix, float* gradients, const Kept& before, const Kept& after, double scale,
           int32_t ranks, gsel_stream* stream) const;
  void copy(float* to, const float* from, int64_t elems, gsel_stream* stream) const;
  const Kept& next() const { return kept_[keeps_two_ ? 1 - now_ : now_]; }

  std::shared_ptr<DeviceContext> device_;
  LowRankParts parts_;
  bool keeps_two_;
  CountedMemory memory_;
  float* left_ = nullptr;  // all left factors, then gradients sent uncompressed
  std::array<Kept, 2> kept_;
  size_t now_ = 0;        // index in kept_ of the state after the last step that was not skipped
  bool changed_ = false;  // by the step under way
  std::vector<Matrix> matrices_;
};

}  // namespace gsel
