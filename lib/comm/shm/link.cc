// comm/shm/link.cc: calls and their header lines; see link.h.
#include "comm/shm/link.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/dtype.h"
#include "base/text.h"
#include "comm/describe.h"
#include "comm/shm/watcher.h"

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

// Nobody reads the next line's memory any more: taking it from the others' caches now saves the next call that time.
void own_soon(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

Link::Place join_family(const gsel_join& join) {
  Faults faults = Faults::of_environment(join.rank, join.world_size);
  Joined joined = rendezvous(join);
  if (join.trace.len > 0) joined.family->trace_folder = std::filesystem::absolute(text(join.trace)).string();
  if ((join.flags & GSEL_COMM_NO_THREAD) == 0) joined.family->watch();
  return {std::move(joined.family),
          std::move(joined.arena),
          join.rank,
          static_cast<int64_t>(join.timeout_s * 1e9),
          (join.flags & GSEL_COMM_NO_THREAD) == 0,
          std::move(faults)};
}

}  // namespace

Link::Link(const gsel_join& join) : Link(join_family(join)) {}

Link::Link(Place place)
    : rank_(place.rank),
      world_size_(place.arena->layout().world_size),
      faults_(std::move(place.faults)),
      family_(std::move(place.family)),
      arena_(std::move(place.arena)),
      timeout_ns_(place.timeout_ns),
      spin_ns_(arena_->header().cores >= world_size_ ? kSpinOwnCoreNs : kSpinSharedNs),
      asymmetric_(arena_->header().asymmetric != 0),
      fork_generation_(os::fork_generation()),
      tuning_(arena_->header().tuning),
      peers_(ranks()),
      threads_allowed_(place.threads_allowed),
      engine_(std::make_unique<Engine>(*this)) {
  for (int32_t q = 0; q < world_size_; ++q)
    one_process_ = one_process_ && member(q).process == family_->member(family_->rank()).process;
  if (family_->watcher()) family_->watcher()->add(*family_, *this);
}

Link::~Link() {
  if (os::fork_generation() != fork_generation_) {  // the parent's communicator goes on without us
    static_cast<void>(engine_.release());           // its locks may be held by a thread that is not here
    return;
  }
  if (engine_->under_way()) abort("destroyed with requests under way");
  engine_->stop();
  if (family_->watcher()) family_->watcher()->remove(*family_, *this);
  leave(*arena_);
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
    call.operation.op = given.op;
    if (given.op == GSEL_SCALED_SUM) call.operation.factor = given.factor;
    if (given.op >= GSEL_OP_USER) call.operation = operation_of(given.op);
    call.detail ^= call.operation.name_hash;
  }
}

void Link::collective(const gsel_collective& given) {
  require_own_process(collective_name(given.kind));
  if (engine_->busy()) return group(&given, 1);
  execute(given);
}

void Link::execute(const gsel_collective& given) {
  try {
    throw_if_broken();
    if (is_point_to_point(given.kind)) return message(given);
    complete(given, current_);
    deadline_ns_ = 0;
    published_ = 0;
    number_ = enter(current_);
    hit(Step::enter);
    run_callbacks_too(current_);
    hit(Step::leave);
    leave(number_);
    count_call(current_.kind, published_);
  } catch (const Error& error) {
    note_failure(error);
    throw;
  }
}

// A caller's operation that fails here leaves the others waiting for results, so it fails for all.
void Link::run_callbacks_too(const Call& call) {
  try {
    run(call);
  } catch (const Error& e) {
    if (e.code() != GSEL_ERR_CALLBACK) throw;
    break_link(GSEL_ERR_CALLBACK, rank_,
               fmt::format("rank {}: {} in {} (call {})", rank_, e.what(), text_of(call), number_));
  }
}

