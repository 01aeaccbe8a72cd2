/* fake/cuda/test_comm_transport.c: what a transport is given and asked, by one of the program's own that moves nothing:
 * the control's functions from joining to leaving, calls together with their bound, windows, and the end. */
#include <gsel/plugin.h>
#include <gsel/transport.h>

#include "fake/cuda/program.h"

struct gsel_link {
  const gsel_control_v1* control;
  int32_t rank, sum; /* of all ranks' numbers and 100, by an exchange */
  int calls, most_together, windows, is_aborted, has_left;
  double timeout_s;
};
static gsel_link links[2];

static gsel_status open_relay(const gsel_host_v1* host, void** ctx, gsel_error** err) {
  (void)err;
  *ctx = (void*)host;
  return GSEL_OK;
}
static void close_relay(void* ctx) {
  (void)ctx;
}
static gsel_status describe(void* ctx, gsel_transport_description* out, gsel_error** err) {
  (void)ctx, (void)err;
  out->flags = GSEL_TRANSPORT_BITWISE;
  out->dlpack_types = 1 << 2; /* CUDA */
  out->version = 3;
  return GSEL_OK;
}

static gsel_status link_join(void* ctx, const gsel_join* join, gsel_link** out, gsel_error** err) {
  (void)ctx;
  const int32_t mine = join->rank + 100;
  int32_t all[2] = {0};
  gsel_link* link = *out = &links[join->rank];
  *link = (gsel_link){.control = join->control, .rank = join->rank};
  const gsel_status status = join->control->exchange(join->control->ctx, &mine, all, sizeof mine, err);
  link->sum = all[0] + all[1];
  return status;
}
static void link_leave(gsel_link* link) {
  const int is_over = link->control->look(link->control->ctx, NULL) != GSEL_OK;
  __atomic_store_n(&link->has_left, 1 + is_over, __ATOMIC_RELEASE);
}
static void link_abort(gsel_link* link, const char* reason) {
  (void)reason;
  __atomic_store_n(&link->is_aborted, 1, __ATOMIC_RELEASE);
}
static gsel_status link_error(gsel_link* link, gsel_error** err) {
  (void)link, (void)err;
  return GSEL_OK;
}
static int32_t supports(gsel_link* link, const gsel_collective* call, char* reason, size_t capacity) {
  (void)link;
  if (call->kind == GSEL_COLLECTIVE_ALLREDUCE) return 1;
  if (reason) snprintf(reason, capacity, "a relay adds and does nothing else");
  return 0;
}

/* Makes a barrier of its own before the calls, which the control is told. */
static gsel_status enqueue(const gsel_enqueued* calls, uint64_t n, double timeout_s, gsel_error** err) {
  gsel_link* link = calls[0].link;
  gsel_collective barrier = GSEL_COLLECTIVE_INIT;
  barrier.kind = GSEL_COLLECTIVE_BARRIER;
  const gsel_status status = link->control->announce(link->control->ctx, &barrier, err);
  link->calls += (int)n;
  if ((int)n > link->most_together) link->most_together = (int)n;
  link->timeout_s = timeout_s;
  return status;
}

static gsel_status window_register(gsel_link* link, void* memory, uint64_t bytes, gsel_window** out, gsel_error** err) {
  (void)bytes, (void)err;
  link->windows += 1;
  *out = (gsel_window*)((char*)memory + 1);
  return GSEL_OK;
}
static void window_release(gsel_link* link, gsel_window* window) {
  link->windows -= (uintptr_t)window % 2 == 1; /* as it was given */
}

static int32_t probe(const gsel_host_v1* host, char* reason, size_t capacity) {
  (void)host, (void)reason, (void)capacity;
  return 1;
}

static const gsel_transport_v2 table = {.struct_size = sizeof table,
                                        .open = open_relay,
                                        .close = close_relay,
                                        .describe = describe,
                                        .link_join = link_join,
                                        .link_leave = link_leave,
                                        .link_abort = link_abort,
                                        .link_error = link_error,
                                        .supports = supports,
                                        .enqueue = enqueue,
                                        .window_register = window_register,
                                        .window_release = window_release};
static const struct gsel_plugin_v1 relay = {.struct_size = sizeof relay,
                                            .abi_major = GSEL_PLUGIN_ABI_MAJOR,
                                            .abi_minor = GSEL_PLUGIN_ABI_MINOR,
                                            .kind = GSEL_PLUGIN_TRANSPORT,
                                            .name = "relay",
                                            .version = "1.0",
                                            .build = "test",
                                            .table = &table,
                                            .probe = probe};

static void over_the_relay(rank_run* run) {
  volatile int32_t* step = (volatile int32_t*)run->user;
  gsel_link* link = &links[run->rank];
  gsel_error* err = NULL;
  gsel_comm* comm;
  float* memory;
  rank_ok(run, join_with(run, "relay", run->rank, GSEL_COMM_BITWISE, &comm, &err), err);
  rank_check(run, link->sum == 201);
  rank_ok(run, gsel_mem_alloc(comm, 64, (void**)&memory, &err), err);
  rank_ok(run, gsel_allreduce(comm, memory, memory, 4, GSEL_F32, GSEL_SUM, &err), err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.send = call.recv = memory;
  call.count = 4;
  call.timeout_s = 7;
  gsel_comm* comms[] = {comm, comm};
  const gsel_collective* calls[] = {&call, &call};
  rank_ok(run, gsel_group_run(comms, calls, 1, &err), err);
  gsel_collective second = call;
  second.send = second.recv = memory + 8;
  calls[1] = &second;
  rank_ok(run, gsel_group_run(comms, calls, 2, &err), err);
  rank_check(run, link->calls == 4 && link->most_together == 2 && link->timeout_s == 7);
  gsel_comm_count count = GSEL_COMM_COUNT_INIT;
  rank_ok(run, gsel_comm_counts(comm, GSEL_COLLECTIVE_BARRIER, &count, &err), err);
  rank_check(run, count.calls == 3);
  rank_ok(run, gsel_barrier(comm, &err), err); /* through host memory */
  rank_ok(run, gsel_mem_register(comm, memory, 64, &err), err);
  rank_check(run, link->windows == 1);
  rank_ok(run, gsel_mem_unregister(comm, memory, &err), err);
  rank_check(run, link->windows == 0);

  const gsel_control_v1* control = link->control;
  rank_ok(run, control->look(control->ctx, &err), err);
  rank_check(run, control->await_break(control->ctx, 0.001) == 0);
  if (run->rank == 0) reach_step(step, 1);
  await_step(step, 1);
  if (run->rank == 1) gsel_comm_abort(comm, gsel_str_from("by intent"));
  rank_check(run, control->await_break(control->ctx, 20) == 1);
  rank_fails(run, control->look(control->ctx, &err), err, GSEL_ERR_ABORTED, "by intent", 1);
  gsel_comm_free(comm);
  while (!__atomic_load_n(&link->has_left, __ATOMIC_ACQUIRE)) usleep(100); /* the thread of the abort may be the last */
  rank_check(run, link->has_left == 2 && __atomic_load_n(&link->is_aborted, __ATOMIC_ACQUIRE));
}

static void test_a_transport_has_the_control_from_joining_to_leaving(void** state) {
  (void)state;
  gsel_error* err = NULL;
  load_doubles("fake_libnccl.so");
  check_ok(gsel_plugin_register(&relay, &err), err);
  int32_t* step = shared_memory(sizeof *step);
  as_threads(2, over_the_relay, step);
  munmap(step, sizeof *step);
  no_violations();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_transport_has_the_control_from_joining_to_leaving)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
