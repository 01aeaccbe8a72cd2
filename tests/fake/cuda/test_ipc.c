/* The transport cuda_ipc, on the doubles: ranks on one device and on several, as processes and as threads, whose
 * streams wait for each other, or whose hosts do where a driver lacks that. Every call as on the host, bit for bit,
 * also where it is longer than what a slot or a box holds; groups, streams, messages; ranks that die, are late, or
 * disagree. */
#include "fake/cuda/joined.h"

enum { MOST_RANKS = 4, MOST = 700001, IN_BOX = 1 << 17 /* f32 */ };

typedef struct way {
  int spread; /* each rank has a device of its own */
  const char* lacks;
} way;

static void choose(const way* w) {
  w->lacks ? setenv("GSEL_FAKE_CUDA_LACKS", w->lacks, 1) : unsetenv("GSEL_FAKE_CUDA_LACKS");
  load_doubles("fake_libnccl.so");
}

static gsel_comm* join_ipc(rank_run* run, const way* w, gpu* g) {
  gsel_comm* comm = NULL;
  gsel_error* err = NULL;
  const int device = w->spread ? run->rank : 0;
  *g = open_gpu(device);
  rank_ok(run, join_on(run, "cuda_ipc", device, &comm, &err), err);
  if (comm) rank_ok(run, gsel_comm_set_stream(comm, g->stream, &err), err);
  return comm;
}

/* ---- every call ---- */

/* Sums of these depend on their order. */
static float value_of(int rank, uint64_t i) {
  uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)(rank * 40503 + 1);
  x ^= x >> 15, x *= 0x2c1b3c6du, x ^= x >> 12;
  return ((float)(x & 0xffffff) / 8388608.0f - 1.0f) * (float)(1 << (x >> 28));
}

typedef struct buffers {
  char *from, *expected, *got; /* of the host, MOST_RANKS * MOST floats */
  void *send, *recv;           /* of the device */
} buffers;

static gsel_collective call_of(rank_run* run, gsel_collective_kind kind, uint64_t count, const uint64_t* counts) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  const int n = run->world_size;
  call.kind = kind;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.count = call.recv_count = count;
  call.root = n - 1;
  call.send_counts = call.recv_counts = counts;
  if (kind == GSEL_COLLECTIVE_SENDRECV) {
    call.root = (run->rank + 1) % n;
    call.source = (run->rank + n - 1) % n;
  }
  return call;
}

static void compare_call(rank_run* run, const gpu* g, gsel_comm* host, gsel_comm* comm, gsel_collective call,
                         const buffers* b) {
  const size_t bytes = sizeof(float) * (size_t)MOST * MOST_RANKS;
  gsel_error* err = NULL;
  memset(b->expected, 7, bytes);
  memset(b->got, 7, bytes);
  call.send = b->from;
  call.recv = b->expected;
  rank_ok(run, gsel_comm_run(host, &call, &err), err);
  copy(g, b->send, b->from, bytes);
  copy(g, b->recv, b->got, bytes);
  call.send = b->send;
  call.recv = b->recv;
  rank_ok(run, gsel_comm_run(comm, &call, &err), err);
  copy(g, b->got, b->recv, bytes);
  finish(g);
  for (size_t i = 0; i < bytes; ++i)
    if (b->got[i] != b->expected[i]) {
      snprintf(run->failure, sizeof run->failure, "rank %d, kind %d, dtype %d, count %zu: byte %zu is %d instead of %d",
               (int)run->rank, (int)call.kind, (int)call.dtype, (size_t)call.count, i, b->got[i], b->expected[i]);
      return;
    }
}

