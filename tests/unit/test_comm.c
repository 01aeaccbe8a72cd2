/* unit/test_comm.c: collectives against a serial reference, bit for bit, with ranks as threads and as processes. */
#include "support/counts.h"
#include "support/ranks.h"
#include "support/reference.h"
#include "support/share.h"

typedef struct sweep {
  gsel_dtype dtype;
  gsel_op op; /* 0: copying calls only */
  size_t count;
  void* reduced; /* [world_size * count] */
} sweep;

typedef struct sweeps {
  sweep item[400];
  int n;
} sweeps;

static void* buffer(size_t bytes) {
  return malloc(bytes + 1);
}

static void one_reduction(rank_run* run, gsel_comm* comm, const sweep* s) {
  gsel_error* err;
  const size_t element = gsel_dtype_bytes(s->dtype), bytes = s->count * element;
  const size_t all = (size_t)run->world_size * bytes, own = (size_t)run->rank * bytes;
  char *send = buffer(all), *recv = buffer(all), *place = buffer(all);
  reference_fill(s->dtype, run->rank, send, 0, s->count * (size_t)run->world_size);
  memcpy(place, send, all);
  rank_ok(run, gsel_allreduce(comm, send, recv, s->count, s->dtype, s->op, &err), err);
  rank_check(run, memcmp(recv, s->reduced, bytes) == 0);
  rank_ok(run, gsel_allreduce(comm, place, place, s->count, s->dtype, s->op, &err), err);
  rank_check(run, memcmp(place, s->reduced, bytes) == 0);
  memcpy(place, send, all);
  rank_ok(run, gsel_reduce_scatter(comm, send, recv, s->count, s->dtype, s->op, &err), err);
  rank_check(run, memcmp(recv, (char*)s->reduced + own, bytes) == 0);
  rank_ok(run, gsel_reduce_scatter(comm, place, place + own, s->count, s->dtype, s->op, &err), err);
  rank_check(run, memcmp(place + own, (char*)s->reduced + own, bytes) == 0);
  rank_check(run,
             memcmp(place, send, own) == 0 && memcmp(place + own + bytes, send + own + bytes, all - own - bytes) == 0);
  free(send), free(recv), free(place);
}

static void one_copy(rank_run* run, gsel_comm* comm, const sweep* s) {
  gsel_error* err;
  const size_t element = gsel_dtype_bytes(s->dtype), bytes = s->count * element;
  const size_t all = (size_t)run->world_size * bytes, own = (size_t)run->rank * bytes;
  const int32_t root = (int32_t)(s->count % (size_t)run->world_size);
  char *send = buffer(bytes), *recv = buffer(all), *expected = buffer(all);
  reference_fill(s->dtype, run->rank, send, 0, s->count);
  for (int32_t r = 0; r < run->world_size; ++r) reference_fill(s->dtype, r, expected + (size_t)r * bytes, 0, s->count);
  memset(recv, 0x55, all);
  rank_ok(run, gsel_allgather(comm, send, recv, s->count, s->dtype, &err), err);
  rank_check(run, memcmp(recv, expected, all) == 0);
  memset(recv, 0x55, all);
  memcpy(recv + own, send, bytes);
  rank_ok(run, gsel_allgather(comm, recv + own, recv, s->count, s->dtype, &err), err);
  rank_check(run, memcmp(recv, expected, all) == 0);
  memset(recv, 0x55, all);
  rank_ok(run, gsel_broadcast(comm, run->rank == root ? send : NULL, recv, s->count, s->dtype, root, &err), err);
  rank_check(run, memcmp(recv, expected + (size_t)root * bytes, bytes) == 0);
  rank_ok(run, gsel_broadcast(comm, send, send, s->count, s->dtype, root, &err), err);
  rank_check(run, memcmp(send, expected + (size_t)root * bytes, bytes) == 0);
  free(send), free(recv), free(expected);
}

