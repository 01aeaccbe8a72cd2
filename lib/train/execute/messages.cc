// train/execute/messages.cc: see messages.h.
#include "train/execute/messages.h"

#include <utility>

namespace gsel {

void PostedMessages::begin(const MessagePlan& plan, CallOf call_of) {
  behind_post_validate_ = false;
  plan_ = &plan;
  call_of_ = std::move(call_of);
  make_slots();
  for (size_t lane = 0; lane < plan.lanes().size(); ++lane) {
    if (plan.lanes()[lane].sends || plan.is_buffered(static_cast<int32_t>(lane))) continue;
    for (int32_t i = 0; i < plan.ahead() && may_start(static_cast<int32_t>(lane), static_cast<size_t>(i)); ++i)
      start(static_cast<int32_t>(lane), i);
  }
}

bool PostedMessages::may_start(int32_t lane, size_t number) const {
  return number < (behind_post_validate_ ? plan_->lanes()[lane].positions.size() : plan_->before_post_validate(lane));
}

// All receives posted so far have been taken.
void PostedMessages::passed_post_validate() {
  if (std::exchange(behind_post_validate_, true)) return;
  for (int32_t lane = 0; lane < static_cast<int32_t>(requests_.size()); ++lane) {
    if (plan_->lanes()[lane].sends || plan_->is_buffered(lane)) continue;
    const auto taken = static_cast<int32_t>(plan_->before_post_validate(lane));
    for (int32_t i = taken; i < taken + plan_->ahead() && may_start(lane, static_cast<size_t>(i)); ++i) start(lane, i);
  }
}

// Empties the slots; allocates only if the plan's size has changed.
void PostedMessages::make_slots() {
  const auto ahead = static_cast<size_t>(plan_->ahead());
  if (requests_.size() != plan_->lanes().size() || (!requests_.empty() && requests_.front().size() != ahead)) {
    requests_.clear();
    for (size_t lane = 0; lane < plan_->lanes().size(); ++lane) requests_.emplace_back(ahead);
  }
  for (std::vector<Request>& lane : requests_)
    for (Request& request : lane) request.reset();
}

void PostedMessages::start(int32_t lane, int32_t number) {
  Request& request = slot(lane, number);
  request.emplace(comm_, call_of_(static_cast<size_t>(plan_->lanes()[lane].positions[number])));
  request->start();
}

void PostedMessages::finish(Request& request) {
  if (!request) return;
  request->wait();
  request.reset();
}

void PostedMessages::send(size_t position) {
  const int32_t lane = plan_->lane_of(position), number = plan_->number_of(position);
  if (plan_->is_buffered(lane)) return comm_.collective(call_of_(position));
  finish(slot(lane, number));  // the earlier message in this slot
  start(lane, number);
}

void PostedMessages::wait_for(size_t position) {
  const int32_t lane = plan_->lane_of(position);
  if (plan_->is_buffered(lane)) return comm_.collective(call_of_(position));
  finish(slot(lane, plan_->number_of(position)));
}

void PostedMessages::taken(size_t position) {
  const int32_t lane = plan_->lane_of(position), next = plan_->number_of(position) + plan_->ahead();
  if (plan_->is_buffered(lane)) return;
  if (may_start(lane, static_cast<size_t>(next))) start(lane, next);
}

void PostedMessages::settle() {
  for (size_t lane = 0; lane < requests_.size(); ++lane)
    if (plan_->lanes()[lane].sends)
      for (Request& request : requests_[lane]) finish(request);
}

// ---- on a device ------------------------------------------------------------------------------------------------

void StreamMessages::begin(const MessagePlan& plan, CallOf call_of) {
  plan_ = &plan;
  call_of_ = std::move(call_of);
  next_ = 0;
  last_.reset();
  first_of_lane_.clear();
  size_t n = 0;
  for (const MessageLane& lane : plan.lanes()) {
    first_of_lane_.push_back(n);
    n += lane.positions.size();
  }
  while (ended_.size() < n) ended_.emplace_back(device_);
}

void StreamMessages::launch_receives(size_t position) {
  for (; has_launches(position); ++next_) launch(static_cast<size_t>(plan_->launches()[next_].receive));
}

// After all that has been enqueued for computing, which wrote what is sent, or used the memory before.
void StreamMessages::launch(size_t position) {
  computed_.record_compute();
  device_->run(&gsel_device_v1::stream_wait_event, stream_.get(), computed_.get());
  comm_.collective(call_of_(position), stream_.get());
  last_ = index_of(position);
  ended_[*last_].record(stream_.get());
}

// What is computed next may write to the memory of the send `ahead` before this one.
void StreamMessages::send(size_t position) {
  launch(position);
  const int32_t earlier = plan_->number_of(position) - plan_->ahead();
  if (earlier >= 0) ended_[first_of_lane_[plan_->lane_of(position)] + static_cast<size_t>(earlier)].hold_compute();
}

// The stream has an order, so the last message is enough.
void StreamMessages::settle() {
  if (last_) ended_[*last_].hold_compute();
}

void StreamMessages::drop() noexcept {
  try {
    device_->run(&gsel_device_v1::stream_wait, stream_.get());
  } catch (...) {  // why its calls failed is known
  }
}

}  // namespace gsel
