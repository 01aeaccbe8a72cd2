// train/compile/insertions.cc: see insertions.h.
#include "train/compile/insertions.h"

#include <algorithm>
#include <tuple>

#include "program/optimistic.h"
#include "program/stages.h"

namespace gsel {

// ---- sums over the sharing axis and the pipeline -------------------------------------------------------------------

namespace {

// In order of classes, then parameters, since bucket ids differ between pipeline ranks. is_summed: by bucket.
std::vector<int32_t> buckets_that(const Program& program, const std::vector<int32_t>& class_of,
                                  const std::vector<bool>& is_summed) {
  std::vector<std::tuple<int32_t, int32_t, int32_t>> found;
  for (int32_t b = 0; b < static_cast<int32_t>(program.buckets.size()); ++b) {
    const std::vector<int32_t>& params = program.buckets[b].params;
    if (is_summed[b]) found.emplace_back(class_of[params.front()], *std::ranges::min_element(params), b);
  }
  std::ranges::sort(found);
  std::vector<int32_t> buckets;
  for (const auto& [of_class, param, bucket] : found) buckets.push_back(bucket);
  return buckets;
}

bool looks_at_gradients(const gsel_instr& instr, const std::vector<int32_t>& summed) {
  return work_of(instr.kind) == InstrWork::check ||
         (instr.kind == GSEL_INSTR_STEP && std::ranges::count(summed, instr.bucket));
}

bool reduces(gsel_instr_kind kind) {
  return work_of(kind) == InstrWork::gradients;
}

// Whether a reduction of the bucket is under way at the end of these instructions.
bool is_reducing(const std::vector<gsel_instr>& instrs, int32_t bucket) {
  const auto last = std::ranges::find_if(instrs.rbegin(), instrs.rend(), [&](const gsel_instr& instr) {
    return instr.bucket == bucket && (reduces(instr.kind) || instr.kind == GSEL_INSTR_WAIT);
  });
  return last != instrs.rend() && reduces(last->kind);
}

// Moves the WAIT of a bucket's reduction under way from tail to the end of head.
void wait_first(std::vector<gsel_instr>& head, std::vector<gsel_instr>& tail, int32_t bucket) {
  if (!is_reducing(head, bucket)) return;
  const auto wait =
      std::ranges::find_if(tail, [&](const gsel_instr& i) { return i.kind == GSEL_INSTR_WAIT && i.bucket == bucket; });
  if (wait == tail.end()) return;
  head.push_back(*wait);
  tail.erase(wait);
}

}  // namespace

void insert_tied_reductions(Program& program) {
  const std::vector<int32_t> class_of = class_of_params(program);
  std::vector<bool> over_sharing;
  for (size_t b = 0; b < program.buckets.size(); ++b)
    over_sharing.push_back(sums_partial(program, static_cast<int32_t>(b)));
  const std::vector<int32_t> partial = buckets_that(program, class_of, over_sharing),
                             tied = buckets_that(program, class_of, sums_tied(program));
  std::vector<int32_t> summed = partial;
  summed.insert(summed.end(), tied.begin(), tied.end());
  if (summed.empty()) return;
  const auto looks =
      std::ranges::find_if(program.step, [&](const gsel_instr& instr) { return looks_at_gradients(instr, summed); });
  std::vector<gsel_instr> head(program.step.begin(), looks), tail(looks, program.step.end());
  for (size_t i = 0; i < summed.size(); ++i) {
    const bool over_tensor = i < partial.size();
    wait_first(head, tail, summed[i]);
    gsel_instr sum = make_instr(over_tensor ? GSEL_INSTR_ALLREDUCE_PARTIAL : GSEL_INSTR_ALLREDUCE_TIED);
    sum.bucket = summed[i];
    if (over_tensor) sum.axis = program.mesh.sharing_axis();
    head.push_back(sum);
  }
  head.insert(head.end(), tail.begin(), tail.end());
  program.step = std::move(head);
}

// ---- POST_VALIDATE -------------------------------------------------------------------------------------------------

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
