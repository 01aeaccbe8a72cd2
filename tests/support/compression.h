// support/compression.h: a rank with a compressed bucket, for the tests of compression that look inside.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "support/ranks.h"
#include "train/optimize/compress.h"

namespace gsel::test {

struct ParamShape {
  const char* name;
  int64_t rows, cols;
};

Program program_of(const std::vector<ParamShape>& shapes, int32_t compression, int32_t rank = 0, int64_t start = 0);

// One rank's compressor of bucket 0, and its data.
struct Worker {
  std::shared_ptr<DeviceContext> device = DeviceContext::open_host();
  Ledger ledger{0};
  Program program;
  Communicator comm;
  std::unique_ptr<Compressor> compressor;
  Stream stream{device};
  std::vector<float> gradients;

  Worker(rank_run* run, Program p);
  static JoinOptions join(rank_run* run);
  void reduce(int64_t step, double scale = 1);
  // Of any data: the sum over ranks, exactly.
  std::vector<double> sum(const std::vector<float>& data);
  // Whether all ranks have the same bits.
  bool same_everywhere();
};

// A failure as text, since rank_check cannot return from a C++ scope that has destructors.
template <class Body>
void guarded(rank_run* run, Body&& body) {
  try {
    body();
  } catch (const std::exception& e) {
    snprintf(run->failure, sizeof run->failure, "rank %d: %s", run->rank, e.what());
  }
}

// A number of the standard normal distribution.
float noise(uint64_t stream, int32_t rank, size_t i);
double norm(const std::vector<double>& x);
// Relative to the expected value.
double distance(const std::vector<float>& got, const std::vector<double>& expected);

}  // namespace gsel::test
