// program/simulate/message_lanes.h: messages in a simulation. Each goes from its sender to its receiver behind the one
// before it, once it is sent and asked for; a bounded number is under way. Does not know why ranks send.
#pragma once

#include <deque>
#include <vector>

#include "program/simulate/activities.h"
#include "program/simulate/agenda.h"

namespace gsel {

class MessageLanes {
 public:
  // awake: takes the places of ranks for which something has changed.
  MessageLanes(const Activities& activities, Agenda& agenda, std::deque<int32_t>& awake);

  // Asks for the first messages of a rank's step.
  void begin_step(int32_t place);
  // Whether it could, which is once the one so many before it has left.
  bool send(const Activity& activity);
  // Whether it is there; then another one is asked for in its place, of those in the first `steps` steps. began: since
  // when it could be on its way.
  bool receive(const Activity& activity, int64_t steps, double& began);
  // Whether all that a rank has sent has left.
  bool all_left(int32_t place) const;

  void end_wire(int32_t lane, int64_t number);
  void end_work(int32_t lane, int64_t number);

 private:
  struct Message {
    double sent = -1, asked = -1, arrived = -1;  // -1: not yet
    bool began = false;
    ExchangeTime time{};
  };
  struct Lane {
    std::deque<Message> messages;
    int64_t first = 0;  // number of messages.front()
    int64_t n_sent = 0, n_received = 0, n_asked = 0;
    int64_t per_step = 0;
  };

  Message& message(int32_t lane, int64_t number);
  void ask(int32_t lane);
  bool can_begin(int32_t lane, int64_t number);
  void begin(int32_t lane, int64_t number);
  void begin_work(int32_t lane, int64_t number);
  void arrive(int32_t lane, int64_t number);

  const Activities& activities_;
  Agenda& agenda_;
  std::deque<int32_t>& awake_;
  std::vector<Lane> lanes_;
};

}  // namespace gsel
