// schedule/schedule_rows_v.cc: rows of V-shaped schedules, whose stages go down the ranks and back: each rank has a
// stage on the way down (chunk 0) and one on the way back (chunk 1). Rows are written as the phases of their papers;
// micro-batches are numbered in order.
#include <algorithm>
#include <deque>

#include "schedule/schedule_rows.h"

namespace gsel {
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
