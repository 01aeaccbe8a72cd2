// program/simulate/exchanges.h: how ranks wait for each other in a simulation. A collective begins when all ranks of
// its group have arrived, and ends for all at the same time; the calls of a group are made in order. A message starts
// when it has been sent, its receive has been posted, and the message before it has arrived; the number under way is
// bounded. Does not know why ranks communicate.
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
  int32_t arrive(int32_t place, const Activity& activity, int32_t post);
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

class MessageChannels {
 public:
  // awake: receives the places of ranks that may be able to go on.
  MessageChannels(const Activities& activities, Agenda& agenda, std::deque<int32_t>& awake);

  // Posts the first receives of a rank's step.
  void begin_step(int32_t place);
  // Sends if the message `ahead` before it has arrived; else returns false.
  bool send(const Activity& activity);
  // Takes the next message if it has arrived, and posts another receive within the first `steps` steps; else returns
  // false. began: when the transfer could start.
  bool receive(const Activity& activity, int64_t steps, double& began);
  // Whether all messages that a rank sent have arrived.
  bool all_left(int32_t place) const;

  void end_wire(int32_t channel, int64_t number);
  void end_work(int32_t channel, int64_t number);

 private:
  struct Message {
    double sent = -1, posted = -1, arrived = -1;  // -1: not yet
    bool began = false;
    ExchangeTime time{};
  };
  struct Channel {
    std::deque<Message> messages;
    int64_t first = 0;  // number of messages.front()
    int64_t n_sent = 0, n_received = 0, n_posted = 0;
    int64_t per_step = 0;
  };

  Message& message(int32_t channel, int64_t number);
  void post_receive(int32_t channel);
  bool can_begin(int32_t channel, int64_t number);
  void begin(int32_t channel, int64_t number);
  void begin_work(int32_t channel, int64_t number);
  void arrive(int32_t channel, int64_t number);

  const Activities& activities_;
  Agenda& agenda_;
  std::deque<int32_t>& awake_;
  std::vector<Channel> channels_;
};

}  // namespace gsel
