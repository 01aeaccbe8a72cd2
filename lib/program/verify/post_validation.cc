// program/verify/post_validation.cc: see post_validation.h. Programs are compared by counting: messages of an ordered
// pair, and calls of a group, are in the same order at both ends. So if there are equally many of them before
// POST_VALIDATE, they are the same ones.
#include "program/verify/post_validation.h"

#include <algorithm>

#include "base/axis.h"
#include "base/dtype.h"
#include "base/text.h"

namespace gsel {
namespace {

[[noreturn]] void refuse(const Program& program, int32_t position, const std::string& why) {
  throw Error(GSEL_ERR_PROGRAM, fmt::format("{}: {}", where(program, false, static_cast<size_t>(position)), why))
      .about_rank(program.rank);
}

[[noreturn]] void refuse_all_of(const Program& program, const std::string& why) {
  throw Error(GSEL_ERR_PROGRAM, fmt::format("rank {}: {}", program.rank, why)).about_rank(program.rank);
}

template <class Pick>
int32_t first_where(const Program& program, Pick&& pick) {
  const auto it = std::ranges::find_if(program.step, pick);
  return it == program.step.end() ? -1 : static_cast<int32_t>(it - program.step.begin());
}

template <class Pick>
int32_t last_where(const Program& program, Pick&& pick) {
  for (auto i = static_cast<int32_t>(program.step.size()) - 1; i >= 0; --i)
    if (pick(program.step[i])) return i;
  return -1;
}

// ---- what stands before POST_VALIDATE -------------------------------------------------------------------------

int32_t count_before(const Program& program, int32_t end, gsel_instr_kind kind, int32_t peer) {
  return static_cast<int32_t>(
      std::count_if(program.step.begin(), program.step.begin() + end,
                    [&](const gsel_instr& instr) { return instr.kind == kind && instr.peer == peer; }));
}

std::vector<int32_t> peers_before(const Program& program, int32_t end) {
  std::vector<int32_t> peers;
  for (int32_t i = 0; i < end; ++i)
    if (const int32_t kind = program.step[i].kind; kind == GSEL_INSTR_SEND || kind == GSEL_INSTR_RECV)
      if (!std::ranges::count(peers, program.step[i].peer)) peers.push_back(program.step[i].peer);
  return peers;
}

// Programs in ascending ranks, and where POST_VALIDATE stands in each.
struct Validated {
  std::vector<const Program*> programs;
  std::vector<int32_t> ends;

