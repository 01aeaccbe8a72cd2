/* unit/test_comm_parts.c: buffers given as arrays of pointers, on some ranks or on all, give what one buffer gives,
 * whatever way a call takes. */
#include "support/ranks.h"

enum { N = 3 };

static const gsel_collective_kind kinds[] = {GSEL_COLLECTIVE_ALLGATHER,       GSEL_COLLECTIVE_REDUCE_SCATTER,
                                             GSEL_COLLECTIVE_ALLTOALL,        GSEL_COLLECTIVE_GATHER,
                                             GSEL_COLLECTIVE_SCATTER,         GSEL_COLLECTIVE_ALLGATHERV,
                                             GSEL_COLLECTIVE_REDUCE_SCATTERV, GSEL_COLLECTIVE_ALLTOALLV,
                                             GSEL_COLLECTIVE_GATHERV,         GSEL_COLLECTIVE_SCATTERV};

struct memory {
  gsel_comm* comm; /* NULL: private */
  void* pieces[4 * N + 8];
  int n;
};

static int32_t* take(struct memory* m, uint64_t elements) {
  void* piece = NULL;
  if (m->comm)
    gsel_mem_alloc(m->comm, (elements + 1) * sizeof(int32_t), &piece, NULL);
  else
    piece = malloc((elements + 1) * sizeof(int32_t));
  memset(piece, 0x5a, (elements + 1) * sizeof(int32_t));
  return m->pieces[m->n++] = piece;
}

static void give_back(struct memory* m) {
  for (; m->n > 0; --m->n)
    if (m->comm)
      gsel_mem_free(m->comm, m->pieces[m->n - 1], NULL);
    else
      free(m->pieces[m->n - 1]);
}

/* Both buffers of a call as the kind has them: in N parts of these counts, or in one. */
struct shape {
  int send_parts, recv_parts;
};

static struct shape shape_of(gsel_collective_kind kind, int32_t rank) {
  switch (kind) {
    case GSEL_COLLECTIVE_ALLGATHER:
    case GSEL_COLLECTIVE_ALLGATHERV:
      return (struct shape){0, 1};
    case GSEL_COLLECTIVE_GATHER:
    case GSEL_COLLECTIVE_GATHERV:
      return (struct shape){0, rank == 1};
    case GSEL_COLLECTIVE_SCATTER:
    case GSEL_COLLECTIVE_SCATTERV:
      return (struct shape){rank == 1, 0};
    case GSEL_COLLECTIVE_ALLTOALL:
    case GSEL_COLLECTIVE_ALLTOALLV:
      return (struct shape){1, 1};
    default:
      return (struct shape){1, 0};
  }
}

/* The call in one piece, and the same in parts; both must leave the same. mask: the ranks that give parts. */
static void one_call(rank_run* run, gsel_comm* comm, gsel_collective_kind kind, uint64_t size, int shared,
                     unsigned mask) {
  gsel_error* err;
  struct memory m = {shared ? comm : NULL, {0}, 0};
  const int32_t r = run->rank;
  const int v = kind >= GSEL_COLLECTIVE_REDUCE_SCATTERV;
  const uint64_t uneven[N] = {size, 0, size + 3}, even[N] = {size, size, size}, *counts = v ? uneven : even;
  const uint64_t largest = size + 3, own = counts[r];
  const struct shape shape = shape_of(kind, r);
  uint64_t sent[N], got[N], starts_sent[N], starts_got[N], all_sent = 0, all_got = 0;
  for (int q = 0; q < N; ++q) { /* of an alltoallv, rank r has counts[(r + q) % N] for rank q */
    sent[q] = kind == GSEL_COLLECTIVE_ALLTOALLV ? counts[(r + q) % N] : counts[q];
    got[q] = kind == GSEL_COLLECTIVE_ALLTOALLV ? counts[(r + q) % N] : counts[q];
    starts_sent[q] = all_sent, all_sent += sent[q];
    starts_got[q] = all_got, all_got += got[q];
  }
  int32_t *send = take(&m, N * largest), *recv = take(&m, N * largest), *again = take(&m, N * largest);
  for (uint64_t i = 0; i < all_sent || i < own; ++i) send[i] = (int32_t)(i * 7 + 1000003u * (uint32_t)r);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = kind;
  call.dtype = GSEL_I32;
  call.op = GSEL_SUM;
  call.root = 1;
  call.count = size;
  call.send = send;
  call.recv = recv;
  call.send_counts = sent;
  call.recv_counts = got;
  rank_ok(run, gsel_comm_run(comm, &call, &err), err);

  const void* send_parts[N];
  void* recv_parts[N];
  call.recv = again;
  if (mask & 1u << r) {
    for (int q = N - 1; q >= 0; --q) {
      int32_t* part = take(&m, sent[q]);
      memcpy(part, send + starts_sent[q], sent[q] * sizeof *part);
      send_parts[q] = sent[q] ? part : NULL;
      recv_parts[q] = got[q] ? take(&m, got[q]) : NULL;
    }
    call.send_parts = send_parts;
    call.recv_parts = recv_parts;
  }
  rank_ok(run, gsel_comm_run(comm, &call, &err), err);
  if (shape.recv_parts && (mask & 1u << r)) {
    for (int q = 0; q < N; ++q)
      if (got[q]) {
        rank_check(run, memcmp(recv_parts[q], recv + starts_got[q], got[q] * sizeof *recv) == 0);
        rank_check(run, ((int32_t*)recv_parts[q])[got[q]] == 0x5a5a5a5a);
      }
  } else {
    rank_check(run, memcmp(again, recv, N * largest * sizeof *recv) == 0);
  }
  rank_ok(run, gsel_barrier(comm, &err), err);
  give_back(&m);
}

