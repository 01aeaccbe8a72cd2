// train/compile/message_plan.h: plans when each message of a step starts and when it must have ended. A receive is
// posted before its instruction; a send may end after its instruction. At most Program::transfers messages are under
// way from one rank to another. Messages that fit the communicator's own buffers are instead sent and received by their
// instructions. A receive after POST_VALIDATE is not posted before it, so no message is under way when a step starts
// over. On a device a rank launches all its calls in the order of Program::launch_times, each receive before the first
// instruction that comes later in that order. Does not know memory and communicators.
#pragma once

#include <vector>

#include "program/program.h"

namespace gsel {

// The messages between this rank and a peer in one direction, as ascending positions in the step. A micro-batch without
// samples has no messages.
struct MessageChannel {
  int32_t peer = 0;
  bool sends = false;
  std::vector<int32_t> positions;
  int64_t most_bytes = 0;  // largest message
};

class MessagePlan {
 public:
  explicit MessagePlan(const Program& program);

  const std::vector<MessageChannel>& channels() const { return channels_; }
  int32_t ahead() const { return ahead_; }  // most messages under way per channel
  bool is_buffered(int32_t channel) const;  // the communicator's buffers hold all messages under way

  size_t n_positions() const { return messages_.size(); }
  // Channel of the SEND or RECV at a position, and its index in the channel; -1 if it transfers nothing.
  int32_t channel_of(size_t position) const { return messages_[position].channel; }
  int32_t number_of(size_t position) const { return messages_[position].number; }
  // The first and last position at which the communicator uses the buffer of a SEND or RECV; else `position`.
  int32_t first(size_t position) const;
  int32_t last(size_t position) const;
  // On a device: the receives in the order of launching, each with the position of the instruction before which, or at
  // which, it is launched.
  struct Launch {
    int32_t receive, at;
  };
  const std::vector<Launch>& launches() const { return launches_; }
  // How many receives of a channel may be posted before POST_VALIDATE; all if the program has none.
  size_t before_post_validate(int32_t channel) const { return before_post_validate_[channel]; }

 private:
  struct Message {
    int32_t channel = -1, number = -1;
    int32_t launched_at = -1;  // of a receive on a device
  };
  int32_t channel_to(int32_t peer, bool sends);
  void order_launches(const Program& program);

  std::vector<MessageChannel> channels_;
  std::vector<Message> messages_;  // by position
  int32_t ahead_;
  int32_t settled_at_;     // the position where all sends have ended: the data axis's LOSS_ALLREDUCE, else the end
  int32_t post_validate_;  // position, or -1
  std::vector<size_t> before_post_validate_;  // by channel
  const bool on_device_;
  std::vector<Launch> launches_;
};

}  // namespace gsel