static void every_call(rank_run* run) {
  static const uint64_t sizes[] = {1, 1000, IN_BOX + 3, MOST};
  const way* w = (const way*)run->user;
  rank_run of_host = *run;
  gsel_error* err = NULL;
  gsel_comm* host;
  gpu g;
  buffers b;
  const size_t bytes = sizeof(float) * (size_t)MOST * MOST_RANKS;
  choose(w);
  of_host.id.bytes[0] ^= 1;
  rank_ok(run, rank_join(&of_host, &host, &err), err);
  gsel_comm* comm = join_ipc(run, w, &g);
  if (run->failure[0]) return;
  b.from = malloc(bytes), b.expected = malloc(bytes), b.got = malloc(bytes);
  for (uint64_t i = 0; i < bytes / sizeof(float); ++i) ((float*)b.from)[i] = value_of(run->rank, i);
  rank_ok(run, gsel_mem_alloc(comm, bytes, &b.send, &err), err);
  rank_ok(run, gsel_mem_alloc(comm, bytes, &b.recv, &err), err);
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes && !run->failure[0]; ++s) {
    const uint64_t n = sizes[s], counts[MOST_RANKS] = {n, 0, n / 2 + 1, n}, even[MOST_RANKS] = {n, n, n, n};
    for (gsel_collective_kind kind = 0; kind < GSEL_COLLECTIVE_PROBE && !run->failure[0]; ++kind) {
      if (kind == GSEL_COLLECTIVE_SEND || kind == GSEL_COLLECTIVE_RECV) continue; /* of sendrecv */
      const uint64_t* c = kind == GSEL_COLLECTIVE_ALLTOALLV ? even : counts;
      gsel_collective call = call_of(run, kind, n, c);
      compare_call(run, &g, host, comm, call, &b);
      if (!call.op || s == 3) continue;
      call.dtype = GSEL_BF16;
      compare_call(run, &g, host, comm, call, &b);
      call.dtype = GSEL_I8;
      call.op = GSEL_MAX;
      compare_call(run, &g, host, comm, call, &b);
    }
  }
  rank_ok(run, gsel_comm_synchronize(comm, &err), err);
  rank_check(run, cuda.current() == 0);
  rank_check(run, cuda.violations() == 0);
  for (int i = 0; i < cuda.violations() && i < 3; ++i) fprintf(stderr, "violation: %s\n", cuda.violation(i));
  gsel_comm_free(comm);
  gsel_comm_free(host);
  free(b.from), free(b.expected), free(b.got);
}

static way one_device = {0, NULL}, own_devices = {1, NULL}, by_hosts = {0, "cuStreamWaitValue32"};

static void test_every_call_as_on_the_host(void** state) {
  (void)state;
  for (int ranks = 2; ranks <= MOST_RANKS; ++ranks) as_processes(ranks, every_call, &one_device);
}
static void test_every_call_on_devices_of_their_own(void** state) {
  (void)state;
  as_processes(3, every_call, &own_devices);
}
static void test_every_call_where_hosts_wait(void** state) {
  (void)state;
  as_processes(3, every_call, &by_hosts);
}
static void test_every_call_of_threads(void** state) {
  (void)state;
  as_threads(3, every_call, &one_device);
}

/* ---- which transport is taken ---- */

static void is_taken_for_one_device(rank_run* run) {
  const way* w = (const way*)run->user;
  gsel_comm* comm = NULL;
  gsel_error* err = NULL;
  choose(w);
  rank_ok(run, join_on(run, "auto", w->spread ? run->rank : 0, &comm, &err), err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_BARRIER;
  gsel_comm_explanation how = GSEL_COMM_EXPLANATION_INIT;
  rank_ok(run, gsel_comm_explain(comm, &call, &how, &err), err);
  print_message("    %s: %s\n", how.transport, how.transport_reason);
  rank_check(run, !strcmp(how.transport, w->spread ? "nccl" : "cuda_ipc"));
  rank_check(run, w->spread || strstr(how.transport_reason, "rank 0 and rank 1 share the device"));
  rank_check(run, w->spread || strstr(how.transport_reason, w->lacks ? "the host waits" : "streams wait"));
  gsel_comm_free(comm);
}

static void test_ranks_that_share_a_device_take_it(void** state) {
  (void)state;
  as_processes(2, is_taken_for_one_device, &one_device);
  as_processes(2, is_taken_for_one_device, &own_devices);
  as_processes(2, is_taken_for_one_device, &by_hosts);
}

/* ---- groups and streams ---- */

static gsel_collective message_of(gsel_collective_kind kind, float* memory, uint64_t count, int peer) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = kind;
  call.dtype = GSEL_F32;
  if (kind == GSEL_COLLECTIVE_SEND)
    call.send = memory;
  else
    call.recv = memory;
  call.count = count;
  call.root = peer;
  return call;
}