static void all_sweeps(rank_run* run) {
  const sweeps* s = run->user;
  gsel_error* err;
  gsel_comm* comm;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_check(run, gsel_comm_rank(comm) == run->rank && gsel_comm_world_size(comm) == run->world_size);
  for (int i = 0; i < s->n && !run->failure[0]; ++i) {
    if (s->item[i].op) one_reduction(run, comm, &s->item[i]);
    if (!s->item[i].op) one_copy(run, comm, &s->item[i]);
    if (run->failure[0]) {
      const size_t length = strlen(run->failure);
      snprintf(run->failure + length, sizeof run->failure - length, " (%s, op %d, count %zu)",
               gsel_dtype_name(s->item[i].dtype), (int)s->item[i].op, s->item[i].count);
    }
  }
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void add(sweeps* s, gsel_dtype dtype, gsel_op op, size_t count, int32_t world_size) {
  assert_true((size_t)s->n < sizeof s->item / sizeof s->item[0]);
  sweep* item = &s->item[s->n++];
  const size_t all = count * (size_t)world_size;
  item->dtype = dtype;
  item->op = op;
  item->count = count;
  item->reduced = op ? buffer(all * gsel_dtype_bytes(dtype)) : NULL;
  if (op) reference_reduce(dtype, op, world_size, item->reduced, all);
}

static void release(sweeps* s) {
  for (int i = 0; i < s->n; ++i) free(s->item[i].reduced);
  free(s);
}

static const int32_t worlds[] = {1, 2, 3, 9, 4, 5, 7, 8, 17};
enum { N_WORLDS = SANITIZED ? 4 : sizeof worlds / sizeof worlds[0] };

/* Elements of f32 that one chunk of an allreduce takes; see comm/shm/memory/arena.cc. */
static size_t chunk(int32_t p) {
  return (524288 / (size_t)p / 64 * 64 / 4) * (size_t)p;
}

static sweeps* sizes_of(int32_t p) {
  const size_t few[] = {0, 1, 3, 12, 13, 1000, 1024, 1025};
  sweeps* s = calloc(1, sizeof *s);
  for (size_t i = 0; i < sizeof few / sizeof few[0]; ++i) {
    add(s, GSEL_F32, GSEL_SUM, few[i], p);
    add(s, GSEL_F32, 0, few[i], p);
  }
  if (p <= 4)
    for (size_t around = 0; around < 3; ++around) {
      add(s, GSEL_F32, GSEL_SUM, chunk(p) - 1 + around, p);
      add(s, GSEL_F32, GSEL_AVG, 2 * chunk(p) - 1 + around, p);
      add(s, GSEL_F32, 0, 131072 - 1 + around, p);
    }
  add(s, GSEL_F32, GSEL_SUM, p <= 4 ? 786432 : 196613, p);
  add(s, GSEL_F32, 0, p <= 4 ? 786432 : 196613, p);
  return s;
}

static sweeps* types_of(int32_t p) {
  const size_t in_line = 5, in_slot = 300, in_chunks = 5003;
  sweeps* s = calloc(1, sizeof *s);
  for (gsel_dtype dtype = GSEL_I8; dtype <= GSEL_F8E5M2; ++dtype)
    for (gsel_op op = GSEL_SUM; op <= (dtype <= GSEL_U64 ? GSEL_BXOR : GSEL_AVG); ++op) {
      add(s, dtype, op, in_line, p);
      add(s, dtype, op, in_slot, p);
      add(s, dtype, op, in_chunks, p);
    }
  if (p <= 3) {
    add(s, GSEL_F8E4M3, GSEL_SUM, 600001, p);
    add(s, GSEL_BF16, GSEL_AVG, 600001, p);
  }
  for (gsel_dtype dtype = GSEL_I8; dtype <= GSEL_F8E5M2; ++dtype) {
    add(s, dtype, 0, 5, p);
    add(s, dtype, 0, 5003, p);
  }
  return s;
}

static void test_every_call_and_size_equals_the_serial_reference_with_threads(void** state) {
  (void)state;
  for (int i = 0; i < N_WORLDS; ++i) {
    sweeps* s = sizes_of(worlds[i]);
    as_threads(worlds[i], all_sweeps, s);
    release(s);
  }
}

static void test_every_call_and_size_equals_the_serial_reference_with_processes(void** state) {
  (void)state;
  for (int i = 0; i < N_WORLDS; ++i) {
    sweeps* s = sizes_of(worlds[i]);
    as_processes(worlds[i], all_sweeps, s);
    release(s);
  }
}

static void test_every_type_and_operation_equals_the_serial_reference(void** state) {
  (void)state;
  const int32_t some[] = {1, 2, 3, 5, 8};
  for (size_t i = 0; i < sizeof some / sizeof some[0]; ++i) {
    sweeps* s = types_of(some[i]);
    as_threads(some[i], all_sweeps, s);
    release(s);
  }
}

static void bits_of_floats(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  uint32_t x[4] = {0, 0, 0, 0};
  int64_t one = 1;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_fails(run, gsel_allreduce(comm, x, x, 4, GSEL_F32, GSEL_BAND, &err), err, GSEL_ERR_ARG,
             "allreduce: band is for integers and bool and the type is f32", -1);
  rank_fails(run, gsel_reduce_scatter(comm, x, (uint8_t*)x + run->rank, 1, GSEL_F8E4M3, GSEL_BXOR, &err), err,
             GSEL_ERR_ARG, "bxor is for integers and bool and the type is f8e4m3; use sum, prod, min, max or avg", -1);
  rank_ok(run, gsel_allreduce(comm, &one, &one, 1, GSEL_I64, GSEL_SUM, &err), err);
  rank_check(run, one == run->world_size);
  gsel_comm_free(comm);
}

static void test_bitwise_operations_on_floats_are_refused_and_the_communicator_stays_usable(void** state) {
  (void)state;
  as_threads(1, bits_of_floats, NULL);
  as_threads(3, bits_of_floats, NULL);
}

static void bytes_sent(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const uint64_t n = (uint64_t)run->world_size, s = 60000;
  const size_t counts[] = {6, s};
  float *x = buffer(s * n * sizeof *x), *y = buffer(s * n * sizeof *x);
  memset(x, 0, s * n * sizeof *x);
  rank_ok(run, rank_join(run, &comm, &err), err);
  uint64_t reduced = 0, gathered = 0, broadcast = 0;
  for (size_t i = 0; i < 2; ++i) {
    const uint64_t bytes = 4 * counts[i];
    const gsel_range own = gsel_shard_range((int64_t)counts[i], run->world_size, run->rank);
    rank_ok(run, gsel_allreduce(comm, x, x, counts[i], GSEL_F32, GSEL_SUM, &err), err);
    rank_ok(run, gsel_reduce_scatter(comm, x, y, counts[i], GSEL_F32, GSEL_SUM, &err), err);
    rank_ok(run, gsel_allgather(comm, x, y, counts[i], GSEL_F32, &err), err);
    rank_ok(run, gsel_broadcast(comm, x, x, counts[i], GSEL_F32, 0, &err), err);
    reduced += bytes + (n - 2) * 4 * (uint64_t)(own.end - own.begin);
    gathered += bytes * (n - 1);
    broadcast += run->rank == 0 ? bytes * (n - 1) : 0;
    rank_check(run, comm_counts(comm, GSEL_COLLECTIVE_ALLREDUCE).bytes_sent == reduced);
    rank_check(run, comm_counts(comm, GSEL_COLLECTIVE_REDUCE_SCATTER).bytes_sent == gathered);
    rank_check(run, comm_counts(comm, GSEL_COLLECTIVE_ALLGATHER).bytes_sent == gathered);
    rank_check(run, comm_counts(comm, GSEL_COLLECTIVE_BROADCAST).bytes_sent == broadcast);
  }
  rank_check(run, comm_counts(comm, GSEL_COLLECTIVE_ALLREDUCE).calls == 2);
  rank_check(run, comm_counts(comm, GSEL_COLLECTIVE_BARRIER).calls == 0);
  rank_check(run, comm_counts(comm, 99).calls == 0);
  free(x), free(y);
  gsel_comm_free(comm);
}

static void test_bytes_sent_follow_the_published_formula(void** state) {
  (void)state;
  as_threads(1, bytes_sent, NULL);
  as_threads(2, bytes_sent, NULL);
  as_threads(3, bytes_sent, NULL);
  as_threads(5, bytes_sent, NULL);
}

/* Each rank passes a buffer on to the next; sizes around the slots of the channel. */
static void ring(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const size_t sizes[] = {0, 1, 1024, 2048, 16384, 16385, 100000};
  const int32_t n = run->world_size, to = (run->rank + 1) % n, from = (run->rank + n - 1) % n;
  float *x = buffer(400000), *y = buffer(400000), *expected = buffer(400000);
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    reference_fill(GSEL_F32, run->rank, x, 0, sizes[i]);
    reference_fill(GSEL_F32, from, expected, 0, sizes[i]);
    memset(y, 0, 400000);
    if (run->rank == 0) {
      rank_ok(run, gsel_recv(comm, y, sizes[i], GSEL_F32, from, &err), err);
      rank_ok(run, gsel_send(comm, x, sizes[i], GSEL_F32, to, &err), err);
    } else {
      rank_ok(run, gsel_send(comm, x, sizes[i], GSEL_F32, to, &err), err);
      rank_ok(run, gsel_recv(comm, y, sizes[i], GSEL_F32, from, &err), err);
    }
    rank_check(run, memcmp(y, expected, sizes[i] * sizeof *y) == 0);
  }
  /* A message of 8 KiB does not wait for its receive. */
  rank_ok(run, gsel_send(comm, x, 2048, GSEL_F32, to, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  rank_ok(run, gsel_recv(comm, y, 2048, GSEL_F32, from, &err), err);
  rank_check(run, comm_counts(comm, GSEL_COLLECTIVE_SEND).calls == 8);
  rank_check(run,
             comm_counts(comm, GSEL_COLLECTIVE_SEND).bytes_sent == 4 * (1 + 1024 + 2048 * 2 + 16384 + 16385 + 100000));
  free(x), free(y), free(expected);
  gsel_comm_free(comm);
}

static void test_messages_travel_round_a_ring(void** state) {
  (void)state;
  const int32_t some[] = {2, 3, 5, 17};
  for (size_t i = 0; i < sizeof some / sizeof some[0]; ++i) {
    as_threads(some[i], ring, NULL);
    as_processes(some[i], ring, NULL);
  }
}

static void two_at_once(rank_run* run) {
  gsel_error* err;
  gsel_comm *a, *b;
  rank_run second = *run;
  second.id.bytes[77] ^= 1;
  rank_ok(run, rank_join(run, &a, &err), err);
  rank_ok(run, rank_join(&second, &b, &err), err);
  for (int i = 0; i < 50; ++i) {
    int32_t x = run->rank + i, y = -run->rank;
    rank_ok(run, gsel_allreduce(a, &x, &x, 1, GSEL_I32, GSEL_MAX, &err), err);
    rank_ok(run, gsel_allreduce(b, &y, &y, 1, GSEL_I32, GSEL_MIN, &err), err);
    rank_check(run, x == run->world_size - 1 + i && y == 1 - run->world_size);
  }
  gsel_comm_free(a);
  int32_t x = 1;
  rank_ok(run, gsel_allreduce(b, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
  rank_check(run, x == run->world_size);
  gsel_comm_free(b);
}

static void test_two_communicators_live_side_by_side(void** state) {
  (void)state;
  as_threads(3, two_at_once, NULL);
  as_processes(3, two_at_once, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_call_and_size_equals_the_serial_reference_with_threads),
      cmocka_unit_test(test_every_call_and_size_equals_the_serial_reference_with_processes),
      cmocka_unit_test(test_every_type_and_operation_equals_the_serial_reference),
      cmocka_unit_test(test_bitwise_operations_on_floats_are_refused_and_the_communicator_stays_usable),
      cmocka_unit_test(test_bytes_sent_follow_the_published_formula),
      cmocka_unit_test(test_messages_travel_round_a_ring),
      cmocka_unit_test(test_two_communicators_live_side_by_side),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
