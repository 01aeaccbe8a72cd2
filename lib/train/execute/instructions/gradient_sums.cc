// train/execute/instructions/gradient_sums.cc: ALLREDUCE_PARTIAL and ALLREDUCE_TIED: the sums of gradients over axes
// other than the data axis, of what this rank steps.
#include "train/execute/instructions.h"

namespace gsel::execute {

// Of what this rank steps of a bucket: each rank of the axis has a part of every sum.
void allreduce_partial(State& s, const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  if (s.axis_size(instr.axis) == 1 || !s.params.layout(b).steps) return;
  if (s.params.whole_gradient(b)) zero_missing_gradients(s, b);
  float* own = s.params.own_gradient(b);
  const auto elems = static_cast<uint64_t>(s.params.layout(b).own_elems());
  call_now(s, instr.kind, instr.axis, make_collective(GSEL_COLLECTIVE_ALLREDUCE, own, own, elems, GSEL_F32, GSEL_SUM));
}

// Of what this rank steps of a bucket, over the ranks of the pipeline that hold its parameters.
void allreduce_tied(State& s, const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  if (s.axis_size(GSEL_AXIS_PIPELINE) == 1 || !s.params.layout(b).steps) return;
  if (s.params.whole_gradient(b)) zero_missing_gradients(s, b);
  float* own = s.params.own_gradient(b);
  const auto elems = static_cast<uint64_t>(s.params.layout(b).own_elems());
  call_in(s, s.comms.tie(b), instr.kind, GSEL_AXIS_PIPELINE,
          make_collective(GSEL_COLLECTIVE_ALLREDUCE, own, own, elems, GSEL_F32, GSEL_SUM));
}

}  // namespace gsel::execute