/* Both sides send first, more than boxes hold, two messages to one rank. */
static void sends_in_a_group(rank_run* run) {
  enum { LONG = 3 * IN_BOX + 1 };
  gsel_error* err = NULL;
  gpu g;
  choose(&one_device);
  gsel_comm* comm = join_ipc(run, &one_device, &g);
  const int peer = 1 - run->rank;
  float *from, *to, *values = malloc(sizeof(float) * 2 * LONG);
  rank_ok(run, gsel_mem_alloc(comm, sizeof(float) * 2 * LONG, (void**)&from, &err), err);
  rank_ok(run, gsel_mem_alloc(comm, sizeof(float) * 2 * LONG, (void**)&to, &err), err);
  for (int i = 0; i < 2 * LONG; ++i) values[i] = value_of(run->rank, (uint64_t)i);
  copy(&g, from, values, sizeof(float) * 2 * LONG);
  gsel_collective calls[4] = {
      message_of(GSEL_COLLECTIVE_SEND, from, LONG, peer), message_of(GSEL_COLLECTIVE_SEND, from + LONG, 5, peer),
      message_of(GSEL_COLLECTIVE_RECV, to, LONG, peer), message_of(GSEL_COLLECTIVE_RECV, to + LONG, 5, peer)};
  gsel_comm* comms[4];
  const gsel_collective* all[4];
  for (int i = 0; i < 4; ++i) comms[i] = comm, all[i] = &calls[i];
  for (int again = 0; again < 3; ++again) rank_ok(run, gsel_group_run(comms, all, 4, &err), err);
  copy(&g, values, to, sizeof(float) * (LONG + 5));
  finish(&g);
  for (int i = 0; i < LONG + 5; ++i) rank_check(run, values[i] == value_of(peer, (uint64_t)i));
  rank_check(run, cuda.violations() == 0);
  free(values);
  gsel_comm_free(comm);
}

static void test_messages_of_a_group_go_on_beside_each_other(void** state) {
  (void)state;
  as_processes(2, sends_in_a_group, NULL);
  as_threads(2, sends_in_a_group, NULL);
  no_violations();
}

/* Calls on three streams of the program's, which it orders by nothing: the link does. */
static void calls_on_streams(rank_run* run) {
  gsel_error* err = NULL;
  gpu g;
  void *second, *third;
  choose(&one_device);
  gsel_comm* comm = join_ipc(run, &one_device, &g);
  cuda.push(g.context);
  cuda.create(&second, 1, 0);
  cuda.create(&third, 1, 0);
  cuda.pop(&(void*){NULL});
  float* memory;
  rank_ok(run, gsel_mem_alloc(comm, 64 * sizeof(float), (void**)&memory, &err), err);
  float values[64];
  for (int i = 0; i < 64; ++i) values[i] = (float)(run->rank + i);
  copy(&g, memory, values, sizeof values);
  finish(&g);
  for (int i = 0; i < 64; ++i) {
    gsel_collective call = GSEL_COLLECTIVE_INIT;
    call.kind = GSEL_COLLECTIVE_ALLREDUCE;
    call.dtype = GSEL_F32;
    call.op = GSEL_SUM;
    call.send = call.recv = memory + i;
    call.count = 1;
    call.stream = i % 3 == 0 ? g.stream : i % 3 == 1 ? second : third;
    rank_ok(run, gsel_comm_run(comm, &call, &err), err);
  }
  const gpu others[] = {{g.context, second}, {g.context, third}};
  finish(&others[0]);
  finish(&others[1]);
  copy(&g, values, memory, sizeof values);
  finish(&g);
  for (int i = 0; i < 64; ++i) rank_check(run, values[i] == (float)(3 + 3 * i));
  gsel_comm_free(comm);
}

