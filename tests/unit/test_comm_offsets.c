/* unit/test_comm_offsets.c: reduce_scatterv of parts that stand apart, in any order or upon each other, by every
 * protocol. */
#include "support/ranks.h"

enum { N = 3, GAP = 5 };

static float value(int32_t rank, size_t i) {
  return (float)(rank * 100000) + (float)i;
}

static void apart(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const size_t sizes[] = {2, 40, 3000, 200000};
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s)
    for (int shared = 0; shared < 2; ++shared) {
      const uint64_t size = sizes[s];
      const uint64_t counts[N] = {size, 0, size + 1};
      const uint64_t turned[N] = {size + 1 + GAP, 7, 0}, same[N] = {0, 0, 0};
      const size_t all = 2 * size + 1 + GAP;
      void* memory = NULL;
      if (shared) rank_ok(run, gsel_mem_alloc(comm, all * sizeof(float), &memory, &err), err);
      float *x = shared ? memory : malloc(all * sizeof *x), *y = malloc((size + 1) * sizeof *y);
      for (size_t i = 0; i < all; ++i) x[i] = value(run->rank, i);
      for (int upon = 0; upon < 2; ++upon) {
        const uint64_t* offsets = upon ? same : turned;
        rank_ok(run, gsel_reduce_scatterv(comm, x, y, counts, offsets, GSEL_F32, GSEL_MAX, &err), err);
        for (size_t i = 0; i < counts[run->rank]; ++i) rank_check(run, y[i] == value(N - 1, offsets[run->rank] + i));
      }
      float* own = x + turned[run->rank];
      rank_ok(run, gsel_reduce_scatterv(comm, x, own, counts, turned, GSEL_F32, GSEL_MAX, &err), err);
      for (size_t i = 0; i < counts[run->rank]; ++i) rank_check(run, own[i] == value(N - 1, turned[run->rank] + i));
      rank_ok(run, gsel_barrier(comm, &err), err);
      if (shared)
        gsel_mem_free(comm, x, NULL);
      else
        free(x);
      free(y);
    }
  gsel_comm_free(comm);
}

static void test_parts_stand_where_the_offsets_say(void** state) {
  (void)state;
  as_threads(N, apart, NULL);
  as_processes(N, apart, NULL);
}

/* Packed offsets are none; others must be the same on every rank. */
static void agreed(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const uint64_t counts[N] = {1, 2, 3}, packed[N] = {0, 1, 3}, apart_by_one[N] = {1, 2, 4};
  float x[8] = {0}, y[3];
  rank_ok(run, rank_join(run, &comm, &err), err);
  const uint64_t* offsets = run->rank == 0 ? packed : NULL;
  rank_ok(run, gsel_reduce_scatterv(comm, x, y, counts, offsets, GSEL_F32, GSEL_SUM, &err), err);
  offsets = run->rank == 0 ? apart_by_one : packed;
  rank_fails(run, gsel_reduce_scatterv(comm, x, y, counts, offsets, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_MISMATCH,
             "with other counts", 0);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void test_other_offsets_are_a_mismatch(void** state) {
  (void)state;
  as_threads(N, agreed, NULL);
  as_processes(N, agreed, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parts_stand_where_the_offsets_say),
      cmocka_unit_test(test_other_offsets_are_a_mismatch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
