// comm/device/through_host.cc: see through_host.h.
#include "comm/device/through_host.h"

#include <unistd.h>

#include <algorithm>

#include "base/align.h"
#include "base/os.h"
#include "comm/call/check.h"
#include "comm/call/collective.h"

namespace gsel {
namespace {

constexpr int64_t kCopyPatienceNs = 5'000'000'000;
constexpr useconds_t kLookUs = 20;

// Offsets of send and recv of a call in host memory: with the same distance as on the device if they overlap, else one
// after the other.
struct Places {
  uint64_t send = 0, recv = 0, bytes = 0;
};

Places places_of(const gsel_collective& call, const BufferBytes& bytes) {
  const auto send = reinterpret_cast<uintptr_t>(call.send), recv = reinterpret_cast<uintptr_t>(call.recv);
  const bool in_place = bytes.send > 0 && bytes.recv > 0 && send < recv + bytes.recv && recv < send + bytes.send;
  if (!in_place) {
    const uint64_t behind = round_up(bytes.send, kTensorAlign);
    return {0, behind, behind + bytes.recv};
  }
  const uintptr_t begin = std::min(send, recv);
  return {send - begin, recv - begin, std::max(send + bytes.send, recv + bytes.recv) - begin};
}

// Whether a call may leave parts of recv unchanged.
bool keeps_parts(gsel_collective_kind kind) {
  return row_of(kind).counted() || row_of(kind).receives;
}

}  // namespace

// Copies that do not end, such as those behind work that nobody has aborted, keep their memory.
ThroughHost::~ThroughHost() {
  const int64_t end = os::now_ns() + kCopyPatienceNs;
  for (Spare& spare : spare_)
    if (!ends(spare.idle, end)) spare.memory.leave();
}

bool ThroughHost::ends(Event& event, int64_t latest_ns) const noexcept {
  try {
    for (int32_t done = 0;; usleep(kLookUs)) {
      device_->run(&gsel_device_v1::event_done, event.get(), &done);
      if (done || os::now_ns() >= latest_ns) return done != 0;
    }
  } catch (...) {  // the device has failed, and its copies with it
    return true;
  }
}

// The results' memory is free once the copies enqueued so far have ended.
void ThroughHost::keep(StagedCalls& staged) {
  for (StagedCalls::Result& result : staged.results) {
    if (result.memory.bytes() == 0) continue;
    std::list<Spare> one;
    one.push_back({Memory(), Event(device_)});
    one.front().idle.record(result.stream.get());
    one.front().memory = std::move(result.memory);
    const std::lock_guard lock(mutex_);
    spare_.splice(spare_.end(), one);
  }
}

void ThroughHost::keep_after_failure(StagedCalls& staged) noexcept {
  try {
    keep(staged);
  } catch (...) {  // what copies may use stays
    for (StagedCalls::Result& result : staged.results) result.memory.leave();
  }
}

// Takes the smallest spare memory that is large enough; else replaces one by a larger.
Memory ThroughHost::take_memory(uint64_t bytes, const gsel_collective& call) {
  std::list<Spare> taken;
  {
    const std::lock_guard lock(mutex_);
    auto best = spare_.end();
    for (auto at = spare_.begin(); at != spare_.end(); ++at)
      if (at->memory.bytes() >= bytes && (best == spare_.end() || at->memory.bytes() < best->memory.bytes())) best = at;
    if (best == spare_.end()) best = spare_.begin();
    if (best != spare_.end()) taken.splice(taken.end(), spare_, best);
  }
  if (taken.empty()) return Memory(device_, bytes, GSEL_MEMORY_PINNED);
  try {
    wait_(taken.front().idle, call);
  } catch (...) {  // copies may still use it
    const std::lock_guard lock(mutex_);
    spare_.splice(spare_.end(), taken);
    throw;
  }
  Memory memory = std::move(taken.front().memory);
  if (memory.bytes() >= bytes) return memory;
  memory = {};
  return Memory(device_, bytes, GSEL_MEMORY_PINNED);
}

gsel_collective ThroughHost::bring(const Call& given, int32_t rank, int32_t world_size, StagedCalls& staged) {
  const gsel_collective& checked = given.checked;
  const BufferBytes bytes = buffer_bytes(checked, rank, world_size);
  const Places at = places_of(checked, bytes);
  Memory memory;
  if (at.bytes > 0) memory = take_memory(at.bytes, checked);
  gsel_collective call = checked;
  call.stream = nullptr;
  call.send = bytes.send > 0 ? memory.at(at.send) : nullptr;
  call.recv = bytes.recv > 0 ? memory.at(at.recv) : nullptr;
  staged.results.push_back(
      {std::move(memory), static_cast<const char*>(call.recv), checked.recv, bytes.recv, given.stream});
  const Memory& to = staged.results.back().memory;
  const auto copy = [&](const void* from, uint64_t offset, uint64_t n) {
    if (n > 0)
      device_->run(&gsel_device_v1::copy, static_cast<void*>(to.at(offset)), from, n, int32_t{GSEL_COPY_TO_HOST},
                   given.stream.get());
  };
  if (keeps_parts(checked.kind)) copy(checked.recv, at.recv, bytes.recv);
  copy(checked.send, at.send, bytes.send);
  return call;
}

StagedCalls ThroughHost::stage(std::span<const Call> calls, int32_t rank, int32_t world_size) {
  StagedCalls staged;
  try {
    for (const Call& call : calls) staged.calls.push_back(bring(call, rank, world_size, staged));
    const CallStream* waited = nullptr;
    for (const Call& call : calls) {
      if (waited && *waited == call.stream) continue;
      brought_.record(call.stream.get());
      wait_(brought_, call.checked);
      waited = &call.stream;
    }
  } catch (...) {
    keep_after_failure(staged);
    throw;
  }
  return staged;
}

void ThroughHost::fetch(StagedCalls staged) {
  try {
    for (const StagedCalls::Result& result : staged.results)
      if (result.bytes > 0)
        device_->run(&gsel_device_v1::copy, result.recv, static_cast<const void*>(result.host), result.bytes,
                     int32_t{GSEL_COPY_TO_DEVICE}, result.stream.get());
  } catch (...) {
    keep_after_failure(staged);
    throw;
  }
  keep(staged);
}

}  // namespace gsel
