// program/simulate/processors.h: tasks that share a processor: all run at the same pace, which falls with their number.
// Finds the task that ends next, and when. Does not know what tasks are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace gsel {

class Processors {
 public:
  // throughput[n - 1]: total work of n concurrent tasks per unit of time, relative to one task alone; the last entry
  // holds for more tasks. Empty: tasks do not slow each other down.
  explicit Processors(std::vector<double> throughput) : throughput_(std::move(throughput)) {}

  void begin(double now, double seconds, int32_t task) {
    advance(now);
    running_.push({work_ + seconds, n_begun_++, task});
  }

  static constexpr double kNever = std::numeric_limits<double>::infinity();
  double next_end() const {
    if (running_.empty()) return kNever;
    if (throughput_.empty()) return running_.top().end;
    const double left = running_.top().end - work_;
    return left > 0 ? now_ + left / pace() : now_;
  }
  // Ends the next task, at next_end().
  int32_t end(double now) {
    const Running first = running_.top();
    advance(now);
    if (!throughput_.empty()) work_ = first.end;
    running_.pop();
    return first.task;
  }

 private:
  struct Running {
    double end;  // on the scale of work done per task
    uint64_t number;
    int32_t task;
    bool operator<(const Running& other) const { return end != other.end ? end > other.end : number > other.number; }
  };

  // Work per task and unit of time.
  double pace() const {
    const size_t n = running_.size();
    return throughput_[std::min(n, throughput_.size()) - 1] / static_cast<double>(n);
  }

  // Without sharing, work equals time.
  void advance(double now) {
    if (throughput_.empty())
      work_ = now;
    else if (!running_.empty())
      work_ += (now - now_) * pace();
    now_ = now;
  }

  std::vector<double> throughput_;
  std::priority_queue<Running> running_;
  double now_ = 0, work_ = 0;
  uint64_t n_begun_ = 0;
};

}  // namespace gsel
