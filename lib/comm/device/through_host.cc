// comm/device/through_host.cc: see through_host.h.
#include "comm/device/through_host.h"

#include <algorithm>

#include "base/align.h"
#include "comm/check.h"
#include "comm/collective.h"

namespace gsel {
namespace {

// Where send and recv of a call stand in memory of the host: as they stand to each other on the device where one lies
// in the other, else one behind the other.
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

// Where a call may leave parts of recv as they were.
bool keeps_parts(gsel_collective_kind kind) {
  return row_of(kind).counted() || row_of(kind).receives;
}

}  // namespace

gsel_collective ThroughHost::stage(const gsel_collective& checked, int32_t rank, int32_t world_size,
                                   gsel_stream* stream) {
  if (staged_ == 0) idle_.wait();
  if (staged_ == calls_.size()) calls_.emplace_back();
  Staged& staged = calls_[staged_];
  const BufferBytes bytes = buffer_bytes(checked, rank, world_size);
  const Places at = places_of(checked, bytes);
  if (at.bytes > staged.memory.bytes()) {
    staged.memory = {};
    staged.memory = Memory(device_, at.bytes, GSEL_MEMORY_PINNED);
  }
  const auto bring = [&](const void* from, uint64_t to, uint64_t n) {
    if (n > 0)
      device_->run(&gsel_device_v1::copy, static_cast<void*>(staged.memory.at(to)), from, n, int32_t{GSEL_COPY_TO_HOST},
                   stream);
  };
  if (keeps_parts(checked.kind)) bring(checked.recv, at.recv, bytes.recv);
  bring(checked.send, at.send, bytes.send);
  device_->run(&gsel_device_v1::stream_wait, stream);
  gsel_collective call = checked;
  call.send = bytes.send > 0 ? staged.memory.at(at.send) : nullptr;
  call.recv = bytes.recv > 0 ? staged.memory.at(at.recv) : nullptr;
  staged.host = static_cast<const char*>(call.recv);
  staged.recv = checked.recv;
  staged.bytes = bytes.recv;
  ++staged_;
  return call;
}

void ThroughHost::fetch(gsel_stream* stream) {
  for (size_t i = 0; i < staged_; ++i)
    if (calls_[i].bytes > 0)
      device_->run(&gsel_device_v1::copy, calls_[i].recv, static_cast<const void*>(calls_[i].host), calls_[i].bytes,
                   int32_t{GSEL_COPY_TO_DEVICE}, stream);
  idle_.record(stream);
  staged_ = 0;
}

}  // namespace gsel
