// train/messages.cc: see messages.h.
#include "train/messages.h"

namespace gsel {

void Messages::begin(const MessagePlan& plan, CallOf call_of) {
  requests_.clear();
  plan_ = &plan;
  call_of_ = std::move(call_of);
  for (size_t lane = 0; lane < plan.lanes().size(); ++lane) requests_.emplace_back(plan.ahead());
  for (size_t lane = 0; lane < plan.lanes().size(); ++lane) {
    if (plan.lanes()[lane].sends || plan.is_buffered(static_cast<int32_t>(lane))) continue;
    const auto posted = std::min<size_t>(plan.ahead(), plan.lanes()[lane].positions.size());
    for (size_t i = 0; i < posted; ++i) start(static_cast<int32_t>(lane), static_cast<int32_t>(i));
  }
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
  finish(slot(lane, number));  // of the one that had its place
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
  if (static_cast<size_t>(next) < plan_->lanes()[lane].positions.size()) start(lane, next);
}

void Messages::settle() {
  for (size_t lane = 0; lane < requests_.size(); ++lane)
    if (plan_->lanes()[lane].sends)
      for (Request& request : requests_[lane]) finish(request);
}

}  // namespace gsel
