/* fake/cuda/test_comm_hosts.c: communicators with an accelerator whose ranks are told that they are on several hosts:
 * calls give what they give on one host, bit for bit, over nccl and through host memory. */
#include "fake/cuda/hosts.h"

#define FLOATS 24 /* of a buffer, for each rank */
enum { LENGTH = 5 };

static gsel_collective call_of(gsel_collective_kind kind, const void* send, void* recv, const uint64_t* counts,
                               const rank_run* run) {
  const int32_t n = run->world_size;
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = kind;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.send = send;
  call.recv = recv;
  call.count = call.recv_count = LENGTH;
  call.root = n - 1;
  call.send_counts = call.recv_counts = counts;
  if (kind == GSEL_COLLECTIVE_SENDRECV) {
    call.root = (run->rank + 1) % n;
    call.source = (run->rank + n - 1) % n;
  }
  if (kind == GSEL_COLLECTIVE_SEND || kind == GSEL_COLLECTIVE_RECV) call.root = n - 1 - run->rank;
  return call;
}

/* Every element of every rank is another one; sums of them are not exact in every order. */
static void fill(float* values, int32_t rank) {
  for (int i = 0; i < FLOATS; ++i) values[i] = (float)(100 * rank + i) / 3;
}

/* Over nccl a sum of floats has the order of NCCL: what is compared there is exact. */
static void every_call_as_on_one_host(rank_run* run) {
  const job* where = (const job*)run->user;
  const int exact = !strcmp(where->transport, "nccl");
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  gsel_comm* host;
  if (where->place[0]) {
    rank_run of_host = *run;
    of_host.id.bytes[0] ^= 1;
    rank_ok(run, rank_join(&of_host, &host, &err), err);
  } else { /* started by gsel run on hosts that share nothing: what memory of the host gives there */
    gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
    rank_ok(run, gsel_comm_init(&options, &host, &err), err);
  }
  void *send, *recv;
  rank_ok(run, gsel_mem_alloc(j.comm, FLOATS * sizeof(float), &send, &err), err);
  rank_ok(run, gsel_mem_alloc(j.comm, FLOATS * sizeof(float), &recv, &err), err);
  const uint64_t counts[] = {3, 0, 4, 1};
  const uint64_t even[] = {2, 2, 2, 2};
  const int32_t last = run->world_size - 1;
  for (gsel_collective_kind kind = 0; kind < GSEL_COLLECTIVE_PROBE; ++kind) {
    gsel_collective_kind own = kind;
    if (kind == GSEL_COLLECTIVE_RECV) continue; /* with the send */
    if (kind == GSEL_COLLECTIVE_SEND && run->rank == last) own = GSEL_COLLECTIVE_RECV;
    if (kind == GSEL_COLLECTIVE_SEND && run->rank != 0 && run->rank != last) continue;
    const uint64_t* c = kind == GSEL_COLLECTIVE_ALLTOALLV ? even : counts;
    float from[FLOATS], expected[FLOATS], got[FLOATS];
    fill(from, run->rank);
    for (int i = 0; exact && i < FLOATS; ++i) from[i] = (float)(int)from[i];
    fill(expected, 7);
    memcpy(got, expected, sizeof got);
    gsel_collective call = call_of(own, from, expected, c, run);
    rank_ok(run, gsel_comm_run(host, &call, &err), err);
    copy(&j.g, send, from, sizeof from);
    copy(&j.g, recv, got, sizeof got);
    call = call_of(own, send, recv, c, run);
    rank_ok(run, gsel_comm_run(j.comm, &call, &err), err);
    copy(&j.g, got, recv, sizeof got);
    finish(&j.g);
    for (int i = 0; i < FLOATS; ++i)
      if (memcmp(&got[i], &expected[i], sizeof got[i]) != 0) {
        snprintf(run->failure, sizeof run->failure, "rank %d of %s over %s, kind %d, element %d: %g instead of %g",
                 (int)run->rank, where->hosts, where->transport, (int)own, i, (double)got[i], (double)expected[i]);
        return;
      }
  }
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  rank_ok(run, gsel_mem_free(j.comm, send, &err), err);
  rank_ok(run, gsel_mem_free(j.comm, recv, &err), err);
  rank_check(run, cuda.current() == 0);
  gsel_comm_free(j.comm);
  gsel_comm_free(host);
  rank_check(run, cuda.violations() == 0);
}

static void test_every_call_as_on_one_host(void** state) {
  (void)state;
  static const char* const places[] = {"0011", "0101", "01", "012"};
  for (size_t i = 0; i < sizeof places / sizeof places[0]; ++i) {
    on_hosts(places[i], every_call_as_on_one_host, "nccl", 20);
    if (has_gloo()) on_hosts(places[i], every_call_as_on_one_host, "host", 20);
  }
}

