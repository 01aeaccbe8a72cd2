/* fake/cuda/test_comm.c: communicators with an accelerator, from the side of a program that owns its streams, on the
 * doubles of the driver and of NCCL: every call as on the host bit for bit, over nccl and through host memory, in every
 * order of the double; no wait on the way; and what goes wrong. Ranks are threads with a device each, or processes. */
#include <dlfcn.h>
#include <time.h>

#include "support/ranks.h"

#define FLOATS 24 /* of a buffer, for each rank */
enum { COUNT = 5 };

/* ---- the driver, as a program uses it --------------------------------------------------------------------------- */

typedef struct driver {
  int (*retain)(void** context, int device);
  int (*push)(void* context);
  int (*pop)(void** context);
  int (*create)(void** stream, unsigned flags, int priority);
  int (*synchronize)(void* stream);
  int (*copy)(uintptr_t to, uintptr_t from, size_t bytes, void* stream);
  int (*alloc)(uintptr_t* out, size_t bytes);
  int (*violations)(void);
  const char* (*violation)(int i);
  int (*waits)(void);
  int (*current)(void);
} driver;
static driver cuda;

static void* module(const char* file) {
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/fixtures/%s", getenv("GSEL_TEST_BIN"), file);
  void* opened = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!opened) fprintf(stderr, "%s\n", dlerror());
  return opened;
}

#define FIND(member, symbol) *(void**)&cuda.member = dlsym(library, symbol)
static void load_doubles(const char* nccl) {
  void* library = module("fake_libcuda.so");
  FIND(retain, "cuDevicePrimaryCtxRetain");
  FIND(push, "cuCtxPushCurrent_v2");
  FIND(pop, "cuCtxPopCurrent_v2");
  FIND(create, "cuStreamCreateWithPriority");
  FIND(synchronize, "cuStreamSynchronize");
  FIND(copy, "cuMemcpyAsync");
  FIND(alloc, "cuMemAlloc_v2");
  FIND(violations, "fake_cuda_violations");
  FIND(violation, "fake_cuda_violation");
  FIND(waits, "fake_cuda_waits");
  FIND(current, "fake_cuda_current");
  module(nccl);
}

/* One rank's device, with a stream of the program. */
typedef struct gpu {
  void* context;
  void* stream;
} gpu;

static gpu open_gpu(int device) {
  gpu g;
  cuda.retain(&g.context, device);
  cuda.push(g.context);
  cuda.create(&g.stream, 1, 0);
  cuda.pop(&(void*){NULL});
  return g;
}

static void copy(const gpu* g, void* to, const void* from, size_t bytes) {
  cuda.push(g->context);
  cuda.copy((uintptr_t)to, (uintptr_t)from, bytes, g->stream);
  cuda.pop(&(void*){NULL});
}

static void finish(const gpu* g) {
  cuda.push(g->context);
  cuda.synchronize(g->stream);
  cuda.pop(&(void*){NULL});
}

/* ---- ranks ------------------------------------------------------------------------------------------------------ */

typedef struct setting {
  const char* transport;
  const char* order;
} setting;

static gsel_status join_on(const rank_run* run, const char* transport, int device, gsel_comm** out, gsel_error** err) {
  char accelerator[32];
  snprintf(accelerator, sizeof accelerator, "cuda:%d", device);
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  options.timeout_s = run->timeout_s;
  options.join_timeout_s = 20;
  options.accelerator = gsel_str_from(accelerator);
  options.transport = gsel_str_from(transport);
  return gsel_comm_init(&options, out, err);
}

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

static void no_violations(void) {
  for (int i = 0; i < cuda.violations(); ++i) print_error("violation: %s\n", cuda.violation(i));
  assert_int_equal(cuda.violations(), 0);
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

  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.send = call.recv = memory;
  call.count = 4;
  gsel_comm_explanation how = GSEL_COMM_EXPLANATION_INIT;
  rank_ok(run, gsel_comm_explain(comm, &call, &how, &err), err);
  rank_check(run, !strcmp(how.transport, "nccl") && !strcmp(how.protocol, "stream"));
  rank_check(run, !strcmp(how.transport_reason, "all ranks have it"));
  call.dtype = GSEL_F8E4M3;
  rank_ok(run, gsel_comm_explain(comm, &call, &how, &err), err);
  rank_check(run, !strcmp(how.transport, "host") && strstr(how.transport_reason, "no such call, type or operation"));
  gsel_comm_count count = GSEL_COMM_COUNT_INIT;
  rank_ok(run, gsel_comm_counts(comm, GSEL_COLLECTIVE_ALLREDUCE, &count, &err), err);
  rank_check(run, count.calls == 101 && count.bytes_sent == 101 * 16);
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

/* ---- what goes wrong -------------------------------------------------------------------------------------------- */

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

static void test_two_ranks_on_one_device_go_through_host(void** state) {
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
  gsel_collective call = call_of(GSEL_COLLECTIVE_RECV, memory, memory, NULL, run->rank, 2);
  call.count = 4;
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

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
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
             strstr(how.transport_reason, "libnccl.so.2 has no ncclGetUniqueId; NCCL 2.14 or newer would do") != NULL);
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
      cmocka_unit_test(test_every_call_as_on_the_host),
      cmocka_unit_test(test_calls_are_enqueued_and_nothing_waits),
      cmocka_unit_test(test_requests_groups_and_communicators_made_from_one),
      cmocka_unit_test(test_two_ranks_on_one_device_go_through_host),
      cmocka_unit_test(test_a_rank_that_cannot_open_its_device_tells_the_others),
      cmocka_unit_test(test_wrong_names_are_refused),
      cmocka_unit_test(test_memory_and_streams_of_others_are_refused),
      cmocka_unit_test(test_tags_are_refused_where_the_transport_has_none),
      cmocka_unit_test(test_calls_that_differ_are_named_on_every_rank),
      cmocka_unit_test(test_a_late_rank_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
