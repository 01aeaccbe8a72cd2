/* gsel/comm.h: how ranks talk. A communicator joins `world_size` ranks, which are processes or threads of one
 * host, through memory that has no name in any file system.
 *
 *     gsel_comm *comm;
 *     if (gsel_comm_init(NULL, &comm, &err)) ...                  under `gsel run`, torchrun, mpirun or srun
 *     gsel_allreduce(comm, x, x, n, GSEL_F32, GSEL_SUM, &err);
 *     gsel_comm_destroy(comm);
 *
 * Promises: results are bitwise equal on all ranks and from run to run (each element is reduced by one rank,
 * inputs in rank order); a dead, late or disagreeing rank is an error that names it; nothing hangs past the
 * communicator's timeout.
 * Threads: one call at a time per communicator; gsel_comm_abort and the queries may be called from any thread at
 * any time. Handles are of no use in a forked child: calls answer GSEL_ERR_FORKED there. */
#ifndef GSEL_COMM_H
#define GSEL_COMM_H

#include <gsel/config.h>
#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_comm gsel_comm;

/* Names one communicator to be. Made by one rank, carried to the others by the caller. */
typedef struct gsel_unique_id {
  uint8_t bytes[128];
} gsel_unique_id;

/* Fills *out with a fresh random id. GSEL_ERR_IO when the system has no randomness. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_unique_id_create(gsel_unique_id *out, gsel_error **err);

/* How to join. Zero fields take defaults.
 *   rank, world_size  0 <= rank < world_size; world_size 0: both from the environment
 *   id                borrowed; NULL: from the environment
 *   timeout_s         bound on each later call, seconds; 0 means that of config
 *   join_timeout_s    bound on joining, seconds; 0 means 60
 *   config            borrowed for the call: its [comm] timeout_s is taken where timeout_s is 0 here; NULL: that of
 *                     the file which GSEL_CONFIG names in the environment, as `gsel run --config` sets it, if any
 *   device            borrowed for the call: identity of the device this rank computes on, such as the uuid of its
 *                     selection, at most 95 bytes. Two ranks that name the same device are refused before any of them
 *                     has a communicator. Not given: GSEL_DEVICE of the environment, which `gsel run --devices` sets,
 *                     where rank and size are read from there too; empty: not looked at */
typedef struct gsel_comm_config {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t rank;
  int32_t world_size;
  const gsel_unique_id *id;
  double timeout_s;
  double join_timeout_s;
  const gsel_config *config;
  gsel_str device;
} gsel_comm_config;

#define GSEL_COMM_CONFIG_INIT GSEL_STRUCT_INIT(gsel_comm_config)
GSEL_API void gsel_comm_config_init(gsel_comm_config *config, size_t struct_size);

/* Joins a communicator; returns once all ranks have joined.
 *   config  NULL, or world_size 0: rank and size are read from the first complete set of
 *           RANK + WORLD_SIZE (gsel run, torchrun; needs MASTER_ADDR and MASTER_PORT unless WORLD_SIZE is 1),
 *           OMPI_COMM_WORLD_RANK + _SIZE, PMI_RANK + PMI_SIZE, SLURM_PROCID + SLURM_NTASKS;
 *           none of them: a world of one
 *   out     given to the caller, free with gsel_comm_destroy; NULL on error
 * Errors: GSEL_ERR_ARG, GSEL_ERR_CONFIG (environment incomplete or ranks on two hosts; the variable is named),
 * GSEL_ERR_TIMEOUT (the missing ranks are named), GSEL_ERR_MISMATCH (ranks disagree on the world),
 * GSEL_ERR_DUPLICATE (two ranks name one device; both are named), GSEL_ERR_PEER (a rank died while joining),
 * GSEL_ERR_UNSUPPORTED (more than 256 ranks), GSEL_ERR_VERSION (struct_size), those of gsel_config_load,
 * GSEL_ERR_NOMEM, GSEL_ERR_IO.
 * Threads: any; ranks that are threads of one process call it concurrently, each with its rank. Since 0.1. */
GSEL_API gsel_status gsel_comm_init(const gsel_comm_config *config, gsel_comm **out, gsel_error **err);

/* Rank of the caller and number of ranks; -1 for NULL. Any thread. Since 0.1. */
GSEL_API int32_t gsel_comm_rank(const gsel_comm *comm);
GSEL_API int32_t gsel_comm_world_size(const gsel_comm *comm);

