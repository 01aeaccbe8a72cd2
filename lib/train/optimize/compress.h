// train/optimize/compress.h: reductions that send less than f32 gradients: either gradients rounded to 16 bits, or two
// low-rank factors per matrix with error feedback (PowerSGD: Vogels et al., NeurIPS 2019, algorithms 1 and 2). One
// object per bucket.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "program/program.h"
#include "train/memory/ledger.h"

namespace gsel {

// What low-rank compression carries over to the next step of a matrix, on the device.
struct LowRankState {
  int32_t param = 0;
  float* error = nullptr;   // [rows][cols], this rank's own
  float* factor = nullptr;  // [cols][columns], equal on all ranks of the axis
  int64_t cols = 0, columns = 0;
};

class Compressor {
 public:
  virtual ~Compressor() = default;

  // Bytes it allocates, by part, for the forecast.
  static MemoryPartBytes bytes(const Program& program, int32_t bucket);

  // Queues on `stream` the in-place sum of `gradients` ([elems of the bucket] f32) over the ranks of comm; fails as the
  // stream does. Equal bits on all ranks. A plain all-reduce before compression_start.
  //   scale  this step's loss scale, so that kept errors fit the gradients of the next step
  void begin(Communicator& comm, float* gradients, int64_t step, double scale, gsel_stream* stream);
  // When all begun reductions of a step are done. taken: false if the step was skipped; kept state is then reset to its
  // value before the step, in programs that can skip a step.
  virtual void end_step(bool taken) { static_cast<void>(taken); }
  // Between steps; valid until the next one.
  virtual std::vector<LowRankState> kept() const { return {}; }

 protected:
  Compressor(const Program& program, int32_t bucket);
  virtual void compress(Communicator& comm, float* gradients, double scale, gsel_stream* stream) = 0;
  int64_t elems_ = 0;
  int64_t start_ = 0;
};

// nullptr: the bucket is not compressed. GSEL_ERR_UNSUPPORTED for low rank on a device without kernels for it.
//   seed  of training: the same on all ranks
std::unique_ptr<Compressor> make_compressor(std::shared_ptr<DeviceContext> device, Ledger& ledger,
                                            const Program& program, int32_t bucket, uint64_t seed);

}  // namespace gsel
