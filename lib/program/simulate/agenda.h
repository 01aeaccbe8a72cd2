// program/simulate/agenda.h: the event queue of a simulation: work on processors, and delays that need no processor.
// Does not know what they are for.
#pragma once

#include <vector>

#include "program/simulate/processors.h"
#include "program/simulate/simulate_job.h"

namespace gsel {

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
