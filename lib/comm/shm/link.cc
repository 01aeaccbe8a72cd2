// comm/shm/link.cc: calls and their header lines; see link.h.
#include "comm/shm/link.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "base/text.h"
#include "comm/describe.h"

namespace gsel::shm {
namespace {

constexpr int64_t kSpinOwnCoreNs = 50'000;
constexpr int64_t kSpinSharedNs = 200;

uint64_t mix(uint64_t hash) {
  hash = (hash ^ (hash >> 31)) * 0xbf58476d1ce4e5b9u;
  return hash ^ (hash >> 29);
}

// Kind, type, operation and roots in one word; a caller's operation is 255.
uint64_t pack(const Call& call) {
  const gsel_op op = std::min<gsel_op>(call.operation.op, 255);
  return static_cast<uint64_t>(static_cast<uint8_t>(call.kind)) << 56 |
         static_cast<uint64_t>(static_cast<uint8_t>(call.dtype)) << 48 |
         static_cast<uint64_t>(static_cast<uint8_t>(op)) << 40 |
         static_cast<uint64_t>(static_cast<uint16_t>(call.source)) << 16 | static_cast<uint16_t>(call.root);
}

uint64_t fingerprint(const Call& call) {
  return mix(pack(call) * 0x9e3779b97f4a7c15u ^ call.count * 0xc2b2ae3d27d4eb4fu ^ call.detail);
}

uint64_t hash_of(const uint64_t* counts, size_t n) {
  uint64_t hash = n;
  for (size_t i = 0; i < n; ++i) hash = mix(hash ^ counts[i] * 0x9e3779b97f4a7c15u);
  return hash;
}

uint64_t sum_of(const uint64_t* counts, size_t n) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) sum += counts[i];
  return sum;
}

}  // namespace

