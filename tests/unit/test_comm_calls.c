/* unit/test_comm_calls.c: every collective against a serial reference, bit for bit: worlds of 1 to 17 processes and 33
 * threads, sizes at both sides of where protocols change, parts of uneven and no size, gaps between them, buffers that
 * are not aligned, in place and not, every root. What is not to be written is looked at too. */
#include <math.h>

#include "support/ranks.h"
#include "support/reference.h"
#include "support/share.h"

#define FENCE 64 /* bytes around a buffer that must stay as they are */
#define BLANK 0xa5

/* What the ranks of one world run. The reference of a reduction is that of the longest: an element depends on its
 * position alone. */
typedef struct trial {
  gsel_dtype dtype;
  gsel_op op;
  size_t shift; /* bytes that buffers stand off their alignment */
  const size_t* counts;
  size_t n_counts;
  char* reduced;
} trial;

typedef struct context {
  rank_run* run;
  gsel_comm* comm;
  const trial* trial;
  int32_t n, rank, root;
  size_t count, element;
  uint64_t counts[RANKS_MAX], packed[RANKS_MAX], scattered[RANKS_MAX], total, span;
} context;

typedef struct area {
  char *memory, *at;
  size_t bytes;
} area;

static area blank(const context* c, size_t elements) {
  area a;
  a.bytes = elements * c->element;
  a.memory = malloc(a.bytes + 2 * FENCE + 64);
  a.at = a.memory + FENCE + c->trial->shift;
  memset(a.memory, BLANK, a.bytes + 2 * FENCE + 64);
  return a;
}

static area filled(const context* c, size_t elements) {
  area a = blank(c, elements);
  reference_fill(c->trial->dtype, c->rank, a.at, 0, elements);
  return a;
}

static int is_blank(const char* at, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if ((unsigned char)at[i] != BLANK) return 0;
  return 1;
}

/* Nothing was written outside; releases. */
static void close_area(const context* c, area* a) {
  const int intact =
      is_blank(a->memory, FENCE + c->trial->shift) && is_blank(a->at + a->bytes, FENCE - c->trial->shift);
  free(a->memory);
  rank_check(c->run, intact);
}

/* Whether a[elements] is what `rank` has from `first` on. */
static int holds(const context* c, const char* at, int32_t rank, size_t first, size_t elements) {
  char* expected = malloc(elements * c->element + 1);
  reference_fill(c->trial->dtype, rank, expected, first, elements);
  const int same = memcmp(at, expected, elements * c->element) == 0;
  free(expected);
  return same;
}

static int is_reduced(const context* c, const char* at, size_t first, size_t elements) {
  return memcmp(at, c->trial->reduced + first * c->element, elements * c->element) == 0;
}

static int is_own(const context* c, const area* a) {
  return holds(c, a->at, c->rank, 0, a->bytes / c->element);
}

#define OK(call) rank_ok(c->run, call, err)
#define CHECK(condition) rank_check(c->run, condition)

static void allreduce(const context* c) {
  gsel_error* err;
  area send = filled(c, c->count), recv = blank(c, c->count);
  OK(gsel_allreduce(c->comm, send.at, recv.at, c->count, c->trial->dtype, c->trial->op, &err));
  CHECK(is_own(c, &send));
  CHECK(is_reduced(c, recv.at, 0, c->count));
  OK(gsel_allreduce(c->comm, send.at, send.at, c->count, c->trial->dtype, c->trial->op, &err));
  CHECK(is_reduced(c, send.at, 0, c->count));
  close_area(c, &send), close_area(c, &recv);
}

static void reduce(const context* c) {
  gsel_error* err;
  const int root = c->rank == c->root;
  area send = filled(c, c->count), recv = blank(c, c->count);
  OK(gsel_reduce(c->comm, send.at, root ? recv.at : NULL, c->count, c->trial->dtype, c->trial->op, c->root, &err));
  CHECK(is_own(c, &send));
  CHECK(root ? is_reduced(c, recv.at, 0, c->count) : is_blank(recv.at, recv.bytes));
  OK(gsel_reduce(c->comm, send.at, root ? send.at : recv.at, c->count, c->trial->dtype, c->trial->op, c->root, &err));
  CHECK(root ? is_reduced(c, send.at, 0, c->count) : is_own(c, &send) && is_blank(recv.at, recv.bytes));
  close_area(c, &send), close_area(c, &recv);
}

