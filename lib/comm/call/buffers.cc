// comm/call/buffers.cc: see check.h.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/types.h"
#include "comm/call/check.h"

namespace gsel {
namespace {

struct Span {
  const char* name;
  const void* data;
  uint64_t bytes;
};

// Buffers of one call. `in_place`: offset of an in-place send in recv; negative: of recv in send; kNowhere: the call
// cannot be made in place.
constexpr int64_t kNowhere = INT64_MIN;
struct Buffers {
  Span send{"send", nullptr, 0}, recv{"recv", nullptr, 0};
  int64_t in_place = 0;
};

void check_not_null(const Span& span, const gsel_collective& call) {
  if (span.bytes > 0 && !span.data)
    fail(GSEL_ERR_ARG, "{}: {} is NULL and {} bytes are needed there", collective_name(call.kind), span.name,
         span.bytes);
}

// The counts per rank; nullptr: all parts have `count` elements.
const uint64_t* counts_of_send(const gsel_collective& call, const CollectiveRow& row) {
  return row.send == Reach::parts ? row.counts_of_send(call) : nullptr;
}
const uint64_t* counts_of_recv(const gsel_collective& call, const CollectiveRow& row) {
  return row.recv == Reach::parts ? call.recv_counts : nullptr;
}

// Whether any part of send overlaps a part of recv. Parts of the two buffers may alternate in memory.
bool parts_overlap(const Buffers& buffers, const gsel_collective& call, int32_t n) {
  struct Part {
    uintptr_t begin, end;
    bool is_sent;
  };
  const uint64_t element = dtype_bytes(call.dtype);
  std::vector<Part> parts;
  const auto add = [&](const Span& span, const auto* places, const uint64_t* counts, const uint64_t* offsets,
                       bool is_sent) {
    const auto base = reinterpret_cast<uintptr_t>(span.data);
    if (!counts && !places) return parts.push_back({base, base + span.bytes, is_sent});
    uint64_t next = 0;
    for (int32_t q = 0; q < n; ++q) {
      const uint64_t count = counts ? counts[q] : call.count;
      const uintptr_t begin =
          places ? reinterpret_cast<uintptr_t>(places[q]) : base + (offsets ? offsets[q] : next) * element;
      if (count > 0) parts.push_back({begin, begin + count * element, is_sent});
      next += count;
    }
  };
  const CollectiveRow& row = row_of(call.kind);
  add(buffers.send, call.send_parts, counts_of_send(call, row), call.send_offsets, true);
  add(buffers.recv, call.recv_parts, counts_of_recv(call, row), call.recv_offsets, false);
  std::ranges::sort(parts, {}, &Part::begin);
  uintptr_t end[2] = {0, 0};  // of the parts of recv and of send so far
  for (const Part& part : parts) {
    if (part.begin < end[!part.is_sent]) return true;
    end[part.is_sent] = std::max(end[part.is_sent], part.end);
  }
  return false;
}

void check_overlap(const Buffers& buffers, const gsel_collective& call, int32_t world_size) {
  const auto& [send, recv, in_place] = buffers;
  const auto from = reinterpret_cast<uintptr_t>(send.data), to = reinterpret_cast<uintptr_t>(recv.data);
  if (send.bytes == 0 || recv.bytes == 0 || (in_place != kNowhere && from == to + static_cast<uint64_t>(in_place)))
    return;
  if (from >= to + recv.bytes || to >= from + send.bytes) return;
  const bool has_parts = row_of(call.kind).counted() || call.send_parts || call.recv_parts;
  if (has_parts && !parts_overlap(buffers, call, world_size)) return;
  if (in_place == kNowhere)
    fail(GSEL_ERR_ARG, "{}: send [{} bytes] and recv [{} bytes] overlap; it does not work in place",
         collective_name(call.kind), send.bytes, recv.bytes);
  fail(GSEL_ERR_ARG,
       "{}: send [{} bytes] and recv [{} bytes] overlap with send {} bytes {} recv; in place needs {} bytes {}",
       collective_name(call.kind), send.bytes, recv.bytes, from >= to ? from - to : to - from,
       from >= to ? "after" : "before", in_place >= 0 ? in_place : -in_place, in_place >= 0 ? "after" : "before");
}

// Checks the counts and returns the extent in elements.
uint64_t check_counts(const uint64_t* counts, const uint64_t* offsets, const char* role, const gsel_collective& call,
                      int32_t world_size) {
  const char* name = collective_name(call.kind);
  if (!counts) fail(GSEL_ERR_ARG, "{}: {} is NULL; it needs [{}] elements, one for each rank", name, role, world_size);
  uint64_t sum = 0, end = 0;
  for (int32_t q = 0; q < world_size; ++q) {
    check_count(counts[q], role, call, world_size);
    sum += counts[q];
    if (offsets) check_count(offsets[q], "offset", call, world_size);
    if (counts[q] > 0) end = std::max(end, offsets ? offsets[q] + counts[q] : sum);
  }
  return end;
}

uint64_t start_of(const uint64_t* counts, const uint64_t* offsets, int32_t rank) {
  if (offsets) return offsets[rank];
  uint64_t sum = 0;
  for (int32_t q = 0; q < rank; ++q) sum += counts[q];
  return sum;
}

// For a v kind; checks its counts.
Buffers buffers_of_parts(const gsel_collective& call, const CollectiveRow& row, int32_t rank, int32_t n) {
  const uint64_t element = dtype_bytes(call.dtype);
  const uint64_t* const sent = row.counts_of_send(call);
  Buffers b;
  if (row.send == Reach::parts) {
    const char* role = row.takes_send_counts() ? "send_counts" : "recv_counts";
    b.send.bytes = check_counts(sent, call.send_offsets, role, call, n) * element;
  }
  if (row.recv == Reach::parts)
    b.recv.bytes = check_counts(call.recv_counts, call.recv_offsets, "recv_counts", call, n) * element;
  if (row.send == Reach::own_part) b.send.bytes = call.recv_counts[rank] * element;
  if (row.recv == Reach::own_part) b.recv.bytes = sent[rank] * element;
  const auto start = [&](const uint64_t* counts, const uint64_t* offsets) {
    return static_cast<int64_t>(start_of(counts, offsets, rank) * element);
  };
  if (row.in_place == InPlace::never) b.in_place = kNowhere;
  if (row.in_place == InPlace::part_of_recv) b.in_place = start(call.recv_counts, call.recv_offsets);
  if (row.in_place == InPlace::part_of_send) b.in_place = -start(sent, call.send_offsets);
  if (row.reduces)
    for (int32_t q = 0; q < n; ++q) check_records(call.op, call.dtype, call.recv_counts[q], row.name);
  return b;
}

Buffers buffers_of(const gsel_collective& call, const CollectiveRow& row, int32_t rank, int32_t n) {
  Buffers b;
  if (row.counted()) {
    b = buffers_of_parts(call, row, rank, n);
  } else {
    const uint64_t element = dtype_bytes(call.dtype), part = call.count * element;
    const auto bytes = [&](Reach reach) {
      if (reach == Reach::part) return part;
      if (reach == Reach::all) return part * static_cast<uint64_t>(n);
      return reach == Reach::recv_count ? call.recv_count * element : 0;
    };
    b.send.bytes = bytes(row.send);
    b.recv.bytes = bytes(row.recv);
    const auto own = static_cast<int64_t>(part) * rank;
    if (row.in_place == InPlace::never) b.in_place = kNowhere;
    if (row.in_place == InPlace::part_of_recv) b.in_place = own;
    if (row.in_place == InPlace::part_of_send) b.in_place = -own;
  }
  if (row.sent_by_root && call.root != rank) b.send.bytes = 0;
  if (row.got_by_root && call.root != rank) b.recv.bytes = 0;
  return b;
}

// Extent of the parts in memory.
template <class Pointer>
Span span_of_parts(Pointer const* parts, const uint64_t* counts, const char* role, const gsel_collective& call,
                   int32_t n) {
  const uint64_t element = dtype_bytes(call.dtype);
  uintptr_t begin = UINTPTR_MAX, end = 0;
  for (int32_t q = 0; q < n; ++q) {
    const uint64_t bytes = (counts ? counts[q] : call.count) * element;
    const auto at = reinterpret_cast<uintptr_t>(parts[q]);
    if (bytes == 0) continue;
    if (at == 0)
      fail(GSEL_ERR_ARG, "{}: {}[{}] is NULL and {} bytes are needed there", collective_name(call.kind), role, q,
           bytes);
    if (at % element != 0)
      fail(GSEL_ERR_ARG, "{}: {}[{}] is not aligned to {} bytes, the size of {}", collective_name(call.kind), role, q,
           element, dtype_name(call.dtype));
    begin = std::min(begin, at);
    end = std::max(end, at + bytes);
  }
  if (end == 0) return {role, nullptr, 0};
  return {role, reinterpret_cast<const void*>(begin), end - begin};
}

// For buffers that are given in parts: sets their extents in b and their start in the call.
void place_parts(gsel_collective& call, const CollectiveRow& row, int32_t rank, int32_t n, Buffers& b) {
  const auto behind = [](const void* part, const void* base) {
    return static_cast<const char*>(part) - static_cast<const char*>(base);
  };
  if (call.send_parts) {
    b.send = span_of_parts(call.send_parts, counts_of_send(call, row), "send_parts", call, n);
    call.send = b.send.data;
    if (row.in_place == InPlace::part_of_send) b.in_place = -behind(call.send_parts[rank], call.send);
  }
  if (call.recv_parts) {
    b.recv = span_of_parts(call.recv_parts, counts_of_recv(call, row), "recv_parts", call, n);
    call.recv = const_cast<void*>(b.recv.data);  // recv_parts are not const
    if (row.in_place == InPlace::part_of_recv) b.in_place = behind(call.recv_parts[rank], call.recv);
  }
}

}  // namespace

void check_large_count(uint64_t count, const char* role, const gsel_collective& call, int32_t world_size) {
  const uint64_t limit =
      static_cast<uint64_t>(PTRDIFF_MAX) / dtype_bytes(call.dtype) / static_cast<uint64_t>(world_size);
  if (count > limit)
    fail(GSEL_ERR_ARG, "{}: {} {} of {} over {} does not fit in memory; the most is {}", collective_name(call.kind),
         role, count, dtype_name(call.dtype), with_noun(world_size, "rank"), limit);
}

BufferBytes buffer_bytes(const gsel_collective& checked, int32_t rank, int32_t world_size) {
  const Buffers buffers = buffers_of(checked, row_of(checked.kind), rank, world_size);
  return {buffers.send.bytes, buffers.recv.bytes};
}

namespace {

inline void check_places(const Buffers& buffers, const gsel_collective& call, int32_t world_size) {
  check_not_null(buffers.send, call);
  check_not_null(buffers.recv, call);
  check_overlap(buffers, call, world_size);
}

// Out of line, to keep the path of small calls short.
void check_buffers_in_parts(gsel_collective& call, const CollectiveRow& row, int32_t rank, int32_t world_size) {
  if (!row.has_send_parts() || (row.sent_by_root && call.root != rank)) call.send_parts = nullptr;
  if (!row.has_recv_parts() || (row.got_by_root && call.root != rank)) call.recv_parts = nullptr;
  if (call.send_parts) call.send_offsets = nullptr;
  if (call.recv_parts) call.recv_offsets = nullptr;
  Buffers buffers = buffers_of(call, row, rank, world_size);
  buffers.send.data = call.send;
  buffers.recv.data = call.recv;
  place_parts(call, row, rank, world_size, buffers);
  check_places(buffers, call, world_size);
}

}  // namespace

void check_buffers(gsel_collective& call, const CollectiveRow& row, int32_t rank, int32_t world_size) {
  if (call.send_parts || call.recv_parts) return check_buffers_in_parts(call, row, rank, world_size);
  Buffers buffers = buffers_of(call, row, rank, world_size);
  buffers.send.data = call.send;
  buffers.recv.data = call.recv;
  check_places(buffers, call, world_size);
}

}  // namespace gsel
