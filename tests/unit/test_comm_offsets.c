/* unit/test_comm_offsets.c: parts that stand apart, in any order, upon each other or between those of the other buffer,
 * by every protocol. */
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
             "with other offsets; make the calls alike", 0);
  const uint64_t others[N] = {1, 2, 2};
  const uint64_t* given = run->rank == 0 ? others : counts;
  rank_fails(run, gsel_reduce_scatterv(comm, x, y, given, apart_by_one, GSEL_F32, GSEL_SUM, &err), err,
             GSEL_ERR_MISMATCH, "rank 0 called reduce_scatterv(total count 5", 0);
  const uint64_t turned[N] = {3, 2, 1};
  given = run->rank == 0 ? turned : counts;
  rank_fails(run, gsel_reduce_scatterv(comm, x, y, given, apart_by_one, GSEL_F32, GSEL_SUM, &err), err,
             GSEL_ERR_MISMATCH, "with other counts; make", 0);
  rank_fails(run,
             gsel_reduce_scatterv(comm, x, y, given, run->rank == 0 ? NULL : apart_by_one, GSEL_F32, GSEL_SUM, &err),
             err, GSEL_ERR_MISMATCH, "with other counts and offsets; make", 0);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void test_other_offsets_are_a_mismatch(void** state) {
  (void)state;
  as_threads(N, agreed, NULL);
  as_processes(N, agreed, NULL);
}

/* Rows of one heap: even ones are sent, odd ones received. */
static void interleaved(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const size_t sizes[] = {1, 40, 3000, 200000};
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s)
    for (int shared = 0; shared < 2; ++shared) {
      const uint64_t n = sizes[s], counts[N] = {n, n, n}, rows[N] = {0, 2 * n, 4 * n};
      const size_t all = 2 * N * n;
      void* memory = NULL;
      if (shared) rank_ok(run, gsel_mem_alloc(comm, all * sizeof(float), &memory, &err), err);
      float* x = shared ? memory : malloc(all * sizeof *x);
      const int32_t r = run->rank;
      for (size_t i = 0; i < all; ++i) x[i] = value(r, i);
      rank_ok(run, gsel_alltoallv(comm, x, counts, rows, x + n, counts, rows, GSEL_F32, &err), err);
      for (int32_t q = 0; q < N; ++q)
        for (size_t i = 0; i < n; ++i) {
          rank_check(run, x[rows[q] + i] == value(r, rows[q] + i));
          rank_check(run, x[n + rows[q] + i] == value(q, rows[r] + i));
        }
      rank_ok(run, gsel_allgatherv(comm, x + rows[1], x + n, counts, rows, GSEL_F32, &err), err);
      rank_ok(run, gsel_gatherv(comm, x + rows[1], x + n, counts, rows, GSEL_F32, 1, &err), err);
      for (int32_t q = 0; q < N; ++q)
        for (size_t i = 0; i < n; ++i) {
          rank_check(run, x[rows[q] + i] == value(r, rows[q] + i));
          rank_check(run, x[n + rows[q] + i] == value(q, rows[1] + i));
        }
      rank_ok(run, gsel_scatterv(comm, x, x + n, counts, rows, GSEL_F32, 2, &err), err);
      for (size_t i = 0; i < n; ++i) rank_check(run, x[n + i] == value(2, rows[r] + i));
      rank_ok(run, gsel_reduce_scatterv(comm, x, x + n, counts, rows, GSEL_F32, GSEL_MIN, &err), err);
      for (size_t i = 0; i < n; ++i) rank_check(run, x[n + i] == value(0, rows[r] + i));
      for (size_t i = 0; i < n; ++i) rank_check(run, x[rows[1] + i] == value(r, rows[1] + i));
      rank_ok(run, gsel_barrier(comm, &err), err);
      if (shared)
        gsel_mem_free(comm, x, NULL);
      else
        free(x);
    }
  gsel_comm_free(comm);
}

static void test_parts_that_are_sent_stand_between_those_received(void** state) {
  (void)state;
  as_threads(N, interleaved, NULL);
  as_processes(N, interleaved, NULL);
}

/* One element is enough. */
static void upon_each_other(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  float x[32] = {0};
  const uint64_t counts[N] = {3, 3, 3}, rows[N] = {0, 6, 12}, nearer[N] = {0, 5, 12};
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_fails(run, gsel_alltoallv(comm, x, counts, rows, x + 3, counts, nearer, GSEL_F32, &err), err, GSEL_ERR_ARG,
             "overlap", -1);
  rank_fails(run, gsel_allgatherv(comm, x + 5, x, counts, rows, GSEL_F32, &err), err, GSEL_ERR_ARG, "overlap", -1);
  rank_fails(run, gsel_reduce_scatterv(comm, x, x + 2, counts, rows, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG,
             "overlap", -1);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void test_parts_that_overlap_are_refused(void** state) {
  (void)state;
  as_threads(N, upon_each_other, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parts_stand_where_the_offsets_say),
      cmocka_unit_test(test_other_offsets_are_a_mismatch),
      cmocka_unit_test(test_parts_that_are_sent_stand_between_those_received),
      cmocka_unit_test(test_parts_that_overlap_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
