/* unit/test_order.c: the order in which numbers are folded: trees that agree over numbers of ranks, and the fold
 * without ranks. */
#include "support/ranks.h"
#include "support/reference.h"

#define SHARDS 8
#define COUNT 20000 /* large calls; SMALL of them ride with the header line */
#define SMALL 50

static gsel_status join_in(const rank_run* run, int32_t order, gsel_comm** out, gsel_error** err) {
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  options.order = order;
  return gsel_comm_init(&options, out, err);
}

/* ---- trees */

typedef struct shards {
  gsel_dtype dtype;
  gsel_op op;
  char* shard[SHARDS];
  char* expected;
} shards;

static int32_t halve_and_add(void* accumulated, const void* next, size_t count, gsel_dtype dtype, void* user_data) {
  float* a = accumulated;
  const float* b = next;
  (void)dtype, (void)user_data;
  for (size_t i = 0; i < count; ++i) a[i] = a[i] / 2 + b[i];
  return 0;
}

static void own_shards_then_ranks(rank_run* run) {
  const shards* s = run->user;
  gsel_error* err;
  gsel_comm* comm;
  const size_t bytes = COUNT * gsel_dtype_bytes(s->dtype), each = SHARDS / (size_t)run->world_size;
  char *sum = malloc(bytes), *piece = malloc(bytes);
  rank_ok(run, join_in(run, GSEL_ORDER_TREE, &comm, &err), err);
  const void* const* own = (const void* const*)(s->shard + each * (size_t)run->rank);
  rank_ok(run, gsel_reduce_local(own, each, sum, COUNT, s->dtype, s->op, GSEL_ORDER_TREE, &err), err);
  rank_ok(run, gsel_allreduce(comm, sum, piece, SMALL, s->dtype, s->op, &err), err);
  rank_check(run, memcmp(piece, s->expected, SMALL * gsel_dtype_bytes(s->dtype)) == 0);
  rank_ok(run, gsel_allreduce(comm, sum, sum, COUNT, s->dtype, s->op, &err), err);
  rank_check(run, memcmp(sum, s->expected, bytes) == 0);
  free(sum), free(piece);
  gsel_comm_free(comm);
}

/* s->expected = the shards folded level by level, each pair by the reference. */
static void fold_by_hand(shards* s) {
  const size_t bytes = COUNT * gsel_dtype_bytes(s->dtype);
  char* level[SHARDS];
  for (int i = 0; i < SHARDS; ++i) {
    level[i] = malloc(bytes);
    memcpy(level[i], s->shard[i], bytes);
  }
  for (int n = SHARDS; n > 1; n /= 2)
    for (int i = 0; i < n / 2; ++i) {
      const void* pair[] = {level[2 * i], level[2 * i + 1]};
      if (s->op < GSEL_OP_USER) {
        reference_fold(s->dtype, s->op, 2, pair, level[i], COUNT);
      } else {
        halve_and_add(level[2 * i], level[2 * i + 1], COUNT, s->dtype, NULL);
        memcpy(level[i], level[2 * i], bytes);
      }
    }
  memcpy(s->expected, level[0], bytes);
  for (int i = 0; i < SHARDS; ++i) free(level[i]);
}

static void one_type(gsel_dtype dtype, gsel_op op) {
  shards s = {.dtype = dtype, .op = op};
  const size_t bytes = COUNT * gsel_dtype_bytes(dtype);
  char* serial = malloc(bytes);
  s.expected = malloc(bytes);
  for (int i = 0; i < SHARDS; ++i) {
    s.shard[i] = malloc(bytes);
    reference_fill(dtype, i, s.shard[i], 0, COUNT);
  }
  fold_by_hand(&s);
  for (int32_t p = 1; p <= SHARDS; p *= 2) as_threads(p, own_shards_then_ranks, &s);
  as_processes(2, own_shards_then_ranks, &s);
  if (dtype == GSEL_F32) { /* or the test shows nothing */
    gsel_error* err;
    check_ok(gsel_reduce_local((const void* const*)s.shard, SHARDS, serial, COUNT, dtype, op, GSEL_ORDER_RANKS, &err),
             err);
    assert_memory_not_equal(serial, s.expected, bytes);
  }
  for (int i = 0; i < SHARDS; ++i) free(s.shard[i]);
  free(s.expected), free(serial);
}

static void test_a_tree_gives_the_same_bits_on_one_two_four_and_eight_ranks(void** state) {
  gsel_error* err;
  gsel_op op;
  (void)state;
  one_type(GSEL_F32, GSEL_SUM);
  one_type(GSEL_F64, GSEL_SUM);
  one_type(GSEL_I32, GSEL_SUM);
  check_ok(gsel_op_create((gsel_str)GSEL_STR("halve and add"), 1, halve_and_add, NULL, NULL, &op, &err), err);
  one_type(GSEL_F32, op);
  gsel_op_free(op);
}

static void orders_differ(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  rank_fails(run, join_in(run, run->rank == 2 ? GSEL_ORDER_TREE : GSEL_ORDER_RANKS, &comm, &err), err,
             GSEL_ERR_MISMATCH, "joins with order 1, rank 0 with 0; give every rank the same gsel_comm_options.order",
             2);
  rank_check(run, comm == NULL);
}

