// train/execute/call_counts.h: counts a communicator's calls by the kind of instruction that posted them. Between two
// readings of a communicator's counter, only one kind of instruction posts calls of that kind.
#pragma once

#include <gsel/train.h>

#include <array>

#include "base/types.h"
#include "program/instruction.h"
#include "train/ranks/axis_comms.h"

namespace gsel::execute {

class CallCounts {
 public:
  using ByInstr = std::array<std::array<gsel_comm_count, kInstrKinds>, kAxes>;

  CallCounts(AxisComms& comms, const Mesh& mesh) : comms_(comms), mesh_(mesh) {}

  // Whether this kind of instruction posted the calls so far. If another kind did, end all its calls before settle().
  bool is_posted_by(gsel_axis axis, gsel_collective_kind kind, gsel_instr_kind poster) const {
    return meters_[axis][kind].poster == poster;
  }
  void set_poster(gsel_axis axis, gsel_collective_kind kind, gsel_instr_kind poster);
  void settle(gsel_axis axis, gsel_collective_kind kind);
  // Adds calls counted elsewhere.
  void add(gsel_axis axis, gsel_instr_kind poster, gsel_comm_count more);

  void add(const ByInstr& more);
  // Begins a run: ignores calls made before it.
  void begin();
  // The counts of the run, once no call is under way. Kind 0: calls that no instruction posted.
  const ByInstr& end();
  // Adds the run's counts to the totals.
  void add_up();
  gsel_comm_count of(gsel_instr_kind kind, gsel_axis axis) const;

 private:
  gsel_comm_count counted(gsel_axis axis, gsel_collective_kind kind);

  // Calls count towards the kind of instruction that posted last; by axis and kind of call.
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
CallCounts::ByInstr difference(CallCounts::ByInstr a, const CallCounts::ByInstr& b);

}  // namespace gsel::execute
