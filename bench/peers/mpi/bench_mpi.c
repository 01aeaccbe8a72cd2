/* bench_mpi.c: an MPI in the harness of gsel's peers; built once with Open MPI and once with MPICH. Errors keep MPI's
 * default of ending the job. */
#include <mpi.h>
#include <stddef.h>

#include "common/harness.h"

static void join(int* argc, char*** argv, int wanted, int* rank, int* ranks) {
  (void)wanted;
  MPI_Init(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, ranks);
}

static void gather(double* mine, double* all, size_t count) {
  MPI_Allgather(mine, (int)count, MPI_DOUBLE, all, (int)count, MPI_DOUBLE, MPI_COMM_WORLD);
}

static void leave(void) {
  MPI_Finalize();
}

static float* allreduce(const bench_call* c) {
  MPI_Allreduce(MPI_IN_PLACE, c->data, (int)c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return c->data;
}

static float* reduce_scatter(const bench_call* c) {
  MPI_Reduce_scatter_block(MPI_IN_PLACE, c->data, (int)c->part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return c->data;
}

static float* allgather(const bench_call* c) {
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, c->data, (int)c->part, MPI_FLOAT, MPI_COMM_WORLD);
  return c->data;
}

static float* alltoall(const bench_call* c) {
  MPI_Alltoall(c->source, (int)c->part, MPI_FLOAT, c->data, (int)c->part, MPI_FLOAT, MPI_COMM_WORLD);
  return c->data;
}

static float* reduce(const bench_call* c) {
  MPI_Reduce(c->rank == 0 ? MPI_IN_PLACE : c->data, c->data, (int)c->count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
  return c->rank == 0 ? c->data : NULL;
}

static float* gather_parts(const bench_call* c) {
  const float* own = c->data + (size_t)c->rank * c->part;
  MPI_Gather(c->rank == 0 ? MPI_IN_PLACE : own, (int)c->part, MPI_FLOAT, c->data, (int)c->part, MPI_FLOAT, 0,
             MPI_COMM_WORLD);
  return c->rank == 0 ? c->data : NULL;
}

static float* scatter(const bench_call* c) {
  MPI_Scatter(c->data, (int)c->part, MPI_FLOAT, c->rank == 0 ? MPI_IN_PLACE : c->data, (int)c->part, MPI_FLOAT, 0,
              MPI_COMM_WORLD);
  return c->data;
}

static float* broadcast(const bench_call* c) {
  MPI_Bcast(c->data, (int)c->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  return c->data;
}

static float* sendrecv(const bench_call* c) {
  const int other = c->rank ^ 1;
  if (c->rank % 2 == 0) MPI_Send(c->data, (int)c->count, MPI_FLOAT, other, 0, MPI_COMM_WORLD);
  MPI_Recv(c->data, (int)c->count, MPI_FLOAT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (c->rank % 2 == 1) MPI_Send(c->data, (int)c->count, MPI_FLOAT, other, 0, MPI_COMM_WORLD);
  return c->data;
}

static float* barrier(const bench_call* c) {
  MPI_Barrier(MPI_COMM_WORLD);
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
  static const bench_peer peer = {join, gather, leave, NULL, operations};
  return bench_main(&peer, argc, argv);
}
