/* conformance/linked_mpi.c: a program that is linked to an MPI and initialises it, whose objects may stand in the
 * program rather than in the library: gsel takes that MPI as it is, and leaves it to the program. Ranks are told that
 * they are on hosts of their own. */
#include <gsel/gsel.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void must(int holds, const char* what, gsel_error* err) {
  if (holds) return;
  fprintf(stderr, "linked_mpi: %s: %s\n", what, err ? gsel_error_message(err).data : "failed");
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  enum { kCount = 50000 };
  static int32_t x[kCount];
  char host[16];
  int rank, ranks, level, sum = 1, all = 0;
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_comm_options options;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  snprintf(host, sizeof host, "h%d", rank);
  must(setenv("GSEL_HOST_ID", host, 1) == 0, "setenv", NULL);
  gsel_comm_options_init(&options, sizeof options);
  options.transport = gsel_str_from("mpi");
  must(gsel_comm_init(&options, &comm, &err) == GSEL_OK, "gsel_comm_init", err);
  for (int i = 0; i < kCount; ++i) x[i] = rank + i;
  must(gsel_allreduce(comm, x, x, kCount, GSEL_I32, GSEL_SUM, &err) == GSEL_OK, "gsel_allreduce", err);
  for (int i = 0; i < kCount; ++i) must(x[i] == ranks * (ranks - 1) / 2 + ranks * i, "a sum", NULL);
  gsel_comm_free(comm);
  MPI_Allreduce(&sum, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  must(all == ranks, "MPI, once gsel has left", NULL);
  MPI_Finalize();
  if (rank == 0) puts("MPI is the program's");
  return 0;
}
