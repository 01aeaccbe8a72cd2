// comm/shm/collective/direct.cc: large payloads in memory that every rank can access: memory of gsel_mem_alloc,
// registered memory, or any memory if all ranks are threads of one process. There are no intermediate copies. A
// reduction divides the elements into one slice per rank; the owner of a slice reads it from every input and writes the
// result to every output. No rank returns before the others are done with its buffers, unless the call fails.
//
// If the call fails, data that a rank has read from others may be invalid. So a rank checks for a failure again before
// it posts that it is done. A rank whose call has failed waits for the ranks that still write to its buffer. If one of
// them does not finish, it was stopped, and the buffer is taken out of shared memory (Family::isolate).
#include <sched.h>

#include <cstring>
#include <optional>

#include "comm/call/collective.h"
#include "comm/shm/collective/collectives.h"

namespace gsel::shm {
namespace {

constexpr int64_t kTakeBackNs = 10'000'000;

}  // namespace

const char* Collectives::send_of(int32_t rank) const {
  const BufferAddresses& at = addresses_of(rank);
  return at_.one_process() ? reinterpret_cast<const char*>(at.send_address) : memory_.shared(at.send_offset);
}

char* Collectives::recv_of(int32_t rank) const {
  const BufferAddresses& at = addresses_of(rank);
  return at_.one_process() ? reinterpret_cast<char*>(at.recv_address) : memory_.shared(at.recv_offset);
}

// Buffers go back to their owners when a call fails, while other ranks may still use them. So a rank that writes to
// buffers, or reads memory of a thread, sets `touching` and then checks for a failure; a rank that fails checks in the
// opposite order. Memory orders as in tests/model; change both.
class Collectives::Touching {
 public:
  Touching(const Membership& members, const Breaking& breaking) : block_(members.mine()) {
    block_.touching.store(1, std::memory_order_seq_cst);
    if (members.header().broken.load(std::memory_order_seq_cst) == 0) return;
    block_.touching.store(0, std::memory_order_release);
    breaking.throw_broken();
  }
  ~Touching() { block_.touching.store(0, std::memory_order_release); }
  Touching(const Touching&) = delete;
  Touching& operator=(const Touching&) = delete;

 private:
  RankBlock& block_;
};

// Waits until no other rank writes to the buffers of the failed call.
void Collectives::take_back_buffers() noexcept {
  os::fence(std::memory_order_release);  // pairs with throw_if_taken_back of a reader
  if (at_.world_size() == 1 || at_.header().broken.load(std::memory_order_seq_cst) == 0) return;
  const int64_t deadline = os::now_ns() + kTakeBackNs;
  bool stopped = false;
  for (int32_t q = 0; q < at_.world_size(); ++q) stopped = !ends_touching(q, deadline) || stopped;
  const bool written = current_.kind == GSEL_COLLECTIVE_ALLREDUCE ||
                       (current_.kind == GSEL_COLLECTIVE_REDUCE && current_.root == at_.rank());
  if (stopped && written) at_.family().isolate(current_.recv, current_.count * current_.element);
}

// A thread of this process runs as long as this one does. Another process may be stopped, or end and write no more.
bool Collectives::ends_touching(int32_t rank, int64_t deadline_ns) const noexcept {
  const bool other_process = !at_.is_thread_here(rank);
  while (at_.block(rank).touching.load(std::memory_order_seq_cst) != 0) {
    if (other_process && at_.family().ended(at_.block(rank).family_rank)) return true;
    if (other_process && os::now_ns() >= deadline_ns) return false;
    sched_yield();
  }
  return true;
}

void Collectives::run_direct(const Call& call, const Plan& plan) {
  const bool reduces = is_reduction(call.kind);
  std::optional<Touching> touching;
  if (at_.one_process() || reduces) touching.emplace(at_, breaking_);
  if (reduces)
    reduce_direct(call, plan);
  else
    copy_direct(call, plan);
  touching.reset();
  finish_direct(call, plan);
}

// No rank returns before the others are done with its buffers.
void Collectives::finish_direct(const Call& call, const Plan& plan) {
  hit(Step::direct);
  memory_.throw_if_taken_back();
  post(at_.mine().copied, ++chunks_);
  hit(Step::copied);
  if (is_reduction(call.kind)) return wait_all(&RankBlock::copied, chunks_);
  for (int32_t q = 0; q < at_.world_size(); ++q)
    if (plan.source(q).count > 0) wait(q, at_.block(q).copied, chunks_);
}

void Collectives::copy_direct(const Call& call, const Plan& plan) {
  const bool streaming = call.payload_bytes >= tuning_.stream_from;
  copy_own_part(call, plan);
  for (int32_t i = 1; i < at_.world_size(); ++i) {
    const int32_t q = (at_.rank() + i) % at_.world_size();
    const Bytes to = plan.target(q);
    if (to.count == 0) continue;
    const char* from = send_of(q) + sent_at(q, call, plan.packed(q, at_.rank()).begin);
    if (streaming)
      host::copy_streaming(call.recv + to.begin, from, to.count);
    else
      std::memcpy(call.recv + to.begin, from, to.count);
  }
}

void Collectives::reduce_direct(const Call& call, const Plan& plan) {
  const gsel_range slice = plan.slice(at_.rank());
  const size_t begin = static_cast<size_t>(slice.begin) * call.element;
  const auto count = static_cast<size_t>(slice.end - slice.begin);
  const void* inputs[kMaxRanks];
  void* outputs[kMaxRanks];
  int n_outputs = 1;
  const uint64_t usual = usual_begin(call, plan);
  for (int32_t q = 0; q < at_.world_size(); ++q) inputs[q] = send_of(q) + sent_at(q, call, usual);
  if (call.kind == GSEL_COLLECTIVE_ALLREDUCE) {
    for (int32_t q = 0; q < at_.world_size(); ++q) outputs[q] = recv_of(q) + begin;
    n_outputs = at_.world_size();
  } else {
    outputs[0] = call.kind == GSEL_COLLECTIVE_REDUCE ? recv_of(call.root) + begin : call.recv;
  }
  double factors[kMaxRanks];
  if (count > 0)
    host::reduce_to(fold_of(call, factors), outputs, n_outputs, inputs, at_.world_size(), count,
                    call.payload_bytes >= tuning_.stream_from);
}

}  // namespace gsel::shm
