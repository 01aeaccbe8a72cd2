/* bench_gsel.c: gsel's communicator in the harness of its peers; ranks come from `gsel run`. With BENCH_SHARED in the
 * environment the buffers are memory of gsel_mem_alloc. */
#include <gsel/gsel.h>
#include <stdlib.h>

#include "common/harness.h"

static gsel_comm* comm;

static void check(gsel_status status, gsel_error* const* err) {
  if (status) bench_fail("%s", gsel_error_message(*err).data);
}

static void join(int* argc, char*** argv, int wanted, int* rank, int* ranks) {
  gsel_error* err = NULL;
  (void)argc;
  (void)argv;
  (void)wanted;
  check(gsel_comm_init(NULL, &comm, &err), &err);
  *rank = gsel_comm_rank(comm);
  *ranks = gsel_comm_world_size(comm);
}

static void gather(double* mine, double* all, size_t count) {
  gsel_error* err = NULL;
  check(gsel_allgather(comm, mine, all, count, GSEL_F64, &err), &err);
}

static float* buffer(size_t bytes) {
  gsel_error* err = NULL;
  void* memory = NULL;
  if (getenv("BENCH_SHARED")) check(gsel_mem_alloc(comm, bytes, &memory, &err), &err);
  return memory;
}

static void leave(void) {
  gsel_error* err = NULL;
  check(gsel_barrier(comm, &err), &err);
  gsel_comm_free(comm);
}

static float* allreduce(const bench_call* c) {
  gsel_error* err = NULL;
  check(gsel_allreduce(comm, c->data, c->data, c->count, GSEL_F32, GSEL_SUM, &err), &err);
  return c->data;
}

static float* reduce_scatter(const bench_call* c) {
  gsel_error* err = NULL;
  float* own = c->data + (size_t)c->rank * c->part;
  check(gsel_reduce_scatter(comm, c->data, own, c->part, GSEL_F32, GSEL_SUM, &err), &err);
  return own;
}

static float* allgather(const bench_call* c) {
  gsel_error* err = NULL;
  check(gsel_allgather(comm, c->data + (size_t)c->rank * c->part, c->data, c->part, GSEL_F32, &err), &err);
  return c->data;
}

static float* alltoall(const bench_call* c) {
  gsel_error* err = NULL;
  check(gsel_alltoall(comm, c->source, c->data, c->part, GSEL_F32, &err), &err);
  return c->data;
}

static float* reduce(const bench_call* c) {
  gsel_error* err = NULL;
  check(gsel_reduce(comm, c->data, c->data, c->count, GSEL_F32, GSEL_SUM, 0, &err), &err);
  return c->rank == 0 ? c->data : NULL;
}

static float* gather_parts(const bench_call* c) {
  gsel_error* err = NULL;
  check(gsel_gather(comm, c->data + (size_t)c->rank * c->part, c->data, c->part, GSEL_F32, 0, &err), &err);
  return c->rank == 0 ? c->data : NULL;
}

static float* scatter(const bench_call* c) {
  gsel_error* err = NULL;
  check(gsel_scatter(comm, c->data, c->data, c->part, GSEL_F32, 0, &err), &err);
  return c->data;
}

static float* broadcast(const bench_call* c) {
  gsel_error* err = NULL;
  check(gsel_broadcast(comm, c->data, c->data, c->count, GSEL_F32, 0, &err), &err);
  return c->data;
}

static float* sendrecv(const bench_call* c) {
  gsel_error* err = NULL;
  const int32_t other = c->rank ^ 1;
  if (c->rank % 2 == 0) check(gsel_send(comm, c->data, c->count, GSEL_F32, other, &err), &err);
  check(gsel_recv(comm, c->data, c->count, GSEL_F32, other, &err), &err);
  if (c->rank % 2 == 1) check(gsel_send(comm, c->data, c->count, GSEL_F32, other, &err), &err);
  return c->data;
}

static float* barrier(const bench_call* c) {
  gsel_error* err = NULL;
  check(gsel_barrier(comm, &err), &err);
  return c->data;
}

int main(int argc, char** argv) {
  static const bench_operation operations[] = {
      {"allreduce", allreduce},
      {"reduce_scatter", reduce_scatter},
      {"allgather", allgather},
      {"alltoall", alltoall},
      {"broadcast", broadcast},
      {"reduce", reduce},
      {"gather", gather_parts},
      {"scatter", scatter},
      {"sendrecv", sendrecv},
      {"barrier", barrier},
      {NULL, NULL},
  };
  static const bench_peer peer = {join, gather, leave, buffer, operations};
  return bench_main(&peer, argc, argv);
}
