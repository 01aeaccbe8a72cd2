// train/execute/messages.h: the messages of a step while they are under way, as planned by
// train/compile/message_plan.h. Does not know what they carry.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "comm/request.h"
#include "train/compile/message_plan.h"

namespace gsel {

class Messages {
 public:
  // The call for the SEND or RECV at a position.
  using CallOf = std::function<gsel_collective(size_t position)>;

  explicit Messages(Communicator& comm) : comm_(comm) {}

  // Begins a step and posts the first receives. Plan and memory must stay until the next begin.
  void begin(const MessagePlan& plan, CallOf call_of);
  // At POST_VALIDATE, when all receives so far have been taken: posts the receives after it.
  void passed_post_validate();
  // Starts the send at this position; waits for an earlier one first if its slot is in use.
  void send(size_t position);
  // wait_for: waits for the receive at this position. taken: its buffer was used; posts another receive.
  void wait_for(size_t position);
  void taken(size_t position);
  // Waits until all sends have ended.
  void settle();
  // Gives up a step: waits for all requests. The communicator must be broken.
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
