// train/state/arena_plan.h: the offsets in the arena of everything that lives within a step: values, their gradients,
// saved bytes, and windows (memory of a sharded bucket while it is whole). A buffer lives from the first instruction
// that uses it to the last, according to the program and the callbacks' declarations. The size of the arena and all
// offsets are known before the run.
#pragma once

#include <cstdint>
#include <vector>

#include "train/state/layout.h"

namespace gsel {

// Offsets of an instruction's operands in the arena. kNone: not used, not read according to the backward's declaration,
// or of a micro-batch without samples.
struct ArenaOperands {
  static constexpr uint64_t kNone = ~uint64_t{0};
  struct OfValue {
    uint64_t value = kNone, gradient = kNone;
    // Scratch for a contribution that is not the first: it is written here and then added to the gradient.
    uint64_t scratch = kNone;
    uint64_t contribution() const { return scratch == kNone ? gradient : scratch; }
  };
  struct OfParam {
    uint64_t cast = kNone;             // f32 copy of a 16-bit parameter, during the callback
    uint64_t gradient_window = kNone;  // of its bucket
  };
  // For a layer's phases in this direction; also without samples, for the neutral element.
  struct OfPhase {
    uint64_t buffer = kNone;   // as described
    uint64_t shifted = kNone;  // where the buffer of a ring shift is received
  };

  // For a layer: its operands. A recomputed value has other memory the second time. Without a layer: inputs[0] is the
  // instruction's value, outputs[0] the value of the whole micro-batch for SCATTER and GATHER on their root.
  std::vector<OfValue> inputs, outputs;
  std::vector<OfParam> params;
  std::vector<OfPhase> phases;
  uint64_t saved = kNone;  // the layer's saved bytes
  // Scratch for packing, see train/execute/redistribute.h. Source and result share memory if nothing has to be done or
  // a sum can be made in place.
  uint64_t packing = kNone;
  // The window that the instruction opens: the bucket's whole parameters, until RELEASE, or its whole gradient, until
  // WAIT. A gradient's window opens at the first backward of a micro-batch with samples that writes it, else at the
  // reduction. It is opened as planned even if the data ends early.
  uint64_t window = kNone;
  // Where a reduction puts its result if the shard already has gradients of this step; its WAIT adds it. kNone: the
  // result goes directly to the shard.
  uint64_t reduced = kNone;
};

class ArenaPlan {
 public:
  // layouts: at least one per bucket of the program (train/state/layout.h).
  ArenaPlan(const Model& model, const Program& program, const std::vector<BucketLayout>& layouts);

  uint64_t bytes() const { return bytes_; }
  // By position in the step.
  const ArenaOperands& operands(size_t position) const { return operands_[position]; }
  // Offset of a value of the first micro-batch after the last instruction that uses it, or kNone.
  uint64_t left(int32_t v) const { return left_[v]; }

  // The instruction at which most bytes live, and these bytes by use.
  struct Peak {
    size_t position = 0;
    uint64_t values = 0, gradients = 0, saved = 0;  // gradients: of values, with scratch
    uint64_t gathered = 0, whole_gradients = 0;     // windows
    uint64_t beside = 0;                            // casts, phases, results of reductions
    uint64_t total() const { return values + gradients + saved + gathered + whole_gradients + beside; }
  };
  const Peak& peak() const { return peak_; }

 private:
  friend class ArenaPlanner;
  std::vector<ArenaOperands> operands_;  // by position
  std::vector<uint64_t> left_;           // by value
  uint64_t bytes_ = 0;
  Peak peak_;
};

}  // namespace gsel
