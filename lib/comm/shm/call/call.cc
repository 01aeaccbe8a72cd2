// comm/shm/call/call.cc: see call.h.
#include "comm/shm/call/call.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "base/types.h"
#include "comm/call/collective.h"

namespace gsel::shm {
namespace {

uint64_t mix(uint64_t hash) {
  hash = (hash ^ (hash >> 31)) * 0xbf58476d1ce4e5b9u;
  return hash ^ (hash >> 29);
}

uint64_t hash_of(const uint64_t* counts, size_t n) {
  uint64_t hash = n;
  for (size_t i = 0; i < n; ++i) hash = mix(hash ^ counts[i] * 0x9e3779b97f4a7c15u);
  return hash;
}

bool packed(const uint64_t* counts, const uint64_t* offsets, size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; sum += counts[i++])
    if (counts[i] > 0 && offsets[i] != sum) return false;
  return true;
}

uint64_t sum_of(const uint64_t* counts, size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) sum += counts[i];
  return sum;
}

// A caller's operation is packed as 255.
uint64_t pack(const gsel_collective& given, bool grouped, CallOrigin origin) {
  const gsel_op op = std::min<gsel_op>(given.op, 255);
  return static_cast<uint64_t>(static_cast<uint8_t>(given.kind)) << 56 |
         static_cast<uint64_t>(static_cast<uint8_t>(given.dtype)) << 48 |
         static_cast<uint64_t>(static_cast<uint8_t>(op)) << 40 | (grouped ? kGrouped : 0) |
         static_cast<uint64_t>(origin) << 32 | static_cast<uint64_t>(static_cast<uint16_t>(given.source)) << 16 |
         static_cast<uint16_t>(given.root);
}

// For the v kinds: the total count, and a hash of the counts that ranks must agree on.
void complete_counts(const CollectiveRow& row, size_t n, Call& call) {
  if (row.takes_send_counts() && row.takes_recv_counts()) {  // only the ranks of each pair agree
    call.count = 0;
    call.payload_bytes = UINT64_MAX;
    return;
  }
  const uint64_t* counts = row.takes_send_counts() ? call.send_counts : call.recv_counts;
  const bool own_part = row.send == Reach::own_part;
  call.count = sum_of(counts, n);
  call.payload_bytes = (own_part ? *std::max_element(counts, counts + n) : call.count) * call.element;
  call.detail = hash_of(counts, n);
  if (!row.reduces) return;
  call.detail &= ~offsets_in_detail(UINT64_MAX);
  if (!call.send_offsets) return;
  if (packed(counts, call.send_offsets, n))
    call.send_offsets = nullptr;
  else
    call.detail ^= offsets_in_detail(mix(hash_of(call.send_offsets, n) + 1));
}

}  // namespace

void complete(const gsel_collective& given, int32_t world_size, int64_t timeout_ns, Call& call, bool grouped,
              CallOrigin origin) {
  const auto n = static_cast<uint64_t>(world_size);
  call.kind = given.kind;
  call.origin = origin;
  call.grouped = grouped;
  call.packed = pack(given, grouped, origin);
  call.dtype = given.dtype;
  call.root = given.root;
  call.source = given.source;
  call.count = given.count;
  call.recv_count = given.recv_count;
  call.element = dtype_bytes(given.dtype);
  call.send = static_cast<const char*>(given.send);
  call.recv = static_cast<char*>(given.recv);
  call.send_counts = given.send_counts;
  call.send_offsets = given.send_offsets;
  call.recv_counts = given.recv_counts;
  call.recv_offsets = given.recv_offsets;
  call.send_parts = given.send_parts;
  call.recv_parts = given.recv_parts;
  call.timeout_ns = given.timeout_s > 0 ? static_cast<int64_t>(given.timeout_s * 1e9) : timeout_ns;
  call.label[0] = call.label[1] = call.detail = 0;
  if (given.label.data) {
    const std::string_view label = view(given.label);
    std::memcpy(call.label, label.data(), std::min(label.size(), sizeof call.label - 1));
  }
  const uint64_t bytes = call.count * call.element;
  call.payload_bytes = bytes;
  const CollectiveRow& row = row_of(call.kind);
  if (row.counted()) {
    complete_counts(row, n, call);
  } else if (row.send == Reach::all) {
    call.payload_bytes = bytes * n;
  } else if (row.message) {
    call.detail = static_cast<uint32_t>(given.tag);
  }
  call.operation.op = given.op;
  call.operation.factor = given.op == GSEL_SCALED_SUM ? given.factor : 1;
  call.operation.record = 1;
  call.unit = call.element;
  if (given.op < GSEL_OP_USER) return;
  call.operation = operation_of(given.op);
  call.detail ^= call.operation.name_hash;
  call.unit = call.element * call.operation.record;
}

const char* origin_text(CallOrigin origin) {
  static const char* const texts[] = {"", "gsel_comm_split()", "gsel_comm_dup()", "", ""};
  return texts[static_cast<size_t>(origin) % std::size(texts)];
}

uint64_t fingerprint(const Call& call) {
  return mix((call.packed & ~kGrouped) * 0x9e3779b97f4a7c15u ^ call.count * 0xc2b2ae3d27d4eb4fu ^ call.detail);
}

}  // namespace gsel::shm
