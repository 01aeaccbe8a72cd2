/* app.c: a program of someone who installed gsel: every rank adds its number to a sum, and rank 0 tells versions. */
#include <gsel/gsel.h>
#include <stdio.h>

static int failed(const char* what, gsel_error* err) {
  fprintf(stderr, "app: %s: %s\n", what, gsel_error_message(err).data);
  gsel_error_free(err);
  return 1;
}

int main(void) {
  gsel_error* err;
  gsel_comm* comm;
  if (gsel_comm_init(NULL, &comm, &err)) return failed("gsel_comm_init", err);
  const int32_t rank = gsel_comm_rank(comm), n = gsel_comm_world_size(comm);
  int64_t sum = rank;
  if (gsel_allreduce(comm, &sum, &sum, 1, GSEL_I64, GSEL_SUM, &err)) return failed("gsel_allreduce", err);
  gsel_comm_free(comm);
  const int64_t expected = (int64_t)n * (n - 1) / 2;
  if (sum != expected) {
    fprintf(stderr, "app: rank %d of %d: expected a sum of %d, got %d\n", (int)rank, (int)n, (int)expected, (int)sum);
    return 1;
  }
  if (rank == 0) printf("ranks %d sum %d version %s\n", (int)n, (int)sum, gsel_version_text());
  return 0;
}
