// program/simulate/message_lanes.cc: see message_lanes.h.
#include "program/simulate/message_lanes.h"

#include <algorithm>

namespace gsel {

MessageLanes::MessageLanes(const Activities& activities, Agenda& agenda, std::deque<int32_t>& awake)
    : activities_(activities), agenda_(agenda), awake_(awake), lanes_(activities.lanes.size()) {
  for (const std::vector<Activity>& all : activities.of_rank)
    for (const Activity& a : all)
      if (a.kind == Activity::Kind::receive) ++lanes_[static_cast<size_t>(a.with)].per_step;
}

MessageLanes::Message& MessageLanes::message(int32_t lane, int64_t number) {
  Lane& l = lanes_[static_cast<size_t>(lane)];
  while (l.first + static_cast<int64_t>(l.messages.size()) <= number) l.messages.emplace_back();
  return l.messages[static_cast<size_t>(number - l.first)];
}

void MessageLanes::begin_step(int32_t place) {
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (activities_.lanes[lane].to != place) continue;
    Lane& l = lanes_[lane];
    const int64_t most = std::min<int64_t>(activities_.lanes[lane].ahead, l.per_step);
    while (l.n_asked < l.n_received + most) ask(static_cast<int32_t>(lane));
  }
}

bool MessageLanes::all_left(int32_t place) const {
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    const ActivityLane& of = activities_.lanes[lane];
    if (of.from != place || of.ahead == kUnboundedLane) continue;
    for (const Message& m : lanes_[lane].messages)
      if (m.sent >= 0 && m.arrived < 0) return false;
  }
  return true;
}

void MessageLanes::ask(int32_t lane) {
  const int64_t number = lanes_[static_cast<size_t>(lane)].n_asked++;
  message(lane, number).asked = agenda_.now();
  begin(lane, number);
}

bool MessageLanes::send(const Activity& activity) {
  Lane& l = lanes_[static_cast<size_t>(activity.with)];
  const int64_t before = l.n_sent - activities_.lanes[static_cast<size_t>(activity.with)].ahead;
  if (before >= l.first && message(activity.with, before).arrived < 0) return false;
  const int64_t number = l.n_sent++;
  Message& m = message(activity.with, number);
  m.sent = agenda_.now();
  m.time = activity.time;
  begin(activity.with, number);
  return true;
}

bool MessageLanes::receive(const Activity& activity, int64_t steps, double& began) {
  Lane& l = lanes_[static_cast<size_t>(activity.with)];
  const Message& m = message(activity.with, l.n_received);
  if (m.arrived < 0) return false;
  began = std::max(m.sent, m.asked);
  ++l.n_received;
  while (!l.messages.empty() && l.messages.front().arrived >= 0 && l.first < l.n_received) {
    l.messages.pop_front();
    ++l.first;
  }
  if (l.n_asked < steps * l.per_step) ask(activity.with);
  return true;
}

bool MessageLanes::can_begin(int32_t lane, int64_t number) {
  const Message& m = message(lane, number);
  const bool is_next = number == lanes_[static_cast<size_t>(lane)].first || message(lane, number - 1).arrived >= 0;
  return m.sent >= 0 && m.asked >= 0 && !m.began && is_next;
}

// A message that takes no time arrives immediately, so the next one begins as well.
void MessageLanes::begin(int32_t lane, int64_t number) {
  for (; can_begin(lane, number); ++number) {
    Message& m = message(lane, number);
    m.began = true;
    if (m.time.wire > 0) return agenda_.delay(m.time.wire, {SimulatedTask::Kind::message, lane, number});
    if (m.time.work > 0) return begin_work(lane, number);
    arrive(lane, number);
  }
}

void MessageLanes::begin_work(int32_t lane, int64_t number) {
  agenda_.work(activities_.lanes[static_cast<size_t>(lane)].to, message(lane, number).time.work,
               {SimulatedTask::Kind::message_work, lane, number});
}

void MessageLanes::arrive(int32_t lane, int64_t number) {
  message(lane, number).arrived = agenda_.now();
  awake_.push_back(activities_.lanes[static_cast<size_t>(lane)].to);
  awake_.push_back(activities_.lanes[static_cast<size_t>(lane)].from);
}

void MessageLanes::end_wire(int32_t lane, int64_t number) {
  if (message(lane, number).time.work > 0) return begin_work(lane, number);
  end_work(lane, number);
}

void MessageLanes::end_work(int32_t lane, int64_t number) {
  arrive(lane, number);
  begin(lane, number + 1);
}

}  // namespace gsel
