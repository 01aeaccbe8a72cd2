// program/simulate/agenda.h: the event queue of a simulation: work on processors, and delays that need no processor.
// Tasks that share a processor run at the same pace, which falls with their number. Does not know what tasks are for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "program/simulate/simulate_job.h"

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

struct SimulatedTask {
  enum class Kind : uint8_t { compute, wake, meeting, meeting_work, message, message_work } kind;
  int32_t of = 0;      // rank, meeting or channel
  int64_t number = 0;  // of the message
};

class Agenda {
 public:
  explicit Agenda(const Hosts& hosts) : hosts_(hosts), delays_({}) {
    int32_t n = 1;
    for (int32_t host : hosts.of_program) n = std::max(n, host + 1);
    for (int32_t i = 0; i < n; ++i)
      processors_.emplace_back(hosts.of_program.empty() ? std::vector<double>{} : hosts.throughput);
  }

  double now() const { return now_; }
  void delay(double seconds, SimulatedTask task) { delays_.begin(now_, seconds, keep(task)); }
  // place: index of the rank's program in the job.
  void work(int32_t place, double seconds, SimulatedTask task) {
    const int32_t host = hosts_.of_program.empty() ? 0 : hosts_.of_program[static_cast<size_t>(place)];
    processors_[static_cast<size_t>(host)].begin(now_, seconds, keep(task));
  }

  // Advances to the next task that ends; false when none is under way.
  bool next(SimulatedTask& ended) {
    Processors* first = &delays_;
    double at = delays_.next_end();
    for (Processors& p : processors_)
      if (const double end = p.next_end(); end < at) {
        at = end;
        first = &p;
      }
    if (at == Processors::kNever) return false;
    now_ = at;
    const int32_t id = first->end(now_);
    ended = tasks_[static_cast<size_t>(id)];
    free_.push_back(id);
    return true;
  }

 private:
  int32_t keep(SimulatedTask task) {
    if (free_.empty()) {
      tasks_.push_back(task);
      return static_cast<int32_t>(tasks_.size()) - 1;
    }
    const int32_t id = free_.back();
    free_.pop_back();
    tasks_[static_cast<size_t>(id)] = task;
    return id;
  }

  const Hosts& hosts_;
  double now_ = 0;
  Processors delays_;
  std::vector<Processors> processors_;  // by host
  std::vector<SimulatedTask> tasks_;
  std::vector<int32_t> free_;  // unused entries of tasks_
};

}  // namespace gsel
