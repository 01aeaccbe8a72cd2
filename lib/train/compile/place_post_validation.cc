// train/compile/place_post_validation.cc: see place_post_validation.h.
#include "train/compile/place_post_validation.h"

#include <algorithm>

#include "program/optimistic.h"

namespace gsel {
namespace {

// Whether a SEND goes to the next stage, whose rank waits for it. Otherwise the value skips stages and is read later.
bool goes_to_next_stage(const Program& program, int32_t position) {
  int32_t i = position;
  while (i >= 0 && program.step[i].kind != GSEL_FORWARD) --i;
  if (i < 0) return true;
  const auto next = static_cast<size_t>(program.layers[program.step[i].layer].stage) + 1;
  return next < program.rank_of_stage.size() &&
         program.rank_of_stage[next] == program.mesh.coordinate(program.step[position].peer, GSEL_AXIS_PIPELINE);
}

// The first message that crosses validation and cannot be held back; -1: none.
int32_t first_crossing(const PostValidations& all, size_t i) {
  int32_t first = -1;
  for (gsel_instr_kind kind : {GSEL_INSTR_SEND, GSEL_INSTR_RECV})
    for (int32_t position : all.crossing(i, kind)) {
      if (kind == GSEL_INSTR_SEND && !goes_to_next_stage(*all.programs[i], position)) continue;
      if (first < 0 || position < first) first = position;
    }
  return first;
}

// Puts POST_VALIDATE before the instruction at `end`, and after it the instructions that are held back.
void put_in_place(Program& program, int32_t end, const std::vector<int32_t>& held) {
  std::vector<gsel_instr> step;
  for (int32_t i = 0; i < end; ++i)
    if (!std::ranges::binary_search(held, i)) step.push_back(program.step[i]);
  step.push_back(make_instr(GSEL_INSTR_POST_VALIDATE));
  for (int32_t i : held) step.push_back(program.step[i]);
  for (size_t i = static_cast<size_t>(end); i < program.step.size(); ++i)
    if (program.step[i].kind != GSEL_INSTR_POST_VALIDATE) step.push_back(program.step[i]);
  program.step = std::move(step);
  program.lines.clear();
}

}  // namespace

void place_post_validations(std::span<Program> programs) {
  PostValidations all;
  for (const Program& program : programs) {
    all.programs.push_back(&program);
    all.ends.push_back(post_validate_position(program));
  }
  if (std::ranges::count(all.ends, -1)) return;  // no optimistic step, or an error that the verifier reports
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < programs.size(); ++i) {
      const int32_t at = first_crossing(all, i);
      if (at < 0) continue;
      all.ends[i] = at;
      moved = true;
    }
  }
  std::vector<std::vector<int32_t>> held;
  for (size_t i = 0; i < programs.size(); ++i) held.push_back(all.crossing(i, GSEL_INSTR_SEND));
  for (size_t i = 0; i < programs.size(); ++i) put_in_place(programs[i], all.ends[i], held[i]);
}

}  // namespace gsel
