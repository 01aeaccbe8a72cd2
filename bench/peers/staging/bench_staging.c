/* bench_staging.c: an allreduce by copy-in and copy-out through shared memory, in the way of DeepSpeed's CPU
 * communication (deepspeedai/DeepSpeed, csrc/cpu/comm/shm.cpp), written anew from that description. Under 1 MiB every
 * rank copies in, waits once, and reduces all inputs itself; from 1 MiB on, in pieces of 32 MiB, it copies in, reduces
 * its own slice, and copies all slices out. Waits spin without a pause. Two buffers per rank alternate, so that a rank
 * may start the next piece while others still read this one. It does nothing but sum f32. */
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "common/forked.h"
#include "common/harness.h"

#define SMALL_BYTES ((size_t)1 << 20)
#define PIECE_BYTES ((size_t)32 << 20)

typedef struct progress {
  _Alignas(128) _Atomic uint64_t copied; /* pieces put into the buffer */
  _Alignas(128) _Atomic uint64_t reduced;
} progress;

static struct {
  progress* of; /* [ranks] */
  char* buffers;
  uint64_t piece; /* pieces begun by this rank */
} shared;

static float* buffer_of(int rank, uint64_t piece) {
  return (float*)(shared.buffers + (2 * (size_t)rank + (size_t)(piece & 1)) * PIECE_BYTES);
}

static void wait_for(_Atomic uint64_t* flag, uint64_t piece) {
  while (atomic_load_explicit(flag, memory_order_acquire) < piece) {
  }
}

static void wait_all_copied(int ranks, uint64_t piece) {
  for (int r = 0; r < ranks; ++r) wait_for(&shared.of[r].copied, piece);
}

static void wait_all_reduced(int ranks, uint64_t piece) {
  for (int r = 0; r < ranks; ++r) wait_for(&shared.of[r].reduced, piece);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_SIMD __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define FOR_EACH_SIMD
#endif

/* out[n] = a[n] + b[n]; out may be a. */
FOR_EACH_SIMD static void add(float* out, const float* a, const float* b, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

/* out[n] = sum over ranks, in rank order, of elements from `begin` of their buffers; blocks keep the sum in cache. */
static void reduce(float* out, int ranks, uint64_t piece, size_t begin, size_t n) {
  enum { BLOCK = 2048 };
  for (size_t at = 0; at < n; at += BLOCK) {
    const size_t some = n - at < BLOCK ? n - at : BLOCK;
    float sum[BLOCK];
    add(sum, buffer_of(0, piece) + begin + at, buffer_of(1, piece) + begin + at, some);
    for (int r = 2; r < ranks; ++r) add(sum, sum, buffer_of(r, piece) + begin + at, some);
    memcpy(out + at, sum, some * sizeof *out);
  }
}

static void copy_in(const bench_call* c, const float* data, size_t count) {
  ++shared.piece;
  memcpy(buffer_of(c->rank, shared.piece), data, count * sizeof *data);
  atomic_store_explicit(&shared.of[c->rank].copied, shared.piece, memory_order_release);
  wait_all_copied(c->ranks, shared.piece);
}

static size_t slice_begin(const bench_call* c, size_t count, int rank) {
  return count * (size_t)rank / (size_t)c->ranks;
}

static void large_piece(const bench_call* c, float* data, size_t count) {
  copy_in(c, data, count);
  const size_t begin = slice_begin(c, count, c->rank), end = slice_begin(c, count, c->rank + 1);
  reduce(buffer_of(c->rank, shared.piece) + begin, c->ranks, shared.piece, begin, end - begin);
  atomic_store_explicit(&shared.of[c->rank].reduced, shared.piece, memory_order_release);
  wait_all_reduced(c->ranks, shared.piece);
  for (int r = 0; r < c->ranks; ++r) {
    const size_t from = slice_begin(c, count, r), to = slice_begin(c, count, r + 1);
    memcpy(data + from, buffer_of(r, shared.piece) + from, (to - from) * sizeof *data);
  }
}

static float* allreduce(const bench_call* c) {
  if (c->count * sizeof *c->data < SMALL_BYTES) {
    copy_in(c, c->data, c->count);
    reduce(c->data, c->ranks, shared.piece, 0, c->count);
    return c->data;
  }
  const size_t most = PIECE_BYTES / sizeof *c->data;
  for (size_t at = 0; at < c->count; at += most)
    large_piece(c, c->data + at, c->count - at < most ? c->count - at : most);
  return c->data;
}

static void join(int* argc, char*** argv, int wanted, int* rank, int* ranks) {
  (void)argc;
  (void)argv;
  if (wanted < 2 || wanted > FORKED_MOST_RANKS) bench_fail("--ranks %d: 2 to %d", wanted, FORKED_MOST_RANKS);
  shared.of = forked_share(sizeof *shared.of * (size_t)wanted);
  shared.buffers = forked_share(2 * PIECE_BYTES * (size_t)wanted);
  forked_join(wanted, rank, ranks);
}

int main(int argc, char** argv) {
  static const bench_operation operations[] = {{"allreduce", allreduce}, {NULL, NULL}};
  static const bench_peer peer = {join, forked_gather, forked_leave, NULL, operations};
  return bench_main(&peer, argc, argv);
}
