/* gsel/gsel.h: all of gsel, read as a manual.
 *
 * gsel selects accelerators, connects ranks and trains models in parallel, for programs that are not written in
 * Python. The smallest useful program: every rank adds its number to a sum.
 *
 *     #include <gsel/gsel.h>
 *     #include <stdio.h>
 *
 *     int main(void) {
 *       gsel_error *err;
 *       gsel_comm *comm;
 *       float x;
 *       gsel_status status = gsel_comm_init(NULL, &comm, &err);
 *       if (!status) {
 *         x = (float)gsel_comm_rank(comm);
 *         status = gsel_allreduce(comm, &x, &x, 1, GSEL_F32, GSEL_SUM, &err);
 *       }
 *       if (status) {
 *         fprintf(stderr, "%s\n", gsel_error_message(err).data);
 *         gsel_error_free(err);
 *         return 1;
 *       }
 *       printf("sum of ranks: %g\n", x);
 *       gsel_comm_free(comm);
 *     }
 *
 *     cc app.c $(pkg-config --cflags --libs gsel) && gsel run -n 4 -- ./a.out
 *
 * Then, each in its own header:
 *   gsel/types.h    status, text, element types, tensors          gsel/error.h   errors the caller owns
 *   gsel/select.h   gsel_resolve: which devices, and why          gsel/log.h     where log lines go
 *   gsel/reserve.h  gsel_reserve: the same, and they are held
 *   gsel/comm.h     gsel_comm_init, gsel_allreduce, ...           gsel/config.h  gsel.toml
 *   gsel/model.h    a model described once                        gsel/program.h what a strategy makes of it
 *   gsel/check.h    whether its kernels keep the contract
 *   gsel/train.h    gsel_trainer_step, or pull                    gsel/registry.h which plugins were found
 *   gsel/pipeline.h stages without a trainer               gsel/schedule.h the orders in which they can run
 *   gsel/timeline.h steps and recordings as a picture      gsel/mesh.h    how ranks stand on the axes
 *   gsel/plugin.h   for authors of strategies and backends; not included here
 *
 * Rules that hold everywhere:
 *   - 0 is success; errors come with the call, see gsel/error.h. Nothing is thrown, printed, or kept per thread.
 *   - Who allocates frees: each handle has its _free, and NULL is fine there.
 *   - Structs carry their size and grow at the end; initialise them with GSEL_*_INIT or gsel_*_init.
 *   - No global state to set up; several communicators, models and trainers live side by side. */
#ifndef GSEL_GSEL_H
#define GSEL_GSEL_H

#include <gsel/check.h>
#include <gsel/comm.h>
#include <gsel/config.h>
#include <gsel/error.h>
#include <gsel/log.h>
#include <gsel/mesh.h>
#include <gsel/model.h>
#include <gsel/pipeline.h>
#include <gsel/program.h>
#include <gsel/registry.h>
#include <gsel/reserve.h>
#include <gsel/schedule.h>
#include <gsel/select.h>
#include <gsel/timeline.h>
#include <gsel/train.h>
#include <gsel/types.h>

#endif
