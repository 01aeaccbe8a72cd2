// comm/shm/headers.cc: the header line that every collective begins with: what it says, who reads it, what follows if
// ranks disagree, and the choice of protocol.
#include <algorithm>
#include <cstring>

#include "comm/shm/link.h"

namespace gsel::shm {
namespace {

// Nobody reads the next line's memory any more: taking it from the others' caches now saves the next call that time.
void own_soon(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace

void Link::exchange_headers(const Call& call, const Plan& plan) {
  RankBlock& me = mine();
  const uint64_t parity = ++sequence_ & 1;
  HeaderLine& line = me.line[parity];
  const uint64_t print = fingerprint(call);
  if (call.operation.op == GSEL_OP_USER) post_operation(call.operation, parity);
  me.posted[parity].store(number_, std::memory_order_release);
  me.factor[parity] = call.operation.factor;
  line.fingerprint = faults_.armed() ? print ^ faults_.corruption(number_) : print;
  if (small(call) && plan.publishes(rank_)) publish_small(call, plan, line, parity);
  if (!small(call) && world_size_ > 1) publish_addresses(call, plan, line);
  if (needs_row(call) && !small(call)) publish_row(plan, parity);
  post(line.sequence, sequence_);
  hit(Step::header);
  bool alike = true;
  for (int32_t q = 0; q < world_size_; ++q) {
    const HeaderLine& other = arena_->rank(q).line[parity];
    wait(q, other.sequence, sequence_);
    alike = alike && other.fingerprint == print;
  }
  own_soon(&me.line[parity ^ 1]);
  if (!alike) fail_mismatch(parity);
}

bool Link::next_is_posted() const {
  const uint64_t next = sequence_ + 1;
  for (int32_t q = 0; q < world_size_; ++q)
    if (arena_->rank(q).line[next & 1].sequence.load(std::memory_order_acquire) == next) return true;
  return false;
}

void Link::post_operation(const Operation& operation, uint64_t parity) {
  uint64_t name[kOperationNameBytes / sizeof(uint64_t)];
  std::memcpy(name, operation.name, sizeof name);
  for (size_t i = 0; i < std::size(name); ++i) mine().operation[parity][i].store(name[i], std::memory_order_relaxed);
}

// All ranks read the same lines, so all come to the same words. The odd one out is the first that differs from the
// most.
void Link::fail_mismatch(uint64_t parity) {
  const auto print = [&](int32_t q) { return arena_->rank(q).line[parity].fingerprint; };
  int32_t usual = 0, most = 0;
  for (int32_t q = 0; q < world_size_; ++q) {
    int32_t like = 0;
    for (int32_t other = 0; other < world_size_; ++other) like += print(other) == print(q);
    if (like > most) usual = q, most = like;
  }
  int32_t odd = 0;
  while (print(odd) == print(usual)) ++odd;
  const auto [low, high] = std::minmax(odd, usual);
  const auto number = [&](int32_t q) { return arena_->rank(q).posted[parity].load(std::memory_order_relaxed); };
  throw Error(GSEL_ERR_MISMATCH,
              fmt::format("{} called {}, {} called {}{}; make the calls alike on every rank{}", named(low),
                          text_of(low, number(low)), named(high), text_of(high, number(high)),
                          difference(low, number(low), high, number(high)), which()))
      .about_rank(shown(odd));
}

Protocol Link::choose(const Call& call, const Plan& plan) const {
  if (world_size_ == 1) return Protocol::alone;
  if (call.payload_bytes <= kLineBytes) return Protocol::line;
  return small(call) ? Protocol::slots : choose_large(call, plan);
}

Protocol Link::choose_large(const Call& call, const Plan& plan) const {
  if (reachable(call, plan)) return Protocol::direct;
  if (!prefers_single_copy(call)) return Protocol::staged;
  for (int32_t q = 0; q < world_size_; ++q)
    if (addresses_of(q).reads_all == 0) return Protocol::staged;
  return Protocol::single_copy;
}

// A reduce to one rank has no memory on the others to fetch results from but staging.
bool Link::prefers_single_copy(const Call& call) const {
  switch (call.kind) {
    case GSEL_COLLECTIVE_REDUCE:
      return false;
    case GSEL_COLLECTIVE_ALLREDUCE:
      return call.payload_bytes >= tuning_.single_copy_allreduce_from;
    case GSEL_COLLECTIVE_BROADCAST:
      return call.payload_bytes >= tuning_.single_copy_broadcast_from &&
             call.payload_bytes <= tuning_.single_copy_broadcast_to;
    default:
      return call.payload_bytes >= (gathers(call) ? tuning_.single_copy_gather_from : tuning_.single_copy_from);
  }
}

void Link::publish_addresses(const Call& call, const Plan& plan, HeaderLine& line) {
  const auto offset_of = [&](const void* memory, uint64_t bytes) {
    return one_process_ ? 0 : family_->offset_of(memory, bytes);
  };
  auto& at = *reinterpret_cast<BufferAddresses*>(line.payload);
  at.send_offset = offset_of(call.send, plan.send_bytes());
  at.recv_offset = offset_of(call.recv, plan.recv_bytes());
  at.send_address = reinterpret_cast<uintptr_t>(call.send);
  at.recv_address = reinterpret_cast<uintptr_t>(call.recv);
  at.reads_all = prefers_single_copy(call) && reads_all();
}

}  // namespace gsel::shm
