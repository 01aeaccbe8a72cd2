// program/simulate/meetings.cc: see meetings.h.
#include "program/simulate/meetings.h"

#include <algorithm>

namespace gsel {

int32_t Meetings::come(int32_t place, const Activity& activity, int32_t post) {
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

}  // namespace gsel
