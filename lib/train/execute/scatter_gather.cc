// train/execute/scatter_gather.cc: SCATTER and GATHER: a value, or its gradient, of a whole micro-batch on
// one rank, and its shards on all. Shards are consecutive in order of coordinate, and as even as possible.
#include "base/shard.h"
#include "base/text.h"
#include "comm/call/collective.h"
#include "model/views.h"
#include "program/words/words.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

// Elements of each rank's shard of the whole micro-batch.
const std::vector<uint64_t>& count_parts(State& s, const gsel_instr& instr) {
  const Microbatch& part = s.program().microbatches[instr.microbatch];
  const Microbatch& whole = s.program().microbatches[part.whole];
  const int32_t ranks = s.axis_size(instr.axis);
  std::vector<uint64_t>& counts = s.lent.part_counts;
  counts.clear();
  for (int32_t coordinate = 0; coordinate < ranks; ++coordinate) {
    const gsel_range range = shard_range(whole.count, ranks, coordinate);
    counts.push_back(static_cast<uint64_t>((range.end - range.begin) * s.model.values()[instr.value].sample_elems));
    if (coordinate == s.axis_coordinate(instr.axis) &&
        (part.first != whole.first + range.begin || part.count != range.end - range.begin))
      fail(GSEL_ERR_PROGRAM,
           "\"{}\": this rank's part is samples {} to {} of the batch; of samples {} to {} in {} its own are {} "
           "to {}",
           to_text(s.program(), instr), part.first, part.first + part.count, whole.first, whole.first + whole.count,
           with_noun(ranks, "part"), whole.first + range.begin, whole.first + range.end);
  }
  return counts;
}

}  // namespace

void scatter_or_gather(State& s, const gsel_instr& instr) {
  const Microbatch& part = s.program().microbatches[instr.microbatch];
  const int32_t v = instr.value, mb = instr.microbatch;
  const bool gradient = instr.flags & GSEL_INSTR_GRADIENT, scatters = known_form_of(instr.kind).writes_value;
  const std::vector<uint64_t>& counts = count_parts(s, instr);
  const ArenaOperands::OfValue &of_part = s.operands().inputs[0], &of_whole = s.operands().outputs[0];
  void* whole = s.at(gradient ? of_whole.gradient : of_whole.value);
  void* own = s.at(gradient ? of_part.contribution() : of_part.value);
  void *src = scatters ? whole : own, *dst = scatters ? own : whole;

  const Value& value = s.model.values()[v];
  if (s.axis_size(instr.axis) == 1) {
    s.copy(dst, src, value_bytes(value, part.count), GSEL_COPY_ON_DEVICE);
  } else {
    gsel_collective call = collective_of(instr, src, dst, 0, value.dtype);
    call.kind = row_of(call.kind).with_counts;
    (scatters ? call.send_counts : call.recv_counts) = counts.data();
    call_now(s, instr.kind, instr.axis, call);
  }
  if (gradient && !s.is_empty(mb)) finish_contribution(s, of_part, v, mb);
}

}  // namespace gsel::execute
