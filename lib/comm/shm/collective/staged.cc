// comm/shm/collective/staged.cc: large payloads in private memory, copied through staging memory in chunks that stay in
// cache. Flags count chunks. With two buffers per rank, a rank stages the next chunk while others still work on this
// one. There is no barrier between chunks.
//
// A reduction divides the elements into one slice per rank, and each slice into chunks. In chunk k every rank stages
// its elements of the other ranks' slices, and the owner of each slice reduces it from all inputs in rank order. If
// other ranks want the result, the owner writes it to its own staging memory, where they read it. So each element is
// reduced by one rank only, and is the same on all ranks.
#include <algorithm>
#include <cstring>

#include "comm/call/collective.h"
#include "comm/shm/collective/collectives.h"

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

// The slices of a reduction in bytes, and their chunks. A rank's staging memory has a block per slice.
struct Collectives::Slices {
  Slices(const Collectives& collectives, const Call& call, const Plan& plan)
      : plan_(plan), block_bytes(collectives.block_bytes()) {
    per_chunk = block_bytes / call.unit * call.unit;
    uint64_t largest = 0;
    for (int32_t q = 0; q < collectives.at_.world_size(); ++q) largest = std::max(largest, plan.sent(q).count);
    chunks = chunks_of(largest, per_chunk);
  }
  Bytes chunk(int32_t owner, uint64_t k) const { return chunk_of(plan_.sent(owner), k, per_chunk); }

  const Plan& plan_;
  uint64_t block_bytes, per_chunk, chunks;
};

void Collectives::run_staged(const Call& call, const Plan& plan) {
  reserve_staging();
  if (is_reduction(call.kind))
    reduce_staged(call, plan);
  else
    copy_staged(call, plan);
}

// Reserves pages for this rank's staging memory, near it, when first needed.
void Collectives::reserve_staging() {
  if (staging_reserved_) return;
  const SharedMemory& memory = *at_.family().memory();
  try {
    memory.reserve(memory.position(at_.arena().staging(at_.rank(), 0)), 2 * at_.arena().layout().staging_bytes,
                   "staging");
  } catch (const Error& e) {
    breaking_.break_with(e.code(), at_.rank(), fmt::format("{}: {}", at_.named(at_.rank()), e.what()));
  }
  staging_reserved_ = true;
}

void Collectives::stage_slices(const Call& call, const Slices& slices, uint64_t chunk) {
  if (chunk >= 2) wait_all(&RankBlock::copied, chunks_ + chunk - 1);
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    if (q == at_.rank()) continue;  // read in place
    const Bytes range = slices.chunk(q, chunk);
    std::memcpy(at_.arena().staging(at_.rank(), chunk) + static_cast<size_t>(q) * slices.block_bytes,
                call.send + range.begin, range.count);
  }
  post(at_.mine().staged, chunks_ + chunk + 1);
  hit(Step::staged);
}

void Collectives::reduce_slice(const Call& call, const host::Fold& fold, const Slices& slices, uint64_t chunk,
                               char* out) {
  wait_all(&RankBlock::staged, chunks_ + chunk + 1);
  const Bytes range = slices.chunk(at_.rank(), chunk);
  const size_t block = static_cast<size_t>(at_.rank()) * slices.block_bytes;
  const void* inputs[kMaxRanks];
  for (int32_t q = 0; q < at_.world_size(); ++q) inputs[q] = at_.arena().staging(q, chunk) + block;
  inputs[at_.rank()] = call.send + range.begin;
  host::reduce(fold, out, inputs, at_.world_size(), range.count / call.element);
  hit(Step::reduced);
}

void Collectives::fetch_slices(const Call& call, const Slices& slices, uint64_t chunk) {
  for (int32_t i = 0; i < at_.world_size(); ++i) {
    const int32_t q = (at_.rank() + i) % at_.world_size();
    wait(q, at_.block(q).reduced, chunks_ + chunk + 1);
    const Bytes range = slices.chunk(q, chunk);
    std::memcpy(call.recv + range.begin, at_.arena().staging(q, chunk) + static_cast<size_t>(q) * slices.block_bytes,
                range.count);
  }
}