/* Collectives. Every rank makes the same calls in the same order with the same operation, type, count, root.
 *   send, recv  host memory, borrowed for the call; may be the same pointer where "in place" is stated,
 *               otherwise must not overlap; may be NULL when the count is 0
 *   count       elements; 0 is allowed and still synchronises
 *   dtype, op   any; BAND, BOR and BXOR take integers. What each means: gsel/types.h
 * Errors, with the state of the communicator afterwards:
 *   GSEL_ERR_ARG       nothing happened; usable
 *   GSEL_ERR_MISMATCH  every rank gets it, both calls are quoted, no buffer written; usable (send/recv: broken)
 *   GSEL_ERR_TIMEOUT   the laggard is named; recv may be partly written; broken, destroy it
 *   GSEL_ERR_PEER      the dead or departed rank is named; recv may be partly written; broken
 *   GSEL_ERR_ABORTED   some rank called gsel_comm_abort; broken
 *   GSEL_ERR_FORKED    called in a child of the process that joined; nothing happened
 * Threads: one call at a time per communicator. Since 0.1. */

/* recv[count] = op over ranks of send[count]. In place: send == recv. */
GSEL_API gsel_status gsel_allreduce(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                    gsel_op op, gsel_error **err);

/* recv[count] = op over ranks of the rank's own part of send[world_size][count].
 * In place: recv == send + rank * count elements. */
GSEL_API gsel_status gsel_reduce_scatter(gsel_comm *comm, const void *send, void *recv, size_t count,
                                         gsel_dtype dtype, gsel_op op, gsel_error **err);

/* recv[world_size][count] = send[count] of each rank, in rank order.
 * In place: send == recv + rank * count elements. */
GSEL_API gsel_status gsel_allgather(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                    gsel_error **err);

/* recv[count] on every rank = send[count] of root. send is ignored elsewhere. In place: send == recv. */
GSEL_API gsel_status gsel_broadcast(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                    int32_t root, gsel_error **err);

/* Returns after every rank has called it. */
GSEL_API gsel_status gsel_barrier(gsel_comm *comm, gsel_error **err);

/* Point to point: messages of one ordered pair arrive in order; type and count must agree. A send may return
 * before its receive is posted when the message fits the library's buffer (at least 8 KiB); portable programs do
 * not rely on it. peer != rank. */
GSEL_API gsel_status gsel_send(gsel_comm *comm, const void *send, size_t count, gsel_dtype dtype, int32_t peer,
                               gsel_error **err);
GSEL_API gsel_status gsel_recv(gsel_comm *comm, void *recv, size_t count, gsel_dtype dtype, int32_t peer,
                               gsel_error **err);

/* What this rank has sent: calls made and payload bytes made available to other ranks, per kind of call.
 * allreduce of S bytes over n ranks counts S + (n-2) * (own slice) bytes, which is 2(n-1)/n * S when n divides it. */
typedef int32_t gsel_collective_kind;
#define GSEL_COLLECTIVE_BARRIER 0
#define GSEL_COLLECTIVE_ALLREDUCE 1
#define GSEL_COLLECTIVE_REDUCE_SCATTER 2
#define GSEL_COLLECTIVE_ALLGATHER 3
#define GSEL_COLLECTIVE_BROADCAST 4
#define GSEL_COLLECTIVE_SEND 5
#define GSEL_COLLECTIVE_RECV 6
#define GSEL_COLLECTIVE_KINDS 7
typedef struct gsel_comm_count {
  uint64_t calls;
  uint64_t bytes_sent;
} gsel_comm_count;
/* Counts of one kind; zeros for an unknown kind. Any thread. Since 0.1. */
GSEL_API gsel_comm_count gsel_comm_counts(const gsel_comm *comm, gsel_collective_kind kind);

/* Breaks the communicator on every rank: calls under way and later ones return GSEL_ERR_ABORTED with `reason`
 * (cut to 150 bytes; may be "not given"). Does not block. Any thread, any time before destroy. Since 0.1. */
GSEL_API void gsel_comm_abort(gsel_comm *comm, gsel_str reason);

/* Leaves and releases; NULL is fine. Never blocks: ranks that still wait for this one get GSEL_ERR_PEER.
 * One thread, no call under way. In a forked child it releases the child's memory only. Since 0.1. */
GSEL_API void gsel_comm_destroy(gsel_comm *comm);

GSEL_EXTERN_C_END

#endif
