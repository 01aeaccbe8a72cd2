/* fake/cuda/test_comm_faults.c: what goes wrong on communicators with an accelerator: names, memory and streams of
 * others, calls that differ, ranks that are late or die, and what NCCL reports. */
#include "fake/cuda/program.h"

static void two_ranks_on_one_device(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  rank_fails(run, join_on(run, "nccl", 0, &comm, &err), err, GSEL_ERR_DUPLICATE, "rank 0 and rank 1 share the device",
             1);
  rank_check(run, comm == NULL);
}

/* Rank 1 names a device that this machine does not have; the others do not wait for it. */
static void without_its_device(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  const char* part = run->rank == 1 ? "device 77 of cuda was asked for" : "rank 1: device 77 of cuda was asked for";
  rank_fails(run, join_on(run, run->user, run->rank == 1 ? 77 : run->rank, &comm, &err), err, GSEL_ERR_ARG, part,
             run->rank == 1 ? -1 : 1);
  rank_check(run, comm == NULL);
}

static void test_a_rank_that_cannot_open_its_device_tells_the_others(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  as_threads(3, without_its_device, (void*)"nccl");
  as_threads(2, without_its_device, (void*)"host");
  no_violations();
}

/* Rank 1 names a transport that nobody has; its whole reason, with each folder that was not searched, reaches the
 * others. */
static void without_its_transport(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  const gsel_status status = join_on(run, run->rank == 1 ? "nickel" : "nccl", run->rank, &comm, &err);
  const char* part = run->rank == 1 ? "no transport plugin \"nickel\"" : "rank 1: no transport plugin \"nickel\"";
  rank_check(run, err && strstr(gsel_error_message(err).data, "plugin folder the-last: is not an absolute path"));
  rank_fails(run, status, err, GSEL_ERR_NOT_FOUND, part, run->rank == 1 ? -1 : 1);
  rank_check(run, comm == NULL);
}

static void test_a_rank_that_has_not_the_transport_tells_the_others(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  char folders[600], *end = folders;
  for (int i = 0; i < 8; ++i) end += sprintf(end, "the-folder-of-number-%d-that-is-not-absolute:", i);
  strcpy(end, "the-last");
  setenv("GSEL_PLUGIN_PATH", folders, 1);
  as_threads(3, without_its_transport, NULL);
  unsetenv("GSEL_PLUGIN_PATH");
  no_violations();
}

static void auto_on_one_device(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, "auto", 0, &comm, &err), err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  gsel_comm_explanation how = GSEL_COMM_EXPLANATION_INIT;
  rank_ok(run, gsel_comm_explain(comm, &call, &how, &err), err);
  rank_check(run, !strcmp(how.transport, "host") && strstr(how.transport_reason, "rank 0 and rank 1 share the device"));
  gsel_comm_free(comm);
}

static void test_two_ranks_on_one_device_are_refused_by_nccl(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  as_threads(2, two_ranks_on_one_device, NULL);
  as_threads(2, auto_on_one_device, NULL);
}

static void test_wrong_names_are_refused(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  rank_run run = {.world_size = 1};
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  check_fails(join_on(&run, "nickel", 0, &comm, &err), err, GSEL_ERR_NOT_FOUND, "no transport plugin \"nickel\"");
  check_fails(join_on(&run, "auto", 99, &comm, &err), err, GSEL_ERR_ARG, "device 99");
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.world_size = 1;
  options.accelerator = gsel_str_from("cuda:x");
  check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_ARG, "\"cuda:x\"; expected a device such as");
  options.accelerator = gsel_str_from("abacus");
  check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_NOT_FOUND, "no device plugin \"abacus\"");
  options.accelerator = gsel_str_from("cuda");
  options.device = gsel_str_from("GPU-4711");
  check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_NO_DEVICES, "GPU-4711");
  options.device = options.accelerator = gsel_str_from("");
  options.transport = gsel_str_from("nccl");
  check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_ARG, "without an accelerator");
  assert_null(comm);
}

