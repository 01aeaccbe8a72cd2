// comm/group.cc: see group.h.
#include "comm/group.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "base/current_error.h"
#include "comm/communicator.h"
#include "comm/on_device/device_link.h"

namespace gsel {
namespace {

struct Part {
  Communicator* communicator;
  std::vector<gsel_collective> calls;
};

// The calls of a group: what the control links make, by communicator, in the order these are first named; what
// transports of devices enqueue; and the links whose calls go through host memory.
struct Group {
  std::vector<Part> parts;
  std::vector<DeviceLink::Enqueued> enqueued;
  std::vector<DeviceLink*> staging;

  void add(Communicator& communicator, const gsel_collective& call) {
    auto found = std::ranges::find(parts, &communicator, &Part::communicator);
    if (found == parts.end()) found = parts.insert(found, {&communicator, {}});
    found->calls.push_back(call);
  }
};

template <class Body>
void for_each_call(std::span<GroupCall> calls, Body&& body) {
  for (size_t i = 0; i < calls.size(); ++i) {
    try {
      body(*calls[i].communicator, calls[i].call);
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("call {} of a group of {}: {}", i, calls.size(), e.message()));
    }
  }
}

// Nothing has happened where a call is wrong.
void check_all(std::span<GroupCall> calls) {
  for_each_call(calls, [](Communicator& communicator, gsel_collective& call) {
    communicator.check(call);
    if (DeviceLink* link = communicator.device_link()) {
      link->check_memory(call);
      link->takes(call);
    }
  });
}

void sort(std::span<GroupCall> calls, Group& group) {
  for (auto& [communicator, call] : calls) {
    DeviceLink* link = communicator->device_link();
    if (!link) {
      group.add(*communicator, call);
    } else if (link->takes(call)) {
      group.enqueued.push_back({link, call});
    } else {
      if (std::ranges::find(group.staging, link) == group.staging.end()) group.staging.push_back(link);
      group.add(*communicator, link->stage(call));
    }
  }
}

template <class Body>
void keep_first(std::optional<Error>& failure, Body&& body) {
  try {
    body();
  } catch (...) {
    if (!failure) failure = current_error();
  }
}

// The first on this thread, the others on theirs. Where one cannot be started, those that are not under way yet are
// aborted: the ones that are would wait for them.
void run_all(const std::vector<Part>& all) {
  std::optional<Error> failure;
  std::deque<Works> works;
  size_t next = 1;
  keep_first(failure, [&] {
    for (; next < all.size(); ++next) works.emplace_back(*all[next].communicator, all[next].calls);
  });
  const std::optional<Error> not_started = failure;
  if (not_started) {
    for (size_t i = next; i < all.size(); ++i) all[i].communicator->abort(not_started->what());
    all.front().communicator->abort(not_started->what());
  } else {
    keep_first(failure, [&] { all.front().communicator->group(all.front().calls); });
  }
  for (Works& work : works) keep_first(failure, [&] { work.wait(-1); });
  if (failure) throw Error(*failure);
}

}  // namespace

void run_group(std::span<GroupCall> calls) {
  check_all(calls);
  Group group;
  try {
    sort(calls, group);
    if (!group.enqueued.empty()) DeviceLink::enqueue(group.enqueued);
    if (!group.parts.empty()) run_all(group.parts);
  } catch (...) {
    for (DeviceLink* link : group.staging) link->drop();
    throw;
  }
  for (DeviceLink* link : group.staging) link->fetch();
}

}  // namespace gsel
