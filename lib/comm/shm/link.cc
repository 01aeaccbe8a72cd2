// comm/shm/link.cc: calls and their header lines; see link.h.
#include "comm/shm/link.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "base/shard.h"
#include "comm/describe.h"
#include "comm/shm/kernels.h"

namespace gsel::shm {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0xbf58476d1ce4e5b9u;
  return hash ^ (hash >> 29);
}

uint64_t pack(gsel_collective_kind kind, gsel_dtype dtype, gsel_op op, int32_t root) {
  return static_cast<uint64_t>(static_cast<uint8_t>(kind)) << 56 |
         static_cast<uint64_t>(static_cast<uint8_t>(dtype)) << 48 |
         static_cast<uint64_t>(static_cast<uint8_t>(op)) << 40 | static_cast<uint32_t>(root);
}

uint64_t fingerprint(uint64_t packed, uint64_t count) {
  return mix(mix(0x9e3779b97f4a7c15u, packed), count);
}

constexpr int64_t kSpinOwnCoreNs = 50'000;
constexpr int64_t kSpinSharedNs = 1'000;

}  // namespace

Link::Link(const gsel_join& join)
    : rank_(join.rank),
      world_size_(join.world_size),
      timeout_ns_(static_cast<int64_t>(join.timeout_s * 1e9)),
      fork_generation_(os::fork_generation()) {
  Joined joined = rendezvous(join);
  arena_ = std::move(joined.arena);
  members_ = std::move(joined.members);
  life_ = std::move(joined.own_life);
  spin_ns_ = arena_->header().cores >= world_size_ ? kSpinOwnCoreNs : kSpinSharedNs;
}

Link::~Link() {
  if (os::fork_generation() != fork_generation_) return;  // the parent's communicator goes on without us
  mine().left.store(1, std::memory_order_seq_cst);
  wake(mine());
}

gsel_comm_count Link::counts(gsel_collective_kind kind) const noexcept {
  if (kind < 0 || kind >= GSEL_COLLECTIVE_KINDS) return {};
  const Progress& p = progress_[static_cast<size_t>(kind)];
  return {p.calls.load(std::memory_order_relaxed), p.bytes.load(std::memory_order_relaxed)};
}

Link::Call Link::complete(const gsel_collective& given) const {
  Call call{given.kind,
            given.dtype,
            given.op,
            given.root,
            given.count,
            dtype_bytes(given.dtype),
            static_cast<const char*>(given.send),
            static_cast<char*>(given.recv),
            0};
  call.payload_bytes = call.count * call.element;
  if (call.kind == GSEL_COLLECTIVE_REDUCE_SCATTER) call.payload_bytes *= ranks();
  return call;
}