static void reduce_scatter(const context* c) {
  gsel_error* err;
  const size_t own = (size_t)c->rank * c->count, all = (size_t)c->n * c->count;
  area send = filled(c, all), recv = blank(c, c->count);
  OK(gsel_reduce_scatter(c->comm, send.at, recv.at, c->count, c->trial->dtype, c->trial->op, &err));
  CHECK(is_own(c, &send));
  CHECK(is_reduced(c, recv.at, own, c->count));
  char* place = send.at + own * c->element;
  OK(gsel_reduce_scatter(c->comm, send.at, place, c->count, c->trial->dtype, c->trial->op, &err));
  CHECK(is_reduced(c, place, own, c->count));
  CHECK(holds(c, send.at, c->rank, 0, own));
  CHECK(holds(c, place + c->count * c->element, c->rank, own + c->count, all - own - c->count));
  close_area(c, &send), close_area(c, &recv);
}

static void reduce_scatterv(const context* c) {
  gsel_error* err;
  const size_t own = c->packed[c->rank], some = c->counts[c->rank];
  area send = filled(c, c->total), recv = blank(c, some);
  OK(gsel_reduce_scatterv(c->comm, send.at, recv.at, c->counts, NULL, c->trial->dtype, c->trial->op, &err));
  CHECK(is_own(c, &send));
  CHECK(is_reduced(c, recv.at, own, some));
  char* place = send.at + own * c->element;
  OK(gsel_reduce_scatterv(c->comm, send.at, place, c->counts, NULL, c->trial->dtype, c->trial->op, &err));
  CHECK(is_reduced(c, place, own, some));
  CHECK(holds(c, send.at, c->rank, 0, own));
  CHECK(holds(c, place + some * c->element, c->rank, own + some, c->total - own - some));
  close_area(c, &send), close_area(c, &recv);
}

/* Parts of all ranks, each count[q] elements at offset[q]; between them nothing was written. */
static int parts_are_there(const context* c, const area* a, const uint64_t* counts, const uint64_t* offsets) {
  char* used = calloc(a->bytes + 1, 1);
  int good = 1;
  for (int32_t q = 0; q < c->n; ++q) {
    good = good && holds(c, a->at + offsets[q] * c->element, q, 0, counts[q]);
    memset(used + offsets[q] * c->element, 1, counts[q] * c->element);
  }
  for (size_t i = 0; i < a->bytes; ++i) good = good && (used[i] || (unsigned char)a->at[i] == BLANK);
  free(used);
  return good;
}

static void even_parts(const context* c, uint64_t* counts, uint64_t* offsets) {
  for (int32_t q = 0; q < c->n; ++q) counts[q] = c->count, offsets[q] = (size_t)q * c->count;
}

static void allgather(const context* c) {
  gsel_error* err;
  uint64_t counts[RANKS_MAX], offsets[RANKS_MAX];
  even_parts(c, counts, offsets);
  const size_t all = (size_t)c->n * c->count;
  area send = filled(c, c->count), recv = blank(c, all), place = blank(c, all);
  OK(gsel_allgather(c->comm, send.at, recv.at, c->count, c->trial->dtype, &err));
  CHECK(parts_are_there(c, &recv, counts, offsets));
  char* own = place.at + offsets[c->rank] * c->element;
  memcpy(own, send.at, send.bytes);
  OK(gsel_allgather(c->comm, own, place.at, c->count, c->trial->dtype, &err));
  CHECK(parts_are_there(c, &place, counts, offsets));
  close_area(c, &send), close_area(c, &recv), close_area(c, &place);
}

static void allgatherv(const context* c) {
  gsel_error* err;
  area send = filled(c, c->counts[c->rank]), dense = blank(c, c->total), wide = blank(c, c->span),
       place = blank(c, c->span);
  OK(gsel_allgatherv(c->comm, send.at, dense.at, c->counts, NULL, c->trial->dtype, &err));
  CHECK(parts_are_there(c, &dense, c->counts, c->packed));
  OK(gsel_allgatherv(c->comm, send.at, wide.at, c->counts, c->scattered, c->trial->dtype, &err));
  CHECK(parts_are_there(c, &wide, c->counts, c->scattered));
  char* own = place.at + c->scattered[c->rank] * c->element;
  memcpy(own, send.at, send.bytes);
  OK(gsel_allgatherv(c->comm, own, place.at, c->counts, c->scattered, c->trial->dtype, &err));
  CHECK(parts_are_there(c, &place, c->counts, c->scattered));
  close_area(c, &send), close_area(c, &dense), close_area(c, &wide), close_area(c, &place);
}

