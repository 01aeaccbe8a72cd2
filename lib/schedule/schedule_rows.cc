// schedule/schedule_rows.cc: rows that alternate forward and backward; see schedule_rows.h. In each kind of action,
// every stage takes its micro-batches in ascending order, so that all schedules sum gradients in the same order.
#include "schedule/schedule_rows.h"

#include <algorithm>
#include <deque>

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

// ---- two chunks, in the shape of a V -------------------------------------------------------------------------------

// Stages go down the ranks and back: each rank has a stage on the way down (chunk 0) and one on the way back (chunk 1).
// Rows are written as the phases of their papers; micro-batches are numbered in order.

namespace {

constexpr int32_t kDown = 0, kBack = 1;

// Actions in the order of the calls. Actions after the last micro-batch are left out.
class VRow {
 public:
  VRow(const PipelineShape& shape, int32_t rank)
      : microbatches_(shape.microbatches), stages_{rank, 2 * shape.ranks - 1 - rank} {}

  void forward(int32_t chunk) { add(GSEL_FORWARD, chunk, forwards_[chunk]++); }
  void backward(int32_t chunk) { add(GSEL_BACKWARD, chunk, backwards_[chunk]++); }
  // input: the half of a backward that other ranks wait for. weight(chunk): the other half of the chunk's oldest
  // backward; weight(): of the oldest of both chunks.
  void input(int32_t chunk) {
    pending_[chunk].push_back({backwards_[chunk], inputs_++});
    add(GSEL_BACKWARD_INPUT, chunk, backwards_[chunk]++);
  }
  bool weight(int32_t chunk) {
    if (pending_[chunk].empty()) return false;
    add(GSEL_BACKWARD_WEIGHT, chunk, pending_[chunk].front().microbatch);
    pending_[chunk].pop_front();
    return true;
  }
  void weight() {
    const bool down_is_older = pending_[kBack].empty() || (!pending_[kDown].empty() &&
                                                           pending_[kDown].front().turn < pending_[kBack].front().turn);
    weight(down_is_older ? kDown : kBack);
  }
  void halves(int32_t chunk) {
    input(chunk);
    weight(chunk);
  }

  int32_t forwards(int32_t chunk) const { return forwards_[chunk]; }
  ScheduleRow take() { return std::move(row_); }

 private:
  struct Half {
    int32_t microbatch, turn;
  };

  void add(int32_t kind, int32_t chunk, int32_t microbatch) {
    if (microbatch < microbatches_) row_.push_back({kind, stages_[chunk], microbatch});
  }

  int32_t microbatches_;
  int32_t stages_[2];
  int32_t forwards_[2] = {}, backwards_[2] = {}, inputs_ = 0;
  std::deque<Half> pending_[2];
  ScheduleRow row_;
};

}  // namespace

int32_t v_rank(const PipelineShape& shape, int32_t stage) {
  return stage < shape.ranks ? stage : 2 * shape.ranks - 1 - stage;
}

// Generated for at least 2 * ranks - 1 micro-batches; actions of nonexistent ones are left out.
ScheduleRow zb_v_row(const PipelineShape& shape, int32_t rank) {
  const int32_t n = std::max(2 * shape.ranks - 1, shape.microbatches), after = shape.ranks - rank;
  VRow row(shape, rank);
  for (int32_t i = 0; i < 2 * after - 1; ++i) row.forward(kDown);
  for (int32_t i = 0; i < rank; ++i) {
    row.forward(kBack);
    row.forward(kDown);
  }
  for (int32_t i = 0; i < after; ++i) {
    row.forward(kBack);
    row.halves(kBack);
  }
  while (row.forwards(kBack) < n) {
    if (row.forwards(kDown) < n) row.forward(kDown);
    row.halves(kDown);
    row.forward(kBack);
    row.halves(kBack);
  }
  for (int32_t i = 0; i < rank; ++i) {
    row.input(kDown);
    row.input(kBack);
  }
  for (int32_t i = 0; i < after; ++i) row.halves(kDown);
  for (int32_t chunk : {kBack, kDown})
    while (row.weight(chunk)) {
    }
  return row.take();
}

// DualPipe folded into a V, so that no stage is on two ranks. A forward and a backward that DualPipe overlaps run one
// after the other. Needs at least 2 * ranks micro-batches.
ScheduleRow dualpipe_v_row(const PipelineShape& shape, int32_t rank) {
  const int32_t behind = shape.ranks - 1 - rank;  // ranks after this one
  VRow row(shape, rank);
  for (int32_t i = 0; i < 2 * behind; ++i) row.forward(kDown);
  for (int32_t i = 0; i <= rank; ++i) {
    row.forward(kDown);
    row.forward(kBack);
  }
  for (int32_t i = 0; i < behind; ++i) {
    row.halves(kBack);
    row.forward(kBack);
  }
  for (int32_t i = 0; i < shape.microbatches - 2 * shape.ranks + rank + 1; ++i) {
    row.forward(kDown);
    row.backward(kBack);
    row.forward(kBack);
    row.backward(kDown);
  }
  for (int32_t i = 0; i < behind; ++i) {
    row.backward(kBack);
    row.forward(kBack);
    row.backward(kDown);
  }
  // The second half of these run as backward_input only; their weight halves fill the end.
  for (int32_t i = 0; i < 2 * (rank + 1); ++i) {
    const int32_t chunk = i % 2 == 0 ? kBack : kDown;
    i <= rank ? row.backward(chunk) : row.input(chunk);
  }
  for (int32_t i = 0; i < behind; ++i) {
    row.weight();
    row.input(kDown);
  }
  for (int32_t i = 0; i <= rank; ++i) row.weight();
  return row.take();
}

}  // namespace gsel
