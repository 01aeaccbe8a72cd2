// comm/check.cc: see check.h.
#include "comm/check.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "comm/collective.h"
#include "comm/operation.h"

namespace gsel {
namespace {

struct Span {
  const char* name;
  const void* data;
  uint64_t bytes;
};

// Buffers of one call. `in_place` is where in recv an in-place send starts (or in send a recv, when negative);
// kNowhere where there is no such place.
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

// Of a v call, where one buffer has parts: whether any part of send overlaps one of recv. Those of one buffer may stand
// between those of the other.
bool parts_overlap(const Buffers& buffers, const gsel_collective& call, int32_t n) {
  struct Part {
    uintptr_t begin, end;
    bool is_sent;
  };
  const uint64_t element = dtype_bytes(call.dtype);
  std::vector<Part> parts;
  const auto add = [&](const Span& span, const uint64_t* counts, const uint64_t* offsets, bool is_sent) {
    const auto base = reinterpret_cast<uintptr_t>(span.data);
    if (!counts) return parts.push_back({base, base + span.bytes, is_sent});
    uint64_t next = 0;
    for (int32_t q = 0; q < n; next += counts[q++]) {
      const uintptr_t begin = base + (offsets ? offsets[q] : next) * element;
      if (counts[q] > 0) parts.push_back({begin, begin + counts[q] * element, is_sent});
    }
  };
  const CollectiveRow& row = row_of(call.kind);
  add(buffers.send, row.send == Reach::parts ? row.counts_of_send(call) : nullptr, call.send_offsets, true);
  add(buffers.recv, row.recv == Reach::parts ? call.recv_counts : nullptr, call.recv_offsets, false);
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
  if (row_of(call.kind).counted() && !parts_overlap(buffers, call, world_size)) return;
  if (in_place == kNowhere)
    fail(GSEL_ERR_ARG, "{}: send [{} bytes] and recv [{} bytes] overlap; it does not work in place",
         collective_name(call.kind), send.bytes, recv.bytes);
  fail(GSEL_ERR_ARG,
       "{}: send [{} bytes] and recv [{} bytes] overlap with send {} bytes {} recv; in place needs {} bytes {}",
       collective_name(call.kind), send.bytes, recv.bytes, from >= to ? from - to : to - from,
       from >= to ? "behind" : "before", in_place >= 0 ? in_place : -in_place, in_place >= 0 ? "behind" : "before");
}

void check_rank(int32_t value, const char* role, const gsel_collective& call, int32_t rank, int32_t world_size,
                bool any = false) {
  if (any && value == GSEL_ANY_RANK && world_size > 1) return;
  if (value < 0 || value >= world_size)
    fail(GSEL_ERR_ARG, "{}: {} {} is not a rank of a world of {}", collective_name(call.kind), role, value, world_size);
  if (row_of(call.kind).message && value == rank)
    fail(GSEL_ERR_ARG, "{}: {} {} is the calling rank itself", collective_name(call.kind), role, rank);
}

void check_large_count(uint64_t count, const char* role, const gsel_collective& call, int32_t world_size) {
  const uint64_t limit =
      static_cast<uint64_t>(PTRDIFF_MAX) / dtype_bytes(call.dtype) / static_cast<uint64_t>(world_size);
  if (count > limit)
    fail(GSEL_ERR_ARG, "{}: {} {} of {} over {} does not fit in memory; the most is {}", collective_name(call.kind),
         role, count, dtype_name(call.dtype), with_noun(world_size, "rank"), limit);
}

void check_count(uint64_t count, const char* role, const gsel_collective& call, int32_t world_size) {
  if (count > UINT32_MAX) check_large_count(count, role, call, world_size);
}

// Elements from the first to behind the last part.
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

void clear_unused(gsel_collective& call, const CollectiveRow& row) {
  if (row.send == Reach::none && row.recv == Reach::none) call.dtype = 0, call.count = 0;
  if (!row.reduces) call.op = 0;
  if (!row.message) {
    if (!row.rooted()) call.root = -1;
    call.tag = 0;
    call.received = nullptr;
  } else if (!row.receives) {
    call.received = nullptr;
  }
  if (row.recv != Reach::recv_count) call.source = -1, call.recv_count = 0, call.recv_tag = 0;
  if (!row.counted()) {
    call.send_counts = call.send_offsets = call.recv_counts = call.recv_offsets = nullptr;
    return;
  }
  call.count = 0;
  if (!row.takes_send_counts()) call.send_counts = nullptr;
  if (!row.takes_recv_counts()) call.recv_counts = nullptr;
  if (row.send != Reach::parts) call.send_offsets = nullptr;
  if (row.recv != Reach::parts) call.recv_offsets = nullptr;
}

// Of a v kind, whose counts it checks.
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

// Of a negative one.
void check_tag(int32_t tag, const char* role, const gsel_collective& call, bool any) {
  if (any && tag == GSEL_ANY_TAG) return;
  fail(GSEL_ERR_ARG, "{}: {} is {}; use 0 to {}{}", collective_name(call.kind), role, tag, INT32_MAX,
       any ? ", or GSEL_ANY_TAG" : "");
}

void check_message(const gsel_collective& call, const CollectiveRow& row, int32_t rank, int32_t world_size) {
  const bool both = row.recv == Reach::recv_count;
  const bool takes_any = row.receives && !both;
  check_rank(call.root, "peer", call, rank, world_size, takes_any);
  if (call.tag < 0) check_tag(call.tag, "tag", call, takes_any);
  if (both) {
    check_rank(call.source, "source", call, rank, world_size, true);
    if (call.recv_tag < 0) check_tag(call.recv_tag, "recv_tag", call, true);
    check_count(call.recv_count, "recv_count", call, world_size);
  }
  if (call.received || row.probes) stated_size(call.received, "gsel_message");
}

void check_reduction(const gsel_collective& call) {
  const char* name = collective_name(call.kind);
  check_operation(call.op, call.dtype, name);
  check_records(call.op, call.dtype, call.count, name);
  if (call.op == GSEL_SCALED_SUM && call.factor == 0)
    fail(GSEL_ERR_ARG,
         "{}: scaled sum without a factor; set gsel_collective.factor, or use an operation of "
         "gsel_op_create_scaled_sum, which takes 0 as well",
         name);
}

void check_words(const gsel_collective& call, const CollectiveRow& row, int32_t rank, int32_t world_size) {
  if (!(call.timeout_s >= 0))
    fail(GSEL_ERR_ARG, "{}: timeout_s is {}; use 0 or a positive time", row.name, call.timeout_s);
  const bool has_elements = row.send != Reach::none || row.recv != Reach::none;
  if (has_elements && dtype_bytes(call.dtype) == 0)
    fail(GSEL_ERR_ARG, "{}: dtype {} is unknown; use a GSEL_I8 ... GSEL_F8E5M2", row.name, call.dtype);
  const bool of_every_type = call.op >= GSEL_SUM && call.op <= GSEL_AVG;
  if (row.reduces && !of_every_type) check_reduction(call);
  if (row.rooted()) check_rank(call.root, "root", call, rank, world_size);
  if (row.message) check_message(call, row, rank, world_size);
  check_count(call.count, "count", call, world_size);
}

}  // namespace

void check_operation(gsel_op op, gsel_dtype dtype, const char* name) {
  if (op >= GSEL_OP_USER) op = operation_of(op).op;
  if (op == GSEL_OP_USER) return;
  if (op < GSEL_SUM || op > GSEL_SCALED_SUM)
    fail(GSEL_ERR_ARG,
         "{}: op {} is unknown; use GSEL_SUM, PROD, MIN, MAX, AVG, BAND, BOR, BXOR or SCALED_SUM, or one "
         "of gsel_op_create",
         name, op);
  const bool integer = dtype >= GSEL_I8 && dtype <= GSEL_U64;
  if (op >= GSEL_BAND && op <= GSEL_BXOR && !integer)
    fail(GSEL_ERR_ARG, "{}: {} is for integers and the type is {}; use sum, prod, min, max or avg", name, op_name(op),
         dtype_name(dtype));
  if (op == GSEL_SCALED_SUM && integer)
    fail(GSEL_ERR_ARG, "{}: scaled sum is for floating point and the type is {}; use sum", name, dtype_name(dtype));
}

void check_records(gsel_op op, gsel_dtype dtype, uint64_t count, const char* name) {
  if (op < GSEL_OP_USER) return;
  const uint64_t record = operation_of(op).record;
  if (record == 1) return;
  if (record * dtype_bytes(dtype) > host::kMostRecordBytes)
    fail(GSEL_ERR_ARG, "{}: a record of {} has {} of {}, {} bytes; the most is {}", name, operation_name(op),
         with_noun(record, "element"), dtype_name(dtype), record * dtype_bytes(dtype), host::kMostRecordBytes);
  if (count % record != 0)
    fail(GSEL_ERR_ARG, "{}: count {} cuts a record of {}, which has {}; use a multiple of {}", name, count,
         operation_name(op), with_noun(record, "element"), record);
}

double checked_seconds(double value, const char* name) {
  if (!(value >= 0))
    fail(GSEL_ERR_ARG, "{} is {}; use 0 for the default of 60 or a positive time", name, seconds_text(value));
  return value == 0 ? 60 : std::min(value, 1e8);
}

BufferBytes buffer_bytes(const gsel_collective& checked, int32_t rank, int32_t world_size) {
  const Buffers buffers = buffers_of(checked, row_of(checked.kind), rank, world_size);
  return {buffers.send.bytes, buffers.recv.bytes};
}

void check_call(gsel_collective& call, int32_t rank, int32_t world_size) {
  if (!is_known(call.kind))
    fail(GSEL_ERR_ARG, "collective kind {} is unknown; known are 0 to {}", call.kind, GSEL_COLLECTIVE_KINDS - 1);
  const CollectiveRow& row = row_of(call.kind);
  clear_unused(call, row);
  check_words(call, row, rank, world_size);
  call.timeout_s = std::min(call.timeout_s, 1e8);
  Buffers buffers = buffers_of(call, row, rank, world_size);
  buffers.send.data = call.send;
  buffers.recv.data = call.recv;
  check_not_null(buffers.send, call);
  check_not_null(buffers.recv, call);
  check_overlap(buffers, call, world_size);
}

}  // namespace gsel