Link::Link(const gsel_join& join)
    : rank_(join.rank),
      world_size_(join.world_size),
      faults_(Faults::of_environment(join.rank, join.world_size)),
      timeout_ns_(static_cast<int64_t>(join.timeout_s * 1e9)),
      fork_generation_(os::fork_generation()) {
  Joined joined = rendezvous(join);
  family_ = std::move(joined.family);
  arena_ = std::move(joined.arena);
  spin_ns_ = arena_->header().cores >= world_size_ ? kSpinOwnCoreNs : kSpinSharedNs;
  asymmetric_ = arena_->header().asymmetric != 0;
  sent_.resize(ranks());
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

void Link::complete(const gsel_collective& given, Call& call) const {
  const uint64_t n = ranks();
  call = {};
  call.kind = given.kind;
  call.dtype = given.dtype;
  call.root = given.root;
  call.source = given.source;
  call.count = given.count;
  call.recv_count = given.recv_count;
  call.element = dtype_bytes(given.dtype);
  call.send = static_cast<const char*>(given.send);
  call.recv = static_cast<char*>(given.recv);
  call.send_counts = given.send_counts;
  call.send_offsets = given.send_offsets;
  call.recv_counts = given.recv_counts;
  call.recv_offsets = given.recv_offsets;
  call.timeout_ns = given.timeout_s > 0 ? static_cast<int64_t>(given.timeout_s * 1e9) : timeout_ns_.load();
  if (given.label.data) {
    const std::string_view label = view(given.label);
    std::memcpy(call.label, label.data(), std::min(label.size(), sizeof call.label - 1));
  }
  const uint64_t bytes = call.count * call.element;
  call.payload_bytes = bytes;
  switch (call.kind) {
    case GSEL_COLLECTIVE_REDUCE_SCATTER:
    case GSEL_COLLECTIVE_SCATTER:
    case GSEL_COLLECTIVE_ALLTOALL:
      call.payload_bytes = bytes * n;
      break;
    case GSEL_COLLECTIVE_ALLGATHERV:
    case GSEL_COLLECTIVE_GATHERV:
      call.payload_bytes = *std::max_element(call.recv_counts, call.recv_counts + n) * call.element;
      call.count = sum_of(call.recv_counts, n);
      call.detail = hash_of(call.recv_counts, n);
      break;
    case GSEL_COLLECTIVE_REDUCE_SCATTERV:
    case GSEL_COLLECTIVE_SCATTERV: {
      const uint64_t* counts = call.kind == GSEL_COLLECTIVE_SCATTERV ? call.send_counts : call.recv_counts;
      call.count = sum_of(counts, n);
      call.payload_bytes = call.count * call.element;
      call.detail = hash_of(counts, n);
      break;
    }
    case GSEL_COLLECTIVE_ALLTOALLV:
      call.count = 0;  // of no meaning between ranks
      call.payload_bytes = UINT64_MAX;
      break;
    default:
      break;
  }
  if (is_reduction(call.kind)) {
    call.operation = operation_of(given.op);
    if (given.op == GSEL_SCALED_SUM) call.operation.factor = given.factor;
    call.detail ^= call.operation.name_hash;
  }
}

void Link::collective(const gsel_collective& given) {
  if (os::fork_generation() != fork_generation_)
    fail(GSEL_ERR_FORKED, "{} on a communicator of the parent process; join a new one after fork",
         collective_name(given.kind));
  throw_if_broken();
  complete(given, current_);
  deadline_ns_ = 0;
  published_ = 0;
  enter(current_);
  hit(Step::enter);
  run(current_);
  hit(Step::leave);
  leave();
}

// One place of the flight recorder, and what others are told of when they ask what this rank is at.
void Link::enter(const Call& call) {
  CallEntry& entry = arena_->call(rank_, ++number_);
  entry.number.store(0, std::memory_order_relaxed);
  entry.packed.store(pack(call), std::memory_order_relaxed);
  entry.count.store(call.count, std::memory_order_relaxed);
  entry.detail.store(call.detail, std::memory_order_relaxed);
  entry.left.store(0, std::memory_order_relaxed);
  entry.label[0].store(call.label[0], std::memory_order_relaxed);
  entry.label[1].store(call.label[1], std::memory_order_relaxed);
  entry.entered.store(os::ticks(), std::memory_order_relaxed);
  entry.number.store(number_, std::memory_order_release);
  mine().latest_number.store(2 * number_, std::memory_order_release);
}

void Link::leave() {
  arena_->call(rank_, number_).left.store(os::ticks(), std::memory_order_relaxed);
  mine().latest_number.store(2 * number_ + 1, std::memory_order_relaxed);
  Progress& p = progress_[static_cast<size_t>(current_.kind)];
  p.calls.store(p.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  p.bytes.store(p.bytes.load(std::memory_order_relaxed) + published_, std::memory_order_relaxed);
}

void Link::run(const Call& call) {
  if (call.kind == GSEL_COLLECTIVE_SEND) return send(call);
  if (call.kind == GSEL_COLLECTIVE_RECV) return recv(call);
  const Plan plan(call, rank_, world_size_);
  largest_part_ = call.kind == GSEL_COLLECTIVE_ALLTOALLV ? 0 : plan.largest_part();
  exchange_headers(call, plan);
  if (call.kind == GSEL_COLLECTIVE_ALLTOALLV) read_rows(call, plan);
  if (world_size_ == 1)
    run_alone(call, plan);
  else if (small(call))
    finish_small(call, plan);
  else
    run_staged(call, plan);
  published_ = bytes_sent(call, plan);
}

void Link::run_alone(const Call& call, const Plan& plan) {
  if (!is_reduction(call.kind)) return copy_own_part(call, plan);
  const void* input = call.send;
  double factor = 1;
  if (call.count > 0) reduce(fold_of(call, &factor), call.recv, &input, 1, call.count);
}

std::string Link::text_of(const Call& call) const {
  std::string text = describe(call.kind, call.dtype, call.operation.op, call.root, call.count);
  if (call.label[0] != 0) text += fmt::format(" \"{}\"", reinterpret_cast<const char*>(call.label));
  return text;
}

std::string Link::text_of(int32_t rank, uint64_t number) const {
  const CallEntry& entry = arena_->call(rank, number);
  if (entry.number.load(std::memory_order_acquire) != number) return "a call it has gone on from";
  const uint64_t packed = entry.packed.load(std::memory_order_relaxed);
  Call call;
  call.kind = static_cast<int32_t>(packed >> 56);
  call.dtype = static_cast<int32_t>(packed >> 48 & 255);
  call.operation.op = static_cast<int32_t>(packed >> 40 & 255);
  if (call.operation.op == 255) call.operation.op = GSEL_OP_USER;
  call.root = static_cast<int16_t>(packed & 0xffff);
  call.count = entry.count.load(std::memory_order_relaxed);
  for (size_t i = 0; i < 2; ++i) call.label[i] = entry.label[i].load(std::memory_order_relaxed);
  return text_of(call);
}

void Link::exchange_headers(const Call& call, const Plan& plan) {
  RankBlock& me = mine();
  const uint64_t parity = ++sequence_ & 1;
  HeaderLine& line = me.line[parity];
  const uint64_t print = fingerprint(call);
  me.posted[parity].store(number_, std::memory_order_relaxed);
  me.factor[parity] = call.operation.factor;
  line.fingerprint = faults_.armed() ? print ^ faults_.corruption(number_) : print;
  if (small(call) && plan.publishes(rank_)) publish_small(call, plan, line, parity);
  if (needs_row(call)) publish_row(plan, parity);
  post(line.sequence, sequence_);
  hit(Step::header);
  bool alike = true;
  for (int32_t q = 0; q < world_size_; ++q) {
    const HeaderLine& other = arena_->rank(q).line[parity];
    wait(q, other.sequence, sequence_);
    alike = alike && other.fingerprint == print;
  }
  if (!alike) fail_mismatch(parity);
}

Fold Link::fold_of(const Call& call, double* factors) const {
  Fold fold;
  fold.dtype = call.dtype;
  fold.op = call.operation.op;
  fold.order = arena_->header().order;
  fold.function = call.operation.function;
  fold.user_data = call.operation.user_data;
  if (fold.op == GSEL_SCALED_SUM) {
    for (int32_t q = 0; q < world_size_; ++q) factors[q] = arena_->rank(q).factor[sequence_ & 1];
    fold.factors = factors;
  }
  return fold;
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
  const auto text = [&](int32_t q) {
    return text_of(q, arena_->rank(q).posted[parity].load(std::memory_order_relaxed));
  };
  throw Error(GSEL_ERR_MISMATCH,
              fmt::format("rank {} called {}, rank {} called {}{}; make the calls alike on every rank", low, text(low),
                          high, text(high), text(low) == text(high) ? " with other counts or another operation" : ""))
      .about_rank(odd);
}

}  // namespace gsel::shm