static void test_calls_of_a_link_keep_one_order(void** state) {
  (void)state;
  as_processes(3, calls_on_streams, NULL);
}

/* One side makes its messages as a group, the other one by one, and they are longer than boxes. */
static void groups_that_differ(rank_run* run) {
  enum { LONG = 3 * IN_BOX };
  gsel_error* err = NULL;
  gpu g;
  const way* w = (const way*)run->user;
  choose(w);
  gsel_comm* comm = join_ipc(run, w, &g);
  float *from, *to, *apart, got = 0;
  rank_ok(run, gsel_mem_alloc(comm, 64, (void**)&apart, &err), err);
  rank_ok(run, gsel_mem_alloc(comm, sizeof(float) * LONG, (void**)&from, &err), err);
  rank_ok(run, gsel_mem_alloc(comm, sizeof(float) * LONG, (void**)&to, &err), err);
  const float mine = (float)(10 + run->rank);
  copy(&g, from + LONG - 1, &mine, sizeof mine);
  const int peer = 1 - run->rank;
  gsel_collective calls[3] = {message_of(GSEL_COLLECTIVE_SEND, from, LONG, peer),
                              message_of(GSEL_COLLECTIVE_RECV, to, LONG, peer), GSEL_COLLECTIVE_INIT};
  calls[2].kind = GSEL_COLLECTIVE_ALLREDUCE;
  calls[2].dtype = GSEL_F32;
  calls[2].op = GSEL_SUM;
  calls[2].send = calls[2].recv = apart;
  calls[2].count = 7;
  gsel_comm* comms[3] = {comm, comm, comm};
  const gsel_collective* all[3] = {&calls[0], &calls[1], &calls[2]};
  if (run->rank == 0) {
    rank_ok(run, gsel_group_run(comms, all, 3, &err), err);
  } else {
    rank_ok(run, gsel_comm_run(comm, &calls[1], &err), err);
    rank_ok(run, gsel_comm_run(comm, &calls[0], &err), err);
    rank_ok(run, gsel_comm_run(comm, &calls[2], &err), err);
  }
  copy(&g, &got, to + LONG - 1, sizeof got);
  finish(&g);
  rank_check(run, got == (float)(10 + peer));
  rank_ok(run, gsel_comm_synchronize(comm, &err), err);
  rank_check(run, cuda.violations() == 0);
  gsel_comm_free(comm);
}

static void test_groups_need_not_be_alike(void** state) {
  (void)state;
  as_processes(2, groups_that_differ, &one_device);
  as_processes(2, groups_that_differ, &by_hosts);
}

