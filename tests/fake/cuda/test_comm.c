/* fake/cuda/test_comm.c: communicators with an accelerator, from the side of a program that owns its streams, on the
 * doubles of the driver and of NCCL: every call as on the host bit for bit, over nccl and through host memory, in every
 * order of the double; no wait on the way. Ranks are threads with a device each. */
#include "fake/cuda/program.h"

#define FLOATS 24 /* of a buffer, for each rank */
enum { COUNT = 5 };

/* ---- ranks ------------------------------------------------------------------------------------------------------ */

typedef struct setting {
  const char* transport;
  const char* order;
} setting;

static gsel_collective call_of(gsel_collective_kind kind, const void* send, void* recv, const uint64_t* counts,
                               int32_t rank, int32_t n) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = kind;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.send = send;
  call.recv = recv;
  call.count = call.recv_count = COUNT;
  call.root = 1;
  call.send_counts = call.recv_counts = counts;
  if (kind == GSEL_COLLECTIVE_SENDRECV) {
    call.root = (rank + 1) % n;
    call.source = (rank + n - 1) % n;
  }
  if (kind == GSEL_COLLECTIVE_SEND || kind == GSEL_COLLECTIVE_RECV) call.root = 1 - rank;
  return call;
}

/* Sums of these are exact, and every element of every rank is another one. */
static void fill(float* values, int32_t rank) {
  for (int i = 0; i < FLOATS; ++i) values[i] = (float)(100 * rank + i);
}

static void every_call_as_on_the_host(rank_run* run) {
  const setting* s = (const setting*)run->user;
  const gpu g = open_gpu(run->rank);
  gsel_error* err = NULL;
  gsel_comm *host, *comm;
  rank_run of_host = *run;
  of_host.id.bytes[0] ^= 1;
  rank_ok(run, rank_join(&of_host, &host, &err), err);
  rank_ok(run, join_on(run, s->transport, run->rank, &comm, &err), err);
  rank_ok(run, gsel_comm_set_stream(comm, g.stream, &err), err);
  void *send, *recv;
  rank_ok(run, gsel_mem_alloc(comm, FLOATS * sizeof(float), &send, &err), err);
  rank_ok(run, gsel_mem_alloc(comm, FLOATS * sizeof(float), &recv, &err), err);
  const uint64_t counts[] = {3, 0, 4};
  const uint64_t even[] = {2, 2, 2};
  for (gsel_collective_kind kind = 0; kind < GSEL_COLLECTIVE_PROBE; ++kind) {
    if (kind == GSEL_COLLECTIVE_SEND && run->rank == 1) kind = GSEL_COLLECTIVE_RECV;
    if ((kind == GSEL_COLLECTIVE_SEND || kind == GSEL_COLLECTIVE_RECV) && run->rank == 2) continue;
    const uint64_t* c = kind == GSEL_COLLECTIVE_ALLTOALLV ? even : counts;
    float from[FLOATS], expected[FLOATS], got[FLOATS];
    fill(from, run->rank);
    fill(expected, 7);
    memcpy(got, expected, sizeof got);
    gsel_collective call = call_of(kind, from, expected, c, run->rank, run->world_size);
    rank_ok(run, gsel_comm_run(host, &call, &err), err);
    copy(&g, send, from, sizeof from);
    copy(&g, recv, got, sizeof got);
    call = call_of(kind, send, recv, c, run->rank, run->world_size);
    rank_ok(run, gsel_comm_run(comm, &call, &err), err);
    copy(&g, got, recv, sizeof got);
    finish(&g);
    if (memcmp(got, expected, sizeof got) != 0) {
      for (int i = 0; i < FLOATS; ++i)
        if (got[i] != expected[i])
          snprintf(run->failure, sizeof run->failure, "rank %d, kind %d, element %d: %g instead of %g", (int)run->rank,
                   (int)kind, i, (double)got[i], (double)expected[i]);
      return;
    }
    if (run->rank == 0 && kind == GSEL_COLLECTIVE_SEND) ++kind;
  }
  rank_ok(run, gsel_comm_synchronize(comm, &err), err);
  rank_ok(run, gsel_mem_free(comm, send, &err), err);
  rank_ok(run, gsel_mem_free(comm, recv, &err), err);
  rank_check(run, cuda.current() == 0);
  gsel_comm_free(comm);
  gsel_comm_free(host);
}

static void test_every_call_as_on_the_host(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  static const char* const orders[] = {"least", "random", "others", "newest"};
  for (size_t i = 0; i < 4; ++i) {
    setenv("GSEL_FAKE_CUDA_ORDER", orders[i], 1);
    setting through_host = {"host", orders[i]}, nccl = {"nccl", orders[i]};
    as_threads(3, every_call_as_on_the_host, &through_host);
    as_threads(3, every_call_as_on_the_host, &nccl);
    no_violations();
  }
  unsetenv("GSEL_FAKE_CUDA_ORDER");
}

