// train/state/arena_plan.h: the place in the arena of everything that lives within a step: values, their gradients,
// saved bytes, and windows (memory of a sharded bucket while it is whole). A buffer lives from the first instruction
// that uses it to the last, as the program and the callbacks' declarations say. The arena's size, and where each
// instruction finds its operands, are known before the run.
#pragma once

#include <cstdint>
#include <vector>

#include "train/state/layout.h"

namespace gsel {

// What an instruction touches in the arena, by operand: offsets, kNone where it touches none: also for what a backward
// says it does not read, and for anything of a micro-batch without samples.
struct ArenaOperands {
  static constexpr uint64_t kNone = ~uint64_t{0};
  struct OfValue {
    uint64_t value = kNone, gradient = kNone;
    // Memory beside the gradient where this contribution to it is not the first: it is written here and then added.
    uint64_t scratch = kNone;
    uint64_t contribution() const { return scratch == kNone ? gradient : scratch; }
  };
  struct OfParam {
    uint64_t cast = kNone;             // of one kept in 16 bits and lent as f32, while a callback that reads it runs
    uint64_t gradient_window = kNone;  // of its bucket
  };
  // Of a layer's phases, in this direction; also without samples, for their neutral element.
  struct OfPhase {
    uint64_t buffer = kNone;   // as described
    uint64_t shifted = kNone;  // where the buffer of a ring shift is received
  };

  // Of a layer what it has. A value that is recomputed has other memory in its second life. Without a layer, inputs[0]
  // is the instruction's value, and outputs[0] that of the whole micro-batch for SCATTER and GATHER on their root.
  std::vector<OfValue> inputs, outputs;
  std::vector<OfParam> params;
  std::vector<OfPhase> phases;
  uint64_t saved = kNone;  // bytes of the layer
  // Packing beside source and result of a redistribution, see train/execute/redistribute.h. Source and result are one
  // memory where nothing has to be done, or a sum can be made in place.
  uint64_t packing = kNone;
  // Of the bucket: whole parameters for ALLGATHER and BROADCAST; whole gradient for REDUCE_SCATTER and REDUCE. A
  // gradient's window opens at the first backward that writes it; where no backward of a micro-batch with samples does,
  // at the reduction. Data that turns out to end changes nothing here: the window is planned, and opened. RELEASE
  // closes the one, the WAIT of the reduction the other.
  uint64_t window = kNone;
  // Where a REDUCE_SCATTER puts its result when the shard already has gradients of this step, until its WAIT has added
  // it. kNone: the result goes to the shard itself.
  uint64_t reduced = kNone;
};

class ArenaPlan {
 public:
  // layouts: one per bucket of the program at least (train/state/layout.h).
  ArenaPlan(const Model& model, const Program& program, const std::vector<BucketLayout>& layouts);

  uint64_t bytes() const { return bytes_; }
  // By position in the step.
  const ArenaOperands& operands(size_t position) const { return operands_[position]; }
  // Where a value of the first micro-batch is after the last instruction that touches it; kNone: none does.
  uint64_t left(int32_t v) const { return left_[v]; }

  // What lived together at the fullest instruction.
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
