/* unit/test_comm_bool.c: the type bool: which operations it has, and that they are the logical ones whatever way a call
 * takes. */
#include "support/ranks.h"

enum { MOST = 300000 };

static const gsel_op ops[] = {GSEL_SUM, GSEL_PROD, GSEL_MIN, GSEL_MAX, GSEL_BAND, GSEL_BOR, GSEL_BXOR};

/* Few of many are 1, or few are 0, so that the ranks differ under each operation. */
static unsigned char bit(int32_t rank, size_t i, int mostly) {
  const int rare = (i * 2654435761u >> 7) % 5 == (size_t)rank;
  return (unsigned char)(mostly ? !rare : rare);
}

static unsigned char folded(gsel_op op, int32_t ranks, size_t i, int mostly) {
  unsigned char any = 0, all = 1, odd = 0;
  for (int32_t q = 0; q < ranks; ++q) {
    any |= bit(q, i, mostly);
    all &= bit(q, i, mostly);
    odd ^= bit(q, i, mostly);
  }
  return op == GSEL_BXOR ? odd : op == GSEL_PROD || op == GSEL_MIN || op == GSEL_BAND ? all : any;
}

static void folds(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const size_t counts[] = {1, 5, 300, 5003, MOST};
  unsigned char *x = malloc(MOST), *y = malloc(MOST);
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (size_t o = 0; o < sizeof ops / sizeof ops[0]; ++o)
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; ++c) {
      const int mostly = (int)(o + c) % 2;
      for (size_t i = 0; i < counts[c]; ++i) x[i] = bit(run->rank, i, mostly);
      rank_ok(run, gsel_allreduce(comm, x, y, counts[c], GSEL_BOOL, ops[o], &err), err);
      for (size_t i = 0; i < counts[c]; ++i) rank_check(run, y[i] == folded(ops[o], run->world_size, i, mostly));
    }
  rank_fails(run, gsel_allreduce(comm, x, y, 4, GSEL_BOOL, GSEL_AVG, &err), err, GSEL_ERR_ARG,
             "allreduce: avg is for numbers and the type is bool; use sum for or, prod for and", -2);
  rank_fails(run, gsel_allreduce(comm, x, y, 4, GSEL_BOOL, GSEL_SCALED_SUM, &err), err, GSEL_ERR_ARG,
             "scaled sum is for floating point and the type is bool", -2);
  free(x), free(y);
  gsel_comm_free(comm);
}

static void test_operations_on_bool_are_the_logical_ones(void** state) {
  (void)state;
  for (int32_t ranks = 1; ranks <= 4; ++ranks) {
    as_threads(ranks, folds, NULL);
    as_processes(ranks, folds, NULL);
  }
}

static void test_the_local_fold_has_them_as_well(void** state) {
  gsel_error* err;
  unsigned char a[100], b[100], out[100];
  const void* inputs[] = {a, b};
  (void)state;
  for (size_t i = 0; i < sizeof a; ++i) a[i] = bit(0, i, 0), b[i] = bit(1, i, 0);
  for (size_t o = 0; o < sizeof ops / sizeof ops[0]; ++o) {
    check_ok(gsel_reduce_local(inputs, 2, out, sizeof a, GSEL_BOOL, ops[o], GSEL_ORDER_RANKS, &err), err);
    for (size_t i = 0; i < sizeof a; ++i) assert_int_equal(out[i], folded(ops[o], 2, i, 0));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operations_on_bool_are_the_logical_ones),
      cmocka_unit_test(test_the_local_fold_has_them_as_well),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
