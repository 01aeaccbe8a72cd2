// comm/call/check.cc: see check.h.
#include "comm/call/check.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "base/types.h"
#include "comm/call/collective.h"
#include "comm/call/operation.h"
#include "device/host/reduce/kernels.h"

namespace gsel {
namespace {

void check_rank(int32_t value, const char* role, const gsel_collective& call, int32_t rank, int32_t world_size,
                bool any = false) {
  if (any && value == GSEL_ANY_RANK && world_size > 1) return;
  if (value < 0 || value >= world_size)
    fail(GSEL_ERR_ARG, "{}: {} {} is not a rank of a world of {}", collective_name(call.kind), role, value, world_size);
  if (row_of(call.kind).message && value == rank)
    fail(GSEL_ERR_ARG, "{}: {} {} is the calling rank itself", collective_name(call.kind), role, rank);
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

// For a negative tag: an error unless it is GSEL_ANY_TAG and `any`.
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
    fail(GSEL_ERR_ARG, "{}: dtype {} is unknown; use a GSEL_I8 ... GSEL_BOOL", row.name, call.dtype);
  const bool of_every_type = call.op >= GSEL_SUM && call.op <= GSEL_AVG && call.dtype != GSEL_BOOL;
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
  if (op >= GSEL_BAND && op <= GSEL_BXOR && is_floating(dtype))
    fail(GSEL_ERR_ARG, "{}: {} is for integers and bool and the type is {}; use sum, prod, min, max or avg", name,
         op_name(op), dtype_name(dtype));
  if (op == GSEL_AVG && dtype == GSEL_BOOL)
    fail(GSEL_ERR_ARG, "{}: avg is for numbers and the type is bool; use sum for or, prod for and", name);
  if (op == GSEL_SCALED_SUM && !is_floating(dtype))
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

void check_call(gsel_collective& call, int32_t rank, int32_t world_size) {
  if (!is_known(call.kind))
    fail(GSEL_ERR_ARG, "collective kind {} is unknown; known are 0 to {}", call.kind, GSEL_COLLECTIVE_KINDS - 1);
  const CollectiveRow& row = row_of(call.kind);
  clear_unused(call, row);
  check_words(call, row, rank, world_size);
  call.timeout_s = std::min(call.timeout_s, 1e8);
  check_buffers(call, row, rank, world_size);
}

}  // namespace gsel