/* Of hosts that have no clock in common: the last to wait was told when rank 3 had waited, too. */
static void dies_in_a_call(rank_run* run) {
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  rank_ok(run, connect_ranks(run, &j, &err), err);
  if (run->rank == 3) {
    usleep(300000); /* until they wait */
    raise(SIGKILL);
  }
  const double began = seconds();
  gsel_status status = gsel_allreduce(j.comm, j.memory, j.memory, 4, GSEL_F32, GSEL_SUM, &err);
  if (status == GSEL_OK) status = gsel_comm_synchronize(j.comm, &err);
  rank_fails(run, status, err, GSEL_ERR_PEER, "ended without gsel_comm_free", 3);
  finish(&j.g);
  rank_check(run, seconds() - began < 1.3);
  gsel_comm_free(j.comm);
}

/* Many, so that more are under way than the way to the first host takes at once. */
static void many_calls(rank_run* run) {
  enum { CALLS = 3000 };
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_MAX;
  call.send = call.recv = j.memory;
  call.count = COUNT;
  for (int i = 0; i < CALLS; ++i) rank_ok(run, gsel_comm_run(j.comm, &call, &err), err);
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  float got[COUNT];
  copy(&j.g, got, j.memory, sizeof got);
  finish(&j.g);
  for (int i = 0; i < COUNT; ++i) rank_check(run, got[i] == (float)(100 * (run->world_size - 1) + i));
  gsel_comm_explanation how = GSEL_COMM_EXPLANATION_INIT;
  rank_ok(run, gsel_comm_explain(j.comm, &call, &how, &err), err);
  rank_check(run, !strcmp(how.transport, "nccl") && !strcmp(how.protocol, "stream"));
  gsel_comm_count count = GSEL_COMM_COUNT_INIT;
  rank_ok(run, gsel_comm_counts(j.comm, GSEL_COLLECTIVE_ALLREDUCE, &count, &err), err);
  rank_check(run, count.calls == CALLS);
  gsel_comm_free(j.comm);
}

static void test_many_calls_are_announced(void** state) {
  (void)state;
  on_hosts("0011", many_calls, "auto", 60);
}

static void requests_groups_and_communicators(rank_run* run) {
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  gsel_comm *twin, *half, *across;
  rank_ok(run, gsel_comm_dup(j.comm, &twin, &err), err);
  rank_ok(run, gsel_comm_split(j.comm, run->rank / 2, 0, &half, &err), err);
  rank_ok(run, gsel_comm_split(j.comm, run->rank % 2, -run->rank, &across, &err), err);
  rank_ok(run, gsel_comm_set_stream(twin, j.g.stream, &err), err);
  rank_ok(run, gsel_comm_set_stream(half, j.g.stream, &err), err);
  rank_ok(run, gsel_comm_set_stream(across, j.g.stream, &err), err);
  const int32_t mine[] = {run->rank + 1, 10 * (run->rank + 1), 1 << run->rank, run->rank};
  int32_t got[4];
  copy(&j.g, j.memory, mine, sizeof mine);
  int32_t* at = (int32_t*)j.memory;
  gsel_collective calls[4];
  for (int i = 0; i < 4; ++i) {
    gsel_collective_init(&calls[i], sizeof calls[i]);
    calls[i].kind = GSEL_COLLECTIVE_ALLREDUCE;
    calls[i].dtype = GSEL_I32;
    calls[i].op = i == 2 ? GSEL_BOR : GSEL_SUM; /* nccl has no BOR */
    calls[i].send = calls[i].recv = at + i;
    calls[i].count = 1;
  }
  gsel_request* request;
  rank_ok(run, gsel_comm_start(j.comm, &calls[0], &request, &err), err);
  rank_ok(run, gsel_request_wait(request, &err), err);
  gsel_request_free(request);
  gsel_comm* comms[] = {half, twin, across};
  const gsel_collective* all[] = {&calls[1], &calls[2], &calls[3]};
  rank_ok(run, gsel_group_run(comms, all, 3, &err), err);
  copy(&j.g, got, j.memory, sizeof got);
  finish(&j.g);
  rank_check(run, got[0] == 10);
  rank_check(run, got[1] == (run->rank < 2 ? 30 : 70));
  rank_check(run, got[2] == 15);
  rank_check(run, got[3] == (run->rank % 2 ? 4 : 2));
  rank_check(run, gsel_comm_rank(across) == (run->rank < 2 ? 1 : 0));

  /* A communicator is made while this one goes on. */
  rank_ok(run, gsel_comm_start_dup(j.comm, &request, &err), err);
  rank_ok(run, gsel_comm_run(j.comm, &calls[0], &err), err);
  rank_ok(run, gsel_request_wait(request, &err), err);
  gsel_comm* made = NULL;
  rank_ok(run, gsel_request_take_comm(request, &made, &err), err);
  gsel_request_free(request);
  rank_ok(run, gsel_comm_set_stream(made, j.g.stream, &err), err);
  rank_ok(run, gsel_comm_run(made, &calls[0], &err), err);
  copy(&j.g, got, j.memory, sizeof got);
  finish(&j.g);
  rank_check(run, got[0] == 160);
  gsel_comm_free(made);
  gsel_comm_free(across);
  gsel_comm_free(half);
  gsel_comm_free(twin);
  gsel_comm_free(j.comm);
  rank_check(run, cuda.violations() == 0);
}