static void test_ranks_that_join_with_other_orders_are_refused(void** state) {
  rank_run alone = {.world_size = 1};
  gsel_error* err;
  gsel_comm* comm;
  (void)state;
  as_threads(3, orders_differ, NULL);
  as_processes(3, orders_differ, NULL);
  check_ok(gsel_unique_id_create(&alone.id, &err), err);
  check_fails(join_in(&alone, 2, &comm, &err), err, GSEL_ERR_ARG, "order 2 is unknown; use GSEL_ORDER_RANKS");
}

/* ---- the fold without ranks */

static void test_the_local_fold_equals_the_reference(void** state) {
  gsel_error* err;
  char *in[5], *out = malloc(COUNT * 8), *expected = malloc(COUNT * 8);
  (void)state;
  for (int i = 0; i < 5; ++i) in[i] = malloc(COUNT * 8);
  for (gsel_dtype dtype = GSEL_I8; dtype <= GSEL_F8E5M2; ++dtype)
    for (size_t n = 1; n <= 5; ++n) {
      const size_t bytes = COUNT * gsel_dtype_bytes(dtype);
      const void* const* inputs = (const void* const*)in;
      for (int i = 0; i < 5; ++i) reference_fill(dtype, i, in[i], 0, COUNT);
      reference_fold(dtype, GSEL_AVG, (int32_t)n, inputs, expected, COUNT);
      check_ok(gsel_reduce_local(inputs, n, out, COUNT, dtype, GSEL_AVG, GSEL_ORDER_RANKS, &err), err);
      assert_memory_equal(out, expected, bytes);
      check_ok(gsel_reduce_local(inputs, n, in[n - 1], COUNT, dtype, GSEL_AVG, GSEL_ORDER_RANKS, &err), err);
      assert_memory_equal(in[n - 1], expected, bytes);
    }
  for (int i = 0; i < 5; ++i) free(in[i]);
  free(out), free(expected);
}

static void test_the_local_fold_refuses_what_cannot_be_done(void** state) {
  gsel_error* err;
  float x[20] = {0}, y[20] = {0};
  gsel_op scaled;
  const void *in[] = {x, y}, *gap[] = {x, NULL};
  (void)state;
#define REFUSED(inputs, n, out, count, dtype, op, order, part) \
  check_fails(gsel_reduce_local(inputs, n, out, count, dtype, op, order, &err), err, GSEL_ERR_ARG, part)
  REFUSED(in, 0, x, 8, GSEL_F32, GSEL_SUM, 0, "n is 0; use 1 to");
  REFUSED(in, (size_t)1 << 40, x, 8, GSEL_F32, GSEL_SUM, 0, "n is 1099511627776");
  REFUSED(NULL, 2, x, 8, GSEL_F32, GSEL_SUM, 0, "inputs is NULL");
  REFUSED(gap, 2, x, 8, GSEL_F32, GSEL_SUM, 0, "inputs[1] is NULL");
  REFUSED(in, 2, NULL, 8, GSEL_F32, GSEL_SUM, 0, "out is NULL");
  REFUSED(in, 2, x, 8, 77, GSEL_SUM, 0, "dtype 77 is unknown");
  REFUSED(in, 2, x, 8, GSEL_F32, 77, 0, "op 77 is unknown");
  REFUSED(in, 2, x, 8, GSEL_F32, GSEL_BXOR, 0, "bxor is for integers");
  REFUSED(in, 2, x, 8, GSEL_F32, GSEL_SUM, 2, "order 2 is unknown");
  REFUSED(in, 2, x, 8, GSEL_F32, GSEL_SCALED_SUM, 0, "scaled sum takes a factor from each rank");
  check_ok(gsel_op_create_scaled_sum(2, &scaled, &err), err);
  REFUSED(in, 2, x, 8, GSEL_F32, scaled, 0, "scaled sum takes a factor from each rank");
  gsel_op_free(scaled);
  REFUSED(in, 2, x, SIZE_MAX / 2, GSEL_F32, GSEL_SUM, 0, "does not fit in memory");
  REFUSED(in, 2, x + 1, 8, GSEL_F32, GSEL_SUM, 0, "overlap with out 4 bytes after the input");
  REFUSED(in, 1, (char*)x + 31, 8, GSEL_F32, GSEL_SUM, 0, "31 bytes after");
#undef REFUSED
  check_ok(gsel_reduce_local(in, 2, x + 8, 8, GSEL_F32, GSEL_SUM, 0, &err), err);
  check_ok(gsel_reduce_local(NULL, 2, NULL, 0, GSEL_F32, GSEL_SUM, 0, &err), err);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_tree_gives_the_same_bits_on_one_two_four_and_eight_ranks),
      cmocka_unit_test(test_ranks_that_join_with_other_orders_are_refused),
      cmocka_unit_test(test_the_local_fold_equals_the_reference),
      cmocka_unit_test(test_the_local_fold_refuses_what_cannot_be_done),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