static void broadcast(const context* c) {
  gsel_error* err;
  const int root = c->rank == c->root;
  area send = filled(c, c->count), recv = blank(c, c->count);
  OK(gsel_broadcast(c->comm, root ? send.at : NULL, recv.at, c->count, c->trial->dtype, c->root, &err));
  CHECK(holds(c, recv.at, c->root, 0, c->count));
  OK(gsel_broadcast(c->comm, send.at, send.at, c->count, c->trial->dtype, c->root, &err));
  CHECK(holds(c, send.at, c->root, 0, c->count));
  close_area(c, &send), close_area(c, &recv);
}

static void gather(const context* c) {
  gsel_error* err;
  uint64_t counts[RANKS_MAX], offsets[RANKS_MAX];
  even_parts(c, counts, offsets);
  const int root = c->rank == c->root;
  area send = filled(c, c->count), recv = blank(c, (size_t)c->n * c->count);
  OK(gsel_gather(c->comm, send.at, root ? recv.at : NULL, c->count, c->trial->dtype, c->root, &err));
  CHECK(root ? parts_are_there(c, &recv, counts, offsets) : is_blank(recv.at, recv.bytes));
  memset(recv.at, BLANK, recv.bytes);
  char* own = recv.at + offsets[c->rank] * c->element;
  if (root) memcpy(own, send.at, send.bytes);
  OK(gsel_gather(c->comm, root ? own : send.at, recv.at, c->count, c->trial->dtype, c->root, &err));
  CHECK(root ? parts_are_there(c, &recv, counts, offsets) : is_blank(recv.at, recv.bytes));
  close_area(c, &send), close_area(c, &recv);
}

static void gatherv(const context* c) {
  gsel_error* err;
  const int root = c->rank == c->root;
  area send = filled(c, c->counts[c->rank]), recv = blank(c, c->span);
  OK(gsel_gatherv(c->comm, send.at, recv.at, c->counts, NULL, c->trial->dtype, c->root, &err));
  CHECK(root ? parts_are_there(c, &recv, c->counts, c->packed) : is_blank(recv.at, recv.bytes));
  memset(recv.at, BLANK, recv.bytes);
  char* own = recv.at + c->scattered[c->rank] * c->element;
  if (root) memcpy(own, send.at, send.bytes);
  OK(gsel_gatherv(c->comm, root ? own : send.at, root ? recv.at : NULL, c->counts, root ? c->scattered : NULL,
                  c->trial->dtype, c->root, &err));
  CHECK(root ? parts_are_there(c, &recv, c->counts, c->scattered) : is_blank(recv.at, recv.bytes));
  close_area(c, &send), close_area(c, &recv);
}

static void scatter(const context* c) {
  gsel_error* err;
  const int root = c->rank == c->root;
  const size_t own = (size_t)c->rank * c->count;
  area send = filled(c, (size_t)c->n * c->count), recv = blank(c, c->count);
  OK(gsel_scatter(c->comm, root ? send.at : NULL, recv.at, c->count, c->trial->dtype, c->root, &err));
  CHECK(holds(c, recv.at, c->root, own, c->count));
  char* place = root ? send.at + own * c->element : recv.at;
  if (!root) memset(recv.at, BLANK, recv.bytes);
  OK(gsel_scatter(c->comm, send.at, place, c->count, c->trial->dtype, c->root, &err));
  CHECK(holds(c, place, c->root, own, c->count));
  CHECK(is_own(c, &send));
  close_area(c, &send), close_area(c, &recv);
}

static void scatterv(const context* c) {
  gsel_error* err;
  const int root = c->rank == c->root;
  const size_t some = c->counts[c->rank];
  area send = filled(c, c->span), recv = blank(c, some);
  OK(gsel_scatterv(c->comm, root ? send.at : NULL, recv.at, c->counts, NULL, c->trial->dtype, c->root, &err));
  CHECK(holds(c, recv.at, c->root, c->packed[c->rank], some));
  char* place = root ? send.at + c->scattered[c->rank] * c->element : recv.at;
  OK(gsel_scatterv(c->comm, send.at, place, c->counts, root ? c->scattered : NULL, c->trial->dtype, c->root, &err));
  CHECK(holds(c, place, c->root, c->scattered[c->rank], some));
  CHECK(is_own(c, &send));
  close_area(c, &send), close_area(c, &recv);
}

