// program/exchange.cc: see exchange.h.
#include "program/exchange.h"

#include "base/dtype.h"

namespace gsel {

size_t Exchange::post(const Program& program, const gsel_instr& instr, const std::string& where) {
  const std::vector<int32_t> params = instr.bucket < 0 ? std::vector<int32_t>{} : program.buckets[instr.bucket];
  Group& group = group_of(program, instr.axis);
  const size_t index = group.posted[program.rank]++;
  if (index == group.calls.size()) {
    group.calls.push_back({instr, params, where});
    return index;
  }
  const Call& first = group.calls[index];
  if (first.instr.kind != instr.kind || first.instr.bucket != instr.bucket || first.instr.peer != instr.peer)
    throw Error(GSEL_ERR_PROGRAM,
                fmt::format("{}: the {} group's collective {} is {}; all ranks of a group make the same "
                            "collectives in the same order",
                            where, axis_name(instr.axis), index, first.where))
        .about_rank(program.rank);
  if (first.params != params)
    throw Error(GSEL_ERR_PROGRAM, fmt::format("{}: the bucket holds other parameters, or in another order, than in {}",
                                              where, first.where))
        .about_rank(program.rank);
  return index;
}

int32_t Exchange::missing(const Program& program, gsel_axis axis, size_t index) {
  const Group& group = group_of(program, axis);
  for (int32_t rank : program.mesh.group(program.rank, axis)) {
    const auto found = group.posted.find(rank);
    if (found == group.posted.end() || found->second <= index) return rank;
  }
  return -1;
}

void Exchange::check_received() const {
  for (const auto& [pair, queue] : messages_)
    if (!queue.empty()) fail(GSEL_ERR_PROGRAM, "{}: rank {} never receives it", queue.front().where, pair.second);
}

Exchange::Group& Exchange::group_of(const Program& program, gsel_axis axis) {
  return groups_[{axis, program.mesh.group(program.rank, axis).front()}];
}

}  // namespace gsel
