// comm/shm/copy/direct.cc: large payloads in memory that every rank can access: memory of gsel_mem_alloc, registered
// memory, or any memory if all ranks are threads of one process. Nothing is copied on the way. A reduction cuts the
// elements into one slice per rank; the owner of a slice reads it from every input and writes the result to every
// output. No rank returns before the others are done with its buffers, unless the call fails.
//
// If the call fails, data that a rank has read from others may be anything. So a rank checks once more for a failure
// before it says that it is done. A rank whose call has failed waits for those who still write to its buffer. If one of
// them does not finish, it was stopped, and the buffer is taken out of shared memory (isolate.cc).
#include <sched.h>

#include <cstring>
#include <optional>

#include "comm/describe.h"
#include "comm/shm/link.h"

namespace gsel::shm {
namespace {

constexpr int64_t kTakeBackNs = 10'000'000;

}  // namespace

// Whether the ranks reach each other's buffers as far as this call needs; the same verdict on every rank, since all
// read the same lines.
bool Link::reachable(const Call& call, const Plan& plan) const {
  if (one_process_) return true;
  const bool all_recv = call.kind == GSEL_COLLECTIVE_ALLREDUCE, reduces = is_reduction(call.kind);
  for (int32_t q = 0; q < world_size_; ++q) {
    const BufferAddresses& at = addresses_of(q);
    if ((reduces || plan.publishes(q)) && at.send_offset == 0) return false;
    if ((all_recv || (call.kind == GSEL_COLLECTIVE_REDUCE && q == call.root)) && at.recv_offset == 0) return false;
  }
  return true;
}

const char* Link::send_of(int32_t rank) const {
  const BufferAddresses& at = addresses_of(rank);
  return one_process_ ? reinterpret_cast<const char*>(at.send_address) : shared(at.send_offset);
}

char* Link::recv_of(int32_t rank) const {
  const BufferAddresses& at = addresses_of(rank);
  return one_process_ ? reinterpret_cast<char*>(at.recv_address) : shared(at.recv_offset);
}

// Where this process has it. Others wait for this rank, so that not to have it fails the call for all.
char* Link::shared(uint64_t offset) const {
  try {
    return family_->memory()->at(offset);
  } catch (const Error& e) {
    break_link(e.code(), rank_, fmt::format("{}: {}", named(rank_), e.what()));
  }
}

// Buffers go back to their owners when a call fails, while others may still be at work in them. So whoever writes to
// them, or reads memory of a thread, says so and then looks whether the call has failed; whoever fails looks the other
// way round. Orders as in tests/model; change both.
class Link::Touching {
 public:
  explicit Touching(const Link& link) : block_(link.mine()) {
    block_.touching.store(1, std::memory_order_seq_cst);
    if (link.arena_->header().broken.load(std::memory_order_seq_cst) == 0) return;
    block_.touching.store(0, std::memory_order_release);
    link.throw_broken();
  }
  ~Touching() { block_.touching.store(0, std::memory_order_release); }
  Touching(const Touching&) = delete;
  Touching& operator=(const Touching&) = delete;

 private:
  RankBlock& block_;
};

// Returns once no other rank writes to the buffers of the call that has failed.
void Link::take_back_buffers() noexcept {
  os::fence(std::memory_order_release);  // for throw_if_taken_back of who reads them
  if (world_size_ == 1 || arena_->header().broken.load(std::memory_order_seq_cst) == 0) return;
  const int64_t deadline = os::now_ns() + kTakeBackNs;
  bool stopped = false;
  for (int32_t q = 0; q < world_size_; ++q) stopped = !ends_touching(q, deadline) || stopped;
  const bool written =
      current_.kind == GSEL_COLLECTIVE_ALLREDUCE || (current_.kind == GSEL_COLLECTIVE_REDUCE && current_.root == rank_);
  if (stopped && written) family_->isolate(current_.recv, current_.count * current_.element);
}

// A thread of this process goes on as long as we do; another process may not, and after its end it writes nothing.
bool Link::ends_touching(int32_t rank, int64_t deadline_ns) const noexcept {
  const bool other_process = member(rank).process != member(rank_).process;
  while (arena_->rank(rank).touching.load(std::memory_order_seq_cst) != 0) {
    if (other_process && family_->ended(arena_->rank(rank).family_rank)) return true;
    if (other_process && os::now_ns() >= deadline_ns) return false;
    sched_yield();
  }
  return true;
}

void Link::run_direct(const Call& call, const Plan& plan) {
  const bool reduces = is_reduction(call.kind);
  std::optional<Touching> touching;
  if (one_process_ || reduces) touching.emplace(*this);
  if (reduces)
    reduce_direct(call, plan);
  else
    copy_direct(call, plan);
  touching.reset();
  finish_direct(call, plan);
}

// What was read in place counts only if its owner still lends it.
void Link::throw_if_taken_back() const {
  os::fence(std::memory_order_acquire);
  throw_if_broken();
}

// No rank goes on before the others are done with its buffers.
void Link::finish_direct(const Call& call, const Plan& plan) {
  hit(Step::direct);
  throw_if_taken_back();
  post(mine().copied, ++chunks_);
  hit(Step::copied);
  if (is_reduction(call.kind)) return wait_all(&RankBlock::copied, chunks_);
  for (int32_t q = 0; q < world_size_; ++q)
    if (plan.source(q).count > 0) wait(q, arena_->rank(q).copied, chunks_);
}

void Link::copy_direct(const Call& call, const Plan& plan) {
  const bool streaming = call.payload_bytes >= tuning_.stream_from;
  copy_own_part(call, plan);
  for (int32_t i = 1; i < world_size_; ++i) {
    const int32_t q = (rank_ + i) % world_size_;
    const Bytes to = plan.target(q);
    if (to.count == 0) continue;
    const char* from = send_of(q) + (needs_row(call) ? row_of(q)[rank_] : plan.packed(q, rank_)).begin;
    if (streaming)
      host::copy_streaming(call.recv + to.begin, from, to.count);
    else
      std::memcpy(call.recv + to.begin, from, to.count);
  }
}

void Link::reduce_direct(const Call& call, const Plan& plan) {
  const gsel_range slice = plan.slice(rank_);
  const size_t begin = static_cast<size_t>(slice.begin) * call.element;
  const auto count = static_cast<size_t>(slice.end - slice.begin);
  const void* inputs[kMaxRanks];
  void* outputs[kMaxRanks];
  int n_outputs = 1;
  for (int32_t q = 0; q < world_size_; ++q) inputs[q] = send_of(q) + begin;
  if (call.kind == GSEL_COLLECTIVE_ALLREDUCE) {
    for (int32_t q = 0; q < world_size_; ++q) outputs[q] = recv_of(q) + begin;
    n_outputs = world_size_;
  } else {
    outputs[0] = call.kind == GSEL_COLLECTIVE_REDUCE ? recv_of(call.root) + begin : call.recv;
  }
  double factors[kMaxRanks];
  if (count > 0)
    host::reduce_to(fold_of(call, factors), outputs, n_outputs, inputs, world_size_, count,
                    call.payload_bytes >= tuning_.stream_from);
}

}  // namespace gsel::shm
