// comm/communicator.cc: see communicator.h. Buffers are compared as addresses only; they may be a device's.
#include "comm/communicator.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "comm/describe.h"

namespace gsel {
namespace {

struct Span {
  const char* name;
  const void* data;
  uint64_t bytes;
};

void check_not_null(const Span& span, const gsel_collective& call) {
  if (span.bytes > 0 && !span.data)
    fail(GSEL_ERR_ARG, "{}: {} is NULL and the count is {} elements", collective_name(call.kind), span.name,
         call.count);
}

// `in_place` is where in recv an in-place send starts (or in send a recv, for a negative value).
void check_overlap(const Span& send, const Span& recv, int64_t in_place, const gsel_collective& call) {
  const auto from = reinterpret_cast<uintptr_t>(send.data), to = reinterpret_cast<uintptr_t>(recv.data);
  if (send.bytes == 0 || recv.bytes == 0 || from == to + static_cast<uint64_t>(in_place)) return;
  if (from < to + recv.bytes && to < from + send.bytes)
    fail(GSEL_ERR_ARG,
         "{}: send [{} bytes] and recv [{} bytes] overlap with send {} bytes {} recv; in place needs {} bytes {}",
         collective_name(call.kind), send.bytes, recv.bytes, from >= to ? from - to : to - from,
         from >= to ? "behind" : "before", in_place >= 0 ? in_place : -in_place, in_place >= 0 ? "behind" : "before");
}

void check_operation(const gsel_collective& call, const char* name) {
  if (call.op < GSEL_SUM || call.op > GSEL_BXOR)
    fail(GSEL_ERR_ARG, "{}: op {} is unknown; use GSEL_SUM, PROD, MIN, MAX, AVG, BAND, BOR or BXOR", name, call.op);
  if (call.op >= GSEL_BAND && (call.dtype < GSEL_I8 || call.dtype > GSEL_U64))
    fail(GSEL_ERR_ARG, "{}: {} is for integers and the type is {}; use sum, prod, min, max or avg", name,
         op_name(call.op), dtype_name(call.dtype));
}

void check_words(const gsel_collective& call, int32_t rank, int32_t world_size) {
  const char* name = collective_name(call.kind);
  if (call.kind < 0 || call.kind >= GSEL_COLLECTIVE_KINDS)
    fail(GSEL_ERR_ARG, "collective kind {} is unknown; known are 0 to {}", call.kind, GSEL_COLLECTIVE_KINDS - 1);
  if (call.kind == GSEL_COLLECTIVE_BARRIER) return;
  const uint64_t element = dtype_bytes(call.dtype);
  if (element == 0) fail(GSEL_ERR_ARG, "{}: dtype {} is unknown; use a GSEL_I8 ... GSEL_F8E5M2", name, call.dtype);
  if (is_reduction(call.kind)) check_operation(call, name);
  const bool point_to_point = is_point_to_point(call.kind);
  if ((point_to_point || call.kind == GSEL_COLLECTIVE_BROADCAST) && (call.root < 0 || call.root >= world_size))
    fail(GSEL_ERR_ARG, "{}: {} {} is not a rank of a world of {}", name, point_to_point ? "peer" : "root", call.root,
         world_size);
  if (point_to_point && call.root == rank) fail(GSEL_ERR_ARG, "{}: peer {} is the calling rank itself", name, rank);
  const uint64_t limit = static_cast<uint64_t>(PTRDIFF_MAX) / element / static_cast<uint64_t>(world_size);
  if (call.count > limit)
    fail(GSEL_ERR_ARG, "{}: count {} of {} over {} ranks does not fit in memory; the most is {}", name, call.count,
         dtype_name(call.dtype), world_size, limit);
}

void check_buffers(const gsel_collective& call, int32_t rank, int32_t world_size) {
  const uint64_t part = call.count * dtype_bytes(call.dtype), all = part * static_cast<uint64_t>(world_size);
  Span send{"send", call.send, part}, recv{"recv", call.recv, part};
  int64_t in_place = 0;
  if (call.kind == GSEL_COLLECTIVE_BARRIER || call.kind == GSEL_COLLECTIVE_RECV) send.bytes = 0;
  if (call.kind == GSEL_COLLECTIVE_BARRIER || call.kind == GSEL_COLLECTIVE_SEND) recv.bytes = 0;
  if (call.kind == GSEL_COLLECTIVE_BROADCAST && call.root != rank) send.bytes = 0;
  if (call.kind == GSEL_COLLECTIVE_ALLGATHER) recv.bytes = all, in_place = static_cast<int64_t>(part) * rank;
  if (call.kind == GSEL_COLLECTIVE_REDUCE_SCATTER) send.bytes = all, in_place = -static_cast<int64_t>(part) * rank;
  check_not_null(send, call);
  check_not_null(recv, call);
  check_overlap(send, recv, in_place, call);
}

double checked_seconds(double value, const char* name) {
  if (!(value >= 0))
    fail(GSEL_ERR_ARG, "{} is {} seconds; use 0 for the default of 60 or a positive time", name, value);
  return value == 0 ? 60 : std::min(value, 1e8);
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Backend> backend, const gsel_join& join)
    : backend_(std::move(backend)), rank_(join.rank), world_size_(join.world_size) {
  if (world_size_ < 1 || rank_ < 0 || rank_ >= world_size_)
    fail(GSEL_ERR_ARG, "rank {} of a world of {}: the rank must be 0 to world_size - 1", rank_, world_size_);
  gsel_join complete = join;
  complete.timeout_s = checked_seconds(join.timeout_s, "timeout_s");
  complete.join_timeout_s = checked_seconds(join.join_timeout_s, "join_timeout_s");
  backend_->run(&gsel_backend_v1::link_join, &complete, &link_);
}

Communicator::~Communicator() {
  backend_->table().link_leave(link_);
}

void Communicator::collective(const gsel_collective& given, gsel_stream* stream) {
  gsel_collective call = given;
  check_words(call, rank_, world_size_);
  if (call.kind == GSEL_COLLECTIVE_BARRIER) call.count = 0, call.dtype = 0;
  if (!is_reduction(call.kind)) call.op = 0;
  if (!is_point_to_point(call.kind) && call.kind != GSEL_COLLECTIVE_BROADCAST) call.root = -1;
  check_buffers(call, rank_, world_size_);
  gsel_error* err = nullptr;
  const gsel_status status = backend_->table().collective(link_, &call, stream, &err);
  throw_if_failed(status, err);
}

void Communicator::abort(std::string_view reason) noexcept {
  char text[151] = "";
  std::ranges::transform(reason.substr(0, sizeof text - 1), text,
                         [](char c) { return static_cast<unsigned char>(c) < ' ' ? ' ' : c; });  // one line
  backend_->table().link_abort(link_, text);
}

gsel_comm_count Communicator::counts(gsel_collective_kind kind) const noexcept {
  return backend_->table().link_counts(link_, kind);
}

}  // namespace gsel