// Each of two ranks reduces everything: the same bytes to copy as with one slice each, and one wait less.
void Collectives::allreduce_staged_by_both(const Call& call) {
  const Bytes whole{0, call.count * call.element};
  const uint64_t per_chunk =
      std::clamp<uint64_t>(tuning_.pair_chunk_bytes, call.unit, at_.arena().layout().staging_bytes) / call.unit *
      call.unit;
  const uint64_t chunks = chunks_of(whole.count, per_chunk);
  const int32_t other = 1 - at_.rank();
  RankBlock& peer = at_.block(other);
  double factors[2];
  const host::Fold fold = fold_of(call, factors);
  const auto stage = [&](uint64_t k) {
    if (k >= 2) wait(other, peer.copied, chunks_ + k - 1);
    const Bytes part = chunk_of(whole, k, per_chunk);
    std::memcpy(at_.arena().staging(at_.rank(), k), call.send + part.begin, part.count);
    post(at_.mine().staged, chunks_ + k + 1);
    hit(Step::staged);
  };
  stage(0);
  for (uint64_t k = 0; k < chunks; ++k) {
    if (k + 1 < chunks) stage(k + 1);
    wait(other, peer.staged, chunks_ + k + 1);
    const Bytes part = chunk_of(whole, k, per_chunk);
    const char* own = call.send + part.begin;
    const void* inputs[] = {at_.rank() == 0 ? own : at_.arena().staging(0, k),
                            at_.rank() == 0 ? at_.arena().staging(1, k) : own};
    host::reduce(fold, call.recv + part.begin, inputs, 2, part.count / call.element);
    hit(Step::reduced);
    post(at_.mine().copied, chunks_ + k + 1);
    hit(Step::copied);
  }
  chunks_ += chunks;
}

void Collectives::reduce_staged(const Call& call, const Plan& plan) {
  if (at_.world_size() == 2 && call.kind == GSEL_COLLECTIVE_ALLREDUCE) return allreduce_staged_by_both(call);
  const Slices slices(*this, call, plan);
  double factors[kMaxRanks];
  const host::Fold fold = fold_of(call, factors);
  const bool fetched = call.kind == GSEL_COLLECTIVE_ALLREDUCE || call.kind == GSEL_COLLECTIVE_REDUCE;
  const bool fetches = call.kind == GSEL_COLLECTIVE_ALLREDUCE || (fetched && call.root == at_.rank());
  if (slices.chunks > 0) stage_slices(call, slices, 0);
  for (uint64_t k = 0; k < slices.chunks; ++k) {
    if (fetched) {
      reduce_slice(call, fold, slices, k,
                   at_.arena().staging(at_.rank(), k) + static_cast<size_t>(at_.rank()) * slices.block_bytes);
      post(at_.mine().reduced, chunks_ + k + 1);
    }
    if (k + 1 < slices.chunks) stage_slices(call, slices, k + 1);
    if (!fetched) reduce_slice(call, fold, slices, k, call.recv + k * slices.per_chunk);
    if (fetches) fetch_slices(call, slices, k);
    post(at_.mine().copied, chunks_ + k + 1);
    hit(Step::copied);
  }
  chunks_ += slices.chunks;
}

// If readers get different bytes, each has its own block; else all read the same block.
void Collectives::copy_staged(const Call& call, const Plan& plan) {
  const bool blocks = plan.parts_differ();
  const uint64_t per_chunk =
      std::min<uint64_t>(blocks ? block_bytes() : at_.arena().layout().staging_bytes, tuning_.chunk_bytes);
  const uint64_t chunks = chunks_of(largest_part_, per_chunk);
  const auto stage = [&](uint64_t k) {
    if (!plan.publishes(at_.rank())) return;
    for (int32_t q = 0; q < at_.world_size(); ++q)
      if (chunk_of(plan.source(q), k, per_chunk).count > 0 && q != at_.rank() && k >= 2)
        wait(q, at_.block(q).copied, chunks_ + k - 1);
    for (int32_t q = 0; q < at_.world_size(); ++q) {
      const Bytes from = chunk_of(plan.source(q), k, per_chunk);
      if (q == at_.rank() || from.count == 0) continue;
      std::memcpy(at_.arena().staging(at_.rank(), k) + (blocks ? static_cast<size_t>(q) * block_bytes() : 0),
                  call.send + from.begin, from.count);
      if (!blocks) break;
    }
    post(at_.mine().staged, chunks_ + k + 1);
    hit(Step::staged);
  };
  if (chunks > 0) stage(0);
  copy_own_part(call, plan);
  for (uint64_t k = 0; k < chunks; ++k) {
    if (k + 1 < chunks) stage(k + 1);
    for (int32_t i = 1; i < at_.world_size(); ++i) {
      const int32_t q = (at_.rank() + i) % at_.world_size();
      const Bytes to = chunk_of(plan.target(q), k, per_chunk);
      if (to.count == 0) continue;
      wait(q, at_.block(q).staged, chunks_ + k + 1);
      std::memcpy(call.recv + to.begin,
                  at_.arena().staging(q, k) + (blocks ? static_cast<size_t>(at_.rank()) * block_bytes() : 0), to.count);
    }
    post(at_.mine().copied, chunks_ + k + 1);
    hit(Step::copied);
  }
  chunks_ += chunks;
}

}  // namespace gsel::shm