/* Who reads a slot changes from call to call, one rank is late, and nobody waits in between. */
static void readers_change(rank_run* run) {
  enum { CALLS = 48 };
  gsel_error* err = NULL;
  gpu g;
  choose(&one_device);
  gsel_comm* comm = join_ipc(run, &one_device, &g);
  const int n = run->world_size;
  float *memory, values[2 * CALLS];
  rank_ok(run, gsel_mem_alloc(comm, sizeof values, (void**)&memory, &err), err);
  for (int i = 0; i < 2 * CALLS; ++i) values[i] = (float)(1 + run->rank + 10 * i);
  copy(&g, memory, values, sizeof values);
  for (int i = 0; i < CALLS; ++i) {
    if (run->rank == 2 && i % 5 == 0) nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    gsel_collective call = GSEL_COLLECTIVE_INIT;
    call.kind = i % 3 == 2 ? GSEL_COLLECTIVE_BROADCAST : GSEL_COLLECTIVE_REDUCE;
    call.dtype = GSEL_F32;
    call.op = i % 3 == 2 ? 0 : GSEL_SUM;
    call.root = i / 2 % n;
    call.send = memory + i;
    call.recv = memory + CALLS + i;
    call.count = 1;
    rank_ok(run, gsel_comm_run(comm, &call, &err), err);
  }
  copy(&g, values, memory, sizeof values);
  finish(&g);
  for (int i = 0; i < CALLS; ++i) {
    const int root = i / 2 % n;
    const float expected = i % 3 == 2          ? (float)(1 + root + 10 * i)
                           : root == run->rank ? (float)(n * (n + 1) / 2 + 10 * n * i)
                                               : (float)(1 + run->rank + 10 * (CALLS + i));
    if (values[CALLS + i] != expected)
      snprintf(run->failure, sizeof run->failure, "rank %d, call %d: %g instead of %g", (int)run->rank, i,
               (double)values[CALLS + i], (double)expected);
  }
  gsel_comm_free(comm);
}

static void test_slots_are_not_filled_before_all_have_read_them(void** state) {
  (void)state;
  for (int ranks = 3; ranks <= 4; ++ranks) as_processes(ranks, readers_change, NULL);
}

