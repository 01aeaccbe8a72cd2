/* gsel/comm.h: how ranks talk. A communicator joins `world_size` ranks, which are processes or threads of one
 * host, through memory that has no name in any file system.
 *
 *     gsel_comm *comm;
 *     if (gsel_comm_init(NULL, &comm, &err)) ...                  under `gsel run`, torchrun, mpirun or srun
 *     gsel_allreduce(comm, x, x, n, GSEL_F32, GSEL_SUM, &err);
 *     gsel_comm_free(comm);
 *
 * Promises
 *   Results  are bitwise equal on all ranks, from run to run, and for any message size, chunking, protocol, kind of
 *            buffer and instruction set: each element is folded by one rule, inputs in rank order (GSEL_ORDER_TREE: a
 *            fixed binary tree, so that powers of two agree with each other).
 *   Failures a dead, stopped, late or disagreeing rank is an error that names it; nothing hangs past the timeout. The
 *            death of a member is noticed whatever the others wait for. Where a process has more than one communicator
 *            the error ends with the name of the one it is about.
 *   Traces   nothing has a name in a file system, nothing is left behind, however a rank ends.
 * Threads: one call at a time per communicator; to start a request is a call, its running and the wait for it are not.
 * gsel_comm_abort and the queries may be called from any thread at any time. Nothing is kept per thread. Handles are of no use in a forked child: calls answer GSEL_ERR_FORKED there. */
#ifndef GSEL_COMM_H
#define GSEL_COMM_H

#include <gsel/config.h>
#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_comm gsel_comm;

/* Names one communicator to be. Made by one rank, carried to the others by the caller. Layout is frozen. */
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
 *                     where rank and size are read from there too; empty: not looked at
 *   order             GSEL_ORDER_RANKS (0) or GSEL_ORDER_TREE, the same on every rank
 *   flags             GSEL_COMM_NO_THREAD: the library starts no watching thread; a death is then noticed by waiting
 *                     ranks only, and requests are refused with GSEL_ERR_UNSUPPORTED
 *   name              shown in errors and recordings, at most 31 bytes of printable ASCII; rank 0's counts. Not given:
 *                     "world", and "world-2", ... for the next that the process of rank 0 founds. A communicator made
 *                     from another has a name made from its name, such as "world.split1:0" (of colour 0) or
 *                     "world.dup2" */
#define GSEL_ORDER_RANKS 0 /* (((x0 + x1) + x2) + x3) */
#define GSEL_ORDER_TREE 1  /* ((x0 + x1) + (x2 + x3)): pairs of neighbours, level by level; an odd one out goes up as
                            * it is. A rank that folds its own parts by gsel_reduce_local in this order first gets the
                            * same bits on 1, 2, 4 ... ranks, in f32, f64 and integers */
#define GSEL_COMM_NO_THREAD 1u
typedef struct gsel_comm_options {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t rank;
  int32_t world_size;
  const gsel_unique_id *id;
  double timeout_s;
  double join_timeout_s;
  const gsel_config *config;
  gsel_str device;
  int32_t order;
  uint32_t flags;
  gsel_str name;
} gsel_comm_options;

#define GSEL_COMM_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_comm_options)
GSEL_API void gsel_comm_options_init(gsel_comm_options *options, size_t struct_size);

/* Joins a communicator; returns once all ranks have joined.
 *   options NULL, or world_size 0: rank and size are read from the first complete set of
 *           RANK + WORLD_SIZE (gsel run, torchrun; needs MASTER_ADDR and MASTER_PORT unless WORLD_SIZE is 1),
 *           OMPI_COMM_WORLD_RANK + _SIZE, PMI_RANK + PMI_SIZE, SLURM_PROCID + SLURM_NTASKS;
 *           none of them: a world of one
 *   out     given to the caller, free with gsel_comm_free; NULL on error
 * Errors: GSEL_ERR_ARG, GSEL_ERR_CONFIG (environment incomplete or ranks on two hosts; the variable is named),
 * GSEL_ERR_TIMEOUT (the missing ranks are named), GSEL_ERR_MISMATCH (ranks disagree on the world),
 * GSEL_ERR_DUPLICATE (two ranks name one device; both are named), GSEL_ERR_PEER (a rank died while joining),
 * GSEL_ERR_UNSUPPORTED (more than 256 ranks), GSEL_ERR_VERSION (struct_size), those of gsel_config_load,
 * GSEL_ERR_NOMEM, GSEL_ERR_IO.
 * Threads: any; ranks that are threads of one process call it concurrently, each with its rank. Since 0.1. */
