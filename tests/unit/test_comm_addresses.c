/* unit/test_comm_addresses.c: a communicator takes the addresses and the file size that it uses and no more: many live
 * side by side, and limits of the process are met with an error that names them. */
#include <sys/resource.h>

#include "support/ranks.h"

enum { kCommunicators = 12 };

static gsel_unique_id ids[kCommunicators];

static void joins_many(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm[kCommunicators];
  for (int i = 0; i < kCommunicators; ++i) {
    run->id = ids[i];
    rank_ok(run, rank_join(run, &comm[i], &err), err);
  }
  for (int i = 0; i < kCommunicators; ++i) {
    int32_t x = run->rank;
    rank_ok(run, gsel_allreduce(comm[i], &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
    rank_check(run, x == run->world_size * (run->world_size - 1) / 2);
  }
  for (int i = 0; i < kCommunicators; ++i) gsel_comm_free(comm[i]);
}

static void many_communicators_of_many_ranks_live_side_by_side(void** state) {
  (void)state;
  for (int i = 0; i < kCommunicators; ++i) assert_int_equal(gsel_unique_id_create(&ids[i], NULL), GSEL_OK);
  as_threads(16, joins_many, NULL);
}

/* Bytes of addresses that this process has mapped. */
static size_t mapped_bytes(void) {
  unsigned long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%lu", &pages) != 1) fail_msg("/proc/self/statm cannot be read");
  fclose(file);
  return pages * 4096;
}

static void grows_as_it_allocates(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const size_t before = mapped_bytes();
  rank_ok(run, rank_join(run, &comm, &err), err);
  const size_t count = (size_t)40 << 20;
  float* x[3];
  for (int i = 0; i < 3; ++i) {
    rank_ok(run, gsel_mem_alloc(comm, count, (void**)&x[i], &err), err);
    x[i][0] = 1, x[i][count / 4 - 1] = 2;
    rank_ok(run, gsel_allreduce(comm, x[i], x[i], count / 4, GSEL_F32, GSEL_SUM, &err), err);
    rank_check(run, x[i][0] == (float)run->world_size && x[i][count / 4 - 1] == 2.f * (float)run->world_size);
  }
  gsel_comm_explanation how = GSEL_COMM_EXPLANATION_INIT;
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE, call.dtype = GSEL_F32, call.op = GSEL_SUM;
  call.send = call.recv = x[2], call.count = count / 4;
  rank_ok(run, gsel_comm_explain(comm, &call, &how, &err), err);
  rank_check(run, strcmp(how.protocol, "direct") == 0);
  rank_check(run, mapped_bytes() - before < (size_t)2 << 30);
  gsel_comm_free(comm);
}

static void memory_is_mapped_as_it_is_needed(void** state) {
  (void)state;
  as_processes(3, grows_as_it_allocates, NULL);
}

static void joins_within_few_addresses(rank_run* run) {
  const struct rlimit limit = {mapped_bytes() + ((size_t)256 << 20), RLIM_INFINITY};
  rank_check(run, setrlimit(RLIMIT_AS, &limit) == 0);
  gsel_error* err;
  gsel_comm* comm;
  void* memory = NULL;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_mem_alloc(comm, (size_t)8 << 20, &memory, &err), err);
  rank_ok(run, gsel_allreduce(comm, memory, memory, 1 << 20, GSEL_F32, GSEL_SUM, &err), err);
  rank_fails(run, gsel_mem_alloc(comm, (size_t)1 << 30, &memory, &err), err, GSEL_ERR_NOMEM, "ulimit -v", -1);
  rank_ok(run, gsel_mem_alloc(comm, (size_t)8 << 20, &memory, &err), err);
  gsel_comm_free(comm);
}

static void an_address_limit_is_met_with_an_error(void** state) {
  (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  print_message("left out: the sanitizer takes more addresses than any limit allows\n");
#else
  as_processes(2, joins_within_few_addresses, NULL);
#endif
}

static void joins_with_small_files(rank_run* run) {
  const struct rlimit limit = {1 << 20, RLIM_INFINITY};
  rank_check(run, setrlimit(RLIMIT_FSIZE, &limit) == 0);
  gsel_error* err;
  gsel_comm* comm;
  rank_fails(run, rank_join(run, &comm, &err), err, GSEL_ERR_NOMEM, "ulimit -f", -1);
}

static void allocates_with_limited_files(rank_run* run) {
  const struct rlimit limit = {(size_t)32 << 20, RLIM_INFINITY};
  rank_check(run, setrlimit(RLIMIT_FSIZE, &limit) == 0);
  gsel_error* err;
  gsel_comm* comm;
  void* memory = NULL;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_fails(run, gsel_mem_alloc(comm, (size_t)64 << 20, &memory, &err), err, GSEL_ERR_NOMEM, "ulimit -f", -1);
  rank_ok(run, gsel_mem_alloc(comm, (size_t)4 << 20, &memory, &err), err);
  rank_ok(run, gsel_allreduce(comm, memory, memory, 1 << 20, GSEL_F32, GSEL_SUM, &err), err);
  gsel_comm_free(comm);
}

static void a_file_size_limit_is_met_with_an_error_and_no_signal(void** state) {
  (void)state;
  as_processes(2, joins_with_small_files, NULL);
  as_processes(2, allocates_with_limited_files, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(many_communicators_of_many_ranks_live_side_by_side),
      cmocka_unit_test(memory_is_mapped_as_it_is_needed),
      cmocka_unit_test(an_address_limit_is_met_with_an_error),
      cmocka_unit_test(a_file_size_limit_is_met_with_an_error_and_no_signal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
