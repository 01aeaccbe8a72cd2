// train/compile/message_plan.h: when each message of a step is started and when it must have ended, known before the
// run. A receive is posted ahead of the instruction that takes it, a send ends after its instruction. At most
// Program::transfers messages are under way from one rank to another. Messages that fit the communicator's own buffers
// are instead sent and received where their instructions stand. A receive behind POST_VALIDATE is not posted before it,
// so that no message is under way when a step begins again. Does not know memory and communicators.
#pragma once

#include <vector>

#include "program/program.h"

namespace gsel {

// Messages of an ordered pair of ranks, this one and a peer, by their positions in the step, in order. Those of a
// micro-batch without samples are not among them: nothing is sent for it.
struct MessageLane {
  int32_t peer = 0;
  bool sends = false;
  std::vector<int32_t> positions;
  int64_t most_bytes = 0;  // of one
};

class MessagePlan {
 public:
  explicit MessagePlan(const Program& program);

  const std::vector<MessageLane>& lanes() const { return lanes_; }
  int32_t ahead() const { return ahead_; }  // under way at most, in each lane
  bool is_buffered(int32_t lane) const;     // as many of them are in the communicator's buffers

  // Lane of the SEND or RECV at a position, and its number in it; -1 where nothing is sent.
  int32_t lane_of(size_t position) const { return messages_[position].lane; }
  int32_t number_of(size_t position) const { return messages_[position].number; }
  // Of a SEND or RECV that has a lane: positions between which its buffer is lent to the communicator, both included.
  int32_t first(size_t position) const;
  int32_t last(size_t position) const;
  // Where all sends have ended: at the data axis's LOSS_ALLREDUCE, else at the end.
  int32_t settled_at() const { return settled_at_; }
  // Of a lane's receives, those that may be posted before POST_VALIDATE: all where there is none.
  size_t before_post_validate(int32_t lane) const { return before_post_validate_[lane]; }

 private:
  struct Message {
    int32_t lane = -1, number = -1;
  };
  int32_t lane_to(int32_t peer, bool sends);

  std::vector<MessageLane> lanes_;
  std::vector<Message> messages_;  // by position
  int32_t ahead_;
  int32_t settled_at_;
  int32_t post_validate_;                     // its position, or -1
  std::vector<size_t> before_post_validate_;  // by lane
};

}  // namespace gsel
