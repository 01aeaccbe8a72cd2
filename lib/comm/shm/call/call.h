// comm/shm/call/call.h: a call, and numbers derived from its arguments. Does not know where the bytes go (plan.h) or
// how they travel (collectives.h, mailbox.h).
#pragma once

#include <gsel/comm.h>

#include <cstddef>
#include <cstdint>

#include "comm/call/operation.h"

namespace gsel::shm {

// What a call was made for. split and dup exchange their data by an allgather that never matches one of the caller's.
// An enqueued call is made by a transport of devices, which may treat registered memory differently.
enum class CallOrigin : uint8_t { call, split, dup, enqueued, enqueued_registered };

struct Call {
  gsel_collective_kind kind = 0;
  CallOrigin origin = CallOrigin::call;
  bool grouped = false;  // with others, by gsel_group_run
  gsel_dtype dtype = 0;
  Operation operation;
  int32_t root = -1;
  int32_t source = -1;
  uint64_t count = 0;
  uint64_t recv_count = 0;
  size_t element = 0;  // bytes
  size_t unit = 0;     // bytes that are never split: an element, or a record of the operation
  const char* send = nullptr;
  char* recv = nullptr;
  const uint64_t* send_counts = nullptr;  // of the v kinds; offsets where given, else packed
  const uint64_t* send_offsets = nullptr;
  const uint64_t* recv_counts = nullptr;
  const uint64_t* recv_offsets = nullptr;
  const void* const* send_parts = nullptr;  // addresses of the parts; none is below send, or recv
  void* const* recv_parts = nullptr;
  int64_t timeout_ns = 0;
  uint64_t label[2] = {};
  uint64_t detail = 0;  // must also agree: hash of the counts and of the operation's name; the tag of a message

  uint64_t packed = 0;         // kind, type, operation and roots in one word, as recorded; see unpack in arena.h
  uint64_t payload_bytes = 0;  // the most that any rank publishes; the same on every rank, decides the protocol
};

// Fills an existing call field by field, since copying or clearing one is slow. Fields that the kind does not use may
// keep old values. timeout_ns: used if the call has none.
void complete(const gsel_collective& given, int32_t world_size, int64_t timeout_ns, Call& call, bool grouped = false,
              CallOrigin origin = CallOrigin::call);

// The half of a reduce_scatterv's detail that hashes the offsets; the other half hashes the counts.
constexpr uint64_t offsets_in_detail(uint64_t detail) {
  return detail & UINT32_MAX;
}

constexpr uint64_t kGrouped = uint64_t{1} << 39;
// "gsel_comm_split()"; empty for a call of gsel_collective_kind.
const char* origin_text(CallOrigin origin);
// A hash of everything that must agree between ranks.
uint64_t fingerprint(const Call& call);

}  // namespace gsel::shm
