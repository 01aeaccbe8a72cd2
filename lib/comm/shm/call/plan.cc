// comm/shm/call/plan.cc: see plan.h.
#include "comm/shm/call/plan.h"

#include <algorithm>

#include "base/shard.h"
#include "comm/call/collective.h"

namespace gsel::shm {
namespace {

std::vector<uint64_t> starts(const uint64_t* counts, const uint64_t* offsets, size_t n) {
  if (!counts) return {};
  if (offsets) return {offsets, offsets + n};
  std::vector<uint64_t> all(n);
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) all[i] = sum, sum += counts[i];
  return all;
}

// For parts given by their addresses.
template <class Pointer>
std::vector<uint64_t> starts(Pointer const* parts, const char* base, uint64_t element, size_t n) {
  std::vector<uint64_t> all(n);
  for (size_t i = 0; i < n; ++i)
    if (const char* part = static_cast<const char*>(parts[i]); part >= base)
      all[i] = static_cast<uint64_t>(part - base) / element;
  return all;
}

}  // namespace

const char* protocol_name(Protocol protocol) {
  switch (protocol) {
    case Protocol::alone:
      return "alone";
    case Protocol::line:
      return "line";
    case Protocol::slots:
      return "slots";
    case Protocol::direct:
      return "direct";
    case Protocol::single_copy:
      return "single copy";
    case Protocol::staged:
      return "staged";
  }
  return "unknown";
}

Plan::Plan(const Call& call, int32_t rank, int32_t world_size)
    : call_(call), row_(row_of(call.kind)), rank_(rank), world_size_(world_size) {
  const auto n = static_cast<size_t>(world_size);
  if (call.send_counts || call.recv_counts) {
    packed_ = starts(call.send_counts ? call.send_counts : call.recv_counts, nullptr, n);
    send_starts_ = starts(row_.reduces ? call.recv_counts : call.send_counts, call.send_offsets, n);
    recv_starts_ = starts(call.recv_counts, call.recv_offsets, n);
  }
  if (call.send_parts) send_starts_ = starts(call.send_parts, call.send, call.element, n);
  if (call.recv_parts) recv_starts_ = starts(call.recv_parts, call.recv, call.element, n);
}

Bytes Plan::sent_to(int32_t reader, const std::vector<uint64_t>& starts) const {
  const auto r = static_cast<size_t>(reader);
  return {starts.empty() ? r * part() : starts[r] * call_.element,
          call_.send_counts ? call_.send_counts[r] * call_.element : part()};
}

Bytes Plan::packed(int32_t owner, int32_t reader) const {
  if (!publishes(owner) || (row_.got_by_root && reader != call_.root)) return {};
  if (row_.send == Reach::own_part) return {0, call_.recv_counts[owner] * call_.element};
  return parts_differ() ? sent_to(reader, packed_) : Bytes{0, part()};
}

Bytes Plan::source(int32_t reader) const {
  return parts_differ() && publishes(rank_) ? sent_to(reader, send_starts_) : packed(rank_, reader);
}

Bytes Plan::sent(int32_t reader) const {
  if (!row_.reduces) return source(reader);
  const gsel_range range = slice(reader);
  return {static_cast<uint64_t>(range.begin) * call_.element,
          static_cast<uint64_t>(range.end - range.begin) * call_.element};
}

Bytes Plan::target(int32_t owner) const {
  const auto o = static_cast<size_t>(owner);
  if (row_.got_by_root && rank_ != call_.root) return {};
  const uint64_t count = row_.recv == Reach::parts ? call_.recv_counts[o] * call_.element : packed(owner, rank_).count;
  if (!recv_starts_.empty()) return {recv_starts_[o] * call_.element, count};
  return {row_.recv == Reach::all ? o * part() : 0, count};
}

uint64_t Plan::send_bytes() const {
  if (row_.reduces && !scattered())
    return part() * (call_.kind == GSEL_COLLECTIVE_REDUCE_SCATTER ? static_cast<uint64_t>(world_size_) : 1);
  uint64_t end = 0;
  for (int32_t q = 0; q < world_size_; ++q) {
    const Bytes bytes = sent(q);
    if (bytes.count > 0) end = std::max(end, bytes.begin + bytes.count);
  }
  return end;
}

uint64_t Plan::recv_bytes() const {
  if (call_.kind == GSEL_COLLECTIVE_REDUCE) return rank_ == call_.root ? part() : 0;
  if (row_.reduces) {
    if (call_.kind == GSEL_COLLECTIVE_ALLREDUCE) return part();
    const gsel_range own = slice(rank_);
    return static_cast<uint64_t>(own.end - own.begin) * call_.element;
  }
  uint64_t end = 0;
  for (int32_t q = 0; q < world_size_; ++q) {
    const Bytes bytes = target(q);
    if (bytes.count > 0) end = std::max(end, bytes.begin + bytes.count);
  }
  return end;
}

uint64_t Plan::sent_bytes() const {
  if (call_.kind == GSEL_COLLECTIVE_BARRIER) return 0;
  const auto slice_bytes = [&](int32_t q) {
    const gsel_range range = slice(q);
    return static_cast<uint64_t>(range.end - range.begin) * call_.element;
  };
  const uint64_t others = static_cast<uint64_t>(world_size_) - 1;
  switch (call_.kind) {
    case GSEL_COLLECTIVE_ALLREDUCE:
      if (others < 2) return others * call_.count * call_.element;  // avoids a division
      return call_.count * call_.element + (others - 1) * slice_bytes(rank_);
    case GSEL_COLLECTIVE_REDUCE:
      return call_.count * call_.element - (rank_ == call_.root ? slice_bytes(rank_) : 0);
    case GSEL_COLLECTIVE_REDUCE_SCATTER:
      return others * call_.count * call_.element;
    case GSEL_COLLECTIVE_REDUCE_SCATTERV:
      return call_.count * call_.element - slice_bytes(rank_);
    default: {
      uint64_t sum = 0;
      for (int32_t q = 0; q < world_size_; ++q) sum += q == rank_ ? 0 : source(q).count;
      return sum;
    }
  }
}

uint64_t Plan::largest_part() const {
  if (!row_.counted()) return part();
  if (row_.recv == Reach::parts) return row_.send == Reach::parts ? 0 : call_.payload_bytes;
  const uint64_t* counts = row_.takes_send_counts() ? call_.send_counts : call_.recv_counts;
  return *std::max_element(counts, counts + world_size_) * call_.element;
}

gsel_range Plan::slice(int32_t rank) const {
  const auto n = static_cast<int64_t>(call_.count);
  const auto r = static_cast<size_t>(rank);
  if (call_.kind == GSEL_COLLECTIVE_REDUCE_SCATTER) {
    const int64_t begin = send_starts_.empty() ? n * rank : static_cast<int64_t>(send_starts_[r]);
    return {begin, begin + n};
  }
  if (call_.kind == GSEL_COLLECTIVE_REDUCE_SCATTERV) {
    const auto begin = static_cast<int64_t>(send_starts_[r]);
    return {begin, begin + static_cast<int64_t>(call_.recv_counts[r])};
  }
  const auto record = static_cast<int64_t>(call_.operation.record);
  if (record == 1) return shard_range(n, world_size_, rank);
  const gsel_range records = shard_range(n / record, world_size_, rank);
  return {records.begin * record, records.end * record};
}

}  // namespace gsel::shm
