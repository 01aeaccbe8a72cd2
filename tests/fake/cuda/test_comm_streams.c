/* fake/cuda/test_comm_streams.c: a stream for each call of a communicator on a device, the event that a request gives,
 * and the device that is a rank's own. */
#include "fake/cuda/program.h"

enum { COUNT = 4 };

static void* stream_on(const gpu* g) {
  void* stream = NULL;
  cuda.push(g->context);
  cuda.create(&stream, 1, 0);
  cuda.pop(&(void*){NULL});
  return stream;
}

static gpu over(const gpu* g, void* stream) {
  return (gpu){g->context, stream};
}

static gsel_collective allreduce_on(void* stream, float* memory) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.send = call.recv = memory;
  call.count = COUNT;
  call.stream = stream;
  return call;
}

enum { BYTES = COUNT * sizeof(float) };

static void expect_all(rank_run* run, const gpu* g, const float* memory, float value) {
  float got[COUNT];
  copy(g, got, memory, sizeof got);
  finish(g);
  for (int i = 0; i < COUNT; ++i)
    if (got[i] != value)
      snprintf(run->failure, sizeof run->failure, "rank %d, element %d: %g instead of %g", (int)run->rank, i,
               (double)got[i], (double)value);
}

/* Each call sees what its own stream did before, and is seen by what follows on it; the third stream is the one that
 * was set, and is still it. */
static void streams_of_calls(rank_run* run) {
  const gpu g = open_gpu(run->rank);
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, (const char*)run->user, run->rank, &comm, &err), err);
  rank_ok(run, gsel_comm_set_stream(comm, g.stream, &err), err);
  gpu streams[3] = {over(&g, stream_on(&g)), over(&g, stream_on(&g)), g};
  float* memory[3];
  for (int i = 0; i < 3; ++i) rank_ok(run, gsel_mem_alloc(comm, BYTES, (void**)&memory[i], &err), err);
  for (int turn = 0; turn < 4; ++turn) {
    for (int i = 0; i < 3; ++i) {
      float mine[COUNT];
      for (int k = 0; k < COUNT; ++k) mine[k] = (float)(run->rank + 10 * i + 100 * turn);
      copy(&streams[i], memory[i], mine, sizeof mine);
      const gsel_collective call = allreduce_on(i == 2 ? NULL : streams[i].stream, memory[i]);
      rank_ok(run, gsel_comm_run(comm, &call, &err), err);
    }
    for (int i = 0; i < 3; ++i) expect_all(run, &streams[i], memory[i], (float)(1 + 20 * i + 200 * turn));
  }
  gsel_comm_free(comm);
}

static void test_two_streams_need_no_set_stream_between_them(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  static const char* const orders[] = {"least", "random", "others", "newest"};
  for (size_t i = 0; i < 4; ++i) {
    setenv("GSEL_FAKE_CUDA_ORDER", orders[i], 1);
    as_threads(2, streams_of_calls, (void*)"nccl");
    as_threads(2, streams_of_calls, (void*)"host");
    no_violations();
  }
  unsetenv("GSEL_FAKE_CUDA_ORDER");
}

/* The calls of a group, in one communicator and over two, have a stream each. */
static void group_of_streams(rank_run* run) {
  const gpu g = open_gpu(run->rank);
  gsel_error* err = NULL;
  gsel_comm *comm, *twin;
  rank_ok(run, join_on(run, (const char*)run->user, run->rank, &comm, &err), err);
  rank_ok(run, gsel_comm_dup(comm, &twin, &err), err);
  const gpu streams[3] = {over(&g, stream_on(&g)), over(&g, stream_on(&g)), over(&g, stream_on(&g))};
  gsel_comm* comms[3] = {comm, twin, comm};
  float* memory[3];
  gsel_collective calls[3];
  const gsel_collective* at[3];
  for (int i = 0; i < 3; ++i) {
    const float mine[COUNT] = {(float)i, (float)i, (float)i, (float)i};
    rank_ok(run, gsel_mem_alloc(comm, BYTES, (void**)&memory[i], &err), err);
    copy(&streams[i], memory[i], mine, sizeof mine);
    calls[i] = allreduce_on(streams[i].stream, memory[i]);
    at[i] = &calls[i];
  }
  rank_ok(run, gsel_group_run(comms, at, 3, &err), err);
  for (int i = 0; i < 3; ++i) expect_all(run, &streams[i], memory[i], (float)(2 * i));
  gsel_comm_free(twin);
  gsel_comm_free(comm);
}

static void test_calls_of_a_group_have_a_stream_each(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  as_threads(2, group_of_streams, (void*)"nccl");
  as_threads(2, group_of_streams, (void*)"host");
  no_violations();
}

/* Another stream of the program waits for the call by its event, and the host waits for nothing. */
static void event_of_a_request(rank_run* run) {
  const gpu g = open_gpu(run->rank);
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, (const char*)run->user, run->rank, &comm, &err), err);
  const gpu calls = over(&g, stream_on(&g)), reads = over(&g, stream_on(&g));
  float* memory;
  rank_ok(run, gsel_mem_alloc(comm, BYTES, (void**)&memory, &err), err);
  const float mine[COUNT] = {1, 1, 1, 1};
  copy(&calls, memory, mine, sizeof mine);
  const gsel_collective call = allreduce_on(calls.stream, memory);
  gsel_request* request;
  void* event = NULL;
  rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
  if (!strcmp((const char*)run->user, "host")) {
    rank_fails(run, gsel_request_event(request, &event, &err), err, GSEL_ERR_UNSUPPORTED, "no stream passes it", -1);
  } else {
    rank_ok(run, gsel_request_event(request, &event, &err), err);
    const int before = cuda.waits();
    cuda.push(g.context);
    CUDA("cuStreamWaitEvent", void*, void*, unsigned)(reads.stream, event, 0);
    cuda.pop(&(void*){NULL});
    rank_check(run, cuda.waits() == before);
    expect_all(run, &reads, memory, 2);
  }
  rank_ok(run, gsel_request_wait(request, &err), err);
  rank_fails(run, gsel_request_event(request, &event, &err), err, GSEL_ERR_STATE, "", -1);
  gsel_request_free(request);
  gsel_comm_free(comm);
}

