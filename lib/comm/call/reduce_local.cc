// comm/call/reduce_local.cc: gsel_reduce_local: the collectives' reduction over buffers of one process.
#include <climits>
#include <cstdint>

#include "base/dtype.h"
#include "base/error.h"
#include "comm/call/check.h"
#include "comm/call/operation.h"
#include "device/host/reduce/kernels.h"

namespace gsel {
namespace {

void check_buffers(const void* const* inputs, size_t n, const void* out, uint64_t bytes) {
  if (!out) fail(GSEL_ERR_ARG, "reduce_local: out is NULL and {} bytes are needed there", bytes);
  const auto to = reinterpret_cast<uintptr_t>(out);
  for (size_t q = 0; q < n; ++q) {
    const auto from = reinterpret_cast<uintptr_t>(inputs[q]);
    if (from == 0) fail(GSEL_ERR_ARG, "reduce_local: inputs[{}] is NULL and {} bytes are needed there", q, bytes);
    if (from != to && (from < to ? to - from : from - to) < bytes)
      fail(GSEL_ERR_ARG,
           "reduce_local: out and inputs[{}], {} bytes each, overlap with out {} bytes {} the input; use one address "
           "for both, or memory apart",
           q, bytes, from < to ? to - from : from - to, from < to ? "after" : "before");
  }
}

}  // namespace

void reduce_local(const void* const* inputs, size_t n, void* out, size_t count, gsel_dtype dtype, gsel_op op,
                  int32_t order) {
  if (n < 1 || n > INT_MAX) fail(GSEL_ERR_ARG, "reduce_local: n is {}; use 1 to {} inputs", n, INT_MAX);
  if (dtype_bytes(dtype) == 0)
    fail(GSEL_ERR_ARG, "reduce_local: dtype {} is unknown; use a GSEL_I8 ... GSEL_BOOL", dtype);
  if (order != GSEL_ORDER_RANKS && order != GSEL_ORDER_TREE)
    fail(GSEL_ERR_ARG, "reduce_local: order {} is unknown; use GSEL_ORDER_RANKS or GSEL_ORDER_TREE", order);
  check_operation(op, dtype, "reduce_local");
  check_records(op, dtype, count, "reduce_local");
  const Operation operation = operation_of(op);
  if (operation.op == GSEL_SCALED_SUM)
    fail(GSEL_ERR_ARG, "reduce_local: scaled sum takes a factor from each rank and there are none; scale the inputs");
  const uint64_t most = static_cast<uint64_t>(PTRDIFF_MAX) / dtype_bytes(dtype);
  if (count > most)
    fail(GSEL_ERR_ARG, "reduce_local: count {} of {} does not fit in memory; the most is {}", count, dtype_name(dtype),
         most);
  if (count == 0) return;
  if (!inputs) fail(GSEL_ERR_ARG, "reduce_local: inputs is NULL and {} are needed", n);
  check_buffers(inputs, n, out, count * dtype_bytes(dtype));
  host::Fold fold;
  fold.dtype = dtype;
  fold.op = operation.op;
  fold.order = order;
  fold.record = operation.record;
  fold.function = operation.function;
  fold.user_data = operation.user_data;
  host::reduce(fold, out, inputs, static_cast<int>(n), count);
}

}  // namespace gsel
