/* fake/cuda/test_comm_windows.c: memory that is registered with NCCL, in windows and without them. Ranks are processes
 * with a device each; the double tells of windows that do not lie alike and of calls that only some ranks make in
 * windows. */
#include "fake/cuda/program.h"

enum { COUNT = 1024, BYTES = 2 * COUNT * sizeof(float), ALIGNED = 4096 };

typedef struct joined {
  gpu g;
  gsel_comm* comm;
} joined;

static joined join_with_library(rank_run* run, const char* library) {
  joined j = {.comm = NULL};
  gsel_error* err = NULL;
  load_doubles(library);
  j.g = open_gpu(run->rank);
  gsel_status status = join_with(run, "nccl", run->rank, 0, &j.comm, &err);
  if (status == GSEL_OK) status = gsel_comm_set_stream(j.comm, j.g.stream, &err);
  if (status != GSEL_OK) gsel_error_format(err, run->failure, sizeof run->failure);
  gsel_error_free(err);
  return j;
}

static joined join(rank_run* run) {
  return join_with_library(run, "fake_libnccl.so");
}

static float* from_nccl(rank_run* run, const joined* j, size_t bytes) {
  float* memory = NULL;
  gsel_error* err = NULL;
  if (gsel_mem_alloc(j->comm, bytes, (void**)&memory, &err) != GSEL_OK)
    gsel_error_format(err, run->failure, sizeof run->failure);
  gsel_error_free(err);
  return memory;
}

static void fill(const joined* j, int rank, float* memory) {
  float mine[COUNT];
  for (int i = 0; i < COUNT; ++i) mine[i] = 0.1f * (float)(i + 1) / (float)(3 + 7 * rank);
  copy(&j->g, memory, mine, sizeof mine);
}

/* What gsel_comm_explain says of the transport contains the part. */
static void explains(rank_run* run, const joined* j, float* memory, const char* part) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.send = call.recv = memory;
  call.count = COUNT;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  gsel_comm_explanation explanation = GSEL_COMM_EXPLANATION_INIT;
  gsel_error* err = NULL;
  rank_ok(run, gsel_comm_explain(j->comm, &call, &explanation, &err), err);
  if (!strstr(explanation.transport_reason, part))
    snprintf(run->failure, sizeof run->failure, "rank %d: expected \"%s\" in: %s", (int)run->rank, part,
             explanation.transport_reason);
}

static int windows(void) {
  static int (*count)(void);
  if (!count) *(void**)&count = dlsym(RTLD_DEFAULT, "fake_nccl_windows");
  return count();
}

