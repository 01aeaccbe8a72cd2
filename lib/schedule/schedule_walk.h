// schedule/schedule_walk.h: walks through a schedule as its ranks do: each rank in the order of its row, each action
// after the action of another stage that it depends on. Each action's stage and micro-batch must be in range. Does not
// know what actions do.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/schedule.h"

namespace gsel {

inline bool is_backward(int32_t kind) {
  return kind == GSEL_BACKWARD || kind == GSEL_BACKWARD_INPUT;
}

// The stage that this action reads from, for the same micro-batch: forward the previous one, backward the next one.
inline std::optional<int32_t> stage_read(const Schedule& schedule, const gsel_action& action) {
  if (action.kind == GSEL_FORWARD && action.stage > 0) return action.stage - 1;
  if (is_backward(action.kind) && action.stage + 1 < schedule.n_stages()) return action.stage + 1;
  return std::nullopt;
}

class ScheduleWalk {
 public:
  explicit ScheduleWalk(const Schedule& schedule)
      : schedule_(schedule),
        next_(schedule.rows.size()),
        forward_(schedule.cell(schedule.n_stages(), 0)),
        backward_(forward_.size()) {
    for (int32_t rank = schedule.n_ranks(); rank-- > 0;) runnable_.push_back(rank);
  }

  // Calls visit(rank, i) for every reachable action. An action is tried when its rank reaches it and again when its
  // input is done: O(actions).
  template <class Visit>
  void run(Visit&& visit) {
    while (!runnable_.empty()) {
      const int32_t rank = runnable_.back();
      runnable_.pop_back();
      const auto& row = schedule_.rows[static_cast<size_t>(rank)];
      size_t& next = next_[static_cast<size_t>(rank)];
      for (; next < row.size() && can_run(row[next]); ++next) {
        visit(rank, next);
        finish(rank, row[next]);
      }
    }
  }

  // Whether the rank is blocked before an action without input; the action's position.
  bool is_stuck(int32_t rank) const { return position(rank) < schedule_.rows[static_cast<size_t>(rank)].size(); }
  size_t position(int32_t rank) const { return next_[static_cast<size_t>(rank)]; }

 private:
  std::vector<bool>& done(int32_t kind) { return kind == GSEL_FORWARD ? forward_ : backward_; }

  bool can_run(const gsel_action& action) {
    const std::optional<int32_t> read = stage_read(schedule_, action);
    return !read || done(action.kind)[schedule_.cell(*read, action.microbatch)];
  }

  void finish(int32_t rank, const gsel_action& action) {
    if (action.kind == GSEL_BACKWARD_WEIGHT) return;
    done(action.kind)[schedule_.cell(action.stage, action.microbatch)] = true;
    const int32_t reader = action.kind == GSEL_FORWARD ? action.stage + 1 : action.stage - 1;
    if (reader < 0 || reader >= schedule_.n_stages()) return;
    const int32_t other = schedule_.rank_of[static_cast<size_t>(reader)];
    if (other != rank && waits_for(other, action, reader)) runnable_.push_back(other);
  }

  bool waits_for(int32_t rank, const gsel_action& done, int32_t reader) const {
    if (!is_stuck(rank)) return false;
    const gsel_action& head = schedule_.rows[static_cast<size_t>(rank)][position(rank)];
    return head.stage == reader && head.microbatch == done.microbatch &&
           (done.kind == GSEL_FORWARD ? head.kind == GSEL_FORWARD : is_backward(head.kind));
  }

  const Schedule& schedule_;
  std::vector<size_t> next_;              // by rank
  std::vector<bool> forward_, backward_;  // by cell
  std::vector<int32_t> runnable_;
};

}  // namespace gsel
