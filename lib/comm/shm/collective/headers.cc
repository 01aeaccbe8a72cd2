// comm/shm/collective/headers.cc: the header line that every collective begins with: posts it, reads those of all
// ranks, and fails if ranks disagree.
#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "base/types.h"
#include "comm/shm/collective/collectives.h"

namespace gsel::shm {
namespace {

// No rank reads the next line any more: moving it to this core's cache now saves the next call that time.
void prefetch_for_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace

void Collectives::post_header(const Call& call, const Plan& plan) {
  RankBlock& me = at_.mine();
  const uint64_t parity = ++sequence_ & 1;
  HeaderLine& line = me.line[parity];
  const uint64_t print = fingerprint_ = fingerprint(call);
  if (call.operation.op == GSEL_OP_USER) post_operation(call.operation, parity);
  me.posted[parity].store(number_, std::memory_order_release);
  me.factor[parity] = call.operation.factor;
  line.fingerprint = faults_.armed() ? print ^ faults_.corruption(number_) : print;
  if (small(call) && plan.publishes(at_.rank())) publish_small(call, plan, line, parity);
  if (!small(call) && at_.world_size() > 1) publish_addresses(call, plan, line);
  if ((needs_row(call) || call.send_parts) && !small(call)) publish_row(plan, parity);
  post(line.sequence, sequence_);
  hit(Step::header);
}

void Collectives::read_headers() {
  const uint64_t parity = sequence_ & 1, print = fingerprint_;
  bool alike = true;
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    const HeaderLine& other = at_.block(q).line[parity];
    wait(q, other.sequence, sequence_);
    alike = alike && other.fingerprint == print;
  }
  prefetch_for_write(&at_.mine().line[parity ^ 1]);
  if (!alike) fail_mismatch(parity);
}

bool Collectives::next_is_posted() const {
  const uint64_t next = sequence_ + 1;
  for (int32_t q = 0; q < at_.world_size(); ++q)
    if (at_.block(q).line[next & 1].sequence.load(std::memory_order_acquire) == next) return true;
  return false;
}

void Collectives::post_operation(const Operation& operation, uint64_t parity) {
  uint64_t name[kOperationNameBytes / sizeof(uint64_t)];
  std::memcpy(name, operation.name, sizeof name);
  for (size_t i = 0; i < std::size(name); ++i)
    at_.mine().operation[parity][i].store(name[i], std::memory_order_relaxed);
}

// All ranks read the same lines, so all throw the same text. It blames the first rank that differs from the majority.
void Collectives::fail_mismatch(uint64_t parity) {
  const auto print = [&](int32_t q) { return at_.block(q).line[parity].fingerprint; };
  int32_t usual = 0, most = 0;
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    int32_t like = 0;
    for (int32_t other = 0; other < at_.world_size(); ++other) like += print(other) == print(q);
    if (like > most) usual = q, most = like;
  }
  int32_t odd = 0;
  while (print(odd) == print(usual)) ++odd;
  const auto [low, high] = std::minmax(odd, usual);
  const auto number = [&](int32_t q) { return at_.block(q).posted[parity].load(std::memory_order_relaxed); };
  throw Error(GSEL_ERR_MISMATCH,
              fmt::format("{} called {}, {} called {}{}; make the calls alike on every rank{}", at_.named(low),
                          recorder_.text_of(low, number(low)), at_.named(high), recorder_.text_of(high, number(high)),
                          recorder_.difference(low, number(low), high, number(high)), at_.which()))
      .about_rank(at_.shown(odd));
}

void Collectives::publish_addresses(const Call& call, const Plan& plan, HeaderLine& line) {
  const auto offset_of = [&](const void* memory, uint64_t bytes) {
    return at_.one_process() ? 0 : memory_.offset_of(memory, bytes);
  };
  auto& at = *reinterpret_cast<BufferAddresses*>(line.payload);
  at.send_offset = offset_of(call.send, plan.send_bytes());
  at.recv_offset = offset_of(call.recv, plan.recv_bytes());
  at.send_address = reinterpret_cast<uintptr_t>(call.send);
  at.recv_address = reinterpret_cast<uintptr_t>(call.recv);
  at.reads_all = prefers_single_copy(call) && memory_.reads_all();
  at.in_parts = call.send_parts != nullptr;
}

void Collectives::publish_row(const Plan& plan, uint64_t parity) {
  static_assert(kMaxRanks * sizeof(Bytes) <= kLeastSmallBytes);
  auto* row = reinterpret_cast<Bytes*>(at_.arena().small(at_.rank(), parity));
  if (plan.publishes(at_.rank()))
    for (int32_t q = 0; q < at_.world_size(); ++q) row[q] = plan.sent(q);
}

// For an alltoallv: other ranks' send counts for this rank must equal its recv counts; finds the largest part.
void Collectives::read_rows(const Call& call, const Plan& plan) {
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    const Bytes* row = parts_of(q);
    for (int32_t reader = 0; reader < at_.world_size(); ++reader)
      largest_part_ = std::max(largest_part_, row[reader].count);
    if (row[at_.rank()].count != plan.target(q).count)
      breaking_.break_with(
          GSEL_ERR_MISMATCH, q,
          fmt::format("alltoallv: rank {} has {} of {} for rank {}, which expects {}; make send_counts "
                      "and recv_counts agree",
                      q, with_noun(row[at_.rank()].count / call.element, "element"), dtype_name(call.dtype), at_.rank(),
                      plan.target(q).count / call.element));
  }
}

}  // namespace gsel::shm