static void sum_in(rank_run* run, const joined* j, float* memory, float* got) {
  gsel_error* err = NULL;
  fill(j, run->rank, memory);
  rank_ok(run, gsel_allreduce(j->comm, memory, memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_comm_synchronize(j->comm, &err), err);
  copy(&j->g, got, memory, COUNT * sizeof *got);
  finish(&j->g);
}

/* Registers memory and sums in it: with these words in the explanation, in so many windows, and with the bits that
 * memory which is not registered gives. */
static void sums_alike(rank_run* run, const joined* j, float* memory, const char* part, int n_windows) {
  static float plain[COUNT], got[COUNT];
  gsel_error* err = NULL;
  sum_in(run, j, memory, plain);
  rank_ok(run, gsel_mem_register(j->comm, memory, BYTES, &err), err);
  explains(run, j, memory, part);
  rank_check(run, windows() == n_windows);
  sum_in(run, j, memory, got);
  rank_check(run, memcmp(plain, got, sizeof got) == 0);
  rank_check(run, cuda.violations() == 0);
}

static void leave(rank_run* run, const joined* j) {
  gsel_comm_free(j->comm);
  rank_check(run, cuda.violations() == 0);
}

/* ---- windows --------------------------------------------------------------------------------------------------------
 */

static void in_a_window(rank_run* run) {
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  float *memory = from_nccl(run, &j, 2 * BYTES), *more = from_nccl(run, &j, BYTES);
  gsel_error* err = NULL;
  sums_alike(run, &j, memory, "registered memory is in symmetric windows", 1);
  sums_alike(run, &j, more, "registered memory is in symmetric windows", 2);
  rank_ok(run, gsel_allreduce(j.comm, memory + 8, more + 16, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_allgather(j.comm, more + 8 * run->rank, more, 8, GSEL_F32, &err), err);
  rank_ok(run, gsel_reduce_scatter(j.comm, more, more + 8 * run->rank, 8, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_reduce(j.comm, memory, run->rank ? NULL : more + 8, 8, GSEL_F32, GSEL_SUM, 0, &err), err);
  rank_ok(run, gsel_mem_unregister(j.comm, memory, &err), err);
  rank_check(run, windows() == 1);
  leave(run, &j);
}

static void test_memory_of_nccl_is_in_windows_and_the_bits_stay(void** state) {
  (void)state;
  as_processes(3, in_a_window, NULL);
}

static void at_other_offsets(rank_run* run) {
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  float* memory = from_nccl(run, &j, BYTES);
  gsel_error* err = NULL;
  rank_ok(run, gsel_mem_register(j.comm, memory, BYTES, &err), err);
  float* own = memory + 4 * run->rank;
  gsel_status status = gsel_allreduce(j.comm, own, own, 16, GSEL_F32, GSEL_SUM, &err);
  if (status == GSEL_OK) status = gsel_comm_synchronize(j.comm, &err);
  rank_fails(run, status, err, GSEL_ERR_MISMATCH, " in registered memory with other offsets; make the calls alike", -1);
  leave(run, &j);
}

static void test_other_offsets_are_a_mismatch(void** state) {
  (void)state;
  as_processes(2, at_other_offsets, NULL);
}

/* ---- no windows -----------------------------------------------------------------------------------------------------
 */

static void one_gets_none(rank_run* run) {
  if (run->rank == 1) setenv("GSEL_FAKE_NCCL_WINDOWS", "null", 1);
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  sums_alike(run, &j, from_nccl(run, &j, BYTES), "NCCL registered the memory of rank 1 and gave no window", 0);
  unsetenv("GSEL_FAKE_NCCL_WINDOWS"); /* nothing is left of the other rank's window */
  sums_alike(run, &j, from_nccl(run, &j, BYTES), "registered memory is in symmetric windows", 1);
  leave(run, &j);
}

static void a_registration_for_a_window(rank_run* run) {
  setenv("GSEL_FAKE_NCCL_WINDOWS", "plain", 1);
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  sums_alike(run, &j, from_nccl(run, &j, BYTES), "NCCL gave rank 0 a registration in place of a window", 0);
  leave(run, &j);
}

static void nothing_is_registered(rank_run* run) {
  setenv("GSEL_FAKE_NCCL_WINDOWS", "null", 1);
  if (run->rank == 1) setenv("GSEL_FAKE_NCCL_REGISTERS", "null", 1);
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  sums_alike(run, &j, from_nccl(run, &j, BYTES),
             "memory is not registered with NCCL: NCCL did not register that of rank 1", 0);
  leave(run, &j);
}

static void test_a_success_without_a_window_is_seen(void** state) {
  (void)state;
  as_processes(2, one_gets_none, NULL);
  as_processes(2, a_registration_for_a_window, NULL);
  as_processes(2, nothing_is_registered, NULL);
}

static void an_early_nccl(rank_run* run) {
  setenv("GSEL_FAKE_NCCL_VERSION", "22602", 1);
  const joined j = join_with_library(run, "fake_early_libnccl.so");
  rank_check(run, j.comm != NULL);
  sums_alike(run, &j, from_nccl(run, &j, BYTES),
             "registered by ncclCommRegister: NCCL registers memory from 2.19 on, and in windows from 2.27", 0);
  leave(run, &j);
}

static void test_an_early_nccl_has_registrations_alone(void** state) {
  (void)state;
  as_processes(2, an_early_nccl, NULL);
}

static float* of_the_driver(const joined* j) {
  return (float*)alloc(&j->g, BYTES);
}

static void memory_of_the_program(rank_run* run) {
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  sums_alike(run, &j, of_the_driver(&j), "the memory of rank 0 is not from gsel_mem_alloc", 0);
  leave(run, &j);
}

static void memory_of_both_kinds(rank_run* run) {
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  float* memory = run->rank == 0 ? from_nccl(run, &j, BYTES) : of_the_driver(&j);
  sums_alike(run, &j, memory, "memory is not registered with NCCL: the memory of some ranks is from gsel_mem_alloc", 0);
  leave(run, &j);
}

static void test_only_memory_of_nccl_is_in_windows(void** state) {
  (void)state;
  as_processes(2, memory_of_the_program, NULL);
  as_processes(2, memory_of_both_kinds, NULL);
}

/* ---- windows that would not lie alike -------------------------------------------------------------------------------
 */

static char* at(float* memory, size_t bytes) {
  return (char*)memory + bytes;
}

static void places_in_allocations(rank_run* run) {
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  float* memory = from_nccl(run, &j, BYTES + 3 * ALIGNED);
  sums_alike(run, &j, (float*)at(memory, run->rank ? ALIGNED : 0), "at another offset of its allocation on rank 1", 0);
  float* second = from_nccl(run, &j, run->rank ? 2 * BYTES : BYTES);
  sums_alike(run, &j, second, "allocations differ in size on rank 1 and on rank 0", 0);
  float* third = from_nccl(run, &j, BYTES + ALIGNED);
  sums_alike(run, &j, (float*)at(third, 256), "the memory of rank 0 does not begin at a multiple of 4096 bytes", 0);
  leave(run, &j);
}

static void two_in_one_allocation(rank_run* run) {
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  float* memory = from_nccl(run, &j, 2 * BYTES);
  sums_alike(run, &j, memory, "registered memory is in symmetric windows", 1);
  sums_alike(run, &j, (float*)at(memory, BYTES), "another window of rank 0 is in the same allocation", 1);
  leave(run, &j);
}

/* Rank 0 has given the place of its first window back when both make the next one. */
static void released_by_one(rank_run* run) {
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  gsel_error* err = NULL;
  float *first = from_nccl(run, &j, BYTES), *next = from_nccl(run, &j, BYTES), *last = from_nccl(run, &j, BYTES);
  sums_alike(run, &j, first, "registered memory is in symmetric windows", 1);
  if (run->rank == 0) rank_ok(run, gsel_mem_unregister(j.comm, first, &err), err);
  sums_alike(run, &j, next, "other windows have been released on rank 1 and on rank 0", run->rank ? 1 : 0);
  if (run->rank == 1) rank_ok(run, gsel_mem_unregister(j.comm, first, &err), err);
  sums_alike(run, &j, last, "registered memory is in symmetric windows", 1);
  leave(run, &j);
}

static void test_windows_lie_alike_or_are_none(void** state) {
  (void)state;
  as_processes(2, places_in_allocations, NULL);
  as_processes(2, two_in_one_allocation, NULL);
  as_processes(2, released_by_one, NULL);
}

/* ---- failures -------------------------------------------------------------------------------------------------------
 */

static void fails(rank_run* run, const char* how, const char* part) {
  if (run->rank == 1) setenv("GSEL_FAKE_NCCL_WINDOWS", how, 1);
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  gsel_error* err = NULL;
  rank_fails(run, gsel_mem_register(j.comm, from_nccl(run, &j, BYTES), BYTES, &err), err, GSEL_ERR_DEVICE, part, -1);
  rank_fails(run, gsel_barrier(j.comm, &err), err, GSEL_ERR_DEVICE, part, -1);
  gsel_comm_free(j.comm);
}

static void one_rank_fails(rank_run* run) {
  fails(run, "fails", "registering 8192 bytes in a window failed with 1");
}
static void one_rank_refuses(rank_run* run) {
  fails(run, "refuses", "registering 8192 bytes in a window failed with 4");
}

/* A registration is local, so that ranks can go on without it. */
static void one_rank_registers_nothing(rank_run* run) {
  if (run->rank == 1) setenv("GSEL_FAKE_NCCL_REGISTERS", "refuses", 1);
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  gsel_error* err = NULL;
  float* own = of_the_driver(&j);
  rank_fails(run, gsel_mem_register(j.comm, own, BYTES, &err), err, GSEL_ERR_ARG,
             "registering 8192 bytes on rank 1 failed with 4", -1);
  unsetenv("GSEL_FAKE_NCCL_REGISTERS");
  sums_alike(run, &j, own, "registered by ncclCommRegister", 0);
  leave(run, &j);
}

static void test_a_failure_of_one_rank_ends_the_wait_of_others(void** state) {
  (void)state;
  as_processes(2, one_rank_fails, NULL);
  as_processes(2, one_rank_refuses, NULL);
}

static void test_a_registration_that_fails_is_told_on_every_rank(void** state) {
  (void)state;
  as_processes(2, one_rank_registers_nothing, NULL);
}

/* A rank that dies before it comes to the window. */
static void one_rank_dies(rank_run* run) {
  const joined j = join(run);
  rank_check(run, j.comm != NULL);
  gsel_error* err = NULL;
  float* memory = from_nccl(run, &j, BYTES);
  if (run->rank == 0) reach_step((volatile int32_t*)run->user, 1);
  await_step((volatile int32_t*)run->user, 1);
  if (run->rank == 1) raise(SIGKILL);
  rank_fails(run, gsel_mem_register(j.comm, memory, BYTES, &err), err, GSEL_ERR_PEER, "rank 1 (pid", 1);
  gsel_comm_free(j.comm);
}

static void test_a_death_ends_the_wait_of_others(void** state) {
  (void)state;
  int32_t* step = shared_memory(sizeof *step);
  rank_run* runs = ranks_prepare(2, step);
  const pid_t survivor = rank_fork(&runs[0], one_rank_dies), victim = rank_fork(&runs[1], one_rank_dies);
  int status = 0;
  waitpid(victim, &status, 0);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  waitpid(survivor, &status, 0);
  if (status != 0) fail_msg("the survivor ended with wait status 0x%x", (unsigned)status);
  ranks_verdict(runs, 2);
  munmap(step, sizeof *step);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory_of_nccl_is_in_windows_and_the_bits_stay),
      cmocka_unit_test(test_other_offsets_are_a_mismatch),
      cmocka_unit_test(test_a_success_without_a_window_is_seen),
      cmocka_unit_test(test_an_early_nccl_has_registrations_alone),
      cmocka_unit_test(test_only_memory_of_nccl_is_in_windows),
      cmocka_unit_test(test_windows_lie_alike_or_are_none),
      cmocka_unit_test(test_a_failure_of_one_rank_ends_the_wait_of_others),
      cmocka_unit_test(test_a_registration_that_fails_is_told_on_every_rank),
      cmocka_unit_test(test_a_death_ends_the_wait_of_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