GSEL_API gsel_status gsel_comm_init(const gsel_comm_options *options, gsel_comm **out, gsel_error **err);

/* Rank of the caller and number of ranks; -1 for NULL. Any thread. Since 0.1. */
GSEL_API int32_t gsel_comm_rank(const gsel_comm *comm);
GSEL_API int32_t gsel_comm_world_size(const gsel_comm *comm);
/* Its name, see gsel_comm_options; the same on every rank. Borrowed until gsel_comm_free, NUL-terminated; empty for NULL. Any
 * thread. Since 0.1. */
GSEL_API gsel_str gsel_comm_name(const gsel_comm *comm);

/* ---- calls ------------------------------------------------------------------------------------------------
 *
 * Collectives. Every rank makes the same calls in the same order with the same operation, type, count, root.
 *   send, recv  host memory, borrowed for the call; may be the same pointer where "in place" is stated,
 *               otherwise must not overlap; may be NULL when the count is 0
 *   count       elements; 0 is allowed and still synchronises
 *   counts      [world_size] elements of each rank, the same on every rank
 *   offsets     [world_size] where a rank's part stands in the caller's buffer, elements; NULL: packed in rank order
 *   dtype, op   any; BAND, BOR and BXOR take integers. What each means: gsel/types.h
 * Memory of gsel_mem_alloc is read and written by the other ranks in place; other memory is copied on the way.
 * Errors, with the state of the communicator afterwards:
 *   GSEL_ERR_ARG       nothing happened; usable
 *   GSEL_ERR_MISMATCH  every rank gets it, both calls are quoted, no buffer written; usable (messages: see gsel_send)
 *   GSEL_ERR_TIMEOUT   the laggard is named; recv may be partly written; broken
 *   GSEL_ERR_PEER      the dead or departed rank is named; recv may be partly written; broken
 *   GSEL_ERR_ABORTED   some rank called gsel_comm_abort; broken
 *   GSEL_ERR_CALLBACK  a user operation failed on some rank, which is named; broken. In a small call each rank folds for
 *                      itself, so that where it failed on one rank only the others get this in their next call
 *   GSEL_ERR_FORKED    called in a child of the process that joined; nothing happened
 * A message and a collective that cannot both end, since one rank waits in the message for a peer that waits in the
 * collective for this rank, are GSEL_ERR_MISMATCH at once where neither rank has a request or group under way; broken.
 * What is broken is freed, shrunk to those who live (gsel_comm_shrink) or put in step again (gsel_comm_resync).
 * Threads: one call at a time per communicator. Since 0.1. */

/* recv[count] = op over ranks of send[count]. In place: send == recv. */
GSEL_API gsel_status gsel_allreduce(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                    gsel_op op, gsel_error **err);

/* recv[count] on root = op over ranks of send[count]; recv is ignored elsewhere. In place: send == recv. */
GSEL_API gsel_status gsel_reduce(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                 gsel_op op, int32_t root, gsel_error **err);

/* recv[count] = op over ranks of the rank's own part of send[world_size][count].
 * In place: recv == send + rank * count elements. */
GSEL_API gsel_status gsel_reduce_scatter(gsel_comm *comm, const void *send, void *recv, size_t count,
                                         gsel_dtype dtype, gsel_op op, gsel_error **err);
/* The same with parts of counts[rank] at offsets[rank] of send, the same on every rank. In place: recv is the rank's own
 * part, and no parts overlap. */
GSEL_API gsel_status gsel_reduce_scatterv(gsel_comm *comm, const void *send, void *recv, const uint64_t *counts,
                                          const uint64_t *offsets, gsel_dtype dtype, gsel_op op, gsel_error **err);

/* recv[world_size][count] = send[count] of each rank, in rank order.
 * In place: send == recv + rank * count elements. */
GSEL_API gsel_status gsel_allgather(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                    gsel_error **err);
/* The same with send[counts[rank]] of each rank at offsets[rank] of recv. In place: send is that place. */
GSEL_API gsel_status gsel_allgatherv(gsel_comm *comm, const void *send, void *recv, const uint64_t *counts,
                                     const uint64_t *offsets, gsel_dtype dtype, gsel_error **err);

