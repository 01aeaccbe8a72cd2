// train/execute/executor_values.cc: SCATTER and COLLECT: a value, or its gradient, of a whole micro-batch on one rank,
// and its parts on all. Parts are consecutive, in order of place on the axis, and as even as can be.
#include "base/shard.h"
#include "train/execute/executor.h"
#include "train/memory/views.h"

namespace gsel {

// Elements of each rank's part of the whole micro-batch, and where they begin in it.
void Executor::list_parts(const gsel_instr& instr) {
  const Microbatch& part = program().microbatches[instr.microbatch];
  const Microbatch& whole = program().microbatches[part.whole];
  const int32_t ranks = axis_size(instr.axis);
  part_counts_.resize(ranks);
  for (int32_t place = 0; place < ranks; ++place) {
    const gsel_range range = shard_range(whole.count, ranks, place);
    part_counts_[place] = static_cast<uint64_t>((range.end - range.begin) * model_.values()[instr.value].sample_elems);
    if (place == axis_place(instr.axis) &&
        (part.first != whole.first + range.begin || part.count != range.end - range.begin))
      fail(GSEL_ERR_PROGRAM,
           "\"{}\": this rank's part is samples {} to {} of the batch; of samples {} to {} in {} parts its own are {} "
           "to {}",
           to_text(program(), instr), part.first, part.first + part.count, whole.first, whole.first + whole.count,
           ranks, whole.first + range.begin, whole.first + range.end);
  }
}

void Executor::exchange_parts(const gsel_instr& instr) {
  const Microbatch& part = program().microbatches[instr.microbatch];
  const int32_t v = instr.value, mb = instr.microbatch;
  const bool gradient = instr.flags & GSEL_INSTR_GRADIENT, scatters = instr.kind == GSEL_INSTR_SCATTER;
  const bool is_root = axis_place(instr.axis) == instr.peer;
  list_parts(instr);
  auto place_of = [&](int32_t m) {
    return at(gradient ? plan().gradient(position_, v, m) : plan().value(position_, v, m));
  };
  void* whole = is_root ? place_of(part.whole) : nullptr;
  void* own = gradient ? contribution_place(v, mb) : place_of(mb);

  const gsel_dtype dtype = model_.values()[v].dtype;
  if (axis_size(instr.axis) == 1) {
    backend_->run(&gsel_backend_v1::copy, scatters ? own : whole, static_cast<const void*>(scatters ? whole : own),
                  value_bytes(model_.values()[v], part.count), int32_t{GSEL_COPY_ON_DEVICE},
                  static_cast<gsel_stream*>(nullptr));
  } else {
    gsel_collective call = make_collective(scatters ? GSEL_COLLECTIVE_SCATTERV : GSEL_COLLECTIVE_GATHERV,
                                           scatters ? whole : own, scatters ? own : whole, 0, dtype, 0, instr.peer);
    (scatters ? call.send_counts : call.recv_counts) = part_counts_.data();
    call_now(instr.kind, instr.axis, call);
  }
  if (gradient && !is_empty(mb)) finish_contribution(v, mb);
}

}  // namespace gsel
