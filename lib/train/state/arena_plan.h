// train/state/arena_plan.h: the place in the arena of everything that lives within a step: values, their gradients,
// saved bytes, and windows (memory of a sharded bucket while it is whole). A buffer lives from the first instruction
// that uses it to the last, as the program and the callbacks' declarations say. The arena's size is known before the
// run.
#pragma once

#include <cstdint>
#include <vector>

#include "train/state/layout.h"

namespace gsel {

class ArenaPlan {
 public:
  // layouts: one per bucket of the program at least (train/state/layout.h).
  ArenaPlan(const Model& model, const Program& program, const std::vector<BucketLayout>& layouts);

  static constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t bytes() const { return bytes_; }

  // By instruction of the step (its position) and what it touches; kNone where it does not: also for what a backward
  // says it does not read, and for anything of a micro-batch without samples. A value that is recomputed has other
  // memory in its second life, which is why the position counts. SCATTER and GATHER touch the whole micro-batch on
  // their root alone.
  uint64_t value(size_t position, int32_t v, int32_t mb) const { return find(position, Kind::value, v, mb); }
  uint64_t gradient(size_t position, int32_t v, int32_t mb) const { return find(position, Kind::gradient, v, mb); }
  // Memory beside gradient() for an instruction whose contribution is not the first: it is written here and then added.
  uint64_t scratch(size_t position, int32_t v, int32_t mb) const { return find(position, Kind::scratch, v, mb); }
  uint64_t saved(size_t position, int32_t layer, int32_t mb) const { return find(position, Kind::saved, layer, mb); }
  // Of a parameter that is kept in 16 bits and lent as f32, while a callback that reads it runs.
  uint64_t cast(size_t position, int32_t param) const { return find(position, Kind::cast, param, 0); }
  // Packing beside source and result of a redistribution, see train/execute/redistribute.h. Source and result are one
  // memory where nothing has to be done, or a sum can be made in place: value() and gradient() then return the same for
  // both.
  uint64_t packing(size_t position) const { return find(position, Kind::packing, 0, 0); }
  // Buffer of a layer's i-th phase, as described, in this direction; also without samples, for its neutral element.
  uint64_t phase(size_t position, int32_t i) const { return find(position, Kind::phase, i, 0); }
  // Where the buffer of a ring shift is received.
  uint64_t shifted(size_t position, int32_t i) const { return find(position, Kind::shifted, i, 0); }

  // Windows that this instruction opens: an ALLGATHER or BROADCAST, and a backward that is the first to write a
  // bucket's gradients; where no backward of a micro-batch with samples does, the reduction. Data that turns out to end
  // changes nothing here: the window is planned, and opened. Closed by RELEASE, and by the WAIT of REDUCE_SCATTER or
  // REDUCE.
  uint64_t param_window(size_t position, int32_t bucket) const { return find(position, Kind::param_window, bucket, 0); }
  uint64_t gradient_window(size_t position, int32_t bucket) const {
    return find(position, Kind::gradient_window, bucket, 0);
  }
  // Where a REDUCE_SCATTER puts its result when the shard already has gradients of this step, until its WAIT has added
  // it: known at both. kNone: the result goes to the shard itself.
  uint64_t reduced(size_t position, int32_t bucket) const { return find(position, Kind::reduced, bucket, 0); }

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
  enum class Kind : uint8_t {
    value,
    gradient,
    scratch,
    saved,
    cast,
    phase,
    shifted,
    param_window,
    gradient_window,
    reduced,
    packing,
  };
  // What is placed, as one number.
  static uint64_t key_of(Kind kind, int32_t id, int32_t mb) {
    return static_cast<uint64_t>(kind) << 60 | static_cast<uint64_t>(mb) << 32 | static_cast<uint32_t>(id);
  }
  uint64_t find(size_t position, Kind kind, int32_t id, int32_t mb) const;

  struct Use {
    uint64_t key, offset;
  };
  std::vector<Use> uses_;      // by position, then key
  std::vector<size_t> begin_;  // [length + 1] of each position's uses
  uint64_t bytes_ = 0;
  Peak peak_;
};

}  // namespace gsel
