// train/execute/messages.h: the messages of a step while they are under way, as train/compile/message_plan.h plans
// them. Does not know what they carry.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "comm/request.h"
#include "train/compile/message_plan.h"

namespace gsel {

class Messages {
 public:
  // The call that the SEND or RECV at a position is.
  using CallOf = std::function<gsel_collective(size_t position)>;

  explicit Messages(Communicator& comm) : comm_(comm) {}

  // A step begins: the first receives are posted. Plan and memory stay until the next begin.
  void begin(const MessagePlan& plan, CallOf call_of);
  // At POST_VALIDATE: no message is under way but what has not left yet. The receives behind it are posted.
  void passed_post_validate();
  // At its position: sends, which may wait for an earlier one to leave.
  void send(size_t position);
  // At its position: until it is there; and, once it has been used, posts another.
  void wait_for(size_t position);
  void taken(size_t position);
  // Until all that was sent has left.
  void settle();
  // Of a step that is given up, once its communicator is broken: until nothing is under way.
  void drop() noexcept { requests_.clear(); }

 private:
  using Request = std::optional<CallRequest>;
  Request& slot(int32_t lane, int32_t number) { return requests_[lane][number % plan_->ahead()]; }
  void make_slots();
  void start(int32_t lane, int32_t number);
  void finish(Request& request);
  bool may_start(int32_t lane, size_t number) const;

  Communicator& comm_;
  const MessagePlan* plan_ = nullptr;
  CallOf call_of_;
  bool behind_post_validate_ = false;
  std::vector<std::vector<Request>> requests_;  // by lane, in turn
};

}  // namespace gsel