static void test_a_request_gives_its_event(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  as_threads(2, event_of_a_request, (void*)"nccl");
  as_threads(2, event_of_a_request, (void*)"host");
  no_violations();
}

/* A queue's thread asks the device, and fetches what went through host memory. */
static void end_of_a_request_through_a_queue(rank_run* run) {
  const gpu g = open_gpu(run->rank);
  gsel_error* err = NULL;
  gsel_comm* comm;
  gsel_queue* queue;
  rank_ok(run, join_on(run, (const char*)run->user, run->rank, &comm, &err), err);
  rank_ok(run, gsel_queue_create(&queue, &err), err);
  float* memory;
  rank_ok(run, gsel_mem_alloc(comm, BYTES, (void**)&memory, &err), err);
  const float mine[COUNT] = {1, 1, 1, 1};
  copy(&g, memory, mine, sizeof mine);
  const gsel_collective call = allreduce_on(g.stream, memory);
  gsel_request* request;
  void* user = NULL;
  int32_t found = 0;
  rank_ok(run, gsel_request_create(comm, &call, &request, &err), err);
  rank_ok(run, gsel_request_notify(request, queue, memory, &err), err);
  for (int i = 1; i < 4; ++i) {
    rank_ok(run, gsel_request_start(request, &err), err);
    rank_ok(run, gsel_queue_next(queue, 20, &found, &user, &err), err);
    rank_check(run, found == 1 && user == memory);
    rank_ok(run, gsel_request_wait(request, &err), err);
    expect_all(run, &g, memory, (float)(1 << i));
    if (run->failure[0]) return;
  }
  gsel_request_free(request);
  gsel_collective first = call, second = call;
  first.count = second.count = COUNT / 2;
  second.send = second.recv = memory + COUNT / 2;
  const gsel_collective* const calls[] = {&first, &second};
  if (!strcmp((const char*)run->user, "host")) {
    rank_fails(run, gsel_group_start(comm, calls, 2, &request, &err), err, GSEL_ERR_UNSUPPORTED, "through host", -1);
  } else {
    rank_ok(run, gsel_group_start(comm, calls, 2, &request, &err), err);
    rank_ok(run, gsel_request_notify(request, queue, memory, &err), err);
    rank_ok(run, gsel_queue_next(queue, 20, &found, &user, &err), err);
    rank_check(run, found == 1);
    rank_ok(run, gsel_request_wait(request, &err), err);
    expect_all(run, &g, memory, 16);
    gsel_request_free(request);
  }
  gsel_queue_free(queue);
  gsel_comm_free(comm);
}

static void test_the_end_of_a_request_comes_through_a_queue(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  as_threads(2, end_of_a_request_through_a_queue, (void*)"nccl");
  as_threads(2, end_of_a_request_through_a_queue, (void*)"host");
  no_violations();
}

static void streams_that_do_not_fit(rank_run* run) {
  const gpu g = open_gpu(run->rank), other = open_gpu(1 - run->rank);
  gsel_error* err = NULL;
  gsel_comm* comm;
  rank_ok(run, join_on(run, (const char*)run->user, run->rank, &comm, &err), err);
  float* memory;
  rank_ok(run, gsel_mem_alloc(comm, BYTES, (void**)&memory, &err), err);
  const gsel_collective wrong = allreduce_on(other.stream, memory), right = allreduce_on(g.stream, memory);
  rank_fails(run, gsel_comm_run(comm, &wrong, &err), err, GSEL_ERR_ARG, "stream", -1);
  rank_ok(run, gsel_comm_run(comm, &right, &err), err);
  finish(&g);
  gsel_comm_free(comm);
}

static void test_a_stream_of_another_device_is_refused(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  as_threads(2, streams_that_do_not_fit, (void*)"nccl");
  as_threads(2, streams_that_do_not_fit, (void*)"host");
  no_violations();
}

static void stream_without_a_device(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm;
  int stream = 0;
  float memory[COUNT] = {0};
  rank_ok(run, rank_join(run, &comm, &err), err);
  const gsel_collective call = allreduce_on(&stream, memory);
  rank_fails(run, gsel_comm_run(comm, &call, &err), err, GSEL_ERR_ARG,
             "gsel_collective.stream is given and the communicator has no accelerator", -1);
  gsel_comm_free(comm);
}

static void test_a_communicator_of_the_host_takes_no_stream(void** state) {
  (void)state;
  as_threads(2, stream_without_a_device, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_streams_need_no_set_stream_between_them),
      cmocka_unit_test(test_calls_of_a_group_have_a_stream_each),
      cmocka_unit_test(test_a_request_gives_its_event),
      cmocka_unit_test(test_the_end_of_a_request_comes_through_a_queue),
      cmocka_unit_test(test_a_stream_of_another_device_is_refused),
      cmocka_unit_test(test_a_communicator_of_the_host_takes_no_stream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
