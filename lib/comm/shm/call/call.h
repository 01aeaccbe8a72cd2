// comm/shm/call/call.h: a call, and numbers that follow from its arguments. Does not know where its bytes go (plan.h)
// and how (collectives.h, mailbox.h).
#pragma once

#include <gsel/comm.h>

#include <cstddef>
#include <cstdint>

#include "comm/call/operation.h"

namespace gsel::shm {

// What the caller made where it is no call of gsel_collective_kind: such calls exchange what they need by an allgather
// that no allgather of the caller's agrees with. A call that is enqueued on a stream is made by a transport of devices,
// which may treat registered memory in another way.
enum class Asked : uint8_t { call, split, dup, enqueued, enqueued_registered };

struct Call {
  gsel_collective_kind kind = 0;
  Asked asked = Asked::call;
  bool grouped = false;  // with others, by gsel_group_run
  gsel_dtype dtype = 0;
  Operation operation;
  int32_t root = -1;
  int32_t source = -1;
  uint64_t count = 0;
  uint64_t recv_count = 0;
  size_t element = 0;  // bytes
  size_t unit = 0;     // bytes that are never cut: an element, or a record of the operation's
  const char* send = nullptr;
  char* recv = nullptr;
  const uint64_t* send_counts = nullptr;  // of the v kinds; offsets where given, else packed
  const uint64_t* send_offsets = nullptr;
  const uint64_t* recv_counts = nullptr;
  const uint64_t* recv_offsets = nullptr;
  const void* const* send_parts = nullptr;  // where parts stand, each at the base or behind it: send, recv
  void* const* recv_parts = nullptr;
  int64_t timeout_ns = 0;
  uint64_t label[2] = {};
  uint64_t detail = 0;  // what else must agree: hash of counts, of an operation's name; of a message its tag

  uint64_t packed = 0;         // kind, type, operation and roots in one word, as recorded; see unpack in arena.h
  uint64_t payload_bytes = 0;  // the most that any rank publishes; decides the protocol, alike on every rank
};

// Into a call that is there already, field by field, since copying one or clearing it costs; what the kind does not
// name may be left as it is. timeout_ns: where the call gives none.
void complete(const gsel_collective& given, int32_t world_size, int64_t timeout_ns, Call& call, bool grouped = false,
              Asked asked = Asked::call);

// The half of a reduce_scatterv's detail that says where the parts stand; the other half says how long they are.
constexpr uint64_t offsets_in_detail(uint64_t detail) {
  return detail & UINT32_MAX;
}

constexpr uint64_t kGrouped = uint64_t{1} << 39;
// "gsel_comm_split()"; empty for a call of gsel_collective_kind.
const char* asked_text(Asked asked);
// What must agree between ranks, in one word.
uint64_t fingerprint(const Call& call);

}  // namespace gsel::shm
