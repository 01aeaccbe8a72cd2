/* gsel/gsel.h: all of gsel, read as a manual.
 *
 * gsel selects accelerators, connects ranks and trains models in parallel, for programs that are not written in
 * Python. These headers call such a program the embedder. The smallest useful one: every rank adds its number to a sum.
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
 * Each subject has its own header:
 *   gsel/types.h     status, text, element types, tensors       gsel/error.h     errors that the caller owns
 *   gsel/select.h    gsel_resolve: which devices, and why       gsel/reserve.h   gsel_reserve: and locks them
 *   gsel/comm.h      gsel_comm_init, gsel_allreduce, ...        gsel/config.h    gsel.toml
 *   gsel/model.h     a model described once                     gsel/check.h     whether its callbacks obey the rules
 *   gsel/train.h     gsel_trainer_step, or pull                 gsel/program.h   what a strategy compiles the model to
 *   gsel/pipeline.h  pipeline stages without a trainer          gsel/schedule.h  the orders in which stages can run
 *   gsel/mesh.h      the coordinates of ranks on the axes       gsel/timeline.h  steps and recordings as a picture
 *   gsel/registry.h  which plugins were found                   gsel/log.h       where log lines go
 *   gsel/plan.h      which strategy, how fast, does it fit  gsel/dlpack.h    tensors of other libraries
 *   gsel/checkpoint.h  training that goes on later          gsel/weights.h   parameters of other programs, and for them
 *   gsel/state.h       what a trainer holds, by name
 *   gsel/plugin.h, gsel/device.h, gsel/transport.h   for authors of plugins; not included here
 *
 * Rules that hold everywhere:
 *   - 0 is success; a failed call returns its error itself, see gsel/error.h. Nothing is thrown or kept per thread, and
 *     nothing is printed except as gsel/log.h describes.
 *   - The library frees what it allocates: each handle has a _free function, which accepts NULL.
 *   - Structs state their size and grow at the end; initialise them with GSEL_*_INIT or gsel_*_init.
 *   - There is no global state to set up; a program can have several communicators, models and trainers. */
#ifndef GSEL_GSEL_H
#define GSEL_GSEL_H

#include <gsel/check.h>
#include <gsel/checkpoint.h>
#include <gsel/comm.h>
#include <gsel/config.h>
#include <gsel/dlpack.h>
#include <gsel/error.h>
#include <gsel/log.h>
#include <gsel/mesh.h>
#include <gsel/model.h>
#include <gsel/pipeline.h>
#include <gsel/plan.h>
#include <gsel/program.h>
#include <gsel/registry.h>
#include <gsel/reserve.h>
#include <gsel/schedule.h>
#include <gsel/select.h>
#include <gsel/state.h>
#include <gsel/timeline.h>
#include <gsel/train.h>
#include <gsel/types.h>
#include <gsel/weights.h>

#endif