/* recv[count] on every rank = send[count] of root. send is ignored elsewhere. In place: send == recv. */
GSEL_API gsel_status gsel_broadcast(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                    int32_t root, gsel_error **err);

/* recv[world_size][count] on root = send[count] of each rank; recv is ignored elsewhere.
 * In place on root: send == recv + root * count elements. */
GSEL_API gsel_status gsel_gather(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                 int32_t root, gsel_error **err);
/* The same with send[counts[rank]] of each rank at offsets[rank] of root's recv; offsets are root's. */
GSEL_API gsel_status gsel_gatherv(gsel_comm *comm, const void *send, void *recv, const uint64_t *counts,
                                  const uint64_t *offsets, gsel_dtype dtype, int32_t root, gsel_error **err);

/* recv[count] = the rank's own part of root's send[world_size][count]; send is ignored elsewhere.
 * In place on root: recv == send + root * count elements. */
GSEL_API gsel_status gsel_scatter(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                  int32_t root, gsel_error **err);
/* The same with recv[counts[rank]] from offsets[rank] of root's send; offsets are root's. */
GSEL_API gsel_status gsel_scatterv(gsel_comm *comm, const void *send, void *recv, const uint64_t *counts,
                                   const uint64_t *offsets, gsel_dtype dtype, int32_t root, gsel_error **err);

/* recv[q][count] = the part of this rank in send[world_size][count] of rank q. Not in place. */
GSEL_API gsel_status gsel_alltoall(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                   gsel_error **err);
/* The same with parts of any size: send_counts[q] here must equal recv_counts[this rank] on rank q (GSEL_ERR_MISMATCH
 * names the pair and breaks the communicator). */
GSEL_API gsel_status gsel_alltoallv(gsel_comm *comm, const void *send, const uint64_t *send_counts,
                                    const uint64_t *send_offsets, void *recv, const uint64_t *recv_counts,
                                    const uint64_t *recv_offsets, gsel_dtype dtype, gsel_error **err);

/* Returns after every rank has called it. */
GSEL_API gsel_status gsel_barrier(gsel_comm *comm, gsel_error **err);

/* Point to point. A receive takes the first message that is for it: sent by `peer` with the receive's tag, here 0.
 * Messages of one ordered pair and tag arrive in order; the type must agree, and the receive must be as long as the
 * message, or longer: what is behind the message stays as it is. A send may return before its receive is posted when
 * the message fits the library's buffer (four of a pair, of 4 KiB, at least); portable programs do not rely on it.
 * peer != rank.
 * GSEL_ERR_MISMATCH: another type, or a message longer than its receive; both calls are quoted on both sides, recv is
 * not written. Where the receiver was to read the sender's memory, as with most messages that do not fit the buffer,
 * the message is dropped and the communicator stays usable. Else the sender may have returned and learns of it in its
 * next call: the communicator is broken. */
GSEL_API gsel_status gsel_send(gsel_comm *comm, const void *send, size_t count, gsel_dtype dtype, int32_t peer,
                               gsel_error **err);
GSEL_API gsel_status gsel_recv(gsel_comm *comm, void *recv, size_t count, gsel_dtype dtype, int32_t peer,
                               gsel_error **err);
/* Both at once, so that a ring of them cannot wait for itself. to and from may be one rank. */
GSEL_API gsel_status gsel_sendrecv(gsel_comm *comm, const void *send, size_t send_count, int32_t to, void *recv,
                                   size_t recv_count, int32_t from, gsel_dtype dtype, gsel_error **err);

/* A message that a receive took or a probe found.
 *   source  the rank that sent it
 *   tag     that it was sent with
 *   count   elements of dtype that were sent */
typedef struct gsel_message {
  uint32_t struct_size;
  int32_t source;
  int32_t tag;
  gsel_dtype dtype;
  uint64_t count;
} gsel_message;
#define GSEL_MESSAGE_INIT GSEL_STRUCT_INIT(gsel_message)
GSEL_API void gsel_message_init(gsel_message *message, size_t struct_size);

/* Messages with a tag of the caller's, 0 to INT32_MAX. A receive names the sender's rank and tag, or takes any:
 * GSEL_ANY_RANK, GSEL_ANY_TAG. Receives that one message would suit take it in the order they were posted. A message that
 * no receive asks for waits, and those behind it pass: long messages wait with their senders, others in the receiver's
 * memory. A rank keeps 64 MiB of them; past that messages wait with their senders, and those behind them too.
 *   received  may be NULL; filled where the call returns GSEL_OK
 * Since 0.1. */
