// train/execute/messages.h: the messages of a step while they are under way, as planned by
// train/compile/message_plan.h. Does not know what they carry.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/request.h"
#include "device/device.h"
#include "train/compile/message_plan.h"

namespace gsel {

class Messages {
 public:
  // The call for the SEND or RECV at a position.
  using CallOf = std::function<gsel_collective(size_t position)>;

  virtual ~Messages() = default;

  // Begins a step. Plan and memory must stay until the next begin.
  virtual void begin(const MessagePlan& plan, CallOf call_of) = 0;
  // Before the instruction at a position: whether receives are to be launched; launches them.
  virtual bool has_launches(size_t) const { return false; }
  virtual void launch_receives(size_t) {}
  // At POST_VALIDATE, when all receives so far have been taken: the receives after it may start.
  virtual void passed_post_validate() {}
  // Starts the send at this position; waits for an earlier one first if its slot is in use.
  virtual void send(size_t position) = 0;
  // wait_for: waits for the receive at this position. taken: its buffer was used.
  virtual void wait_for(size_t position) = 0;
  virtual void taken(size_t) {}
  // Waits until all sends have ended.
  virtual void settle() = 0;
  // Gives up a step: waits for all that is under way, but for what is on a stream of a device. The communicator must be
  // broken.
  virtual void drop() noexcept {}
  // Of a device; nullptr: messages have none.
  virtual gsel_stream* stream() const { return nullptr; }
};

// Receives that are posted ahead, as requests, whose end the caller waits for.
class PostedMessages : public Messages {
 public:
  explicit PostedMessages(Communicator& comm) : comm_(comm) {}

  void begin(const MessagePlan& plan, CallOf call_of) override;
  void passed_post_validate() override;
  void send(size_t position) override;
  void wait_for(size_t position) override;
  void taken(size_t position) override;
  void settle() override;
  void drop() noexcept override { requests_.clear(); }

 private:
  using Request = std::optional<CallRequest>;
  Request& slot(int32_t channel, int32_t number) { return requests_[channel][number % plan_->ahead()]; }
  void make_slots();
  void start(int32_t channel, int32_t number);
  void finish(Request& request);
  bool may_start(int32_t channel, size_t number) const;

  Communicator& comm_;
  const MessagePlan* plan_ = nullptr;
  CallOf call_of_;
  bool behind_post_validate_ = false;
  std::vector<std::vector<Request>> requests_;  // by channel, in turn
};

// Messages on a stream of a device, launched in the plan's order. Receives that are launched before a send, and sends
// that follow one another, are one group, whose messages go on beside each other. Only the compute stream waits for
// them.
class StreamMessages : public Messages {
 public:
  StreamMessages(Communicator& comm, const std::shared_ptr<DeviceContext>& device)
      : comm_(comm), device_(device), stream_(device), computed_(device) {}

  void begin(const MessagePlan& plan, CallOf call_of) override;
  bool has_launches(size_t position) const override {
    return next_ < plan_->launches().size() && plan_->launches()[next_].at <= static_cast<int32_t>(position);
  }
  void launch_receives(size_t position) override;
  void send(size_t position) override;
  void wait_for(size_t position) override { ended_[index_of(position)].hold_compute(); }
  void settle() override;
  gsel_stream* stream() const override { return stream_.get(); }

 private:
  // Among all messages of the step.
  size_t index_of(size_t position) const {
    return first_of_channel_[plan_->channel_of(position)] + plan_->number_of(position);
  }
  void launch(std::span<const size_t> positions);
  void add_receives(size_t position);
  bool sends_at(size_t position) const {
    const int32_t channel = position < plan_->n_positions() ? plan_->channel_of(position) : -1;
    return channel >= 0 && plan_->channels()[static_cast<size_t>(channel)].sends;
  }

  Communicator& comm_;
  const std::shared_ptr<DeviceContext> device_;
  Stream stream_;
  Event computed_;
  const MessagePlan* plan_ = nullptr;
  CallOf call_of_;
  std::vector<size_t> first_of_channel_;
  std::vector<Event> ended_;   // by message
  size_t next_ = 0;            // of the plan's launches
  std::vector<size_t> group_;  // positions that are launched together
  std::vector<gsel_collective> calls_;
  size_t sent_ = 0;             // sends before this position are launched
  std::optional<size_t> last_;  // message that was launched
};

}  // namespace gsel
