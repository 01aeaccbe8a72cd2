// train/low_rank.h: the compressor that sends two thin factors of each matrix; see compress.h.
#pragma once

#include "program/compression.h"
#include "train/compress.h"
#include "train/low_rank_kernels.h"

namespace gsel {

// Works on host memory, in the stream's thread: the host's backend alone.
class LowRankCompressor : public Compressor {
 public:
  LowRankCompressor(std::shared_ptr<Backend> backend, Ledger& ledger, const Program& program, int32_t bucket,
                    uint64_t seed);

  static uint64_t bytes(const LowRankParts& parts);

 private:
  struct Matrix {
    int64_t first = 0;  // in the bucket
    int64_t elems = 0;
    Shape shape;
    float *error = nullptr, *left = nullptr, *right = nullptr;
    uint64_t key = 0;
  };

  void compress(Communicator& comm, float* gradients, double scale, gsel_stream* stream) override;
  void reduce(Communicator& comm, float* gradients, double scale);
  static void start(const Matrix& matrix);
  static bool finite(const Matrix& matrix);

  LowRankParts parts_;
  CountedMemory memory_;
  float* left_ = nullptr;   // all left factors, then what is sent as it is
  float* right_ = nullptr;  // all right factors: those of one step are where the next begins
  std::vector<Matrix> matrices_;
};

}  // namespace gsel
