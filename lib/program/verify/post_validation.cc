// program/verify/post_validation.cc: see checks.h. All ranks of a group make its calls in the same order, so counting
// them shows whether the same ones come before POST_VALIDATE.
#include <algorithm>

#include "base/text.h"
#include "base/types.h"
#include "program/optimistic.h"
#include "program/verify/checks.h"
#include "program/words/words.h"

namespace gsel {
namespace {

[[noreturn]] void refuse(const Program& program, int32_t position, const std::string& why) {
  throw Error(GSEL_ERR_PROGRAM, fmt::format("{}: {}", where(program, false, static_cast<size_t>(position)), why))
      .about_rank(program.rank);
}

[[noreturn]] void refuse_all_of(const Program& program, const std::string& why) {
  throw Error(GSEL_ERR_PROGRAM, fmt::format("rank {}: {}", program.rank, why)).about_rank(program.rank);
}

int32_t first_optimistic(const Program& program) {
  const auto it = std::ranges::find_if(program.step, is_optimistic);
  return it == program.step.end() ? -1 : static_cast<int32_t>(it - program.step.begin());
}

// Number of calls by axis.
std::array<int32_t, kAxes> calls_before(const Program& program, int32_t end) {
  std::array<int32_t, kAxes> calls{};
  for (int32_t i = 0; i < end; ++i) {
    const gsel_instr& instr = program.step[i];
    if (instr.axis >= 0) ++calls[instr.axis];
    if (task_of(instr.kind) == InstrTask::forward)
      for (const ProgramPhase& phase : program.layers[instr.layer].forward_phases) ++calls[phase.axis];
  }
  return calls;
}

bool may_come_before(const gsel_instr& instr) {
  return !trains(instr) && task_of(instr.kind) != InstrTask::loss;
}

bool may_follow_optimistic(const gsel_instr& instr) {
  return is_optimistic(instr) || instr_row(instr.kind).repeats;
}

void check_alone(const Program& program) {
  const int32_t post_validate = post_validate_position(program), optimistic = first_optimistic(program);
  if (optimistic >= 0 && post_validate < 0)
    refuse(program, optimistic, "its number is optimistic, and no post_validate of the next step would take it");
  if (post_validate >= 0 && optimistic < 0)
    refuse(program, post_validate, "no norm or overflow is optimistic, so there is nothing to validate");
  for (int32_t i = 0; i < post_validate; ++i)
    if (!may_come_before(program.step[i]))
      refuse(program, post_validate,
             fmt::format("\"{}\" comes before it and would use a result that may still be undone",
                         to_text(program, program.step[i])));
  for (size_t i = 0; optimistic >= 0 && i < program.step.size(); ++i) {
    const gsel_instr& instr = program.step[i];
    const auto at = static_cast<int32_t>(i);
    if (is_optimistic(instr) && !can_be_optimistic(instr))
      refuse(program, at,
             "an overflow check can be optimistic only over the pipeline axis, after those of the other axes");
    if (at > optimistic && !may_follow_optimistic(instr))
      refuse(program, at,
             fmt::format("it comes after \"{}\", whose result is not known yet",
                         to_text(program, program.step[optimistic])));
    if (can_be_optimistic(instr) && !is_optimistic(instr))
      refuse(program, at,
             fmt::format("\"{}\" is optimistic; then it must be, too", to_text(program, program.step[optimistic])));
  }
}

void check_messages(const PostValidations& all) {
  for (size_t i = 0; i < all.programs.size(); ++i) {
    std::vector<int32_t> crossing = all.crossing(i, true);
    std::ranges::copy(all.crossing(i, false), std::back_inserter(crossing));
    if (crossing.empty()) continue;
    const int32_t first = std::ranges::min(crossing);
    refuse(*all.programs[i], first,
           fmt::format("it comes before this rank's post_validate, but the other end comes after that of rank {}; a "
                       "repeated step would leave the message unfinished",
                       all.programs[i]->step[first].peer));
  }
}

void check_groups(const PostValidations& all) {
  for (size_t i = 0; i < all.programs.size(); ++i) {
    const Program& program = *all.programs[i];
    const auto calls = calls_before(program, all.ends[i]);
    for (gsel_axis axis = 0; axis < kAxes; ++axis) {
      const int32_t first = program.mesh.group(program.rank, axis).front();
      if (!all.has(first)) continue;  // its program is equal to this one
      const size_t other = all.index_of(first);
      const int32_t there = calls_before(*all.programs[other], all.ends[other])[axis];
      if (calls[axis] != there)
        refuse(program, all.ends[i],
               fmt::format("{} of the {} group before it, and {} before that of rank {}",
                           with_noun(calls[axis], "call"), axis_name(axis), there, first));
    }
  }
}

}  // namespace

void check_post_validations(const Job& job) {
  PostValidations all{job.programs, {}};
  const Program& first = *job.programs.front();
  for (const Program* program : job.programs) {
    check_alone(*program);
    all.ends.push_back(post_validate_position(*program));
    if ((all.ends.back() < 0) != (all.ends.front() < 0))
      refuse_all_of(*program, fmt::format("it {} the step before, and rank {} {}; all ranks do, or none",
                                          all.ends.back() < 0 ? "does not validate" : "validates", first.rank,
                                          all.ends.front() < 0 ? "does not" : "does"));
  }
  if (all.ends.front() < 0) return;
  check_messages(all);
  check_groups(all);
}

}  // namespace gsel
