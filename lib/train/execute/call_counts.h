// train/execute/call_counts.h: counts the calls of the communicators by the instructions that made them. Between two
// readings of a communicator's count of one kind of call, only one kind of instruction makes such calls.
#pragma once

#include <gsel/train.h>

#include <array>

#include "base/axis.h"
#include "train/ranks/axis_comms.h"

namespace gsel::execute {

class CallCounts {
 public:
  static constexpr size_t kInstrKinds = GSEL_INSTR_POST_VALIDATE + 1;
  using ByInstr = std::array<std::array<gsel_comm_count, kInstrKinds>, kAxes>;

  CallCounts(AxisComms& comms, const Mesh& mesh) : comms_(comms), mesh_(mesh) {}

  // Whether calls so far were posted by another kind of instruction: none may be under way when they are settled.
  bool is_posted_by(gsel_axis axis, gsel_collective_kind kind, gsel_instr_kind poster) const {
    return meters_[axis][kind].poster == poster;
  }
  void set_poster(gsel_axis axis, gsel_collective_kind kind, gsel_instr_kind poster);
  void settle(gsel_axis axis, gsel_collective_kind kind);
  // Calls that were counted elsewhere.
  void add(gsel_axis axis, gsel_instr_kind poster, gsel_comm_count more);

  // What was counted so far is nobody's: a run begins.
  void begin();
  // Of the run, once no call is under way. Kind 0 is what no instruction asked for.
  const ByInstr& end();
  // The run is one of those that add up.
  void add_up();
  gsel_comm_count of(gsel_instr_kind kind, gsel_axis axis) const;

 private:
  gsel_comm_count counted(gsel_axis axis, gsel_collective_kind kind);

  // Calls are counted under the kind of instruction that posted them last; by axis and kind of call.
  struct Meter {
    gsel_comm_count seen{};
    gsel_instr_kind poster = 0;
  };
  AxisComms& comms_;
  const Mesh& mesh_;
  std::array<std::array<Meter, GSEL_COLLECTIVE_KINDS>, kAxes> meters_{};
  ByInstr all_{}, now_{};
};

gsel_comm_count difference(gsel_comm_count a, gsel_comm_count b);

}  // namespace gsel::execute
