// comm/shm/copy/staged.cc: large payloads in private memory, copied through staging memory in chunks that stay in
// cache. Flags count chunks. With two buffers per rank, a rank stages the next chunk while others still work on this
// one. There is no barrier between chunks.
//
// A reduction cuts the elements into one slice per rank, and each slice into chunks. In chunk k every rank stages its
// elements of the other ranks' slices, and the owner of each slice reduces it from all inputs in rank order. If others
// want the result, the owner writes it over its own staged input, where they read it. So each element is reduced by one
// rank only, and is the same on all ranks.
#include <algorithm>
#include <cstring>

#include "comm/describe.h"
#include "comm/shm/link.h"

namespace gsel::shm {
namespace {

uint64_t chunks_of(uint64_t count, uint64_t per_chunk) {
  return (count + per_chunk - 1) / per_chunk;
}

Bytes chunk_of(const Bytes& whole, uint64_t chunk, uint64_t per_chunk) {
  const uint64_t from = std::min(whole.count, chunk * per_chunk);
  return {whole.begin + from, std::min(whole.count - from, per_chunk)};
}

}  // namespace

// The slices of a reduction in bytes, and the chunks they are worked off in. A rank's staging has a block per slice.
struct Link::Slices {
  Slices(const Link& link, const Call& call, const Plan& plan)
      : plan_(plan), element_(call.element), block_bytes(link.block_bytes()) {
    per_chunk = block_bytes / call.unit * call.unit;
    uint64_t largest = 0;
    for (int32_t q = 0; q < link.world_size_; ++q) largest = std::max(largest, slice(q).count);
    chunks = chunks_of(largest, per_chunk);
  }
  Bytes slice(int32_t owner) const {
    const gsel_range range = plan_.slice(owner);
    return {static_cast<uint64_t>(range.begin) * element_, static_cast<uint64_t>(range.end - range.begin) * element_};
  }
  Bytes part(int32_t owner, uint64_t chunk) const { return chunk_of(slice(owner), chunk, per_chunk); }

