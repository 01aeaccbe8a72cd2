// program/simulate/exchanges.cc: see exchanges.h.
#include "program/simulate/exchanges.h"

#include <algorithm>

namespace gsel {

// ---- collectives ---------------------------------------------------------------------------------------------------

int32_t Meetings::arrive(int32_t place, const Activity& activity, int32_t post) {
  const auto group = static_cast<size_t>(activity.with);
  const size_t number = n_met_[static_cast<size_t>(place)][group]++;
  std::vector<int32_t>& of_group = of_group_[group];
  while (of_group.size() <= number) {
    of_group.push_back(static_cast<int32_t>(all_.size()));
    all_.emplace_back().missing = activities_.group_size[group];
  }
  const int32_t id = of_group[number];
  Meeting& m = all_[static_cast<size_t>(id)];
  m.members.push_back({place, post});
  m.time.wire = std::max(m.time.wire, activity.time.wire);
  m.time.work = std::max(m.time.work, activity.time.work);
  if (--m.missing > 0) return id;
  m.began = agenda_.now();
  if (m.time.wire > 0)
    agenda_.delay(m.time.wire, {SimulatedTask::Kind::meeting, id, 0});
  else
    begin_work(id);
  return id;
}

void Meetings::begin_work(int32_t id) {
  Meeting& m = all_[static_cast<size_t>(id)];
  if (m.time.work <= 0) return end(id);
  m.working = static_cast<int32_t>(m.members.size());
  for (const Meeting::Member& member : m.members)
    agenda_.work(member.place, m.time.work, {SimulatedTask::Kind::meeting_work, id, 0});
}

void Meetings::end(int32_t id) {
  Meeting& m = all_[static_cast<size_t>(id)];
  m.ended = agenda_.now();
  at_end_(m);
  m.members = {};
}

// ---- messages ------------------------------------------------------------------------------------------------------

MessageChannels::MessageChannels(const Activities& activities, Agenda& agenda, std::deque<int32_t>& awake)
    : activities_(activities), agenda_(agenda), awake_(awake), channels_(activities.channels.size()) {
  for (const std::vector<Activity>& all : activities.of_rank)
    for (const Activity& a : all)
      if (a.kind == Activity::Kind::receive) ++channels_[static_cast<size_t>(a.with)].per_step;
}

MessageChannels::Message& MessageChannels::message(int32_t channel, int64_t number) {
  Channel& l = channels_[static_cast<size_t>(channel)];
  while (l.first + static_cast<int64_t>(l.messages.size()) <= number) l.messages.emplace_back();
  return l.messages[static_cast<size_t>(number - l.first)];
}

void MessageChannels::begin_step(int32_t place) {
  for (size_t channel = 0; channel < channels_.size(); ++channel) {
    if (activities_.channels[channel].to != place) continue;
    Channel& l = channels_[channel];
    const int64_t most = std::min<int64_t>(activities_.channels[channel].ahead, l.per_step);
    while (l.n_posted < l.n_received + most) post_receive(static_cast<int32_t>(channel));
  }
}

bool MessageChannels::all_left(int32_t place) const {
  for (size_t channel = 0; channel < channels_.size(); ++channel) {
    const ActivityChannel& of = activities_.channels[channel];
    if (of.from != place || of.ahead == kUnboundedChannel) continue;
    for (const Message& m : channels_[channel].messages)
      if (m.sent >= 0 && m.arrived < 0) return false;
  }
  return true;
}

void MessageChannels::post_receive(int32_t channel) {
  const int64_t number = channels_[static_cast<size_t>(channel)].n_posted++;
  message(channel, number).posted = agenda_.now();
  begin(channel, number);
}

bool MessageChannels::send(const Activity& activity) {
  Channel& l = channels_[static_cast<size_t>(activity.with)];
  const int64_t before = l.n_sent - activities_.channels[static_cast<size_t>(activity.with)].ahead;
  if (before >= l.first && message(activity.with, before).arrived < 0) return false;
  const int64_t number = l.n_sent++;
  Message& m = message(activity.with, number);
  m.sent = agenda_.now();
  m.time = activity.time;
  begin(activity.with, number);
  return true;
}

bool MessageChannels::receive(const Activity& activity, int64_t steps, double& began) {
  Channel& l = channels_[static_cast<size_t>(activity.with)];
  const Message& m = message(activity.with, l.n_received);
  if (m.arrived < 0) return false;
  began = std::max(m.sent, m.posted);
  ++l.n_received;
  while (!l.messages.empty() && l.messages.front().arrived >= 0 && l.first < l.n_received) {
    l.messages.pop_front();
    ++l.first;
  }
  if (l.n_posted < steps * l.per_step) post_receive(activity.with);
  return true;
}

bool MessageChannels::can_begin(int32_t channel, int64_t number) {
  const Message& m = message(channel, number);
  const bool is_next =
      number == channels_[static_cast<size_t>(channel)].first || message(channel, number - 1).arrived >= 0;
  return m.sent >= 0 && m.posted >= 0 && !m.began && is_next;
}

// A message that takes no time arrives immediately, so the next one begins as well.
void MessageChannels::begin(int32_t channel, int64_t number) {
  for (; can_begin(channel, number); ++number) {
    Message& m = message(channel, number);
    m.began = true;
    if (m.time.wire > 0) return agenda_.delay(m.time.wire, {SimulatedTask::Kind::message, channel, number});
    if (m.time.work > 0) return begin_work(channel, number);
    arrive(channel, number);
  }
}

void MessageChannels::begin_work(int32_t channel, int64_t number) {
  agenda_.work(activities_.channels[static_cast<size_t>(channel)].to, message(channel, number).time.work,
               {SimulatedTask::Kind::message_work, channel, number});
}

void MessageChannels::arrive(int32_t channel, int64_t number) {
  message(channel, number).arrived = agenda_.now();
  awake_.push_back(activities_.channels[static_cast<size_t>(channel)].to);
  awake_.push_back(activities_.channels[static_cast<size_t>(channel)].from);
}

void MessageChannels::end_wire(int32_t channel, int64_t number) {
  if (message(channel, number).time.work > 0) return begin_work(channel, number);
  end_work(channel, number);
}

void MessageChannels::end_work(int32_t channel, int64_t number) {
  arrive(channel, number);
  begin(channel, number + 1);
}

}  // namespace gsel