static void alltoall(const context* c) {
  gsel_error* err;
  const size_t all = (size_t)c->n * c->count;
  area send = filled(c, all), recv = blank(c, all);
  OK(gsel_alltoall(c->comm, send.at, recv.at, c->count, c->trial->dtype, &err));
  for (int32_t q = 0; q < c->n; ++q)
    CHECK(holds(c, recv.at + (size_t)q * c->count * c->element, q, (size_t)c->rank * c->count, c->count));
  CHECK(is_own(c, &send));
  close_area(c, &send), close_area(c, &recv);
}

/* What rank r has for rank q. */
static uint64_t pair_count(const context* c, int32_t r, int32_t q) {
  return c->count * (uint64_t)((r * 3 + q * 5) % 4) / 3;
}

/* Parts packed in rank order, or in the order turned round with gaps. Returns the elements they span. */
static uint64_t lay_out(int32_t n, const uint64_t* counts, int turned, uint64_t* offsets) {
  uint64_t at = turned ? 2 : 0;
  for (int32_t i = 0; i < n; ++i) {
    const int32_t q = turned ? n - 1 - i : i;
    offsets[q] = at;
    at += counts[q] + (turned ? 3 : 0);
  }
  return at;
}

static void alltoallv(const context* c) {
  gsel_error* err;
  uint64_t out[RANKS_MAX], in[RANKS_MAX], from[RANKS_MAX], to[RANKS_MAX], theirs[RANKS_MAX], their_from[RANKS_MAX];
  for (int32_t q = 0; q < c->n; ++q) out[q] = pair_count(c, c->rank, q), in[q] = pair_count(c, q, c->rank);
  for (int turned = 0; turned < 2; ++turned) {
    area send = filled(c, lay_out(c->n, out, turned, from)), recv = blank(c, lay_out(c->n, in, turned, to));
    OK(gsel_alltoallv(c->comm, send.at, out, turned ? from : NULL, recv.at, in, turned ? to : NULL, c->trial->dtype,
                      &err));
    for (int32_t q = 0; q < c->n; ++q) {
      for (int32_t other = 0; other < c->n; ++other) theirs[other] = pair_count(c, q, other);
      lay_out(c->n, theirs, turned, their_from);
      CHECK(holds(c, recv.at + to[q] * c->element, q, their_from[c->rank], in[q]));
    }
    CHECK(is_own(c, &send));
    close_area(c, &send), close_area(c, &recv);
  }
}

static void barrier(const context* c) {
  gsel_error* err;
  OK(gsel_barrier(c->comm, &err));
}

static const struct {
  const char* name;
  void (*check)(const context*);
} operations[] = {
    {"allreduce", allreduce},
    {"reduce", reduce},
    {"reduce_scatter", reduce_scatter},
    {"reduce_scatterv", reduce_scatterv},
    {"allgather", allgather},
    {"allgatherv", allgatherv},
    {"broadcast", broadcast},
    {"gather", gather},
    {"gatherv", gatherv},
    {"scatter", scatter},
    {"scatterv", scatterv},
    {"alltoall", alltoall},
    {"alltoallv", alltoallv},
    {"barrier", barrier},
};
enum { N_OPERATIONS = sizeof operations / sizeof operations[0] };

static void goes_through(rank_run* run) {
  context c = {0};
  gsel_error* err;
  c.run = run;
  c.trial = run->user;
  c.n = run->world_size;
  c.rank = run->rank;
  c.element = gsel_dtype_bytes(c.trial->dtype);
  rank_ok(run, rank_join(run, &c.comm, &err), err);
  for (size_t i = 0; i < c.trial->n_counts; ++i) {
    c.count = c.trial->counts[i];
    c.root = (int32_t)((i * 7 + 3) % (size_t)c.n);
    for (int32_t q = 0; q < c.n; ++q) c.counts[q] = c.count * (uint64_t)((q * 2 + 1) % 3) / 2 + (uint64_t)(q % 2);
    c.total = lay_out(c.n, c.counts, 0, c.packed);
    c.span = lay_out(c.n, c.counts, 1, c.scattered);
    for (int k = 0; k < N_OPERATIONS; ++k) {
      operations[k].check(&c);
      if (!run->failure[0]) continue;
      const size_t length = strlen(run->failure);
      snprintf(run->failure + length, sizeof run->failure - length, " (%s, count %zu, %s, op %d, shift %zu, root %d)",
               operations[k].name, c.count, gsel_dtype_name(c.trial->dtype), (int)c.trial->op, c.trial->shift,
               (int)c.root);
      return;
    }
  }
  gsel_comm_free(c.comm);
}