static void test_memory_and_streams_of_others_are_refused(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  rank_run run = {.world_size = 1};
  gsel_error* err = NULL;
  gsel_comm *comm, *host;
  check_ok(join_on(&run, "auto", 0, &comm, &err), err);
  float on_stack[4] = {0};
  check_fails(gsel_allreduce(comm, on_stack, on_stack, 4, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG,
              "send is memory of the host, and the communicator works on cuda:0");
  const gpu other = open_gpu(1);
  uintptr_t memory = 0;
  cuda.push(other.context);
  cuda.alloc(&memory, 64);
  cuda.pop(&(void*){NULL});
  check_fails(gsel_allreduce(comm, (void*)memory, (void*)memory, 4, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG,
              "send is memory of device 1, and the communicator works on cuda:0");
  check_fails(gsel_comm_set_stream(comm, other.stream, &err), err, GSEL_ERR_ARG, "belongs to another device");
  void* own;
  check_ok(gsel_mem_alloc(comm, 16, &own, &err), err);
  check_fails(gsel_allreduce(comm, own, own, 5, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG,
              "send needs 20 bytes and its memory on cuda:0 ends after 16");
  gsel_collective tagged = GSEL_COLLECTIVE_INIT;
  tagged.kind = GSEL_COLLECTIVE_RECV;
  tagged.root = GSEL_ANY_RANK;
  tagged.dtype = GSEL_F32;
  check_fails(gsel_comm_run(comm, &tagged, &err), err, GSEL_ERR_ARG, "not a rank of a world of 1");
  gsel_comm_free(comm);

  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.world_size = 1;
  check_ok(gsel_comm_init(&options, &host, &err), err);
  check_fails(gsel_comm_set_stream(host, other.stream, &err), err, GSEL_ERR_ARG, "has no accelerator");
  check_ok(gsel_comm_synchronize(host, &err), err);
  check_ok(gsel_comm_get_async_error(host, &err), err);
  gsel_comm_free(host);
}

static void tagged_messages(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, "nccl", run->rank, &comm, &err), err);
  void* memory;
  rank_ok(run, gsel_mem_alloc(comm, 16, &memory, &err), err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_RECV;
  call.dtype = GSEL_F32;
  call.recv = memory;
  call.count = 4;
  call.root = 1 - run->rank;
  call.tag = 3;
  rank_fails(run, gsel_comm_run(comm, &call, &err), err, GSEL_ERR_UNSUPPORTED, "nccl has no tags", -1);
  gsel_comm_free(comm);
}

static void test_tags_are_refused_where_the_transport_has_none(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  as_threads(2, tagged_messages, NULL);
}

/* The last to make the call is told at once, the others when they look. */
static void different_counts(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, "nccl", run->rank, &comm, &err), err);
  void* memory;
  rank_ok(run, gsel_mem_alloc(comm, 64, &memory, &err), err);
  gsel_status status = gsel_allreduce(comm, memory, memory, run->rank == 1 ? 5 : 4, GSEL_F32, GSEL_SUM, &err);
  if (status == GSEL_OK) status = gsel_comm_synchronize(comm, &err);
  rank_fails(run, status, err, GSEL_ERR_MISMATCH, "allreduce(count 4, f32, sum) on a stream", -1);
  rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_MISMATCH, "allreduce(count 5, f32, sum) on a stream", -1);
  gsel_comm_free(comm);
}

static void test_calls_that_differ_are_named_on_every_rank(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  as_threads(2, different_counts, NULL);
  no_violations();
}

static void a_late_rank(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, "nccl", run->rank, &comm, &err), err);
  void* memory;
  rank_ok(run, gsel_mem_alloc(comm, 64, &memory, &err), err);
  /* The first call between ranks waits for their hosts, the next does not. */
  rank_ok(run, gsel_allreduce(comm, memory, memory, 4, GSEL_F32, GSEL_SUM, &err), err);
  if (run->rank == 0) {
    rank_ok(run, gsel_allreduce(comm, memory, memory, 4, GSEL_F32, GSEL_SUM, &err), err);
    rank_fails(run, gsel_comm_synchronize(comm, &err), err, GSEL_ERR_TIMEOUT, "is late: rank 0 waited for it in", 1);
  } else {
    while (gsel_comm_get_async_error(comm, NULL) == GSEL_OK) usleep(1000);
  }
  rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_TIMEOUT, "rank 1", 1);
  gsel_comm_free(comm);
}

static void test_a_late_rank_is_named(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  rank_run* runs = ranks_prepare(2, NULL);
  for (int r = 0; r < 2; ++r) runs[r].timeout_s = 0.3;
  ranks_run_threads(runs, 2, a_late_rank);
  ranks_verdict(runs, 2);
  no_violations();
}

/* The survivor hangs inside of NCCL's work, on a stream that nothing but an abort ends. */
static void a_death(rank_run* run) {
  load_doubles("fake_libnccl.so");
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, "nccl", run->rank, &comm, &err), err);
  void* memory;
  rank_ok(run, gsel_mem_alloc(comm, 64, &memory, &err), err);
  gsel_status status = gsel_allreduce(comm, memory, memory, 4, GSEL_F32, GSEL_SUM, &err);
  if (status == GSEL_OK) status = gsel_comm_synchronize(comm, &err);
  if (run->rank == 1) raise(SIGKILL);
  const double began = seconds();
  if (status == GSEL_OK) status = gsel_allreduce(comm, memory, memory, 4, GSEL_F32, GSEL_SUM, &err);
  if (status == GSEL_OK) status = gsel_comm_synchronize(comm, &err); /* else it died before this call */
  rank_fails(run, status, err, GSEL_ERR_PEER, "rank 1 (pid", 1);
  if (seconds() - began > 30) snprintf(run->failure, sizeof run->failure, "it took %g s", seconds() - began);
  rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_PEER, "ended without gsel_comm_free", 1);
  gsel_comm_free(comm);
  /* Memory of the host goes on in the same process. */
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.world_size = 1;
  rank_ok(run, gsel_comm_init(&options, &comm, &err), err);
  float x = 1;
  rank_ok(run, gsel_allreduce(comm, &x, &x, 1, GSEL_F32, GSEL_SUM, &err), err);
  gsel_comm_free(comm);
}