// One place of the flight recorder, and what others are told of when they ask what this rank is at.
uint64_t Link::enter(const Call& call) {
  const uint64_t number = ++entered_;
  CallEntry& entry = arena_->call(rank_, number);
  entry.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // what follows is not seen with the number before
  entry.packed.store(pack(call), std::memory_order_relaxed);
  entry.count.store(call.count, std::memory_order_relaxed);
  entry.detail.store(call.detail, std::memory_order_relaxed);
  entry.left.store(0, std::memory_order_relaxed);
  entry.label[0].store(call.label[0], std::memory_order_relaxed);
  entry.label[1].store(call.label[1], std::memory_order_relaxed);
  entry.entered.store(os::ticks(), std::memory_order_relaxed);
  entry.number.store(number, std::memory_order_release);
  mine().latest_number.store(2 * number, std::memory_order_release);
  return number;
}

// Calls may end in another order than they began; the place of one that took long may be a later one's by now.
void Link::leave(uint64_t number) {
  CallEntry& entry = arena_->call(rank_, number);
  if (entry.number.load(std::memory_order_relaxed) == number) entry.left.store(os::ticks(), std::memory_order_relaxed);
  if (number == entered_) mine().latest_number.store(2 * number + 1, std::memory_order_relaxed);
}

void Link::count_call(gsel_collective_kind kind, uint64_t bytes) {
  Progress& p = progress_[static_cast<size_t>(kind)];
  p.calls.store(p.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  p.bytes.store(p.bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

void Link::run(const Call& call) {
  const Plan plan(call, rank_, world_size_);
  largest_part_ = plan.largest_part();
  exchange_headers(call, plan);
  if (call.kind == GSEL_COLLECTIVE_ALLTOALLV) read_rows(call, plan);
  switch (choose(call, plan)) {
    case Protocol::alone:
      run_alone(call, plan);
      break;
    case Protocol::line:
    case Protocol::slots:
      finish_small(call, plan);
      break;
    case Protocol::direct:
      run_direct(call, plan);
      break;
    case Protocol::single_copy:
      run_single_copy(call, plan);
      break;
    case Protocol::staged:
      run_staged(call, plan);
  }
  published_ = bytes_sent(call, plan);
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
      return call.payload_bytes >= tuning_.single_copy_from;
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

void Link::run_alone(const Call& call, const Plan& plan) {
  if (!is_reduction(call.kind)) return copy_own_part(call, plan);
  const void* input = call.send;
  double factor = 1;
  if (call.count > 0) reduce(fold_of(call, &factor), call.recv, &input, 1, call.count);
}

std::string Link::text_of(const Call& call) const {
  std::string text =
      describe(call.kind, call.dtype, call.operation.op, call.root, call.count, operation_name(call.operation));
  if (call.label[0] != 0) text += fmt::format(" \"{}\"", reinterpret_cast<const char*>(call.label));
  return text;
}

std::string Link::text_of(int32_t rank, uint64_t number) const {
  const CallEntry& entry = arena_->call(rank, number);
  if (entry.number.load(std::memory_order_acquire) != number) return "a call it has gone on from";
  const PackedCall fields = unpack(entry.packed.load(std::memory_order_relaxed));
  Call call;
  call.kind = fields.kind;
  call.dtype = fields.dtype;
  call.operation.op = fields.op;
  if (fields.op == GSEL_OP_USER) call.operation = posted_operation(rank, number);
  call.root = fields.root;
  call.count = entry.count.load(std::memory_order_relaxed);
  for (size_t i = 0; i < 2; ++i) call.label[i] = entry.label[i].load(std::memory_order_relaxed);
  return text_of(call);
}

// A caller's operation as far as others see it: its name, while the call's line stands.
Operation Link::posted_operation(int32_t rank, uint64_t number) const {
  const RankBlock& block = arena_->rank(rank);
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

void Link::post_operation(const Operation& operation, uint64_t parity) {
  uint64_t name[kOperationNameBytes / sizeof(uint64_t)];
  std::memcpy(name, operation.name, sizeof name);
  for (size_t i = 0; i < std::size(name); ++i) mine().operation[parity][i].store(name[i], std::memory_order_relaxed);
}

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