/* A call is enqueued behind the program's own work and before what follows it, and nobody waits in between. */
static void nothing_waits(rank_run* run) {
  const gpu g = open_gpu(run->rank);
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, "auto", run->rank, &comm, &err), err);
  rank_ok(run, gsel_comm_set_stream(comm, g.stream, &err), err);
  void* memory;
  rank_ok(run, gsel_mem_alloc(comm, 4 * sizeof(float), &memory, &err), err);
  const float mine[] = {1, 2, 3, 4};
  float got[4];
  copy(&g, memory, mine, sizeof mine);
  const int before = cuda.waits();
  for (int i = 0; i < 100; ++i) rank_ok(run, gsel_allreduce(comm, memory, memory, 4, GSEL_F32, GSEL_MAX, &err), err);
  rank_ok(run, gsel_allreduce(comm, memory, memory, 4, GSEL_F32, GSEL_SUM, &err), err);
  rank_check(run, cuda.waits() == before);
  copy(&g, got, memory, sizeof got);
  finish(&g);
  for (int i = 0; i < 4; ++i) rank_check(run, got[i] == 2 * mine[i]);

  const unsigned char flags[] = {1, run->rank == 0, 0, 1};
  unsigned char any[4];
  copy(&g, memory, flags, sizeof flags);
  rank_ok(run, gsel_allreduce(comm, memory, memory, 4, GSEL_BOOL, GSEL_SUM, &err), err);
  copy(&g, any, memory, sizeof any);
  finish(&g);
  rank_check(run, any[0] == 1 && any[1] == 1 && any[2] == 0 && any[3] == 1);

  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.send = call.recv = memory;
  call.count = 4;
  gsel_comm_explanation how = GSEL_COMM_EXPLANATION_INIT;
  rank_ok(run, gsel_comm_explain(comm, &call, &how, &err), err);
  rank_check(run, !strcmp(how.transport, transport_plugin("nccl")) && !strcmp(how.protocol, "stream"));
  const char* why = is_of_amd() ? "all ranks have it; RCCL keeps no order of launches"
                                : "all ranks have it; NCCL_LAUNCH_ORDER_IMPLICIT";
  rank_check(run, strstr(how.transport_reason, why) == how.transport_reason);
  call.dtype = GSEL_F8E4M3;
  rank_ok(run, gsel_comm_explain(comm, &call, &how, &err), err);
  rank_check(run, !strcmp(how.transport, "host") && strstr(how.transport_reason, "no such call, type or operation"));
  gsel_comm_count count = GSEL_COMM_COUNT_INIT;
  rank_ok(run, gsel_comm_counts(comm, GSEL_COLLECTIVE_ALLREDUCE, &count, &err), err);
  rank_check(run, count.calls == 102 && count.bytes_sent == 101 * 16 + 4);
  gsel_comm_free(comm);
}

static void test_calls_are_enqueued_and_nothing_waits(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  as_threads(2, nothing_waits, NULL);
  no_violations();
}

static void requests_groups_and_communicators(rank_run* run) {
  const setting* s = (const setting*)run->user;
  const gpu g = open_gpu(run->rank);
  gsel_error* err = NULL;
  gsel_comm *comm, *twin, *half;
  rank_ok(run, join_on(run, s->transport, run->rank, &comm, &err), err);
  rank_ok(run, gsel_comm_dup(comm, &twin, &err), err);
  rank_ok(run, gsel_comm_split(comm, run->rank / 2, 0, &half, &err), err);
  rank_ok(run, gsel_comm_set_stream(comm, g.stream, &err), err);
  rank_ok(run, gsel_comm_set_stream(twin, g.stream, &err), err);
  rank_ok(run, gsel_comm_set_stream(half, g.stream, &err), err);
  void* memory;
  rank_ok(run, gsel_mem_alloc(comm, 3 * sizeof(int32_t), &memory, &err), err);
  const int32_t mine[] = {run->rank + 1, 10 * (run->rank + 1), 1 << run->rank};
  int32_t got[3];
  copy(&g, memory, mine, sizeof mine);

  int32_t* at = (int32_t*)memory;
  gsel_collective calls[3];
  for (int i = 0; i < 3; ++i) {
    gsel_collective_init(&calls[i], sizeof calls[i]);
    calls[i].kind = GSEL_COLLECTIVE_ALLREDUCE;
    calls[i].dtype = GSEL_I32;
    calls[i].op = i == 2 ? GSEL_BOR : GSEL_SUM; /* nccl has no BOR */
    calls[i].send = calls[i].recv = at + i;
    calls[i].count = 1;
  }
  gsel_request* request;
  rank_ok(run, gsel_comm_start(comm, &calls[0], &request, &err), err);
  rank_ok(run, gsel_request_wait(request, &err), err);
  gsel_request_free(request);
  gsel_comm* comms[] = {half, twin};
  const gsel_collective* both[] = {&calls[1], &calls[2]};
  rank_ok(run, gsel_group_run(comms, both, 2, &err), err);
  copy(&g, got, memory, sizeof got);
  finish(&g);
  rank_check(run, got[0] == 10);
  rank_check(run, got[1] == (run->rank < 2 ? 30 : 70));
  rank_check(run, got[2] == 15);
  gsel_comm_free(half);
  gsel_comm_free(twin);
  gsel_comm_free(comm);
}

static void test_requests_groups_and_communicators_made_from_one(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  setting through_host = {"host", ""}, nccl = {"nccl", ""};
  as_threads(4, requests_groups_and_communicators, &through_host);
  as_threads(4, requests_groups_and_communicators, &nccl);
  no_violations();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_call_as_on_the_host),
      cmocka_unit_test(test_calls_are_enqueued_and_nothing_waits),
      cmocka_unit_test(test_requests_groups_and_communicators_made_from_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
