// comm/group.cc: see group.h.
#include "comm/group.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/current_error.h"
#include "comm/communicator.h"
#include "comm/device/device_backend.h"

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
  std::vector<DeviceBackend::Enqueued> enqueued;
  std::vector<DeviceBackend*> staging;

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
    if (DeviceBackend* link = communicator.device()) {
      link->check_memory(call);
      link->takes(call);
    }
  });
}

void sort(std::span<GroupCall> calls, Group& group) {
  for (auto& [communicator, call] : calls) {
    DeviceBackend* link = communicator->device();
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
  std::vector<std::unique_ptr<Pending>> started;
  size_t next = 1;
  keep_first(failure, [&] {
    for (; next < all.size(); ++next) started.push_back(all[next].communicator->host().start(all[next].calls));
  });
  const std::optional<Error> not_started = failure;
  if (not_started) {
    for (size_t i = next; i < all.size(); ++i) all[i].communicator->abort(not_started->what());
    all.front().communicator->abort(not_started->what());
  } else {
    keep_first(failure, [&] { all.front().communicator->host().group(all.front().calls); });
  }
  for (const auto& calls : started) keep_first(failure, [&] { calls->wait(-1); });
  if (failure) throw Error(*failure);
}

}  // namespace

void run_group(std::span<GroupCall> calls) {
  check_all(calls);
  Group group;
  try {
    sort(calls, group);
    if (!group.enqueued.empty()) DeviceBackend::enqueue(group.enqueued);
    if (!group.parts.empty()) run_all(group.parts);
  } catch (...) {
    for (DeviceBackend* link : group.staging) link->drop();
    throw;
  }
  for (DeviceBackend* link : group.staging) link->fetch();
}

}  // namespace gsel