static void walk(int32_t n, gsel_dtype dtype, gsel_op op, size_t shift, const size_t* counts, size_t n_counts,
                 int threads) {
  trial t = {dtype, op, shift, counts, n_counts, NULL};
  size_t most = 0;
  if (!started_suits(n)) return;
  for (size_t i = 0; i < n_counts; ++i) most = counts[i] > most ? counts[i] : most;
  const size_t elements = (most + 1) * (size_t)n;
  t.reduced = malloc(elements * gsel_dtype_bytes(dtype));
  reference_reduce(dtype, op, n, t.reduced, elements);
  if (threads) as_threads(n, goes_through, &t);
  if (!threads) as_processes(n, goes_through, &t);
  free(t.reduced);
}

#define WALK(n, dtype, op, shift, threads, ...)                                                  \
  do {                                                                                           \
    const size_t walk_counts[] = {__VA_ARGS__};                                                  \
    walk(n, dtype, op, shift, walk_counts, sizeof walk_counts / sizeof walk_counts[0], threads); \
  } while (0)

enum { WORLD_STEP = SANITIZED ? 4 : 1 };

/* 12 f32 fill a line; 1,024 the slot beside it, for all ranks together where parts differ. */
static void test_small_calls_of_worlds_of_1_to_17_processes(void** state) {
  (void)state;
  for (int32_t n = 1; n <= 17; n += WORLD_STEP) {
    const size_t line = 12 / (size_t)n, slot = 1024 / (size_t)n;
    WALK(n, GSEL_F32, GSEL_SUM, 0, 0, 0, 1, 11, 12, 13, line, line + 1, slot, slot + 1, 1000, 1023, 1024, 1025);
  }
}

/* Staging memory is 512 KiB for a chunk, a part of it for each rank where parts differ; see comm/shm/memory/arena.cc.
 */
static void test_large_calls_at_the_edges_of_chunks(void** state) {
  (void)state;
  const int32_t worlds[] = {1, 2, 3, 5, 8, 17};
  for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i += WORLD_STEP) {
    const size_t n = (size_t)worlds[i], block = 524288 / n / 64 * 64 / 4;
    WALK(worlds[i], GSEL_F32, GSEL_SUM, 0, 0, block - 1, block, block + 1, 2 * block + 1);
    if (n <= 3)
      WALK(worlds[i], GSEL_F32, GSEL_AVG, 0, 0, block * n - 1, block * n + 1, 131071, 131073, 3 * block * n + 1);
  }
}

static void test_33_threads(void** state) {
  (void)state;
  WALK(33, GSEL_F32, GSEL_SUM, 0, 1, 0, 1, 12, 13, 31, 32, 1024, 1025, 5000);
}

static void test_threads_of_several_worlds(void** state) {
  (void)state;
  for (int32_t n = 2; n <= 9; n += 3 * WORLD_STEP) WALK(n, GSEL_F32, GSEL_SUM, 0, 1, 0, 5, 300, 1025, 50000, 140000);
}

/* Three processes of two ranks each. */
static void test_threads_of_several_processes(void** state) {
  (void)state;
  if (is_started()) skip(); /* it forks ranks of its own */
  const size_t counts[] = {0, 3, 300, 1025, 50000, 140000};
  trial t = {GSEL_F32, GSEL_SUM, 0, counts, sizeof counts / sizeof counts[0], malloc(4 * 6 * 140001)};
  reference_reduce(GSEL_F32, GSEL_SUM, 6, t.reduced, 6 * 140001);
  rank_run* runs = ranks_prepare(6, &t);
  pid_t pids[3];
  int statuses[3];
  fflush(NULL);
  for (int i = 0; i < 3; ++i) {
    pids[i] = fork();
    assert_true(pids[i] >= 0);
    if (pids[i] > 0) continue;
    alarm(100);
    ranks_run_threads(runs + 2 * i, 2, goes_through);
    _exit(0);
  }
  for (int i = 0; i < 3; ++i) waitpid(pids[i], &statuses[i], 0);
  ranks_verdict(runs, 6);
  for (int i = 0; i < 3; ++i) assert_int_equal(statuses[i], 0);
  free(t.reduced);
}

