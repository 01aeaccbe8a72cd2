/* fake/cuda/test_comm_hosts_faults.c: what goes wrong on communicators with an accelerator over several hosts: calls
 * that differ, ranks that are late, leave, die or abort. Each is told on every rank with its name and its host, and
 * ends the work that nccl waits in. */
#include "fake/cuda/hosts.h"

static gsel_status sum(const joined* j, uint64_t count, gsel_error** err) {
  return gsel_allreduce(j->comm, j->memory, j->memory, count, GSEL_F32, GSEL_SUM, err);
}

/* Rank 3 calls with another count than the others, of which one is on its host and two are not. */
static void different_counts(rank_run* run) {
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  rank_ok(run, connect_ranks(run, &j, &err), err);
  gsel_status status = sum(&j, run->rank == 3 ? 5 : 4, &err);
  if (status == GSEL_OK) status = gsel_comm_synchronize(j.comm, &err);
  rank_fails(run, status, err, GSEL_ERR_MISMATCH, "called allreduce(count 4, f32, sum) on a stream", -1);
  rank_fails(run, gsel_barrier(j.comm, &err), err, GSEL_ERR_MISMATCH, "rank 3 on ", -1);
  rank_fails(run, gsel_comm_get_async_error(j.comm, &err), err, GSEL_ERR_MISMATCH,
             "allreduce(count 5, f32, sum) on a stream; make the calls alike on every rank", -1);
  gsel_comm_free(j.comm);
}

/* Rank 0 sends more than rank 3 receives; the others wait for nothing and hear of it. */
static void different_messages(rank_run* run) {
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  rank_ok(run, connect_ranks(run, &j, &err), err);
  gsel_status status = GSEL_OK;
  if (run->rank == 0) status = gsel_send(j.comm, j.memory, 7, GSEL_F32, 3, &err);
  if (run->rank == 3) status = gsel_recv(j.comm, j.memory, 6, GSEL_F32, 0, &err);
  while (status == GSEL_OK) status = gsel_comm_get_async_error(j.comm, &err);
  rank_fails(run, status, err, GSEL_ERR_MISMATCH, "with 7 of f32 for", -1);
  gsel_comm_free(j.comm);
}

static void different_parts(rank_run* run) {
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  rank_ok(run, connect_ranks(run, &j, &err), err);
  const uint64_t one[] = {1, 1, 1, 1}, other[] = {1, 1, 2, 1};
  void* recv = NULL;
  rank_ok(run, gsel_mem_alloc(j.comm, COUNT * sizeof(float), &recv, &err), err);
  gsel_status status =
      gsel_alltoallv(j.comm, j.memory, one, NULL, recv, run->rank == 0 ? other : one, NULL, GSEL_F32, &err);
  while (status == GSEL_OK) status = gsel_comm_get_async_error(j.comm, &err); /* ranks 1 and 3 have what they need */
  rank_fails(run, status, err, GSEL_ERR_MISMATCH, "called alltoallv(f32) on a stream with ", -1);
  gsel_comm_free(j.comm);
}

/* NCCL computes where the memory of others is from its own. */
static void different_offsets(rank_run* run) {
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  rank_ok(run, connect_ranks(run, &j, &err), err);
  rank_ok(run, gsel_mem_register(j.comm, j.memory, COUNT * sizeof(float), &err), err);
  float* own = j.memory + (run->rank == 3 ? 4 : 0);
  gsel_status status = gsel_allreduce(j.comm, own, own, 4, GSEL_F32, GSEL_SUM, &err);
  while (status == GSEL_OK) status = gsel_comm_get_async_error(j.comm, &err);
  rank_fails(run, status, err, GSEL_ERR_MISMATCH, " on a stream in registered memory with other offsets; make", -1);
  gsel_comm_free(j.comm);
}

static void test_calls_that_differ_are_named_on_every_rank(void** state) {
  (void)state;
  on_hosts("0011", different_counts, "nccl", 20);
  on_hosts("0101", different_counts, "nccl", 20);
  on_hosts("0011", different_messages, "nccl", 20);
  on_hosts("0011", different_parts, "nccl", 20);
  on_hosts("0011", different_offsets, "nccl", 20);
}