#define GSEL_ANY_RANK (-2)
#define GSEL_ANY_TAG (-1)
GSEL_API gsel_status gsel_send_tag(gsel_comm *comm, const void *send, size_t count, gsel_dtype dtype, int32_t peer,
                                   int32_t tag, gsel_error **err);
GSEL_API gsel_status gsel_recv_tag(gsel_comm *comm, void *recv, size_t count, gsel_dtype dtype, int32_t source,
                                   int32_t tag, gsel_message *received, gsel_error **err);
/* Waits until there is a message that gsel_recv_tag with this source and tag would take, and tells of it; the message
 * stays. gsel_iprobe looks and does not wait: *found is 1 or 0, and only for 1 is *message written. Messages that a
 * posted receive is for are not told of. Errors as a receive's. Since 0.1. */
GSEL_API gsel_status gsel_probe(gsel_comm *comm, int32_t source, int32_t tag, gsel_message *message, gsel_error **err);
GSEL_API gsel_status gsel_iprobe(gsel_comm *comm, int32_t source, int32_t tag, int32_t *found, gsel_message *message,
                                 gsel_error **err);

typedef int32_t gsel_collective_kind;
#define GSEL_COLLECTIVE_BARRIER 0
#define GSEL_COLLECTIVE_ALLREDUCE 1
#define GSEL_COLLECTIVE_REDUCE_SCATTER 2
#define GSEL_COLLECTIVE_ALLGATHER 3
#define GSEL_COLLECTIVE_BROADCAST 4
#define GSEL_COLLECTIVE_SEND 5
#define GSEL_COLLECTIVE_RECV 6
#define GSEL_COLLECTIVE_REDUCE 7
#define GSEL_COLLECTIVE_GATHER 8
#define GSEL_COLLECTIVE_SCATTER 9
#define GSEL_COLLECTIVE_ALLTOALL 10
#define GSEL_COLLECTIVE_REDUCE_SCATTERV 11
#define GSEL_COLLECTIVE_ALLGATHERV 12
#define GSEL_COLLECTIVE_GATHERV 13
#define GSEL_COLLECTIVE_SCATTERV 14
#define GSEL_COLLECTIVE_ALLTOALLV 15
#define GSEL_COLLECTIVE_SENDRECV 16
#define GSEL_COLLECTIVE_PROBE 17
#define GSEL_COLLECTIVE_IPROBE 18
#define GSEL_COLLECTIVE_KINDS 19

/* A call as data: what the functions above take, by the same names. Fields a kind does not name are ignored.
 *   root         of rooted kinds; the peer of send, recv and probes; the rank a sendrecv sends to
 *   source       the rank a sendrecv receives from
 *   count        elements; of sendrecv those sent
 *   recv_count   of sendrecv: elements received
 *   send_counts, send_offsets    of scatterv and alltoallv; of reduce_scatterv the offsets
 *   recv_counts, recv_offsets    of allgatherv, gatherv, alltoallv; of reduce_scatterv the counts
 *   factor       of GSEL_SCALED_SUM: this rank's, not 0; gsel_op_create_scaled_sum takes any
 *   timeout_s    bound on this call, seconds; 0: the communicator's
 *   label        shown in errors and recordings, cut to 15 bytes
 *   tag          of messages; of a sendrecv that of what is sent
 *   recv_tag     of a sendrecv: that of what is received
 *   received     of recv, sendrecv and probes: filled once the call has ended with GSEL_OK, borrowed until then; may be
 *                NULL but for probes. An iprobe that finds nothing sets its source to GSEL_ANY_RANK */
typedef struct gsel_collective {
  uint32_t struct_size;
  gsel_collective_kind kind;
  gsel_dtype dtype;
  gsel_op op;
  int32_t root;
  int32_t source;
  const void *send;
  void *recv;
  uint64_t count;
  uint64_t recv_count;
  const uint64_t *send_counts;
  const uint64_t *send_offsets;
  const uint64_t *recv_counts;
  const uint64_t *recv_offsets;
  double factor;
  double timeout_s;
  gsel_str label;
  int32_t tag;
  int32_t recv_tag;
  gsel_message *received;
} gsel_collective;
#define GSEL_COLLECTIVE_INIT GSEL_STRUCT_INIT(gsel_collective)
GSEL_API void gsel_collective_init(gsel_collective *call, size_t struct_size);

