/* calls.c: n times the same allreduce of one f64, as a C program writes it. */
#include <gsel/comm.h>

gsel_status calls_in_c(gsel_comm *comm, double *x, uint64_t n);
gsel_status calls_in_c(gsel_comm *comm, double *x, uint64_t n) {
  gsel_error *err;
  for (uint64_t i = 0; i < n; ++i) {
    gsel_status status = gsel_allreduce(comm, x, x, 1, GSEL_F64, GSEL_MAX, &err);
    if (status) {
      gsel_error_free(err);
      return status;
    }
  }
  return GSEL_OK;
}
