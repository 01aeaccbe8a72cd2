// comm/shm/collectives.cc: collectives whose payload does not fit beside the header line. Private buffers are copied
// through the staging memory in chunks that stay in cache; flags count chunks, two buffers per rank let a rank stage
// the next chunk while others still work on this one, and there is no barrier between chunks.
//
// A reduction cuts the elements into one slice per rank and each slice into chunks. In chunk k every rank stages its
// elements of the other ranks' slices, each owner reduces its slice from all inputs in rank order, and in an allreduce
// the result takes the place of the owner's own input, where the others fetch it. An element is so reduced by one rank
// only and comes out alike everywhere.
#include <algorithm>
#include <cstring>

#include "base/shard.h"
#include "comm/shm/kernels.h"
#include "comm/shm/link.h"

namespace gsel::shm {
namespace {

struct Part {
  size_t begin, count;  // elements
};

uint64_t chunks_of(uint64_t count, uint64_t per_chunk) {
  return (count + per_chunk - 1) / per_chunk;
}

Part chunk_of(const gsel_range& range, uint64_t chunk, size_t per_chunk) {
  const auto begin = static_cast<size_t>(range.begin), end = static_cast<size_t>(range.end);
  const size_t from = std::min(end, begin + chunk * per_chunk);
  return {from, std::min(end - from, per_chunk)};
}

}  // namespace

struct Link::Slices {
  Slices(const Arena& arena, const Call& call, bool equal) : count(call.count), ranks(arena.layout().world_size) {
    whole = equal;
    block_bytes = arena.layout().staging_bytes / static_cast<size_t>(ranks) / 64 * 64;
    per_chunk = block_bytes / call.element;
    chunks = chunks_of(equal ? count : static_cast<uint64_t>(shard_range(static_cast<int64_t>(count), ranks, 0).end),
                       per_chunk);
  }
  Part part(int32_t owner, uint64_t chunk) const {
    const auto n = static_cast<int64_t>(count);
    return chunk_of(whole ? gsel_range{n * owner, n * (owner + 1)} : shard_range(n, ranks, owner), chunk, per_chunk);
  }
  uint64_t count;
  int32_t ranks;
  bool whole;  // each slice has `count` elements, else together
  size_t block_bytes, per_chunk;
  uint64_t chunks;
};

void Link::run_large(const Call& call) {
  switch (call.kind) {
    case GSEL_COLLECTIVE_ALLREDUCE:
      return allreduce(call);
    case GSEL_COLLECTIVE_REDUCE_SCATTER:
      return reduce_scatter(call);
    case GSEL_COLLECTIVE_ALLGATHER:
      return allgather(call);
    default:
      return broadcast(call);
  }
}

void Link::wait_all(std::atomic<uint64_t> RankBlock::*flag, uint64_t value) {
  for (int32_t q = 0; q < world_size_; ++q) wait(q, arena_->rank(q).*flag, value);
}

void Link::stage_slices(const Call& call, const Slices& slices, uint64_t chunk) {
  if (chunk >= 2) wait_all(&RankBlock::copied, chunks_ + chunk - 1);
  for (int32_t q = 0; q < world_size_; ++q) {
    if (q == rank_) continue;  // read where it is
    const Part part = slices.part(q, chunk);
    std::memcpy(arena_->staging(rank_, chunk) + static_cast<size_t>(q) * slices.block_bytes,
                call.send + part.begin * call.element, part.count * call.element);
    published_ += part.count * call.element;
  }
  post(mine().staged, chunks_ + chunk + 1);
}

void Link::reduce_slice(const Call& call, const Slices& slices, uint64_t chunk, char* out) {
  wait_all(&RankBlock::staged, chunks_ + chunk + 1);
  const Part part = slices.part(rank_, chunk);
  const size_t block = static_cast<size_t>(rank_) * slices.block_bytes;
  const void* inputs[kMaxRanks];
  for (int32_t q = 0; q < world_size_; ++q) inputs[q] = arena_->staging(q, chunk) + block;
  inputs[rank_] = call.send + part.begin * call.element;
  reduce(call.dtype, call.op, out, inputs, world_size_, part.count);
}

void Link::allreduce(const Call& call) {
  const Slices slices(*arena_, call, false);
  RankBlock& me = mine();
  stage_slices(call, slices, 0);
  for (uint64_t k = 0; k < slices.chunks; ++k) {
    reduce_slice(call, slices, k, arena_->staging(rank_, k) + static_cast<size_t>(rank_) * slices.block_bytes);
    post(me.reduced, chunks_ + k + 1);
    published_ += slices.part(rank_, k).count * call.element * (ranks() - 1);
    if (k + 1 < slices.chunks) stage_slices(call, slices, k + 1);
    for (int32_t i = 0; i < world_size_; ++i) {
      const int32_t q = (rank_ + i) % world_size_;
      wait(q, arena_->rank(q).reduced, chunks_ + k + 1);
      const Part part = slices.part(q, k);
      std::memcpy(call.recv + part.begin * call.element,
                  arena_->staging(q, k) + static_cast<size_t>(q) * slices.block_bytes, part.count * call.element);
    }
    post(me.copied, chunks_ + k + 1);
  }
  chunks_ += slices.chunks;
}

void Link::reduce_scatter(const Call& call) {
  const Slices slices(*arena_, call, true);
  stage_slices(call, slices, 0);
  for (uint64_t k = 0; k < slices.chunks; ++k) {
    if (k + 1 < slices.chunks) stage_slices(call, slices, k + 1);
    reduce_slice(call, slices, k, call.recv + k * slices.per_chunk * call.element);
    post(mine().copied, chunks_ + k + 1);
  }
  chunks_ += slices.chunks;
}

void Link::allgather(const Call& call) {
  const size_t most = arena_->layout().staging_bytes;
  const uint64_t bytes = call.payload_bytes, chunks = chunks_of(bytes, most);
  const auto range = [&](uint64_t k) { return chunk_of({0, static_cast<int64_t>(bytes)}, k, most); };
  const auto stage = [&](uint64_t k) {
    if (k >= 2) wait_all(&RankBlock::copied, chunks_ + k - 1);
    std::memcpy(arena_->staging(rank_, k), call.send + range(k).begin, range(k).count);
    published_ += range(k).count * (ranks() - 1);
    post(mine().staged, chunks_ + k + 1);
  };
  stage(0);
  char* own = call.recv + static_cast<size_t>(rank_) * bytes;
  if (own != call.send) std::memcpy(own, call.send, bytes);
  for (uint64_t k = 0; k < chunks; ++k) {
    if (k + 1 < chunks) stage(k + 1);
    for (int32_t i = 1; i < world_size_; ++i) {
      const int32_t q = (rank_ + i) % world_size_;
      wait(q, arena_->rank(q).staged, chunks_ + k + 1);
      std::memcpy(call.recv + static_cast<size_t>(q) * bytes + range(k).begin, arena_->staging(q, k), range(k).count);
    }
    post(mine().copied, chunks_ + k + 1);
  }
  chunks_ += chunks;
}

void Link::broadcast(const Call& call) {
  const size_t most = arena_->layout().staging_bytes;
  const uint64_t chunks = chunks_of(call.payload_bytes, most);
  const auto range = [&](uint64_t k) { return chunk_of({0, static_cast<int64_t>(call.payload_bytes)}, k, most); };
  RankBlock &me = mine(), &root = arena_->rank(call.root);
  for (uint64_t k = 0; k < chunks; ++k) {
    if (rank_ == call.root) {
      if (k >= 2) wait_all(&RankBlock::copied, chunks_ + k - 1);
      std::memcpy(arena_->staging(rank_, k), call.send + range(k).begin, range(k).count);
      published_ += range(k).count * (ranks() - 1);
      post(me.staged, chunks_ + k + 1);
    } else {
      wait(call.root, root.staged, chunks_ + k + 1);
      std::memcpy(call.recv + range(k).begin, arena_->staging(call.root, k), range(k).count);
    }
    post(me.copied, chunks_ + k + 1);
  }
  chunks_ += chunks;
  if (rank_ == call.root && call.recv != call.send) std::memcpy(call.recv, call.send, call.payload_bytes);
}

}  // namespace gsel::shm