static void in_parts(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const uint64_t sizes[] = {1, 5, 300, 5003, 70001};
  const unsigned masks[] = {7, 1, 2, 5};
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; ++k)
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s)
      for (size_t i = 0; i < sizeof masks / sizeof masks[0]; ++i)
        for (int shared = 0; shared < 2 && !run->failure[0]; ++shared)
          one_call(run, comm, kinds[k], sizes[s], shared, masks[i]);
  gsel_comm_free(comm);
}

static void test_parts_give_what_one_buffer_gives(void** state) {
  (void)state;
  as_threads(N, in_parts, NULL);
  as_processes(N, in_parts, NULL);
}

/* The own part is the other buffer. */
static void in_place(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  enum { SIZE = 5000 };
  static __thread int32_t x[N][SIZE];
  rank_ok(run, rank_join(run, &comm, &err), err);
  void* parts[N] = {x[2], x[0], x[1]};
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLGATHER;
  call.dtype = GSEL_I32;
  call.count = SIZE;
  call.send = parts[run->rank];
  call.recv_parts = parts;
  for (int i = 0; i < SIZE; ++i) ((int32_t*)parts[run->rank])[i] = run->rank + i;
  rank_ok(run, gsel_comm_run(comm, &call, &err), err);
  for (int q = 0; q < N; ++q)
    for (int i = 0; i < SIZE; ++i) rank_check(run, ((int32_t*)parts[q])[i] == q + i);
  const void* const* sent = (const void* const*)parts;
  call = (gsel_collective)GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_REDUCE_SCATTER;
  call.dtype = GSEL_I32;
  call.op = GSEL_SUM;
  call.count = SIZE;
  call.send_parts = sent;
  call.recv = parts[run->rank];
  rank_ok(run, gsel_comm_run(comm, &call, &err), err);
  for (int i = 0; i < SIZE; ++i) rank_check(run, ((int32_t*)parts[run->rank])[i] == N * (run->rank + i));
  gsel_comm_free(comm);
}

static void test_the_own_part_may_be_the_other_buffer(void** state) {
  (void)state;
  as_threads(N, in_place, NULL);
  as_processes(N, in_place, NULL);
}

/* A persistent request takes what stands in the arrays when it is made. */
static void started(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  int32_t own = run->rank, got[N][3] = {{0}};
  void* parts[N] = {got[1], got[2], got[0]};
  rank_ok(run, rank_join(run, &comm, &err), err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLGATHER;
  call.dtype = GSEL_I32;
  call.count = 1;
  call.send = &own;
  call.recv_parts = parts;
  rank_ok(run, gsel_request_create(comm, &call, &request, &err), err);
  for (int turn = 0; turn < 3; ++turn, own += 10) {
    rank_ok(run, gsel_request_start(request, &err), err);
    rank_ok(run, gsel_request_wait(request, &err), err);
    for (int q = 0; q < N; ++q) rank_check(run, *(int32_t*)parts[q] == q + 10 * turn);
    rank_ok(run, gsel_barrier(comm, &err), err);
  }
  gsel_request_free(request);
  gsel_comm_free(comm);
}

static void test_requests_take_parts(void** state) {
  (void)state;
  as_threads(N, started, NULL);
  as_processes(N, started, NULL);
}

static void is_refused(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  int32_t x[8] = {0};
  void *missing[N] = {x, NULL, x + 2}, *crooked[N] = {x, (char*)x + 6, x + 4}, *upon[N] = {x, x + 1, x + 2};
  rank_ok(run, rank_join(run, &comm, &err), err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLGATHER;
  call.dtype = GSEL_I32;
  call.count = 1;
  call.send = x + 6;
  call.recv_parts = missing;
  rank_fails(run, gsel_comm_run(comm, &call, &err), err, GSEL_ERR_ARG,
             "allgather: recv_parts[1] is NULL and 4 bytes are needed there", -2);
  call.recv_parts = crooked;
  rank_fails(run, gsel_comm_run(comm, &call, &err), err, GSEL_ERR_ARG,
             "allgather: recv_parts[1] is not aligned to 4 bytes, the size of i32", -2);
  call.recv_parts = upon;
  call.send = upon[(run->rank + 1) % N];
  rank_fails(run, gsel_comm_run(comm, &call, &err), err, GSEL_ERR_ARG, "overlap", -2);
  gsel_comm_free(comm);
}

static void test_parts_that_cannot_be_are_refused(void** state) {
  (void)state;
  as_threads(N, is_refused, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parts_give_what_one_buffer_gives),
      cmocka_unit_test(test_the_own_part_may_be_the_other_buffer),
      cmocka_unit_test(test_requests_take_parts),
      cmocka_unit_test(test_parts_that_cannot_be_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