  size_t index_of(int32_t rank) const {
    return static_cast<size_t>(std::ranges::lower_bound(programs, rank, {}, &Program::rank) - programs.begin());
  }
  bool has(int32_t rank) const {
    const size_t i = index_of(rank);
    return i < programs.size() && programs[i]->rank == rank;
  }
};

// Positions of the messages before a program's POST_VALIDATE that the other end has behind its own, of one kind and
// peer.
std::vector<int32_t> crossing(const Validated& all, size_t mine, gsel_instr_kind kind, int32_t peer) {
  if (!all.has(peer)) return {};
  const gsel_instr_kind other = kind == GSEL_INSTR_SEND ? GSEL_INSTR_RECV : GSEL_INSTR_SEND;
  const size_t theirs = all.index_of(peer);
  int32_t on_both_sides = count_before(*all.programs[theirs], all.ends[theirs], other, all.programs[mine]->rank);
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < all.ends[mine]; ++i)
    if (const gsel_instr& instr = all.programs[mine]->step[i]; instr.kind == kind && instr.peer == peer)
      if (--on_both_sides < 0) positions.push_back(i);
  return positions;
}

// Whether a value goes to the stage behind the one that has just run: the other pipeline rank waits for it. Else it
// goes over stages, which need time to come to where it is read.
bool goes_to_next_stage(const Program& program, int32_t position) {
  int32_t i = position;
  while (i >= 0 && program.step[i].kind != GSEL_FORWARD) --i;
  if (i < 0) return true;
  const auto next = static_cast<size_t>(program.layers[program.step[i].layer].stage) + 1;
  return next < program.rank_of_stage.size() &&
         program.rank_of_stage[next] == program.mesh.coordinate(program.step[position].peer, GSEL_AXIS_PIPELINE);
}

// Where the first of them all stands; -1: none. without_held: those do not count that can be sent behind POST_VALIDATE.
int32_t first_crossing(const Validated& all, size_t i, bool without_held) {
  const Program& mine = *all.programs[i];
  int32_t first = -1;
  for (int32_t peer : peers_before(mine, all.ends[i]))
    for (gsel_instr_kind kind : {GSEL_INSTR_SEND, GSEL_INSTR_RECV})
      for (int32_t position : crossing(all, i, kind, peer)) {
        if (without_held && kind == GSEL_INSTR_SEND && !goes_to_next_stage(mine, position)) continue;
        if (first < 0 || position < first) first = position;
      }
  return first;
}

// Calls of each axis's group.
std::array<int32_t, kAxes> calls_before(const Program& program, int32_t end) {
  std::array<int32_t, kAxes> calls{};
  for (int32_t i = 0; i < end; ++i) {
    const gsel_instr& instr = program.step[i];
    if (instr.axis >= 0) ++calls[instr.axis];
    if (instr.kind == GSEL_FORWARD)
      for (const ProgramPhase& phase : program.layers[instr.layer].forward_phases) ++calls[phase.axis];
  }
  return calls;
}

bool may_come_before(const gsel_instr& instr) {
  switch (instr.kind) {
    case GSEL_INPUT:
    case GSEL_FORWARD:
    case GSEL_INSTR_SEND:
    case GSEL_INSTR_RECV:
    case GSEL_INSTR_SCATTER:
    case GSEL_INSTR_GATHER:
    case GSEL_INSTR_BROADCAST:
    case GSEL_INSTR_ALLGATHER:
    case GSEL_INSTR_WAIT:
    case GSEL_INSTR_RELEASE:
      return !(instr.flags & GSEL_INSTR_GRADIENT);
    default:
      return false;
  }
}

// POST_VALIDATE before the instruction at `end`, and behind it what is held back so far.
void put_in_place(Program& program, int32_t end, std::vector<int32_t> held) {
  std::vector<gsel_instr> step;
  std::ranges::sort(held);
  for (int32_t i = 0; i < end; ++i)
    if (!std::ranges::binary_search(held, i)) step.push_back(program.step[i]);
  step.push_back(make_instr(GSEL_INSTR_POST_VALIDATE));
  for (int32_t i : held) step.push_back(program.step[i]);
  for (size_t i = static_cast<size_t>(end); i < program.step.size(); ++i)
    if (program.step[i].kind != GSEL_INSTR_POST_VALIDATE) step.push_back(program.step[i]);
  program.step = std::move(step);
  program.lines.clear();
}

// What is done again with the true numbers.
bool may_come_behind_optimistic(const gsel_instr& instr) {
  switch (instr.kind) {
    case GSEL_INSTR_NORM:
    case GSEL_INSTR_OVERFLOW:
      return is_optimistic(instr);
    case GSEL_INSTR_STEP:
    case GSEL_INSTR_ALLGATHER:
    case GSEL_INSTR_WAIT:
    case GSEL_INSTR_RELEASE:
      return true;
    default:
      return false;
  }
}

// ---- the rules ------------------------------------------------------------------------------------------------

void check_alone(const Program& program) {
  const int32_t post_validate = post_validate_position(program), optimistic = first_where(program, is_optimistic);
  if (optimistic >= 0 && post_validate < 0)
    refuse(program, optimistic, "its number is optimistic, and no post_validate of the next step would take it");
  if (post_validate >= 0 && optimistic < 0)
    refuse(program, post_validate, "no norm or overflow is optimistic, so there is nothing to validate");
  for (int32_t i = 0; i < post_validate; ++i)
    if (!may_come_before(program.step[i]))
      refuse(program, post_validate,
             fmt::format("\"{}\" stands before it; it would work with what may still be undone",
                         to_text(program, program.step[i])));
  for (size_t i = 0; optimistic >= 0 && i < program.step.size(); ++i) {
    const gsel_instr& instr = program.step[i];
    const auto at = static_cast<int32_t>(i);
    if (is_optimistic(instr) && instr.kind == GSEL_INSTR_OVERFLOW && instr.axis != GSEL_AXIS_PIPELINE)
      refuse(program, at, "a look for overflow can be optimistic over the pipeline axis alone, behind the other axes'");
    if (at > optimistic && !may_come_behind_optimistic(instr))
      refuse(program, at,
             fmt::format("it comes behind \"{}\", whose number is not known yet",
                         to_text(program, program.step[optimistic])));
    const bool over_pipeline =
        instr.kind == GSEL_INSTR_NORM || (instr.kind == GSEL_INSTR_OVERFLOW && instr.axis == GSEL_AXIS_PIPELINE);
    if (over_pipeline && !is_optimistic(instr))
      refuse(program, at,
             fmt::format("\"{}\" is optimistic; then it must be, too", to_text(program, program.step[optimistic])));
  }
}

void check_messages(const Validated& all) {
  for (size_t i = 0; i < all.programs.size(); ++i)
    if (const int32_t at = first_crossing(all, i, false); at >= 0)
      refuse(
          *all.programs[i], at,
          fmt::format("it stands before this rank's post_validate, and the other end's behind that of rank {}; a step "
                      "that is begun again would leave it under way",
                      all.programs[i]->step[at].peer));
}

void check_groups(const Validated& all) {
  for (size_t i = 0; i < all.programs.size(); ++i) {
    const Program& program = *all.programs[i];
    const auto calls = calls_before(program, all.ends[i]);
    for (gsel_axis axis = 0; axis < kAxes; ++axis) {
      const int32_t first = program.mesh.group(program.rank, axis).front();
      if (!all.has(first)) continue;  // it does as this one does
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

bool is_optimistic(const gsel_instr& instr) {
  return instr.flags & GSEL_INSTR_OPTIMISTIC;
}

bool has_optimistic_steps(const Program& program) {
  return std::ranges::any_of(program.step, is_optimistic);
}

int32_t post_validate_position(const Program& program) {
  return first_where(program, [](const gsel_instr& instr) { return instr.kind == GSEL_INSTR_POST_VALIDATE; });
}

int32_t last_optimistic(const Program& program) {
  return last_where(program, is_optimistic);
}

void place_post_validations(std::span<Program> programs) {
  Validated all;
  for (const Program& program : programs) {
    all.programs.push_back(&program);
    all.ends.push_back(post_validate_position(program));
  }
  if (std::ranges::count(all.ends, -1)) return;  // nothing is optimistic, or the verifier will say what is missing
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < programs.size(); ++i) {
      const int32_t at = first_crossing(all, i, true);
      if (at < 0) continue;
      all.ends[i] = at;
      moved = true;
    }
  }
  std::vector<std::vector<int32_t>> held(programs.size());
  for (size_t i = 0; i < programs.size(); ++i)
    for (int32_t peer : peers_before(programs[i], all.ends[i]))
      for (int32_t at : crossing(all, i, GSEL_INSTR_SEND, peer)) held[i].push_back(at);
  for (size_t i = 0; i < programs.size(); ++i) put_in_place(programs[i], all.ends[i], std::move(held[i]));
}

void check_post_validations(const Job& job) {
  Validated all{job.programs, {}};
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