/* Makes the call; errors as above. Since 0.1. */
GSEL_API gsel_status gsel_comm_run(gsel_comm *comm, const gsel_collective *call, gsel_error **err);

/* Makes several calls together and returns when all have ended: the messages of one communicator in any order of arrival,
 * its collectives in the order given, several communicators at the same time, so that one thread can hold several ranks.
 *   comms  [n] the communicator of each call; one may stand there any number of times
 *   calls  [n] borrowed for the call
 *   n      0 is allowed and does nothing
 * Errors: GSEL_ERR_ARG, which tells the place of the call: nothing happened; else the first error, as above.
 * Threads: as any call, for each of comms. Since 0.1. */
GSEL_API gsel_status gsel_group_run(gsel_comm *const *comms, const gsel_collective *const *calls, size_t n,
                                    gsel_error **err);

/* ---- requests ----------------------------------------------------------------------------------------------
 *
 * A call under way while the caller computes, on a thread of the library, one per communicator, which starts with the
 * first request. Collectives of a communicator run in the order started; messages run beside them and each other.
 * A blocking call on the same communicator waits for the collectives started before it.
 * Buffers, counts and offsets stay borrowed until the request is done, those of a persistent request until it is freed
 * and with the same counts and offsets in them; the struct and its label are copied. Calls on one request must not
 * overlap; it may be waited for on another thread than the one that started it. */
typedef struct gsel_request gsel_request;

/* Starts a call. *out is given to the caller, free with gsel_request_free; NULL on error.
 * Errors: GSEL_ERR_ARG; all others come with the wait. Since 0.1. */
GSEL_API gsel_status gsel_comm_start(gsel_comm *comm, const gsel_collective *call, gsel_request **out, gsel_error **err);
/* Makes a persistent request: a call that is then started any number of times. Its arguments are checked here, once.
 * Since 0.1. */
GSEL_API gsel_status gsel_request_create(gsel_comm *comm, const gsel_collective *call, gsel_request **out,
                                         gsel_error **err);
/* Starts a persistent request that is not under way (GSEL_ERR_STATE). Since 0.1. */
GSEL_API gsel_status gsel_request_start(gsel_request *request, gsel_error **err);
/* Runs a persistent request on the calling thread: start and wait without a second thread. Since 0.1. */
GSEL_API gsel_status gsel_request_run(gsel_request *request, gsel_error **err);
/* *done = 1 once the call has ended, else 0. The result is that of the call when done, else GSEL_OK. Never blocks.
 * A request never started is done. Since 0.1. */
GSEL_API gsel_status gsel_request_test(gsel_request *request, int32_t *done, gsel_error **err);
/* Waits for the end; the result is that of the call. Bounded by the call's own timeout, which for a message counts from
 * the first test or wait: a receive may be posted long before its send. Since 0.1. */
GSEL_API gsel_status gsel_request_wait(gsel_request *request, gsel_error **err);
/* Waits until one of requests[n] has ended and writes its place to *index; the result is that of its call. Requests
 * that are NULL or already reported by a test or wait are passed over; none left: GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_request_wait_any(gsel_request *const *requests, size_t n, size_t *index, gsel_error **err);
/* Waits for the end if under way, and releases; NULL is fine. Before the communicator is freed. Since 0.1. */
GSEL_API void gsel_request_free(gsel_request *request);

/* ---- memory ------------------------------------------------------------------------------------------------ */

/* Memory that all ranks reach: calls on it copy nothing on the way. Pages stand near this rank; at least 64-byte
 * aligned; contents zero. Good for this communicator and for those split, duplicated or shrunk from it; lives until
 * freed or the last of these is freed here. Memory that is not there is an error now, never a signal later.
 * Errors: GSEL_ERR_ARG, GSEL_ERR_NOMEM. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_mem_alloc(gsel_comm *comm, size_t bytes, void **out, gsel_error **err);
/* No call on it under way on any rank. NULL is fine; other pointers than alloc's: GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_mem_free(gsel_comm *comm, void *memory, gsel_error **err);

/* Makes memory that the caller has already such memory, in place and with its contents: private anonymous pages, as
 * mmap or a large malloc give. Both ends at page boundaries. Nobody may touch it during the call; a child forked later
 * shares it. Errors: GSEL_ERR_ARG (not whole pages, or other memory: what was found is said), GSEL_ERR_NOMEM.
 * gsel_mem_unregister makes it private again, contents kept. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_mem_register(gsel_comm *comm, void *memory, size_t bytes, gsel_error **err);
GSEL_API gsel_status gsel_mem_unregister(gsel_comm *comm, void *memory, gsel_error **err);

/* ---- operations -------------------------------------------------------------------------------------------- */