/* Rank 1 has no memory for it. Where the program names no transport, all go through the host. */
static void cannot_join(rank_run* run) {
  const char* transport = (const char*)run->user;
  gsel_comm* comm = NULL;
  gsel_error* err = NULL;
  if (run->rank == 1) setenv("GSEL_FAKE_CUDA_OOM", "1", 1);
  choose(&one_device);
  const gsel_status status = join_on(run, transport, 0, &comm, &err);
  if (strcmp(transport, "auto") != 0) {
    rank_fails(run, status, err, GSEL_ERR_NOMEM, "cuda_ipc cannot join: rank 1: cuda_ipc: ", -1);
    return;
  }
  rank_ok(run, status, err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  gsel_comm_explanation how = GSEL_COMM_EXPLANATION_INIT;
  rank_ok(run, gsel_comm_explain(comm, &call, &how, &err), err);
  print_message("    %s: %s\n", how.transport, how.transport_reason);
  rank_check(run, !strcmp(how.transport, "host") && strstr(how.transport_reason, "cuda_ipc cannot join: rank 1"));
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void test_ranks_that_cannot_join_go_through_the_host(void** state) {
  (void)state;
  as_processes(2, cannot_join, (void*)"cuda_ipc");
  as_processes(2, cannot_join, (void*)"auto");
}

/* ---- failures ---- */

/* Rank 1 dies, or is late, while rank 0 waits in the call or for its stream. */
typedef struct lost {
  const way* way;
  int dies;
  int32_t word;
} lost;

static void waits_for_who_does_not_come(rank_run* run) {
  lost* l = (lost*)run->user;
  gsel_error* err = NULL;
  gpu g;
  char text[600] = "";
  choose(l->way);
  run->timeout_s = TIMEOUT_S;
  gsel_comm* comm = join_ipc(run, l->way, &g);
  float* memory = NULL;
  rank_ok(run, gsel_mem_alloc(comm, COUNT * sizeof(float), (void**)&memory, &err), err);
  rank_ok(run, gsel_allreduce(comm, memory, memory, COUNT, GSEL_F32, GSEL_SUM, &err), err);
  rank_ok(run, gsel_comm_synchronize(comm, &err), err);
  run->rank == 0 ? reach_step(&l->word, 1) : await_step(&l->word, 1);
  if (run->rank == 1 && l->dies) raise(SIGKILL);
  if (run->rank == 0) {
    const double began = seconds();
    gsel_status status = gsel_allreduce(comm, memory, memory, COUNT, GSEL_F32, GSEL_SUM, &err);
    if (status == GSEL_OK) status = gsel_comm_synchronize(comm, &err);
    gsel_error_format(err, text, sizeof text);
    gsel_error_free(err);
    print_message("    %s\n", text);
    rank_check(run, status == (l->dies ? GSEL_ERR_PEER : GSEL_ERR_TIMEOUT));
    rank_check(run, strstr(text, l->dies ? "rank 1 (pid" : "timed out") != NULL);
    rank_check(run, seconds() - began < 10);
    reach_step(&l->word, 2);
  } else {
    await_step(&l->word, 2);
  }
  gsel_comm_free(comm);
}

static void lose(const way* w, int dies) {
  lost* l = (lost*)shared_memory(sizeof *l);
  *l = (lost){w, dies, 0};
  rank_run* runs = ranks_prepare(2, l);
  const pid_t survivor = rank_fork(&runs[0], waits_for_who_does_not_come),
              victim = rank_fork(&runs[1], waits_for_who_does_not_come);
  int status = 0;
  waitpid(victim, &status, 0);
  assert_true(dies ? WIFSIGNALED(status) : status == 0);
  waitpid(survivor, &status, 0);
  assert_int_equal(status, 0);
  ranks_verdict(runs, 2);
  munmap(l, sizeof *l);
}

static void test_a_rank_that_dies_or_is_late_is_named(void** state) {
  (void)state;
  lose(&one_device, 1);
  lose(&one_device, 0);
  lose(&by_hosts, 1);
  lose(&by_hosts, 0);
}

static void differ_in_a_call(rank_run* run) {
  gsel_error* err = NULL;
  gpu g;
  choose(&one_device);
  gsel_comm* comm = join_ipc(run, &one_device, &g);
  float* memory = NULL;
  rank_ok(run, gsel_mem_alloc(comm, COUNT * sizeof(float), (void**)&memory, &err), err);
  gsel_status status = gsel_allreduce(comm, memory, memory, run->rank ? 8 : COUNT, GSEL_F32, GSEL_SUM, &err);
  if (status == GSEL_OK) status = gsel_comm_synchronize(comm, &err);
  rank_fails(run, status, err, GSEL_ERR_MISMATCH, "count 8", -1);
  gsel_comm_free(comm);
}

static void test_ranks_that_disagree_are_told(void** state) {
  (void)state;
  as_processes(2, differ_in_a_call, NULL);
}

/* No device reaches another one's memory. */
static void has_no_peer_access(rank_run* run) {
  gsel_comm* comm = NULL;
  gsel_error* err = NULL;
  setenv("GSEL_FAKE_CUDA_PEERS", "none", 1);
  choose(&own_devices);
  rank_fails(run, join_on(run, "cuda_ipc", run->rank, &comm, &err), err, GSEL_ERR_DEVICE, "peer access", -1);
}

static void test_devices_without_peer_access_are_refused(void** state) {
  (void)state;
  as_processes(2, has_no_peer_access, NULL);
}

int main(void) {
  /* The double counts what a process does, and no thread may have run here before ranks are forked. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_call_as_on_the_host),
      cmocka_unit_test(test_every_call_on_devices_of_their_own),
      cmocka_unit_test(test_every_call_where_hosts_wait),
      cmocka_unit_test(test_ranks_that_share_a_device_take_it),
      cmocka_unit_test(test_calls_of_a_link_keep_one_order),
      cmocka_unit_test(test_groups_need_not_be_alike),
      cmocka_unit_test(test_slots_are_not_filled_before_all_have_read_them),
      cmocka_unit_test(test_ranks_that_cannot_join_go_through_the_host),
      cmocka_unit_test(test_a_rank_that_dies_or_is_late_is_named),
      cmocka_unit_test(test_ranks_that_disagree_are_told),
      cmocka_unit_test(test_devices_without_peer_access_are_refused),
      cmocka_unit_test(test_messages_of_a_group_go_on_beside_each_other),
      cmocka_unit_test(test_every_call_of_threads),
  };
  return cmocka_run_group_tests_name("ipc", tests, NULL, NULL);
}
