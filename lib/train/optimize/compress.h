// train/optimize/compress.h: reductions that send less than f32 gradients: gradients rounded to 16 bits, or two thin
// factors of each matrix with error feedback (PowerSGD: Vogels et al., NeurIPS 2019, algorithms 1 and 2). One object
// per bucket.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "program/program.h"
#include "train/memory/ledger.h"

namespace gsel {

class Compressor {
 public:
  virtual ~Compressor() = default;

  // Bytes it keeps, by part: for the forecast.
  static MemoryPartBytes bytes(const Program& program, int32_t bucket);

  // Sums `gradients` ([elems of the bucket] f32) over the ranks of comm, in place, on `stream`: returns before it is
  // done, fails as the stream does. The same bits on all ranks. Before compression_start: a plain all-reduce.
  //   scale  the loss scale of this step, so that what is kept of one step fits the next one's gradients
  void begin(Communicator& comm, float* gradients, int64_t step, double scale, gsel_stream* stream);
  // Once all that began in a step is done. taken: false where the step was skipped; what is kept is then as before it,
  // in programs that can skip one.
  virtual void end_step(bool taken) { static_cast<void>(taken); }

 protected:
  Compressor(const Program& program, int32_t bucket);
  virtual void compress(Communicator& comm, float* gradients, double scale, gsel_stream* stream) = 0;
  int64_t elems_ = 0;
  int64_t start_ = 0;
};

// nullptr: the bucket is not compressed. GSEL_ERR_UNSUPPORTED for low rank on a device other than the host.
//   seed  the training's: the same on all ranks
std::unique_ptr<Compressor> make_compressor(std::shared_ptr<DeviceContext> device, Ledger& ledger,
                                            const Program& program, int32_t bucket, uint64_t seed);

}  // namespace gsel
