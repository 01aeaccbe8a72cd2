// program/simulate/meetings.h: collectives in a simulation: each begins when all ranks of its group have arrived, and
// ends for all at the same time. The calls of a group meet in order. Does not know why ranks come.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "program/simulate/activities.h"
#include "program/simulate/agenda.h"

namespace gsel {

struct Meeting {
  int32_t missing = 0, working = 0;  // ranks
  double began = -1, ended = -1;     // -1: not yet
  ExchangeTime time{};               // maximum over the ranks
  struct Member {
    int32_t place, post;  // index on the rank's communication stream, or -1
  };
  std::vector<Member> members;
};

class Meetings {
 public:
  // at_end: called when a meeting ends.
  Meetings(const Activities& activities, Agenda& agenda, std::function<void(const Meeting&)> at_end)
      : activities_(activities),
        agenda_(agenda),
        at_end_(std::move(at_end)),
        of_group_(activities.group_size.size()),
        n_met_(activities.of_rank.size(), std::vector<size_t>(activities.group_size.size())) {}

  // A rank arrives at its group's next meeting. Returns the meeting's id.
  int32_t come(int32_t place, const Activity& activity, int32_t post);
  const Meeting& operator[](int32_t id) const { return all_[static_cast<size_t>(id)]; }

  void end_wire(int32_t id) { begin_work(id); }
  void end_work(int32_t id) {
    if (--all_[static_cast<size_t>(id)].working == 0) end(id);
  }

 private:
  void begin_work(int32_t id);
  void end(int32_t id);

  const Activities& activities_;
  Agenda& agenda_;
  const std::function<void(const Meeting&)> at_end_;
  std::deque<Meeting> all_;
  std::vector<std::vector<int32_t>> of_group_;  // in order
  std::vector<std::vector<size_t>> n_met_;      // by place and group
};

}  // namespace gsel