static void test_a_death_ends_the_work_of_the_others(void** state) {
  (void)state;
  rank_run* runs = ranks_prepare(2, NULL);
  const pid_t survivor = rank_fork(&runs[0], a_death), victim = rank_fork(&runs[1], a_death);
  int status = 0;
  waitpid(victim, &status, 0);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  waitpid(survivor, &status, 0);
  assert_int_equal(status, 0);
  ranks_verdict(runs, 2);
}

static void nccl_reports_an_error(rank_run* run) {
  setenv("GSEL_FAKE_NCCL_FAILS", "2", 1);
  load_doubles("fake_libnccl.so");
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, "nccl", 0, &comm, &err), err);
  void* memory;
  rank_ok(run, gsel_mem_alloc(comm, 64, &memory, &err), err);
  rank_ok(run, gsel_allreduce(comm, memory, memory, 4, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_comm_synchronize(comm, &err), err);
  rank_fails(run, gsel_allreduce(comm, memory, memory, 4, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_PEER,
             "nccl: a call failed with 6: remote process exited", -1);
  rank_fails(run, gsel_comm_get_async_error(comm, &err), err, GSEL_ERR_PEER, "nccl: a call failed with 6", 0);
  gsel_comm_free(comm);
}

static void versions_differ(rank_run* run) {
  setenv("GSEL_FAKE_NCCL_VERSION", run->rank ? "22701" : "22809", 1);
  load_doubles("fake_libnccl.so");
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  rank_fails(run, join_on(run, "nccl", run->rank, &comm, &err), err, GSEL_ERR_VERSION,
             "rank 1 has nccl 22701, rank 0 has 22809", 1);
}

static void nccl_is_too_old(rank_run* run) {
  load_doubles(run->rank == 0 ? "fake_libnccl.so" : "fake_old_libnccl.so");
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, "auto", run->rank, &comm, &err), err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  gsel_comm_explanation how = GSEL_COMM_EXPLANATION_INIT;
  rank_ok(run, gsel_comm_explain(comm, &call, &how, &err), err);
  rank_check(run, !strcmp(how.transport, "host") && strstr(how.transport_reason, "rank 1 cannot use nccl"));
  rank_check(run,
             strstr(how.transport_reason, "libnccl.so.2 has no ncclGetUniqueId; expected NCCL 2.14 or newer") != NULL);
  gsel_comm_free(comm);
}

static void test_nccl_that_fails_differs_or_is_too_old_is_named(void** state) {
  (void)state;
  as_processes(1, nccl_reports_an_error, NULL);
  as_processes(2, versions_differ, NULL);
  as_processes(2, nccl_is_too_old, NULL);
}

static void out_of_memory(rank_run* run) {
  setenv("GSEL_FAKE_CUDA_OOM", "2", 1);
  load_doubles("fake_libnccl.so");
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, "host", 0, &comm, &err), err);
  void* memory;
  rank_ok(run, gsel_mem_alloc(comm, 64, &memory, &err), err);
  rank_fails(run, gsel_mem_alloc(comm, 4096, &memory, &err), err, GSEL_ERR_NOMEM, "4096 bytes", -1);
  gsel_comm_free(comm);
}

static void test_no_memory_is_an_error(void** state) {
  (void)state;
  as_processes(1, out_of_memory, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      /* Processes first: each loads the doubles for itself. */
      cmocka_unit_test(test_a_death_ends_the_work_of_the_others),
      cmocka_unit_test(test_nccl_that_fails_differs_or_is_too_old_is_named),
      cmocka_unit_test(test_no_memory_is_an_error),
      cmocka_unit_test(test_two_ranks_on_one_device_are_refused_by_nccl),
      cmocka_unit_test(test_a_rank_that_cannot_open_its_device_tells_the_others),
      cmocka_unit_test(test_a_rank_that_has_not_the_transport_tells_the_others),
      cmocka_unit_test(test_wrong_names_are_refused),
      cmocka_unit_test(test_memory_and_streams_of_others_are_refused),
      cmocka_unit_test(test_tags_are_refused_where_the_transport_has_none),
      cmocka_unit_test(test_calls_that_differ_are_named_on_every_rank),
      cmocka_unit_test(test_a_late_rank_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
