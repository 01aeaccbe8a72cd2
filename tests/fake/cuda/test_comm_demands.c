/* fake/cuda/test_comm_demands.c: what a program demands of the way that its calls take: never through host memory, and
 * the same bits in every run; and what it is told where it demands nothing. */
#include "fake/cuda/program.h"

static void count_warnings(gsel_log_level level, gsel_str component, gsel_str line, void* user) {
  (void)component;
  if (level == GSEL_LOG_WARN && strstr(line.data, "goes through host memory, since nccl does not make it"))
    __atomic_add_fetch((int*)user, 1, __ATOMIC_SEQ_CST);
}

/* i16, which NCCL does not reduce; on a communicator that does not allow the way, it is an error before anybody waits.
 */
static void calls_through_host(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *strict;
  rank_ok(run, join_on(run, "nccl", run->rank, &comm, &err), err);
  void* memory;
  rank_ok(run, gsel_mem_alloc(comm, 64, &memory, &err), err);
  rank_ok(run, gsel_allreduce(comm, memory, memory, 4, GSEL_F32, GSEL_SUM, &err), err);
  for (int i = 0; i < 3; ++i) rank_ok(run, gsel_allreduce(comm, memory, memory, 4, GSEL_I16, GSEL_SUM, &err), err);
  run->id.bytes[0] ^= 1;
  rank_ok(run, join_with(run, "nccl", run->rank, GSEL_COMM_NOT_THROUGH_HOST, &strict, &err), err);
  rank_fails(run, gsel_allreduce(strict, memory, memory, 4, GSEL_I16, GSEL_SUM, &err), err, GSEL_ERR_UNSUPPORTED,
             "made with GSEL_COMM_NOT_THROUGH_HOST", -1);
  gsel_comm_free(strict);
  gsel_comm_free(comm);
}

static void test_the_way_through_host_memory_is_told_once_or_refused(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  int warnings = 0;
  gsel_log_set(count_warnings, GSEL_LOG_WARN, &warnings, NULL);
  as_threads(2, calls_through_host, NULL);
  gsel_log_set(NULL, GSEL_LOG_WARN, NULL, NULL);
  assert_int_equal(warnings, 2); /* one for each rank */
  no_violations();
}

static void ways_that_do_not_do(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  const uint32_t of_rank_1 = run->rank ? GSEL_COMM_BITWISE : 0, host = run->rank ? GSEL_COMM_NOT_THROUGH_HOST : 0;
  rank_fails(run, join_with(run, "nccl", run->rank, of_rank_1, &comm, &err), err, GSEL_ERR_UNSUPPORTED,
             "rank 1 was made with GSEL_COMM_BITWISE, and nccl does not promise the same bits", 1);
  run->id.bytes[0] ^= 1;
  rank_fails(run, join_with(run, "host", run->rank, host, &comm, &err), err, GSEL_ERR_UNSUPPORTED,
             "rank 1 was made with GSEL_COMM_NOT_THROUGH_HOST, and no transport takes its memory", 1);
  run->id.bytes[0] ^= 2;
  rank_ok(run, join_with(run, "host", run->rank, of_rank_1, &comm, &err), err);
  gsel_comm_free(comm);
}

static void test_a_way_that_some_rank_does_not_allow_is_an_error_on_all(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  as_threads(2, ways_that_do_not_do, NULL);
  no_violations();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_way_through_host_memory_is_told_once_or_refused),
      cmocka_unit_test(test_a_way_that_some_rank_does_not_allow_is_an_error_on_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
