// train/execute/messages.cc: see messages.h.
#include "train/execute/messages.h"

#include <utility>

namespace gsel {

void Messages::begin(const MessagePlan& plan, CallOf call_of) {
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

bool Messages::may_start(int32_t lane, size_t number) const {
  return number < (behind_post_validate_ ? plan_->lanes()[lane].positions.size() : plan_->before_post_validate(lane));
}

// All receives posted so far have been taken.
void Messages::passed_post_validate() {
  if (std::exchange(behind_post_validate_, true)) return;
  for (int32_t lane = 0; lane < static_cast<int32_t>(requests_.size()); ++lane) {
    if (plan_->lanes()[lane].sends || plan_->is_buffered(lane)) continue;
    const auto taken = static_cast<int32_t>(plan_->before_post_validate(lane));
    for (int32_t i = taken; i < taken + plan_->ahead() && may_start(lane, static_cast<size_t>(i)); ++i) start(lane, i);
  }
}

// Empties the slots; allocates only if the plan's size has changed.
void Messages::make_slots() {
  const auto ahead = static_cast<size_t>(plan_->ahead());
  if (requests_.size() != plan_->lanes().size() || (!requests_.empty() && requests_.front().size() != ahead)) {
    requests_.clear();
    for (size_t lane = 0; lane < plan_->lanes().size(); ++lane) requests_.emplace_back(ahead);
  }
  for (std::vector<Request>& lane : requests_)
    for (Request& request : lane) request.reset();
}

void Messages::start(int32_t lane, int32_t number) {
  Request& request = slot(lane, number);
  request.emplace(comm_, call_of_(static_cast<size_t>(plan_->lanes()[lane].positions[number])));
  request->start();
}

void Messages::finish(Request& request) {
  if (!request) return;
  request->wait();
  request.reset();
}

void Messages::send(size_t position) {
  const int32_t lane = plan_->lane_of(position), number = plan_->number_of(position);
  if (plan_->is_buffered(lane)) return comm_.collective(call_of_(position));
  finish(slot(lane, number));  // the earlier message in this slot
  start(lane, number);
}

void Messages::wait_for(size_t position) {
  const int32_t lane = plan_->lane_of(position);
  if (plan_->is_buffered(lane)) return comm_.collective(call_of_(position));
  finish(slot(lane, plan_->number_of(position)));
}

void Messages::taken(size_t position) {
  const int32_t lane = plan_->lane_of(position), next = plan_->number_of(position) + plan_->ahead();
  if (plan_->is_buffered(lane)) return;
  if (may_start(lane, static_cast<size_t>(next))) start(lane, next);
}

void Messages::settle() {
  for (size_t lane = 0; lane < requests_.size(); ++lane)
    if (plan_->lanes()[lane].sends)
      for (Request& request : requests_[lane]) finish(request);
}

}  // namespace gsel