static void a_late_rank(rank_run* run) {
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  rank_ok(run, connect_ranks(run, &j, &err), err);
  gsel_status status = GSEL_OK;
  if (run->rank != 3) status = sum(&j, 4, &err);
  while (status == GSEL_OK) {
    status = gsel_comm_get_async_error(j.comm, &err);
    usleep(1000);
  }
  rank_fails(run, status, err, GSEL_ERR_TIMEOUT, "timed out: rank 3 on ", 3);
  rank_fails(run, gsel_barrier(j.comm, &err), err, GSEL_ERR_TIMEOUT, "is late: rank ", 3);
  rank_fails(run, gsel_barrier(j.comm, &err), err, GSEL_ERR_TIMEOUT,
             "waited for it in allreduce(count 4, f32, sum) on a stream (call 2), rank 3 last called barrier() on a "
             "stream (call 1)",
             3);
  gsel_comm_free(j.comm);
}

/* The first call between ranks waits for their hosts inside of nccl. */
static void late_in_the_first_call(rank_run* run) {
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  gsel_status status = run->rank == 3 ? GSEL_OK : sum(&j, 4, &err);
  while (status == GSEL_OK) status = gsel_comm_get_async_error(j.comm, &err);
  rank_fails(run, status, err, GSEL_ERR_TIMEOUT, "rank 3 has called nothing on a stream", 3);
  gsel_comm_free(j.comm);
}

static void test_a_late_rank_is_named(void** state) {
  (void)state;
  on_hosts("0011", late_in_the_first_call, "nccl", 0.5);
  on_hosts("0011", a_late_rank, "nccl", 0.5);
  on_hosts("0101", a_late_rank, "nccl", 0.5);
}

/* The rank of the digit leaves; what the others wait for never comes. */
static void leaves(rank_run* run, int32_t who) {
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  rank_ok(run, connect_ranks(run, &j, &err), err);
  if (run->rank != who) {
    gsel_status status = sum(&j, 4, &err);
    if (status == GSEL_OK) status = gsel_comm_synchronize(j.comm, &err);
    rank_fails(run, status, err, GSEL_ERR_PEER, " left while rank ", who);
  }
  gsel_comm_free(j.comm);
}
static void leaves_0(rank_run* run) {
  leaves(run, 0);
}
static void leaves_2(rank_run* run) {
  leaves(run, 2);
}
static void leaves_3(rank_run* run) {
  leaves(run, 3);
}

static void test_who_has_left_is_named(void** state) {
  (void)state;
  on_hosts("0011", leaves_3, "nccl", 20);
  on_hosts("0011", leaves_2, "nccl", 20); /* the first rank of its host */
  on_hosts("0011", leaves_0, "nccl", 20); /* the one that compares */
}

/* What all have announced ends though the rank that compares has gone before. */
static void first_goes(rank_run* run) {
  const job* where = (const job*)run->user;
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  rank_ok(run, sum(&j, 4, &err), err);
  if (run->rank == 0) {
    gsel_comm_free(j.comm);
    reach_step(where->step, 1);
    return;
  }
  await_step(where->step, 1);
  usleep(200000); /* the other ranks look meanwhile */
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  gsel_comm_free(j.comm);
}

static void test_a_rank_that_leaves_behind_its_calls_breaks_nothing(void** state) {
  (void)state;
  on_hosts("0011", first_goes, "nccl", 20);
}

