// program/simulate/message_channels.h: messages in a simulation. A message starts when it has been sent, its receive
// has been posted, and the message before it has arrived; the number under way is bounded. Does not know why ranks
// send.
#pragma once

#include <deque>
#include <vector>

#include "program/simulate/activities.h"
#include "program/simulate/agenda.h"

namespace gsel {

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
    double sent = -1, asked = -1, arrived = -1;  // -1: not yet
    bool began = false;
    ExchangeTime time{};
  };
  struct Channel {
    std::deque<Message> messages;
    int64_t first = 0;  // number of messages.front()
    int64_t n_sent = 0, n_received = 0, n_asked = 0;
    int64_t per_step = 0;
  };

  Message& message(int32_t channel, int64_t number);
  void ask(int32_t channel);
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