static void test_buffers_that_are_not_aligned(void** state) {
  (void)state;
  const gsel_dtype dtypes[] = {GSEL_I8, GSEL_F16, GSEL_F32, GSEL_F64};
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; ++i)
    for (size_t shift = gsel_dtype_bytes(dtypes[i]); shift <= 32; shift = shift * 2 + 8)
      WALK(3, dtypes[i], GSEL_SUM, shift / gsel_dtype_bytes(dtypes[i]) * gsel_dtype_bytes(dtypes[i]), 0, 3, 12, 500,
           100001);
}

static void test_every_type_and_operation(void** state) {
  (void)state;
  for (gsel_dtype dtype = GSEL_I8; dtype <= GSEL_F8E5M2; ++dtype)
    for (gsel_op op = GSEL_SUM; op <= (dtype <= GSEL_U64 ? GSEL_BXOR : GSEL_AVG); ++op)
      WALK(op % 2 ? 3 : 4, dtype, op, 0, 0, 3, 200, 3001);
}

/* ---- one result, however it is come by ---- */

enum { INDEPENDENT = 300000 };

static void by_pieces(rank_run* run) {
  const size_t pieces[] = {1, 7, 12, 13, 100, 1024, 1025, 4099, 65536, 100003};
  gsel_error* err;
  gsel_comm* comm;
  float *x = malloc(4 * INDEPENDENT), *whole = malloc(4 * INDEPENDENT), *again = malloc(4 * INDEPENDENT);
  uint32_t seed = 12345u + (uint32_t)run->rank;
  for (size_t i = 0; i < INDEPENDENT; ++i) { /* magnitudes far apart: any other order of sums shows */
    seed = seed * 1664525u + 1013904223u;
    x[i] = ldexpf((float)(seed >> 8) - 8388608.0f, (int)(seed % 40) - 30);
  }
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_allreduce(comm, x, whole, INDEPENDENT, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_allreduce(comm, x, again, INDEPENDENT, GSEL_F32, GSEL_SUM, &err), err);
  rank_check(run, memcmp(whole, again, 4 * INDEPENDENT) == 0);
  for (size_t at = 0, i = 0; at < INDEPENDENT; ++i) {
    size_t some = pieces[(i * 3) % (sizeof pieces / sizeof pieces[0])];
    if (some > INDEPENDENT - at) some = INDEPENDENT - at;
    memset(again, 0, 4 * some);
    rank_ok(run, gsel_allreduce(comm, x + at, again, some, GSEL_F32, GSEL_SUM, &err), err);
    rank_check(run, memcmp(again, whole + at, 4 * some) == 0);
    at += some;
  }
  rank_ok(run, gsel_reduce(comm, x, again, INDEPENDENT, GSEL_F32, GSEL_SUM, 2, &err), err);
  rank_check(run, run->rank != 2 || memcmp(again, whole, 4 * INDEPENDENT) == 0);
  const size_t part = INDEPENDENT / (size_t)run->world_size;
  rank_ok(run, gsel_reduce_scatter(comm, x, again, part, GSEL_F32, GSEL_SUM, &err), err);
  rank_check(run, memcmp(again, whole + (size_t)run->rank * part, 4 * part) == 0);
  uint64_t hash = 14695981039346656037u, *hashes = run->user;
  for (size_t i = 0; i < INDEPENDENT; ++i) {
    uint32_t bits;
    memcpy(&bits, &whole[i], sizeof bits);
    hash = (hash ^ bits) * 1099511628211u;
  }
  hashes[run->rank] = hash;
  free(x), free(whole), free(again);
  gsel_comm_free(comm);
}

static void test_results_do_not_depend_on_pieces_runs_ranks_or_kind_of_rank(void** state) {
  (void)state;
  uint64_t* hashes = shared_memory(4096);
  for (int round = 0; round < 3; ++round) {
    if (round == 2) as_threads(4, by_pieces, hashes + 4 * round);
    if (round != 2) as_processes(4, by_pieces, hashes + 4 * round);
  }
  for (int i = 1; i < 12; ++i) assert_true(hashes[i] == hashes[0]);
  munmap(hashes, 4096);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_small_calls_of_worlds_of_1_to_17_processes),
      cmocka_unit_test(test_large_calls_at_the_edges_of_chunks),
      cmocka_unit_test(test_33_threads),
      cmocka_unit_test(test_threads_of_several_worlds),
      cmocka_unit_test(test_threads_of_several_processes),
      cmocka_unit_test(test_buffers_that_are_not_aligned),
      cmocka_unit_test(test_every_type_and_operation),
      cmocka_unit_test(test_results_do_not_depend_on_pieces_runs_ranks_or_kind_of_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