void Link::collective(const gsel_collective& given) {
  if (os::fork_generation() != fork_generation_)
    fail(GSEL_ERR_FORKED, "{} on a communicator of the parent process; join a new one after fork",
         collective_name(given.kind));
  throw_if_broken();
  current_ = complete(given);
  deadline_ns_ = 0;
  published_ = 0;
  RankBlock& me = mine();
  record(me.latest, current_);
  me.latest_number.store(2 * ++number_, std::memory_order_relaxed);
  run(current_);
  me.latest_number.store(2 * number_ + 1, std::memory_order_relaxed);
  Progress& p = progress_[static_cast<size_t>(given.kind)];
  p.calls.store(p.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  p.bytes.store(p.bytes.load(std::memory_order_relaxed) + published_, std::memory_order_relaxed);
}

void Link::run(const Call& call) {
  if (call.kind == GSEL_COLLECTIVE_SEND) return send(call);
  if (call.kind == GSEL_COLLECTIVE_RECV) return recv(call);
  exchange_headers(call);
  if (world_size_ == 1) return run_alone(call);
  if (call.small()) return finish_small(call);
  run_large(call);
}

void Link::run_alone(const Call& call) {
  if (call.payload_bytes > 0 && call.send != call.recv) std::memcpy(call.recv, call.send, call.payload_bytes);
}

void Link::record(CallRecord& record, const Call& call) const {
  record.kind_dtype_op_root.store(pack(call.kind, call.dtype, call.op, call.root), std::memory_order_relaxed);
  record.count.store(call.count, std::memory_order_relaxed);
}

std::string Link::text_of(const CallRecord& record) const {
  const uint64_t packed = record.kind_dtype_op_root.load(std::memory_order_relaxed);
  return describe(static_cast<int32_t>(packed >> 56), static_cast<int32_t>(packed >> 48 & 255),
                  static_cast<int32_t>(packed >> 40 & 255), static_cast<int32_t>(static_cast<uint32_t>(packed)),
                  record.count.load(std::memory_order_relaxed));
}

void Link::exchange_headers(const Call& call) {
  RankBlock& me = mine();
  const uint64_t parity = ++sequence_ & 1;
  HeaderLine& line = me.line[parity];
  const uint64_t print = fingerprint(pack(call.kind, call.dtype, call.op, call.root), call.count);
  record(me.posted[parity], call);
  line.fingerprint = print;
  if (call.small() && publishes(call)) publish_small(call, line, parity);
  post(line.sequence, sequence_);
  bool alike = true;
  for (int32_t q = 0; q < world_size_; ++q) {
    const HeaderLine& other = arena_->rank(q).line[parity];
    wait(q, other.sequence, sequence_);
    alike = alike && other.fingerprint == print;
  }
  if (!alike) fail_mismatch(parity);
}

bool Link::publishes(const Call& call) const {
  return call.kind != GSEL_COLLECTIVE_BROADCAST || call.root == rank_;
}

void Link::publish_small(const Call& call, HeaderLine& line, uint64_t parity) {
  if (call.payload_bytes == 0) return;
  void* place = call.payload_bytes <= kLineBytes ? line.payload : static_cast<void*>(arena_->small(rank_, parity));
  std::memcpy(place, call.send, call.payload_bytes);
}

const char* Link::small_payload(int32_t rank, const Call& call) const {
  if (call.payload_bytes > kLineBytes) return arena_->small(rank, sequence_ & 1);
  return reinterpret_cast<const char*>(arena_->rank(rank).line[sequence_ & 1].payload);
}

// Every rank does the whole work on everybody's payload, in rank order.
void Link::finish_small(const Call& call) {
  published_ = small_bytes_sent(call);
  if (call.payload_bytes == 0) return;
  if (call.kind == GSEL_COLLECTIVE_BROADCAST) {
    std::memcpy(call.recv, small_payload(call.root, call), call.payload_bytes);
  } else if (call.kind == GSEL_COLLECTIVE_ALLGATHER) {
    for (int32_t q = 0; q < world_size_; ++q)
      std::memcpy(call.recv + static_cast<size_t>(q) * call.payload_bytes, small_payload(q, call), call.payload_bytes);
  } else {
    const size_t begin =
        call.kind == GSEL_COLLECTIVE_ALLREDUCE ? 0 : static_cast<size_t>(rank_) * call.count * call.element;
    const void* inputs[kMaxRanks];
    for (int32_t q = 0; q < world_size_; ++q) inputs[q] = small_payload(q, call) + begin;
    reduce(call.dtype, call.op, call.recv, inputs, world_size_, call.count);
  }
}

// The line protocol publishes everything at once; it counts what the staged protocol would need to publish.
uint64_t Link::small_bytes_sent(const Call& call) const {
  const uint64_t others = ranks() - 1, bytes = call.count * call.element;
  switch (call.kind) {
    case GSEL_COLLECTIVE_ALLREDUCE: {
      const gsel_range own = shard_range(static_cast<int64_t>(call.count), world_size_, rank_);
      return bytes + (others - 1) * static_cast<uint64_t>(own.end - own.begin) * call.element;
    }
    case GSEL_COLLECTIVE_BROADCAST:
      return publishes(call) ? bytes * others : 0;
    default:
      return bytes * others;
  }
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
  throw Error(GSEL_ERR_MISMATCH,
              fmt::format("rank {} called {}, rank {} called {}; make the calls alike on every rank", low,
                          text_of(arena_->rank(low).posted[parity]), high, text_of(arena_->rank(high).posted[parity])))
      .about_rank(odd);
}

}  // namespace gsel::shm