/* accumulated[count] = accumulated op next[count], elements of dtype. Called once per rank and piece, in the
 * communicator's order, from the thread that makes the call or the library's; several threads at once. count is a
 * multiple of the operation's record_elems, and a piece begins with a record. Must be pure: the same bits for the same
 * bits. Returns 0, or anything else to fail the call with GSEL_ERR_CALLBACK. */
typedef int32_t (*gsel_op_fn)(void *accumulated, const void *next, size_t count, gsel_dtype dtype, void *user_data);

/* An operation of the caller's. `name` (at most 31 bytes) is what ranks compare: every rank creates its own under the
 * same name. user_data is kept until gsel_op_free.
 *   record_elems  elements that belong together, such as 2 for a value and its index; 1: each stands alone. Counts are
 *                 multiples of it (GSEL_ERR_ARG), and no record is cut. At most 4,096 bytes; on more than 64 ranks a
 *                 record that is larger than a rank's part of the staging memory is GSEL_ERR_UNSUPPORTED
 * GSEL_ERR_ARG; GSEL_ERR_NOMEM when 4,096 are alive. Since 0.1. */
GSEL_API gsel_status gsel_op_create(gsel_str name, size_t record_elems, gsel_op_fn function, void *user_data,
                                    gsel_free_fn free_user_data, gsel_op *out, gsel_error **err);
/* GSEL_SCALED_SUM with this rank's factor, for the functions that take no call as data. Since 0.1. */
GSEL_API gsel_status gsel_op_create_scaled_sum(double factor, gsel_op *out, gsel_error **err);
/* No call with it under way. Unknown numbers are ignored. Any thread. Since 0.1. */
GSEL_API void gsel_op_free(gsel_op op);

/* out[count] = op over inputs[n][count] of this process, in `order` (GSEL_ORDER_*): the fold of the collectives without
 * ranks. out may be one of the inputs. GSEL_SCALED_SUM is refused. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_reduce_local(const void *const *inputs, size_t n, void *out, size_t count, gsel_dtype dtype,
                                       gsel_op op, int32_t order, gsel_error **err);

/* ---- more communicators ------------------------------------------------------------------------------------ */

/* A communicator for each colour, of the ranks that gave it, ordered by (key, rank). Collective; needs no sockets and
 * shares the memory of its origin. colour < 0: *out is NULL. Errors as a collective's. Since 0.1. */
GSEL_API gsel_status gsel_comm_split(gsel_comm *comm, int32_t colour, int32_t key, gsel_comm **out, gsel_error **err);
/* A communicator of ranks[n] of comm, in that order. Only these call it, each with the same list; the others need not
 * know. Errors as a message's; GSEL_ERR_ARG also for a list that names a rank twice or not the caller;
 * GSEL_ERR_MISMATCH where two of them give other lists (usable). Since 0.1. */
GSEL_API gsel_status gsel_comm_create_group(gsel_comm *comm, const int32_t *ranks, size_t n, gsel_comm **out,
                                            gsel_error **err);
/* One more with the same ranks. Since 0.1. */
GSEL_API gsel_status gsel_comm_dup(gsel_comm *comm, gsel_comm **out, gsel_error **err);

/* After a failure: a communicator of the ranks that still answer, in their old order. Every survivor calls it, once per
 * communicator; it breaks comm where it is not broken yet. Ranks that are dead, have left or do not call within the
 * timeout are out, and are told so (GSEL_ERR_PEER) should they call late. Since 0.1. */
GSEL_API gsel_status gsel_comm_shrink(gsel_comm *comm, gsel_comm **out, gsel_error **err);
/* Puts all ranks in step again after a mismatch, timeout or abort: pulls every rank out of the call it is in (they get
 * GSEL_ERR_STATE, saying who asked), waits until all have called it, and leaves comm as new. A rank that is dead or
 * does not come in time is GSEL_ERR_PEER or GSEL_ERR_TIMEOUT. Since 0.1. */