/* The others hang inside of NCCL's work, on a stream that nothing but an abort ends. */
static void a_death(rank_run* run, int32_t who, const char* part) {
  const job* where = (const job*)run->user;
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  rank_ok(run, connect_ranks(run, &j, &err), err);
  if (run->rank == who) {
    await_step(where->step, 3);
    usleep(50000); /* until they wait */
    *where->at = seconds();
    raise(SIGKILL);
  }
  __atomic_add_fetch(where->step, 1, __ATOMIC_SEQ_CST);
  gsel_status status = sum(&j, 4, &err);
  if (status == GSEL_OK) status = gsel_comm_synchronize(j.comm, &err);
  rank_fails(run, status, err, GSEL_ERR_PEER, part, who);
  const double told = seconds() - *where->at;
  finish(&j.g); /* the stream ends */
  const double ended = seconds() - *where->at;
  if (told > 1 || ended > 1)
    snprintf(run->failure, sizeof run->failure, "rank %d was told after %g s, its stream ended after %g s",
             (int)run->rank, told, ended);
  rank_fails(run, gsel_barrier(j.comm, &err), err, GSEL_ERR_PEER, "ended without gsel_comm_free", who);
  gsel_comm_free(j.comm);
}
static void dies_0(rank_run* run) {
  a_death(run, 0, "rank 0");
}
static void dies_2(rank_run* run) {
  a_death(run, 2, "rank 2");
}
static void dies_3(rank_run* run) {
  a_death(run, 3, "rank 3");
}

static void test_a_death_ends_the_work_on_all_hosts_within_a_second(void** state) {
  (void)state;
  on_hosts_but("0011", dies_3, "nccl", 60, 3);
  on_hosts_but("0011", dies_2, "nccl", 60, 2);
  on_hosts_but("0011", dies_0, "nccl", 60, 0);
  if (has_gloo()) on_hosts_but("0011", dies_3, "host", 60, 3);
}

static void aborts(rank_run* run) {
  const job* where = (const job*)run->user;
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  rank_ok(run, connect_ranks(run, &j, &err), err);
  if (run->rank == 3) {
    await_step(where->step, 3);
    *where->at = seconds();
    gsel_comm_abort(j.comm, gsel_str_from("no more data"));
  } else {
    rank_ok(run, sum(&j, 4, &err), err);
    __atomic_add_fetch(where->step, 1, __ATOMIC_SEQ_CST);
  }
  rank_fails(run, gsel_comm_synchronize(j.comm, &err), err, GSEL_ERR_ABORTED,
             "rank 3 aborted the communicator: no more data", 3);
  finish(&j.g);
  const double ended = seconds() - *where->at;
  if (ended > 1) snprintf(run->failure, sizeof run->failure, "rank %d: ended after %g s", (int)run->rank, ended);
  gsel_comm_free(j.comm);
}

static void test_an_abort_ends_the_work_on_all_hosts_within_a_second(void** state) {
  (void)state;
  on_hosts("0011", aborts, "nccl", 60);
}

/* Before anybody joins nccl. */
static void without_its_device(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  load_doubles("fake_libnccl.so");
  const char* part = run->rank == 2 ? "device 77 of cuda was asked for" : "rank 2: device 77 of cuda was asked for";
  rank_fails(run, join_hosts_on(run, run->rank == 2 ? 77 : run->rank, &comm, &err), err, GSEL_ERR_ARG, part,
             run->rank == 2 ? -1 : 2);
  rank_check(run, comm == NULL);
}

static void two_on_one_device(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  load_doubles("fake_libnccl.so");
  rank_fails(run, join_hosts_on(run, run->rank / 2, &comm, &err), err, GSEL_ERR_DUPLICATE, "share the device", -1);
  rank_check(run, comm == NULL);
}

static void test_what_keeps_a_rank_from_joining_is_told_on_all_hosts(void** state) {
  (void)state;
  on_hosts("0011", without_its_device, "nccl", 20);
  on_hosts("0011", two_on_one_device, "nccl", 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_calls_that_differ_are_named_on_every_rank),
      cmocka_unit_test(test_a_late_rank_is_named),
      cmocka_unit_test(test_who_has_left_is_named),
      cmocka_unit_test(test_a_rank_that_leaves_behind_its_calls_breaks_nothing),
      cmocka_unit_test(test_a_death_ends_the_work_on_all_hosts_within_a_second),
      cmocka_unit_test(test_an_abort_ends_the_work_on_all_hosts_within_a_second),
      cmocka_unit_test(test_what_keeps_a_rank_from_joining_is_told_on_all_hosts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
