// comm/group.cc: see communicator.h.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "comm/call/check.h"
#include "comm/call/collective.h"
#include "comm/communicator.h"
#include "comm/device/device_backend.h"

namespace gsel {
namespace {

// Calls of one communicator that the host backend makes, on host memory or staged from a device.
struct OfCommunicator {
  Communicator* communicator;
  std::vector<gsel_collective> calls;
  StagedCalls staged;
};

// The calls of a group: those that the host backend makes, by communicator, in the order in which communicators first
// appear; and those that transports of devices enqueue.
struct Group {
  std::vector<OfCommunicator> by_communicator;
  std::vector<DeviceBackend::Enqueued> enqueued;

  void add(Communicator& communicator, const gsel_collective& call) {
    auto found = std::ranges::find(by_communicator, &communicator, &OfCommunicator::communicator);
    if (found == by_communicator.end()) found = by_communicator.insert(found, {&communicator, {}, {}});
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

// Before any call is made.
void check_all(std::span<GroupCall> calls) {
  for_each_call(calls, [](Communicator& communicator, gsel_collective& call) {
    communicator.check(call);
    DeviceBackend* device = communicator.device();
    if (!device) return;
    device->check(call);
    device->stream_of(call);
  });
}

Group sorted(std::span<GroupCall> calls) {
  Group group;
  for (auto& [communicator, call] : calls) {
    DeviceBackend* device = communicator->device();
    if (device && device->supports(call))
      group.enqueued.push_back({device, call, device->stream_of(call)});
    else
      group.add(*communicator, call);
  }
  return group;
}

void stage(OfCommunicator& of) {
  DeviceBackend* device = of.communicator->device();
  if (!device) return;
  std::vector<ThroughHost::Call> calls;
  for (const gsel_collective& call : of.calls) calls.push_back({call, device->stream_of(call)});
  of.staged = device->stage(calls);
  of.calls = of.staged.calls;
}

// The number of leading calls, at least one, that can run at the same time: on a device, a collective whose buffers
// overlap the recv of an earlier one must come after it.
size_t independent(std::span<const GroupCall> calls) {
  struct Written {
    uintptr_t begin, end;
  };
  std::vector<Written> written;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto& [communicator, call] = calls[i];
    if (!communicator->device() || is_point_to_point(call.kind)) continue;
    const BufferBytes bytes = buffer_bytes(call, communicator->rank(), communicator->world_size());
    const auto from = reinterpret_cast<uintptr_t>(call.send), to = reinterpret_cast<uintptr_t>(call.recv);
    const auto overlaps = [](uintptr_t begin, uint64_t n) {
      return [begin, n](const Written& w) { return n > 0 && begin < w.end && w.begin < begin + n; };
    };
    if (std::ranges::any_of(written, overlaps(from, bytes.send)) ||
        std::ranges::any_of(written, overlaps(to, bytes.recv)))
      return i;
    if (bytes.recv > 0) written.push_back({to, to + bytes.recv});
  }
  return calls.size();
}

template <class Body>
void keep_first(std::optional<Error>& failure, Body&& body) {
  try {
    body();
  } catch (...) {
    if (!failure) failure = current_error();
  }
}

// Runs the calls of the first communicator on this thread, those of the others as requests. If one cannot be started,
// aborts the communicators whose calls are not under way, since other ranks may wait for them.
void run_all(const std::vector<OfCommunicator>& all) {
  std::optional<Error> failure;
  std::vector<std::unique_ptr<BackendRequest>> started;
  size_t next = 1;
  keep_first(failure, [&] {
    for (; next < all.size(); ++next) started.push_back(all[next].communicator->host().start(all[next].calls, true));
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

namespace {

void run_together(std::span<GroupCall> calls) {
  Group group = sorted(calls);
  if (!group.enqueued.empty()) DeviceBackend::enqueue(group.enqueued);
  if (group.by_communicator.empty()) return;
  for (OfCommunicator& of : group.by_communicator) stage(of);
  run_all(group.by_communicator);
  for (OfCommunicator& of : group.by_communicator)
    if (DeviceBackend* device = of.communicator->device()) device->fetch(std::move(of.staged));
}

}  // namespace

void run_group(std::span<GroupCall> calls) {
  check_all(calls);
  while (!calls.empty()) {
    const size_t n = independent(calls);
    run_together(calls.first(n));
    calls = calls.subspan(n);
  }
}

}  // namespace gsel
