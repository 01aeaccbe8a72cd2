// comm/shm/members/recorder.cc: see recorder.h. The end time of a failed call is negative.
#include "comm/shm/members/recorder.h"

#include <cstring>

#include "base/log.h"
#include "comm/call/collective.h"
#include "comm/shm/trace/trace.h"

namespace gsel::shm {

// Fills an entry of the flight recorder and publishes it as this rank's current call.
uint64_t FlightRecorder::enter(const Call& call) {
  const uint64_t number = ++entered_;
  CallEntry& entry = at_.own_entry(number);
  entry.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // no reader sees the stores below with the old number
  entry.packed.store(call.packed, std::memory_order_relaxed);
  entry.count.store(call.count, std::memory_order_relaxed);
  entry.detail.store(call.detail, std::memory_order_relaxed);
  entry.left.store(0, std::memory_order_relaxed);
  entry.label[0].store(call.label[0], std::memory_order_relaxed);
  entry.label[1].store(call.label[1], std::memory_order_relaxed);
  entry.entered.store(os::ticks(), std::memory_order_relaxed);
  entry.number.store(number, std::memory_order_release);
  at_.mine().latest_number.store(2 * number, std::memory_order_release);
  return number;
}

// Calls may end in any order. The entry of a long call may already be overwritten by a later one.
void FlightRecorder::leave(uint64_t number, bool failed) {
  CallEntry& entry = at_.own_entry(number);
  if (entry.number.load(std::memory_order_relaxed) == number)
    entry.left.store(failed ? -os::ticks() : os::ticks(), std::memory_order_relaxed);
  if (number == entered_) at_.mine().latest_number.store(2 * number + 1, std::memory_order_relaxed);
}

void FlightRecorder::count_call(gsel_collective_kind kind, uint64_t bytes) {
  Progress& p = progress_[static_cast<size_t>(kind)];
  p.calls.store(p.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  p.bytes.store(p.bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

gsel_comm_count FlightRecorder::counts(gsel_collective_kind kind) const {
  at_.require_own_process("gsel_comm_counts");
  gsel_comm_count count = GSEL_COMM_COUNT_INIT;
  if (kind < 0 || kind >= GSEL_COLLECTIVE_KINDS) return count;
  const Progress& p = progress_[static_cast<size_t>(kind)];
  count.calls = p.calls.load(std::memory_order_relaxed);
  count.bytes_sent = p.bytes.load(std::memory_order_relaxed);
  return count;
}

const char* FlightRecorder::difference(int32_t rank, uint64_t number, int32_t other, uint64_t other_number) const {
  if (text_of(rank, number) != text_of(other, other_number)) return "";
  const CallEntry &one = at_.arena().call(rank, number), &two = at_.arena().call(other, other_number);
  const PackedCall call = unpack(one.packed.load(std::memory_order_relaxed));
  if (call.origin == CallOrigin::enqueued_registered) return " with other offsets";
  const uint64_t differ = one.detail.load(std::memory_order_relaxed) ^ two.detail.load(std::memory_order_relaxed);
  if (call.kind != GSEL_COLLECTIVE_REDUCE_SCATTERV || differ == 0) return " with other counts or another operation";
  if (differ == offsets_in_detail(differ)) return " with other offsets";
  return offsets_in_detail(differ) == 0 ? " with other counts" : " with other counts and offsets";
}

namespace {

// A caller's operation as other ranks see it: its name, while the call's header line is not overwritten.
Operation posted_operation(const RankBlock& block, uint64_t number) {
  Operation operation;
  operation.op = GSEL_OP_USER;
  for (const size_t parity : {0, 1})
    if (block.posted[parity].load(std::memory_order_acquire) == number) {
      uint64_t name[kOperationNameBytes / sizeof(uint64_t)];
      for (size_t i = 0; i < std::size(name); ++i) name[i] = block.operation[parity][i].load(std::memory_order_relaxed);
      std::memcpy(operation.name, name, sizeof name);
      operation.name[sizeof name - 1] = '\0';
    }
  return operation;
}

}  // namespace

// A step of a call over several hosts is labelled "#4711 allreduce".
std::string FlightRecorder::text_of(const Arena& arena, const Call& call) {
  std::string text = origin_text(call.origin);
  const std::string_view label = reinterpret_cast<const char*>(call.label);
  if (const size_t blank = label.find(' ');
      label.starts_with('#') && blank != label.npos && arena.header().part_of.load(std::memory_order_acquire) != 0)
    return fmt::format("{}, call {} over all hosts", label.substr(blank + 1), label.substr(1, blank - 1));
  const bool is_member = call.root >= 0 && call.root < arena.layout().world_size;
  if (text.empty())
    text = describe(call.kind, call.dtype, call.operation.op,
                    is_member ? arena.rank(call.root).shown_rank.load(std::memory_order_relaxed) : call.root,
                    call.count, operation_name(call.operation), static_cast<int32_t>(call.detail));
  if (call.label[0] != 0) text += fmt::format(" \"{}\"", reinterpret_cast<const char*>(call.label));
  if (call.grouped) text += " in a group";
  if (call.origin >= CallOrigin::enqueued) text += " on a stream";
  if (call.origin == CallOrigin::enqueued_registered) text += " in registered memory";
  return text;
}

std::string FlightRecorder::text_of(const Arena& arena, int32_t rank, uint64_t number) {
  const CallEntry& entry = arena.call(rank, number);
  if (entry.number.load(std::memory_order_acquire) != number) return "a call it has gone on from";
  const PackedCall fields = unpack(entry.packed.load(std::memory_order_relaxed));
  Call call;
  call.kind = fields.kind;
  call.origin = fields.origin;
  call.grouped = fields.grouped;
  call.dtype = fields.dtype;
  call.operation.op = fields.op;
  if (fields.op == GSEL_OP_USER) call.operation = posted_operation(arena.rank(rank), number);
  call.root = fields.root;
  call.count = entry.count.load(std::memory_order_relaxed);
  call.detail = entry.detail.load(std::memory_order_relaxed);
  for (size_t i = 0; i < 2; ++i) call.label[i] = entry.label[i].load(std::memory_order_relaxed);
  return text_of(arena, call);
}

std::string FlightRecorder::activity_of(int32_t rank) const {
  const RankBlock& block = at_.block(rank);
  const uint64_t number = block.latest_number.load(std::memory_order_relaxed);
  if (number == 0) return "has made no call yet";
  return fmt::format("{} {} (call {})", number % 2 ? "last finished" : "is in", text_of(rank, number / 2), number / 2);
}

std::string FlightRecorder::trace(gsel_status code, const std::string& error) const {
  at_.require_own_process("gsel_comm_trace");
  const std::shared_ptr<Arena> arena = at_.arena_now();
  TraceReader reader{at_.rank(), code, error, {}};
  reader.alive = [&](int32_t q) -> std::optional<bool> { return !at_.family().ended(arena->rank(q).family_rank); };
  return trace_of(*arena, reader);
}

// The failure that broke the communicator is written to a file once. It ends all calls under way.
void FlightRecorder::note_failure(const Error& error, uint64_t collective) noexcept {
  switch (error.code()) {
    case GSEL_ERR_PEER:
    case GSEL_ERR_TIMEOUT:
    case GSEL_ERR_ABORTED:
    case GSEL_ERR_MISMATCH:
    case GSEL_ERR_CALLBACK:
      break;
    default:
      return;
  }
  const bool broken = at_.is_broken();
  const uint64_t newest = broken ? entered_ : collective;
  for (uint64_t back = 0; back < (broken ? kRingCalls : 1) && back < newest; ++back) {
    CallEntry& entry = at_.own_entry(newest - back);
    if (entry.left.load(std::memory_order_relaxed) == 0) entry.left.store(-os::ticks(), std::memory_order_relaxed);
  }
  if (at_.family().trace_folder.empty() || (broken && traced_ == at_.shared_arena())) return;
  if (broken) traced_ = at_.shared_arena();
  try {
    save_trace(at_.family().trace_folder, at_.rank(), trace(error.code(), error.message()));
  } catch (...) {
    log(GSEL_LOG_WARN, "comm", "no memory to write what rank {} recorded", at_.rank());
  }
}

}  // namespace gsel::shm