static void test_requests_groups_and_communicators_made_from_one(void** state) {
  (void)state;
  for (int i = 0; i < 2; ++i) {
    on_hosts(i ? "0011" : "0101", requests_groups_and_communicators, "nccl", 20);
    if (has_gloo()) on_hosts(i ? "0011" : "0101", requests_groups_and_communicators, "host", 20);
  }
}

/* Page-locked memory of the host in calls of the same communicator, memory that ranks register, and a call that nccl
 * lacks on large buffers, which goes over the transport between hosts. */
static void other_memory(rank_run* run) {
  enum { LARGE = 20000 };
  gsel_error* err = NULL;
  joined j;
  rank_ok(run, join_hosts(run, &j, &err), err);
  int32_t* pinned = NULL;
  cuda.push(j.g.context);
  CUDA("cuMemHostAlloc", void**, size_t, unsigned)((void**)&pinned, LARGE * sizeof(int32_t), 3);
  cuda.pop(&(void*){NULL});
  for (int i = 0; i < LARGE; ++i) pinned[i] = (run->rank + 1) << (i % 4);
  rank_ok(run, gsel_allreduce(j.comm, pinned, pinned, LARGE, GSEL_I32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
  for (int i = 0; i < LARGE; ++i) rank_check(run, pinned[i] == 10 << (i % 4));
  for (int i = 0; i < LARGE; ++i) pinned[i] = 1 << run->rank;
  const gsel_status status = gsel_allreduce(j.comm, pinned, pinned, LARGE, GSEL_I32, GSEL_BOR, &err);
  if (has_gloo()) {
    rank_ok(run, status, err);
    rank_ok(run, gsel_comm_synchronize(j.comm, &err), err);
    for (int i = 0; i < LARGE; ++i) rank_check(run, pinned[i] == 15);
  } else {
    rank_fails(run, status, err, GSEL_ERR_UNSUPPORTED, "no transport moves memory of the host between hosts", -1);
  }
  rank_ok(run, gsel_mem_register(j.comm, j.memory, COUNT * sizeof(float), &err), err);
  rank_ok(run, gsel_allreduce(j.comm, j.memory, j.memory, COUNT, GSEL_F32, GSEL_MAX, &err), err);
  rank_ok(run, gsel_mem_unregister(j.comm, j.memory, &err), err);
  gsel_comm_free(j.comm);
  rank_check(run, cuda.violations() == 0);
}

static void test_memory_of_the_host_and_registered_memory_go_on(void** state) {
  (void)state;
  on_hosts("0011", other_memory, "nccl", 20);
}

/* A rank of `gsel run`: the first test over a transport, or the one that is named. */
static int as_rank(const char* transport, const char* named) {
  job j = {.hosts = "", .transport = transport};
  rank_run run = {.rank = atoi(getenv("RANK")), .world_size = atoi(getenv("WORLD_SIZE")), .user = &j, .timeout_s = 20};
  const rank_body body = !strcmp(named, "dies")     ? dies_in_a_call
                         : !strcmp(named, "memory") ? other_memory
                                                    : every_call_as_on_one_host;
  body(&run);
  printf("rank %d: %s\n", (int)run.rank, run.failure[0] ? run.failure : "as expected");
  return run.failure[0] != '\0';
}

int main(int argc, char** argv) {
  if (argc > 1) return as_rank(argv[1], argc > 2 ? argv[2] : "");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_call_as_on_one_host),
      cmocka_unit_test(test_many_calls_are_announced),
      cmocka_unit_test(test_requests_groups_and_communicators_made_from_one),
      cmocka_unit_test(test_memory_of_the_host_and_registered_memory_go_on),
  };
  if (!has_gloo()) printf("left out: the way through host memory, without a transport between hosts (libgloo-dev)\n");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
