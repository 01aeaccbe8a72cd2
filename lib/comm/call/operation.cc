// comm/call/operation.cc: see operation.h. Operations are in a table. The number of an operation encodes its place in
// the table and a generation, so that an outdated number is detected. A lookup takes no lock: a place is filled before
// its number is published, and emptied when no call uses it.
#include "comm/call/operation.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/text.h"
#include "base/types.h"
#include "comm/call/check.h"
#include "device/host/reduce/kernels.h"

namespace gsel {
namespace {

constexpr int32_t kPlaces = 4096;
// GSEL_OP_USER is Operation::op of a caller's function, so no operation has this number.
constexpr gsel_op kFirst = GSEL_OP_USER + 1;
constexpr int32_t kTurns = (INT32_MAX - kFirst) / kPlaces;

struct Place {
  std::atomic<gsel_op> number{0};  // 0: empty
  int32_t turn = 0;
  Operation operation;
  gsel_free_fn free_user_data = nullptr;
};

struct Table {
  std::mutex mutex;  // held to create and destroy
  Place places[kPlaces];
  int32_t next = 0;  // start of the search for an empty place, so that all places take turns
};

Table& table() {
  static auto* instance = new Table;  // never destroyed: threads may outlive main
  return *instance;
}

Place& place_of(gsel_op op) {
  return table().places[(op - kFirst) % kPlaces];
}

bool alive(gsel_op op) {
  return op >= kFirst && place_of(op).number.load(std::memory_order_acquire) == op;
}

uint64_t hash_of(std::string_view name) {  // FNV-1a, its bits mixed; not 0
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash = (hash ^ (hash >> 32)) * 0x9e3779b97f4a7c15u;
  return hash ? hash : 1;
}

gsel_op hand_out(const Operation& operation, gsel_free_fn free_user_data) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  for (int32_t i = 0; i < kPlaces; ++i) {
    const int32_t at = (all.next + i) % kPlaces;
    Place& place = all.places[at];
    if (place.number.load(std::memory_order_relaxed) != 0) continue;
    const gsel_op number = kFirst + place.turn * kPlaces + at;
    place.turn = (place.turn + 1) % kTurns;
    place.operation = operation;
    place.free_user_data = free_user_data;
    place.number.store(number, std::memory_order_release);
    all.next = (at + 1) % kPlaces;
    return number;
  }
  fail(GSEL_ERR_NOMEM, "{} operations of callers exist, the most that there may be; destroy some", kPlaces);
}

}  // namespace

Operation operation_of(gsel_op op) {
  if (op < GSEL_OP_USER) {
    Operation operation;
    operation.op = op;
    return operation;
  }
  if (!alive(op)) fail(GSEL_ERR_ARG, "op {} was not made by gsel_op_create, or it is destroyed", op);
  return place_of(op).operation;
}

std::string operation_name(const Operation& operation) {
  if (operation.op != GSEL_OP_USER) return op_name(operation.op);
  return operation.name[0] ? in_quotes(operation.name) : "an operation of the caller's";
}

std::string operation_name(gsel_op op) {
  Operation operation;
  operation.op = std::min(op, GSEL_OP_USER);
  return operation_name(alive(op) ? place_of(op).operation : operation);
}

gsel_op create_operation(std::string_view name, uint64_t record, gsel_op_fn function, void* user_data,
                         gsel_free_fn free_user_data) {
  if (name.empty() || name.size() >= kOperationNameBytes || name.find('\0') != name.npos)
    fail(GSEL_ERR_ARG, "the name {} of an operation has {} bytes; use 1 to {} and no NUL among them", in_quotes(name),
         name.size(), kOperationNameBytes - 1);
  if (!function) fail(GSEL_ERR_ARG, "operation {} has no function; it is NULL", in_quotes(name));
  if (record < 1 || record > host::kMostRecordBytes)
    fail(GSEL_ERR_ARG, "operation {} has records of {}; use 1 for independent elements, {} at most", in_quotes(name),
         with_noun(record, "element"), host::kMostRecordBytes);
  Operation operation;
  operation.op = GSEL_OP_USER;
  operation.record = record;
  operation.function = function;
  operation.user_data = user_data;
  operation.name_hash = hash_of(name) + (record - 1) * 0x9e3779b97f4a7c15u;
  std::memcpy(operation.name, name.data(), name.size());
  return hand_out(operation, free_user_data);
}

gsel_op create_scaled_sum(double factor) {
  Operation operation;
  operation.op = GSEL_SCALED_SUM;
  operation.factor = factor;
  return hand_out(operation, nullptr);
}

void destroy_operation(gsel_op op) noexcept {
  if (!alive(op)) return;
  gsel_free_fn free_user_data = nullptr;
  void* user_data = nullptr;
  {
    const std::lock_guard lock(table().mutex);
    auto& place = place_of(op);
    if (place.number.load(std::memory_order_relaxed) != op) return;  // another thread has destroyed it meanwhile
    free_user_data = place.free_user_data;
    user_data = place.operation.user_data;
    place.number.store(0, std::memory_order_release);
  }
  if (free_user_data) free_user_data(user_data);
}

// ---- gsel_reduce_local ----------------------------------------------------------------------------------------------
// The reduction of the collectives, over buffers of one process.

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
