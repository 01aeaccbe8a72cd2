// program/simulate/processors.h: tasks on processors that several of them may share: all that are under way go on at
// the same pace, and the more there are the slower. Finds which ends next, and when. Does not know what tasks are.
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
  // throughput: what n tasks at once get done together, in units of one task alone, as [n - 1]; more tasks than it has
  // numbers get done as much as the last one says. Empty: no task slows another down.
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
  // The task that ends next, at next_end().
  int32_t end(double now) {
    const Running first = running_.top();
    advance(now);
    if (!throughput_.empty()) work_ = first.end;
    running_.pop();
    return first.task;
  }

 private:
  struct Running {
    double end;  // in work that each task under way has had done
    uint64_t number;
    int32_t task;
    bool operator<(const Running& other) const { return end != other.end ? end > other.end : number > other.number; }
  };

  // Of each task.
  double pace() const {
    const size_t n = running_.size();
    return throughput_[std::min(n, throughput_.size()) - 1] / static_cast<double>(n);
  }

  // Where nothing is shared, work is time.
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