  const Plan& plan_;
  size_t element_;
  uint64_t block_bytes, per_chunk, chunks;
};

void Link::run_staged(const Call& call, const Plan& plan) {
  reserve_staging();
  if (is_reduction(call.kind))
    reduce_staged(call, plan);
  else
    copy_staged(call, plan);
}

size_t Link::block_bytes() const {
  return arena_->layout().staging_bytes / ranks() / 64 * 64;
}

// Pages for this rank's own staging memory, near it, when first needed.
void Link::reserve_staging() {
  if (staging_reserved_) return;
  const SharedMemory& memory = *family_->memory();
  try {
    memory.reserve(memory.position(arena_->staging(rank_, 0)), 2 * arena_->layout().staging_bytes, "staging");
  } catch (const Error& e) {
    break_link(e.code(), rank_, fmt::format("{}: {}", named(rank_), e.what()));
  }
  staging_reserved_ = true;
}

void Link::stage_slices(const Call& call, const Slices& slices, uint64_t chunk) {
  if (chunk >= 2) wait_all(&RankBlock::copied, chunks_ + chunk - 1);
  for (int32_t q = 0; q < world_size_; ++q) {
    if (q == rank_) continue;  // read where it is
    const Bytes part = slices.part(q, chunk);
    std::memcpy(arena_->staging(rank_, chunk) + static_cast<size_t>(q) * slices.block_bytes, call.send + part.begin,
                part.count);
  }
  post(mine().staged, chunks_ + chunk + 1);
  hit(Step::staged);
}

void Link::reduce_slice(const Call& call, const host::Fold& fold, const Slices& slices, uint64_t chunk, char* out) {
  wait_all(&RankBlock::staged, chunks_ + chunk + 1);
  const Bytes part = slices.part(rank_, chunk);
  const size_t block = static_cast<size_t>(rank_) * slices.block_bytes;
  const void* inputs[kMaxRanks];
  for (int32_t q = 0; q < world_size_; ++q) inputs[q] = arena_->staging(q, chunk) + block;
  inputs[rank_] = call.send + part.begin;
  host::reduce(fold, out, inputs, world_size_, part.count / call.element);
  hit(Step::reduced);
}

void Link::fetch_slices(const Call& call, const Slices& slices, uint64_t chunk) {
  for (int32_t i = 0; i < world_size_; ++i) {
    const int32_t q = (rank_ + i) % world_size_;
    wait(q, arena_->rank(q).reduced, chunks_ + chunk + 1);
    const Bytes part = slices.part(q, chunk);
    std::memcpy(call.recv + part.begin, arena_->staging(q, chunk) + static_cast<size_t>(q) * slices.block_bytes,
                part.count);
  }
}

// Of two ranks each folds the whole: as much to copy as with a slice each, and one wait less.
void Link::allreduce_staged_by_both(const Call& call) {
  const Bytes whole{0, call.count * call.element};
  const uint64_t per_chunk =
      std::clamp<uint64_t>(tuning_.pair_chunk_bytes, call.unit, arena_->layout().staging_bytes) / call.unit * call.unit;
  const uint64_t chunks = chunks_of(whole.count, per_chunk);
  const int32_t other = 1 - rank_;
  RankBlock& peer = arena_->rank(other);
  double factors[2];
  const host::Fold fold = fold_of(call, factors);
  const auto stage = [&](uint64_t k) {
    if (k >= 2) wait(other, peer.copied, chunks_ + k - 1);
    const Bytes part = chunk_of(whole, k, per_chunk);
    std::memcpy(arena_->staging(rank_, k), call.send + part.begin, part.count);
    post(mine().staged, chunks_ + k + 1);
    hit(Step::staged);
  };
  stage(0);
  for (uint64_t k = 0; k < chunks; ++k) {
    if (k + 1 < chunks) stage(k + 1);
    wait(other, peer.staged, chunks_ + k + 1);
    const Bytes part = chunk_of(whole, k, per_chunk);
    const char* own = call.send + part.begin;
    const void* inputs[] = {rank_ == 0 ? own : arena_->staging(0, k), rank_ == 0 ? arena_->staging(1, k) : own};
    host::reduce(fold, call.recv + part.begin, inputs, 2, part.count / call.element);
    hit(Step::reduced);
    post(mine().copied, chunks_ + k + 1);
    hit(Step::copied);
  }
  chunks_ += chunks;
}

void Link::reduce_staged(const Call& call, const Plan& plan) {
  if (world_size_ == 2 && call.kind == GSEL_COLLECTIVE_ALLREDUCE) return allreduce_staged_by_both(call);
  const Slices slices(*this, call, plan);
  double factors[kMaxRanks];
  const host::Fold fold = fold_of(call, factors);
  const bool fetched = call.kind == GSEL_COLLECTIVE_ALLREDUCE || call.kind == GSEL_COLLECTIVE_REDUCE;
  const bool fetches = call.kind == GSEL_COLLECTIVE_ALLREDUCE || (fetched && call.root == rank_);
  if (slices.chunks > 0) stage_slices(call, slices, 0);
  for (uint64_t k = 0; k < slices.chunks; ++k) {
    if (fetched) {
      reduce_slice(call, fold, slices, k, arena_->staging(rank_, k) + static_cast<size_t>(rank_) * slices.block_bytes);
      post(mine().reduced, chunks_ + k + 1);
    }
    if (k + 1 < slices.chunks) stage_slices(call, slices, k + 1);
    if (!fetched) reduce_slice(call, fold, slices, k, call.recv + k * slices.per_chunk);
    if (fetches) fetch_slices(call, slices, k);
    post(mine().copied, chunks_ + k + 1);
    hit(Step::copied);
  }
  chunks_ += slices.chunks;
}

// Where readers get different bytes, each has a block of its own; else all read the same.
void Link::copy_staged(const Call& call, const Plan& plan) {
  const bool blocks = plan.parts_differ();
  const uint64_t per_chunk =
      std::min<uint64_t>(blocks ? block_bytes() : arena_->layout().staging_bytes, tuning_.chunk_bytes);
  const uint64_t chunks = chunks_of(largest_part_, per_chunk);
  const auto stage = [&](uint64_t k) {
    if (!plan.publishes(rank_)) return;
    for (int32_t q = 0; q < world_size_; ++q)
      if (chunk_of(plan.source(q), k, per_chunk).count > 0 && q != rank_ && k >= 2)
        wait(q, arena_->rank(q).copied, chunks_ + k - 1);
    for (int32_t q = 0; q < world_size_; ++q) {
      const Bytes from = chunk_of(plan.source(q), k, per_chunk);
      if (q == rank_ || from.count == 0) continue;
      std::memcpy(arena_->staging(rank_, k) + (blocks ? static_cast<size_t>(q) * block_bytes() : 0),
                  call.send + from.begin, from.count);
      if (!blocks) break;
    }
    post(mine().staged, chunks_ + k + 1);
    hit(Step::staged);
  };
  if (chunks > 0) stage(0);
  copy_own_part(call, plan);
  for (uint64_t k = 0; k < chunks; ++k) {
    if (k + 1 < chunks) stage(k + 1);
    for (int32_t i = 1; i < world_size_; ++i) {
      const int32_t q = (rank_ + i) % world_size_;
      const Bytes to = chunk_of(plan.target(q), k, per_chunk);
      if (to.count == 0) continue;
      wait(q, arena_->rank(q).staged, chunks_ + k + 1);
      std::memcpy(call.recv + to.begin,
                  arena_->staging(q, k) + (blocks ? static_cast<size_t>(rank_) * block_bytes() : 0), to.count);
    }
    post(mine().copied, chunks_ + k + 1);
    hit(Step::copied);
  }
  chunks_ += chunks;
}

void Link::copy_own_part(const Call& call, const Plan& plan) {
  const Bytes from = plan.source(rank_), to = plan.target(rank_);
  if (to.count > 0 && call.send + from.begin != call.recv + to.begin)
    std::memcpy(call.recv + to.begin, call.send + from.begin, to.count);
}

}  // namespace gsel::shm