GSEL_API gsel_status gsel_comm_resync(gsel_comm *comm, gsel_error **err);
/* A larger communicator: ranks of comm keep their numbers, newcomers join as ranks world_size(comm) to
 * options->world_size - 1 by gsel_comm_init with the same id. options->rank is ignored here; memory of comm is not
 * reachable in the new one. Errors as gsel_comm_init. Since 0.1. */
GSEL_API gsel_status gsel_comm_grow(gsel_comm *comm, const gsel_comm_options *options, gsel_comm **out, gsel_error **err);

/* Bound on each later call, seconds, > 0. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_comm_set_timeout(gsel_comm *comm, double timeout_s, gsel_error **err);

/* ---- what happens ------------------------------------------------------------------------------------------ */

/* How a call would run.
 *   protocol      "alone", "line", "slots", "staged", "direct" or "single copy"; static
 *   reason        why that one, such as "send is not memory of gsel_mem_alloc"; static
 *   chunk_bytes   what is worked on at a time; 0: the whole
 *   seconds       predicted from the tuning file; 0: not known
 *   sent_bytes    what gsel_comm_counts will add */
typedef struct gsel_comm_explanation {
  uint32_t struct_size;
  uint32_t reserved;
  const char *protocol;
  const char *reason;
  uint64_t chunk_bytes;
  double seconds;
  uint64_t sent_bytes;
} gsel_comm_explanation;
#define GSEL_COMM_EXPLANATION_INIT GSEL_STRUCT_INIT(gsel_comm_explanation)
GSEL_API void gsel_comm_explanation_init(gsel_comm_explanation *explanation, size_t struct_size);
/* Local: what this rank knows of its own buffers, taken to hold for all ranks. Errors: GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_comm_explain(gsel_comm *comm, const gsel_collective *call, gsel_comm_explanation *out,
                                       gsel_error **err);

/* The flight recorder: the last 256 calls of every rank, with times, as JSON (docs/trace.md). Always on; reading it
 * stops nobody. gsel_comm_trace reads this communicator, broken or not; gsel_trace_process the communicators of another
 * process of this user, `gsel trace PID` shows them; GSEL_ERR_NOT_FOUND: it has none. With [comm] trace = "folder" or
 * GSEL_TRACE=folder every rank that meets an error writes the file folder/gsel-PID-RANK.json by itself.
 *   out  given to the caller, free with gsel_trace_free. Any thread. Since 0.1. */
typedef struct gsel_trace gsel_trace;
GSEL_API gsel_status gsel_comm_trace(const gsel_comm *comm, gsel_trace **out, gsel_error **err);
GSEL_API gsel_status gsel_trace_process(int32_t pid, gsel_trace **out, gsel_error **err);
GSEL_API gsel_str gsel_trace_json(const gsel_trace *trace);
GSEL_API void gsel_trace_free(gsel_trace *trace);

/* What this rank has sent: calls of one kind, and payload bytes that they made available to other ranks.
 * allreduce of S bytes over n ranks counts S + (n-2) * (own slice) bytes, which is 2(n-1)/n * S when n divides it;
 * reduce the S minus its own slice, and the slice once more where another rank is root; other kinds what each other
 * rank reads of send, whatever the protocol.
 *   out  zeros for an unknown kind
 * GSEL_ERR_ARG. Any thread, beside other calls. Since 0.1. */
GSEL_API gsel_status gsel_comm_counts(const gsel_comm *comm, gsel_collective_kind kind, gsel_comm_count *out,
                                      gsel_error **err);

/* Breaks the communicator on every rank: calls under way and later ones return GSEL_ERR_ABORTED with `reason`
 * (cut to 150 bytes; may be "not given"). Does not block. Any thread, any time before gsel_comm_free. Since 0.1. */
GSEL_API void gsel_comm_abort(gsel_comm *comm, gsel_str reason);

/* Leaves and releases; NULL is fine. Waits for no other rank: ranks that still wait for this one get GSEL_ERR_PEER.
 * Memory of gsel_mem_alloc goes back to the system with the last rank that leaves; unmapping it takes the kernel some
 * milliseconds per 100 MiB, and so does making registered memory private again.
 * One thread, no call under way. In a forked child it releases the child's memory only. Since 0.1. */
GSEL_API void gsel_comm_free(gsel_comm *comm);

GSEL_EXTERN_C_END

#endif
