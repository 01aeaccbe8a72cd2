// train/execute/setup.cc: makes initial values equal on all ranks and runs the setup program.
#include "base/error.h"
#include "program/stages.h"
#include "train/execute/executor.h"
#include "train/execute/instructions.h"

namespace gsel {
namespace {

using execute::State;

// Gives pipeline ranks that hold the same parameters the values of the first.
void broadcast_from_first_holder(State& s) {
  for (size_t i = 0; i < s.buckets.size(); ++i) {
    const auto b = static_cast<int32_t>(i);
    if (bucket_holders(s.program(), b).size() == 1) continue;
    s.params.rewrite_params(b, [&](void* data, uint64_t bytes) {
      s.comms.tie(b).collective(make_collective(GSEL_COLLECTIVE_BROADCAST, data, data, bytes, GSEL_U8, 0, 0),
                                s.device->compute());
    });
  }
}

// Gives ranks of the sharing axis that keep whole parameters the same values: those of the embedder's initialiser on
// the first rank.
void broadcast_from_first_coordinate(State& s) {
  Communicator& axis = s.axis_comm(s.sharing_axis());
  s.params.initialise_alike(static_cast<uint64_t>(s.config.train.seed), axis.rank() == 0, [&](std::span<float> chunk) {
    axis.collective_on_host(
        make_collective(GSEL_COLLECTIVE_BROADCAST, chunk.data(), chunk.data(), chunk.size(), GSEL_F32, 0, 0));
  });
}

void meet_sharing_axis(State& s) {
  if (s.axis_size(s.sharing_axis()) == 1) return;
  s.redistributor.connect(s.axis_comm(s.sharing_axis()));
  broadcast_from_first_coordinate(s);
}

}  // namespace

void Executor::run_setup() {
  s_.comms.connect();
  try {
    meet_sharing_axis(s_);
    broadcast_from_first_holder(s_);
    s_.counts.begin();
    for (const gsel_instr& instr : s_.program().setup) execute::run_instr(s_, instr);
    execute::record_counts(s_);
  } catch (...) {  // the failure may be on this rank only
    break_off(current_error());
  }
}

}  // namespace gsel
