// schedule/schedule_rows.cc: rows that alternate forward and backward; see schedule_rows.h. In each kind of action,
// every stage takes its micro-batches in ascending order, so that all schedules sum gradients in the same order.
#include "schedule/schedule_rows.h"

#include <algorithm>

namespace gsel {
namespace {

enum class Backward { whole, in_halves };

// 1F1B: after `warm_up` forwards, each further forward is followed by a backward. In halves, backward_weight starts
// `late` backwards after backward_input, and fills the time in which other ranks drain.
struct Alternation {
  int32_t warm_up = 0;
  Backward backward = Backward::whole;
  int32_t late = 0;
};

// Steps number a rank's (chunk, micro-batch) pairs in order: a round of micro-batches through one chunk, then through
// the next.
class Turns {
 public:
  Turns(const PipelineShape& shape, int32_t rank, int32_t round) : shape_(shape), rank_(rank), round_(round) {}

  int32_t count() const { return shape_.microbatches * shape_.chunks; }
  gsel_action forward(int32_t step) const { return {GSEL_FORWARD, stage(chunk(step)), microbatch(step)}; }
  // Backward visits the chunks in reverse order.
  gsel_action backward(int32_t kind, int32_t step) const {
    return {kind, stage(shape_.chunks - 1 - chunk(step)), microbatch(step)};
  }

 private:
  int32_t chunk(int32_t step) const { return step / round_ % shape_.chunks; }
  int32_t microbatch(int32_t step) const { return step / (round_ * shape_.chunks) * round_ + step % round_; }
  int32_t stage(int32_t chunk) const { return chunk * shape_.ranks + rank_; }

  const PipelineShape& shape_;
  int32_t rank_, round_;
};

ScheduleRow alternate(const Turns& turns, const Alternation& order) {
  const bool halves = order.backward == Backward::in_halves;
  const int32_t n = turns.count(), warm_up = std::min(n, order.warm_up);
  ScheduleRow row;
  row.reserve(static_cast<size_t>(n) * (halves ? 3 : 2));
  int32_t weights = 0;
  auto weight = [&] { row.push_back(turns.backward(GSEL_BACKWARD_WEIGHT, weights++)); };
  for (int32_t i = 0; i < warm_up; ++i) row.push_back(turns.forward(i));
  for (int32_t i = 0; i < n; ++i) {
    if (warm_up + i < n) row.push_back(turns.forward(warm_up + i));
    row.push_back(turns.backward(halves ? GSEL_BACKWARD_INPUT : GSEL_BACKWARD, i));
    if (halves && i >= order.late) weight();
  }
  while (halves && weights < n) weight();
  return row;
}

// With one stage per rank, all micro-batches are one round.
Turns single(const PipelineShape& shape, int32_t rank) {
  return Turns(shape, rank, shape.microbatches);
}

Turns in_rounds(const PipelineShape& shape, int32_t rank) {
  return Turns(shape, rank, microbatches_of_round(shape.ranks, shape.microbatches));
}

// Forwards of all chunks but the last before a rank's first backward in an interleaved schedule.
int32_t earlier_chunks(const PipelineShape& shape) {
  return (shape.chunks - 1) * microbatches_of_round(shape.ranks, shape.microbatches);
}

}  // namespace

int32_t looping_rank(const PipelineShape& shape, int32_t stage) {
  return stage % shape.ranks;
}

int32_t microbatches_of_round(int32_t ranks, int32_t microbatches) {
  const int32_t rounds = std::max(1, microbatches / ranks);
  return microbatches % rounds == 0 ? microbatches / rounds : 0;
}

ScheduleRow naive_row(const PipelineShape& shape, int32_t rank) {
  return alternate(single(shape, rank), {});
}

ScheduleRow gpipe_row(const PipelineShape& shape, int32_t rank) {
  return alternate(single(shape, rank), {.warm_up = shape.microbatches});
}

ScheduleRow one_f_one_b_row(const PipelineShape& shape, int32_t rank) {
  return alternate(single(shape, rank), {.warm_up = shape.ranks - 1 - rank});
}

ScheduleRow interleaved_row(const PipelineShape& shape, int32_t rank) {
  return alternate(in_rounds(shape, rank), {.warm_up = earlier_chunks(shape) + 2 * (shape.ranks - 1 - rank)});
}

ScheduleRow zb_h1_row(const PipelineShape& shape, int32_t rank) {
  return alternate(single(shape, rank),
                   {.warm_up = shape.ranks - 1 - rank, .backward = Backward::in_halves, .late = rank});
}

ScheduleRow interleaved_zb_row(const PipelineShape& shape, int32_t rank) {
  return alternate(
      in_rounds(shape, rank),
      {.warm_up = earlier_chunks(shape) + shape.ranks - 1 - rank, .backward = Backward::in_halves, .late = rank});
}

ScheduleRow zb_h2_row(const PipelineShape& shape, int32_t rank) {
  return alternate(single(shape, rank),
                   {.warm_up = 2 * (shape.ranks - 1 - rank), .backward = Backward::in_halves, .late = 2 * rank});
}

}  // namespace gsel
