// program/optimistic.cc: see optimistic.h.
#include "program/optimistic.h"

#include <algorithm>

namespace gsel {
namespace {

bool is_message(const gsel_instr& instr, bool sends) {
  const InstrRow& row = instr_row(instr.kind);
  return sends ? row.is_send() : row.is_receive();
}

int32_t count_before(const Program& program, int32_t end, bool sends, int32_t peer) {
  return static_cast<int32_t>(
      std::count_if(program.step.begin(), program.step.begin() + end,
                    [&](const gsel_instr& instr) { return instr.peer == peer && is_message(instr, sends); }));
}

}  // namespace

bool is_optimistic(const gsel_instr& instr) {
  return instr.flags & GSEL_INSTR_OPTIMISTIC;
}

bool can_be_optimistic(const gsel_instr& instr) {
  const InstrRow& row = instr_row(instr.kind);
  return row.task == InstrTask::check && (row.peers == InstrPeers::norm || instr.axis == GSEL_AXIS_PIPELINE);
}

bool has_optimistic_steps(const Program& program) {
  return std::ranges::any_of(program.step, is_optimistic);
}

int32_t post_validate_position(const Program& program) {
  const auto it = std::ranges::find(program.step, InstrTask::post_validate,
                                    [](const gsel_instr& instr) { return task_of(instr.kind); });
  return it == program.step.end() ? -1 : static_cast<int32_t>(it - program.step.begin());
}

int32_t last_optimistic(const Program& program) {
  for (auto i = static_cast<int32_t>(program.step.size()) - 1; i >= 0; --i)
    if (is_optimistic(program.step[i])) return i;
  return -1;
}

size_t PostValidations::index_of(int32_t rank) const {
  return static_cast<size_t>(std::ranges::lower_bound(programs, rank, {}, &Program::rank) - programs.begin());
}

bool PostValidations::has(int32_t rank) const {
  const size_t i = index_of(rank);
  return i < programs.size() && programs[i]->rank == rank;
}

std::vector<int32_t> PostValidations::crossing(size_t program, bool sends) const {
  const Program& mine = *programs[program];
  std::vector<std::pair<int32_t, int32_t>> on_both_sides;  // peer; messages before validation at both ends
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < ends[program]; ++i) {
    const gsel_instr& instr = mine.step[i];
    if (!is_message(instr, sends) || !has(instr.peer)) continue;
    auto it = std::ranges::find(on_both_sides, instr.peer, &std::pair<int32_t, int32_t>::first);
    if (it == on_both_sides.end()) {
      const size_t theirs = index_of(instr.peer);
      on_both_sides.emplace_back(instr.peer, count_before(*programs[theirs], ends[theirs], !sends, mine.rank));
      it = std::prev(on_both_sides.end());
    }
    if (--it->second < 0) positions.push_back(i);
  }
  return positions;
}

}  // namespace gsel
