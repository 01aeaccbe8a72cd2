/* gsel/comm.h: communication between ranks. A communicator joins `world_size` ranks, which are processes or threads.
 * Ranks of one host use shared memory, which has no name in any file system; ranks of several hosts use a network, see
 * `rendezvous` below. With an accelerator, the communicator works on that device's memory, see the section "devices".
 *
 *     gsel_comm *comm;
 *     if (gsel_comm_init(NULL, &comm, &err)) ...                  under `gsel run`, torchrun, mpirun or srun
 *     gsel_allreduce(comm, x, x, n, GSEL_F32, GSEL_SUM, &err);
 *     gsel_comm_free(comm);
 *
 * Promises
 *   Results    are bitwise equal on all ranks, from run to run, and for any message size, chunking, protocol, kind of
 *              buffer and instruction set. Each element is reduced by one rule, inputs in rank order; with
 *              GSEL_ORDER_TREE, by a fixed binary tree.
 *   Failures   A dead, stopped, late or disagreeing rank is an error that names the rank; nothing hangs past the
 *              timeout. The death of a member is noticed whatever the other ranks wait for. If a process has more than
 *              one communicator, the error ends with the name of the one that failed.
 *   Ranks      Errors name ranks by their number in the communicator that was called, in the text and in
 *              gsel_error_rank. If a rank has another number in the communicator that gsel_comm_init made, the text has
 *              both: "rank 1 (rank 3 of world)". The late rank is the one at the end of the chain of waits, through all
 *              communicators of the processes in the chain. If it is not a member of the communicator that was called,
 *              the text names it ("rank 3 of world"), and gsel_error_rank is the member that waits for it. Errors of
 *              communicators that a trainer makes internally use the ranks of the communicator given to the trainer.
 *   Clean end  Nothing has a name in a file system, so nothing is left behind, however a rank ends. The one exception
 *              is the file of a "file://" rendezvous, which exists from rank 0's start until all ranks have joined: if
 *              rank 0 is killed in this time, the file stays until the next rank 0 removes it.
 * Threads: one call at a time per communicator, unless it has GSEL_COMM_THREAD_MULTIPLE; the order of collectives that
 * two threads make at the same time is undefined. Creating or starting a request counts as a call. Running, testing,
 * waiting for or cancelling a request does not: other threads may do so during a call, each with its own requests.
 * gsel_comm_abort and the queries may be called from any thread at any time. Nothing is kept per thread. Handles cannot
 * be used in a forked child: calls return GSEL_ERR_FORKED there. */
#ifndef GSEL_COMM_H
#define GSEL_COMM_H

#include <gsel/config.h>
#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_comm gsel_comm;

/* Identifies a communicator that is to be made, as ncclUniqueId does. One rank creates it; the caller passes it to the
 * other ranks. Layout is frozen. */
typedef struct gsel_unique_id {
  uint8_t bytes[128];
} gsel_unique_id;

/* Fills *out with a fresh random id. GSEL_ERR_IO when the system has no randomness. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_unique_id_create(gsel_unique_id *out, gsel_error **err);

/* Like gsel_unique_id_create, with the addresses of this process in the id, as ncclGetUniqueId does: the ranks may be on
 * several hosts, and meet by the id alone, at a port of this process, if gsel_comm_options.rendezvous is not given. This
 * process listens from now on, until it has joined as rank 0 with the id, which only it can, or until it ends; a child that
 * it forks does not listen. The id is of one communicator and is secret: whoever knows it may join. GSEL_INTERFACE selects
 * the network interface. GSEL_ERR_IO: no port is free. GSEL_ERR_CONFIG: there is no such interface. Any thread.
 * Since 0.1. */
GSEL_API gsel_status gsel_unique_id_listen(gsel_unique_id *out, gsel_error **err);

/* How to join. Zero fields take defaults.
 *   rank, world_size  0 <= rank < world_size; world_size 0: both from the environment
 *   id                borrowed; NULL: from the environment
 *   timeout_s         bound on each later call, seconds; 0 means that of config
 *   join_timeout_s    bound on joining, seconds; 0 means 60. Whichever rank's time ends first, every rank that has
 *                     joined gets the names of the missing ranks; for this purpose the other ranks wait one second
 *                     longer for rank 0
 *   config            borrowed for the call: its [comm] timeout_s is used if timeout_s is 0 here; NULL: the file that
 *                     GSEL_CONFIG names in the environment, as `gsel run --config` sets it, if any
 *   device            borrowed for the call: identity of the device that this rank computes on, such as the uuid of its
 *                     selection, at most 95 bytes. Two ranks of one host that name the same device are refused before any
 *                     rank has a communicator. Not given: the environment variable GSEL_DEVICE, which `gsel run --devices` sets,
 *                     if rank and size are also read from the environment; empty: not checked
 *   order             order of reductions: GSEL_ORDER_RANKS (0) or GSEL_ORDER_TREE, the same on every rank
 *   flags             GSEL_COMM_NO_THREAD: the library starts no thread; then only waiting ranks notice a death, and
 *                     requests are refused with GSEL_ERR_UNSUPPORTED. So is joining with ranks on several hosts.
 *                     GSEL_COMM_BITWISE: results must be the same bits in every run; a transport that does not promise
 *                     this is refused with GSEL_ERR_UNSUPPORTED.
 *                     GSEL_COMM_NOT_THROUGH_HOST: memory of an accelerator never goes through host memory; if there is
 *                     no other way, joining or the call is GSEL_ERR_UNSUPPORTED. These two flags apply to all ranks if
 *                     any rank sets them.
 *                     GSEL_COMM_THREAD_MULTIPLE: several threads of this rank make calls at the same time, as with
 *                     MPI_THREAD_MULTIPLE: a waiting receive delays no other thread. Each call takes a lock. With an
 *                     accelerator GSEL_ERR_UNSUPPORTED
 *   name              shown in errors and recordings, at most 31 bytes of printable ASCII; rank 0's name is used. Not
 *                     given: "world" for the first communicator that the process of rank 0 makes in this way, then
 *                     "world-2", ... A communicator made from another gets a name derived from that one's, such as
 *                     "world.split1:0" (colour 0) or "world.dup2"
 *   accelerator       borrowed for the call: the device whose memory the calls use, in PyTorch's notation: "cuda:1",
 *                     the index among those that this process sees, or "cuda", this rank's own device: the one that
 *                     `device` or GSEL_DEVICE names; else the one with the number that the launcher gave the rank on
 *                     this host (LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, SLURM_LOCALID), or the only
 *                     one that the process sees; else the first. Empty or "cpu": host memory. "cuda | cpu": host memory
 *                     where no rank has its device and all ranks allow it, which the log and gsel_comm_explain tell; a
 *                     program asks gsel_comm_set_stream with NULL, which is GSEL_ERR_ARG then. If
 *                     `device` is given with an index, it must be the uuid of that device
 *   transport         borrowed for the call. For an accelerator, how its memory is transferred: the name of a transport
 *                     plugin such as "nccl"; "host": through host memory; "auto": the first of these that all ranks can
 *                     use. Between hosts, how host memory is transferred: a plugin such as "gloo"; "mpi": that of the
 *                     MPI whose launcher has started the ranks; "auto": that one if there is one, else the first
 *                     available plugin (docs/devices.md). Empty: [comm] transport of config, which is "auto" by default
 *   rendezvous        borrowed for the call: where ranks on several hosts, or in several containers or network
 *                     namespaces, meet; the same on every rank. "tcp://HOST:PORT": an address of rank 0's host and an
 *                     unused port, on which rank 0 listens until all ranks have joined. "file://PATH", absolute, in a
 *                     folder that all hosts share: rank 0 writes its address to this file, and removes it. "env://":
 *                     from the launcher (docs/communicator.md), or nothing if the launcher says that all ranks are on
 *                     this host. Connections must prove that they know the job's token: `id` if it is given, else the
 *                     content of the file that GSEL_TOKEN_FILE names, which only its user may read, else a token that
 *                     rank 0 publishes in the rendezvous file or through the launcher. The proof is required once per
 *                     connection; later calls are neither signed nor encrypted. All calls work with ranks on several
 *                     hosts (docs/communicator.md); gsel_comm_free waits at most two seconds for data in flight to
 *                     other hosts. Not given: the address in `id` if
 *                     gsel_unique_id_listen has made it; else, if rank and size are also read from the environment, the variable
 *                     GSEL_RENDEZVOUS, else "env://" if the launcher says that ranks are on several hosts; else all
 *                     ranks are on this host */
#define GSEL_ORDER_RANKS 0 /* (((x0 + x1) + x2) + x3) */
#define GSEL_ORDER_TREE 1  /* ((x0 + x1) + (x2 + x3)): pairs of neighbours, level by level; the last of an odd number
                            * goes to the next level unchanged. If each rank first reduces its own parts with
                            * gsel_reduce_local in this order, 1, 2, 4 ... ranks give the same bits, in f32, f64 and
                            * integers */
#define GSEL_COMM_NO_THREAD 1u
#define GSEL_COMM_BITWISE 2u
#define GSEL_COMM_NOT_THROUGH_HOST 4u
#define GSEL_COMM_THREAD_MULTIPLE 8u
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
  gsel_str accelerator;
  gsel_str transport;
  gsel_str rendezvous;
} gsel_comm_options;

#define GSEL_COMM_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_comm_options)
GSEL_API void gsel_comm_options_init(gsel_comm_options *options, size_t struct_size);

/* Joins a communicator; returns once all ranks have joined.
 *   options NULL, or world_size 0: rank and size are read from the first complete set of
 *           RANK + WORLD_SIZE (gsel run, torchrun; needs MASTER_ADDR and MASTER_PORT unless WORLD_SIZE is 1),
 *           OMPI_COMM_WORLD_RANK + _SIZE, PMI_RANK + PMI_SIZE, SLURM_PROCID + SLURM_STEP_NUM_TASKS,
 *           JOB_COMPLETION_INDEX + WORLD_SIZE, PMIX_RANK + the size from the process manager of PMIX_NAMESPACE;
 *           without a complete set the communicator has one rank, but where a place is given by options->rendezvous or
 *           GSEL_RENDEZVOUS and no variable says that the world has one: that is GSEL_ERR_CONFIG
 *   out     given to the caller, free with gsel_comm_free; NULL on error
 * Errors: GSEL_ERR_ARG, GSEL_ERR_CONFIG (environment incomplete, or no rendezvous; the variable is named),
 * GSEL_ERR_TIMEOUT (the missing ranks are named), GSEL_ERR_MISMATCH (ranks disagree on the world), GSEL_ERR_DUPLICATE
 * (two ranks name one device, or share one although the transport requires a device per rank; both ranks are named),
 * GSEL_ERR_PEER (a rank died while joining), GSEL_ERR_UNSUPPORTED (more than 256 ranks on one host; over several hosts
 * GSEL_COMM_NO_THREAD, or no transport between them), GSEL_ERR_VERSION (struct_size), those of gsel_config_load,
 * GSEL_ERR_NOMEM, GSEL_ERR_IO. With an accelerator also GSEL_ERR_NOT_FOUND and GSEL_ERR_PLUGIN (no plugin of that name,
 * or one that was refused), GSEL_ERR_NO_DEVICES, GSEL_ERR_AMBIGUOUS, GSEL_ERR_RANK_OVERFLOW (more ranks on this host
 * than MIG instances in CUDA_VISIBLE_DEVICES) and GSEL_ERR_DEVICE; if a rank cannot open its accelerator, the other ranks
 * get the same code about that rank.
 * Threads: any; ranks that are threads of one process call it concurrently, each with its rank. Since 0.1. */
GSEL_API gsel_status gsel_comm_init(const gsel_comm_options *options, gsel_comm **out, gsel_error **err);

/* Rank of the caller and number of ranks; -1 for NULL. Any thread. Since 0.1. */
GSEL_API int32_t gsel_comm_rank(const gsel_comm *comm);
GSEL_API int32_t gsel_comm_world_size(const gsel_comm *comm);
/* Name of the communicator, see gsel_comm_options; the same on every rank. Borrowed until gsel_comm_free,
 * NUL-terminated; empty for NULL. Any thread. Since 0.1. */
GSEL_API gsel_str gsel_comm_name(const gsel_comm *comm);

/* ---- calls ------------------------------------------------------------------------------------------------
 *
 * Collectives. Every rank makes the same calls in the same order with the same operation, type, count, root.
 *   send, recv  host memory, or memory of the accelerator, borrowed for the call; may be the same pointer where "in
 *               place" is stated, otherwise must not overlap; may be NULL when the count is 0
 *   count       elements; 0 is allowed and still synchronises
 *   counts      [world_size] elements of each rank, the same on every rank
 *   offsets     [world_size] where each rank's part begins in the caller's buffer, elements; NULL: packed in rank
 *               order. Parts of send may be interleaved with parts of recv, like rows of one matrix
 *   dtype, op   any; BAND, BOR and BXOR take integers only. gsel/types.h says what each op computes
 * Memory of gsel_mem_alloc is read and written by the other ranks in place; other memory is copied on the way.
 * Errors, with the state of the communicator afterwards:
 *   GSEL_ERR_ARG       nothing happened; usable
 *   GSEL_ERR_MISMATCH  every rank gets it, both calls are quoted, no buffer written; usable (messages: see gsel_send).
 *                      Exception: a long call over an MPI between hosts has begun by then: broken
 *                      (docs/communicator.md)
 *   GSEL_ERR_TIMEOUT   the late rank is named; recv may be partly written; broken
 *   GSEL_ERR_PEER      the rank that died or left is named; recv may be partly written; broken
 *   GSEL_ERR_ABORTED   some rank called gsel_comm_abort; broken
 *   GSEL_ERR_CALLBACK  an operation of the caller's failed on some rank, which is named; broken. In a small call each
 *                      rank reduces for itself; if the operation fails on one rank only, the others get this error in
 *                      their next call
 *   GSEL_ERR_FORKED    called in a child of the process that joined; nothing happened
 * If one rank waits in a send or receive for a peer, and the peer waits in a collective for this rank, both get
 * GSEL_ERR_MISMATCH immediately (between hosts within a second), provided that neither rank has an unfinished request
 * or group, or has created a persistent request on the communicator; broken.
 * A broken communicator is freed, shrunk to the ranks that are alive (gsel_comm_shrink), or made usable again
 * (gsel_comm_resync); some of its ranks can make a new one (gsel_comm_create_group).
 * Threads: one call at a time per communicator. Since 0.1. */

/* recv[count] = op over ranks of send[count]. In place: send == recv. */
GSEL_API gsel_status gsel_allreduce(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                    gsel_op op, gsel_error **err);

/* recv[count] on root = op over ranks of send[count]; recv is ignored elsewhere. In place: send == recv. */
GSEL_API gsel_status gsel_reduce(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                 gsel_op op, int32_t root, gsel_error **err);

/* recv[count] on rank r = op over ranks of row r of their send[world_size][count].
 * In place: recv == send + rank * count elements. */
GSEL_API gsel_status gsel_reduce_scatter(gsel_comm *comm, const void *send, void *recv, size_t count,
                                         gsel_dtype dtype, gsel_op op, gsel_error **err);
/* The same with parts of counts[rank] at offsets[rank] of send, the same on every rank. In place: recv is the rank's
 * own part, and no parts overlap. */
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

/* recv[count] on rank r = row r of root's send[world_size][count]; send is ignored elsewhere.
 * In place on root: recv == send + root * count elements. */
GSEL_API gsel_status gsel_scatter(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                  int32_t root, gsel_error **err);
/* The same with recv[counts[rank]] from offsets[rank] of root's send; offsets are root's. */
GSEL_API gsel_status gsel_scatterv(gsel_comm *comm, const void *send, void *recv, const uint64_t *counts,
                                   const uint64_t *offsets, gsel_dtype dtype, int32_t root, gsel_error **err);

/* recv[q][count] on rank r = row r of send[world_size][count] of rank q. Not in place. */
GSEL_API gsel_status gsel_alltoall(gsel_comm *comm, const void *send, void *recv, size_t count, gsel_dtype dtype,
                                   gsel_error **err);
/* The same with different counts: send_counts[q] here must equal recv_counts[this rank] on rank q (GSEL_ERR_MISMATCH
 * names the pair and breaks the communicator). */
GSEL_API gsel_status gsel_alltoallv(gsel_comm *comm, const void *send, const uint64_t *send_counts,
                                    const uint64_t *send_offsets, void *recv, const uint64_t *recv_counts,
                                    const uint64_t *recv_offsets, gsel_dtype dtype, gsel_error **err);

/* Returns after every rank has called it. */
GSEL_API gsel_status gsel_barrier(gsel_comm *comm, gsel_error **err);

/* Point to point. A receive takes the first message from `peer` that has the receive's tag, here 0. Messages of one
 * ordered pair and tag arrive in order. The types must agree, and the receive must be at least as long as the message;
 * elements of recv after the message stay unchanged. A send may return before its receive is posted if the message fits
 * in the library's buffer (at least four messages of 4 KiB for each pair); portable programs do not rely on this. peer
 * != rank.
 * GSEL_ERR_MISMATCH: different types, or a message longer than its receive; both calls are quoted on both ranks, and
 * recv is not written. If the sender still waits, the message is dropped and the communicator stays usable. On one host
 * the sender still waits if the receiver reads the sender's memory, as with most messages that do not fit in the
 * buffer; between hosts, with every message that does not fit in it. Otherwise the sender may have returned already; it
 * then gets the error in its next call, and the communicator is broken. */
GSEL_API gsel_status gsel_send(gsel_comm *comm, const void *send, size_t count, gsel_dtype dtype, int32_t peer,
                               gsel_error **err);
GSEL_API gsel_status gsel_recv(gsel_comm *comm, void *recv, size_t count, gsel_dtype dtype, int32_t peer,
                               gsel_error **err);
/* Sends and receives at the same time, so that ranks in a ring do not deadlock. to and from may be the same rank. */
GSEL_API gsel_status gsel_sendrecv(gsel_comm *comm, const void *send, size_t send_count, int32_t to, void *recv,
                                   size_t recv_count, int32_t from, gsel_dtype dtype, gsel_error **err);

/* Describes a message that a receive took or a probe found.
 *   source  the rank that sent the message
 *   tag     the tag of the send
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

/* Messages with a tag, 0 to INT32_MAX. A receive names the sender's rank and the tag, or takes GSEL_ANY_RANK and
 * GSEL_ANY_TAG. If several posted receives match a message, the first posted one takes it. An unexpected message waits
 * until a receive matches it, and later messages can overtake it. A long message waits in the sender's memory, a short
 * one in the receiver's. A rank keeps up to 64 MiB of waiting messages; beyond that a message, and all after it, wait
 * in the sender's memory.
 *   received  may be NULL; filled if the call returns GSEL_OK
 * Since 0.1. */
#define GSEL_ANY_RANK (-2)
#define GSEL_ANY_TAG (-1)
GSEL_API gsel_status gsel_send_tag(gsel_comm *comm, const void *send, size_t count, gsel_dtype dtype, int32_t peer,
                                   int32_t tag, gsel_error **err);
GSEL_API gsel_status gsel_recv_tag(gsel_comm *comm, void *recv, size_t count, gsel_dtype dtype, int32_t source,
                                   int32_t tag, gsel_message *received, gsel_error **err);
/* Waits for a message that gsel_recv_tag with this source and tag would take, and describes it in *message. The message
 * is not taken. gsel_iprobe does not wait: *found is 1 or 0, and *message is only written if *found is 1. A message for
 * which a receive is already posted is not found. Errors as those of a receive. Since 0.1. */
GSEL_API gsel_status gsel_probe(gsel_comm *comm, int32_t source, int32_t tag, gsel_message *message, gsel_error **err);
GSEL_API gsel_status gsel_iprobe(gsel_comm *comm, int32_t source, int32_t tag, int32_t *found, gsel_message *message,
                                 gsel_error **err);

/* Kinds of calls: of requests and of gsel_comm_explain. Numbers never change. */
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

/* A call as data: the arguments of the functions above, by the same names. Fields that a kind does not use are ignored.
 *   root         the root of rooted kinds; the peer of send, recv and probes; the rank that a sendrecv sends to
 *   source       the rank that a sendrecv receives from
 *   count        elements; for sendrecv, elements sent
 *   recv_count   for sendrecv, elements received
 *   send_counts, send_offsets    for scatterv and alltoallv; for reduce_scatterv, only send_offsets
 *   recv_counts, recv_offsets    for allgatherv, gatherv and alltoallv; for reduce_scatterv, only recv_counts
 *   factor       for GSEL_SCALED_SUM, this rank's factor, not 0; gsel_op_create_scaled_sum takes any number
 *   timeout_s    bound on this call, seconds; 0: that of the communicator
 *   label        shown in errors and recordings, cut to 15 bytes
 *   tag          tag of a message; for sendrecv, that of the message sent
 *   recv_tag     for sendrecv, the tag of the message received
 *   received     for recv, sendrecv and probes: filled when the call has ended with GSEL_OK, borrowed until then; may
 *                be NULL except for probes. An iprobe that finds nothing sets its source to GSEL_ANY_RANK
 *   stream       with an accelerator: the CUstream or cudaStream_t on which the call is enqueued, borrowed until the
 *                call has ended; NULL: that of gsel_comm_set_stream. GSEL_ERR_ARG without an accelerator, or if the
 *                stream belongs to another device
 *   send_parts, recv_parts    [world_size] addresses of the part for each rank, or from each rank, like the lists of
 *                             tensors in torch.distributed. send_parts is for reduce_scatter, scatter and alltoall,
 *                             recv_parts for allgather, gather and alltoall, and both for their v kinds; send or recv
 *                             and its offsets are then ignored. In place, the rank's own part is the other buffer.
 *                             Parts are aligned to their type (GSEL_ERR_ARG); a part of 0 elements may be NULL. The
 *                             arrays are borrowed like counts. Each rank decides for itself whether to use them; in a
 *                             reduce_scatterv whose offsets are not packed, no rank may. GSEL_ERR_UNSUPPORTED with an
 *                             accelerator */
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
  void *stream;
  const void *const *send_parts;
  void *const *recv_parts;
} gsel_collective;
#define GSEL_COLLECTIVE_INIT GSEL_STRUCT_INIT(gsel_collective)
GSEL_API void gsel_collective_init(gsel_collective *call, size_t struct_size);

/* Makes the call; errors as above. Since 0.1. */
GSEL_API gsel_status gsel_comm_run(gsel_comm *comm, const gsel_collective *call, gsel_error **err);

/* Makes several calls together, as ncclGroupStart and ncclGroupEnd do, and returns when all have ended. Messages of one
 * communicator run in order of arrival, its collectives in the order given. Several communicators run at the same time,
 * so that one thread can hold several ranks.
 *   comms  [n] the communicator of each call; the same one may occur any number of times
 *   calls  [n] borrowed for the call
 *   n      0 is allowed and does nothing
 * Errors: GSEL_ERR_ARG names the index of the wrong call, and nothing happened; otherwise the first error, as above.
 * Threads: as for any call on each of comms. Since 0.1. */
GSEL_API gsel_status gsel_group_run(gsel_comm *const *comms, const gsel_collective *const *calls, size_t n,
                                    gsel_error **err);

/* ---- requests ----------------------------------------------------------------------------------------------
 *
 * A request is a call that runs while the caller computes. The library runs the requests of a communicator on one
 * thread, which starts with the first request. Starting a request runs it as far as possible without waiting. A
 * collective of up to 4 KiB, which takes a microsecond once all ranks are there, ends when a thread waits for it or
 * tests it, or before a rank waits long for a call that was started after it. Collectives of a communicator run in the
 * order in which they were started; messages run at the same time as collectives and other messages. A blocking call on
 * the same communicator waits for the collectives started before it. The order of collectives that two threads run or
 * start at the same time is undefined.
 * Buffers, counts and offsets are borrowed until the request is done. Those of a persistent request are borrowed until
 * it is freed, and counts and offsets must not change; the struct and its label are copied. Several threads may wait
 * for and test one request at the same time; other calls on it must not overlap. A request may be waited for on another
 * thread than the one that started it. */
typedef struct gsel_request gsel_request;

/* Starts a call. *out is given to the caller, free with gsel_request_free; NULL on error.
 * Errors: GSEL_ERR_ARG; gsel_request_wait and gsel_request_test return all others. Since 0.1. */
GSEL_API gsel_status gsel_comm_start(gsel_comm *comm, const gsel_collective *call, gsel_request **out, gsel_error **err);
/* Starts several calls of one communicator as one request, which has ended when all calls have: messages run in order
 * of arrival, collectives in the order given, as with gsel_group_run.
 *   calls  [n] borrowed for the call; their buffers, counts and messages until the request is done
 *   n      1 or more
 * The result is the first error. gsel_request_cancel only cancels a group of one call. With an accelerator all calls
 * use one stream, and the transport must support each of them (GSEL_ERR_UNSUPPORTED).
 * Errors: GSEL_ERR_ARG names the index of the wrong call, and nothing was started. Since 0.1. */
GSEL_API gsel_status gsel_group_start(gsel_comm *comm, const gsel_collective *const *calls, size_t n,
                                      gsel_request **out, gsel_error **err);
/* Creates a persistent request, as MPI_Allreduce_init does: a call that can then be started any number of times. Its
 * arguments are checked once, here. Since 0.1. */
GSEL_API gsel_status gsel_request_create(gsel_comm *comm, const gsel_collective *call, gsel_request **out,
                                         gsel_error **err);
/* Starts a persistent request. GSEL_ERR_STATE if it is in progress. Since 0.1. */
GSEL_API gsel_status gsel_request_start(gsel_request *request, gsel_error **err);
/* Runs a persistent request on the calling thread: start and wait without a second thread. Other threads may make calls
 * on the communicator and run other requests at the same time. GSEL_ERR_STATE if the request is in progress or was made
 * by gsel_comm_start. Since 0.1. */
GSEL_API gsel_status gsel_request_run(gsel_request *request, gsel_error **err);
/* Sets *done to 1 if the call has ended, else to 0. Returns the result of the call if it has ended, else GSEL_OK. Never
 * blocks. A request that was never started is done. Since 0.1. */
GSEL_API gsel_status gsel_request_test(gsel_request *request, int32_t *done, gsel_error **err);
/* Waits for the end and returns the result of the call. Bounded by the call's own timeout. For a message this timeout
 * begins with the first wait, since a receive may be posted long before its send. A test does not begin it. Since 0.1. */
GSEL_API gsel_status gsel_request_wait(gsel_request *request, gsel_error **err);
/* Waits until one of requests[n] has ended, writes its position to *index, and returns the result of its call. Requests
 * that are NULL, or whose end a test or wait has already reported, are ignored; GSEL_ERR_ARG if none is left.
 * Since 0.1. */
GSEL_API gsel_status gsel_request_wait_any(gsel_request *const *requests, size_t n, size_t *index, gsel_error **err);
/* With an accelerator: the event that is reached when the call's stream has passed the call, a CUevent or cudaEvent_t,
 * for cudaStreamWaitEvent and cudaEventSynchronize. Borrowed until a test or wait has reported the end, or the request
 * is freed. The event is also reached if the communicator breaks, and recv is then undefined: after its own wait, a
 * program calls gsel_comm_get_async_error.
 * Errors: GSEL_ERR_UNSUPPORTED (the call goes through host memory, or has no accelerator: use gsel_request_wait),
 * GSEL_ERR_STATE (not started). Since 0.1. */
GSEL_API gsel_status gsel_request_event(gsel_request *request, void **event, gsel_error **err);
/* gsel_request_wait for at most `seconds`: if the call has ended, *done is 1 and its result is returned; else *done is
 * 0, and GSEL_OK is returned. Several threads may wait for one request at the same time; all get its result. 0 seconds
 * does not block, like gsel_request_test; GSEL_ERR_ARG: seconds is negative or NaN. Since 0.1. */
GSEL_API gsel_status gsel_request_wait_for(gsel_request *request, double seconds, int32_t *done, gsel_error **err);
/* Cancels a started call, as MPI_Cancel does, if no other rank has matched it yet; *cancelled says whether. Does not
 * wait for other ranks.
 *   receive, probe  cancelled if no message has been matched to it; the first message that fits goes to another receive
 *   send            cancelled if no receive has been matched to its message, and some of the message is still in the
 *                   sender's memory, which is only briefly so for short messages and never for messages to another
 *                   host. Nobody receives the message; a probe may have seen it
 *   sendrecv        cancelled if both conditions hold
 *   collective      cancelled if no rank has begun it; over several hosts only if another collective that this rank has
 *                   not begun is ahead of it. Later collectives move up, so each rank must cancel it
 *   1  the request has ended without a result, and its buffers are the caller's again. recv and *received are not
 *      written. The request is then like one that was never started: a test says that it is done, a wait returns
 *      GSEL_OK, and a persistent request can be started again
 *   0  nothing happened: the call continues and ends as usual, or has ended
 * A call on the stream of a device cannot be cancelled. Errors: GSEL_ERR_ARG, GSEL_ERR_FORKED, GSEL_ERR_NOMEM; nothing
 * happened. Since 0.1. */
GSEL_API gsel_status gsel_request_cancel(gsel_request *request, int32_t *cancelled, gsel_error **err);
/* Waits for the end if the request is started, and releases it; NULL is fine. A message that is still unmatched after
 * its timeout is cancelled, so that the communicator stays usable. A send is lost then, so a program that may leave one
 * unmatched calls gsel_request_cancel and checks its result. Must be called before the communicator is freed. Since
 * 0.1. */
GSEL_API void gsel_request_free(gsel_request *request);

/* A completion queue: ended requests, in the order of their ends, for a program that waits in an event loop (epoll,
 * libuv, tokio) instead of using a thread per request. A request is added once, started or not.
 *
 *     gsel_queue_create(&queue, &err);                            epoll_ctl(loop, EPOLL_CTL_ADD, gsel_queue_fd(queue), ...)
 *     gsel_comm_start(comm, &call, &request, &err);
 *     gsel_request_notify(request, queue, mine, &err);            mine: the program's own data about the request
 *     while (gsel_queue_next(queue, 0, &found, &mine, &err) == GSEL_OK && found)            when the loop says readable
 *       if (gsel_request_wait(mine->request, &err)) ...                                     does not block
 *
 * Threads: any number may take requests from one queue, and add requests, at the same time. */
typedef struct gsel_queue gsel_queue;
/* *out is given to the caller, free with gsel_queue_free; NULL on error. Errors: GSEL_ERR_IO (no descriptor). Since
 * 0.1. */
GSEL_API gsel_status gsel_queue_create(gsel_queue **out, gsel_error **err);
/* Readable (POLLIN) while an ended request is in the queue. The caller only waits for it, and neither reads nor closes
 * it. -1 for NULL. Since 0.1. */
GSEL_API int32_t gsel_queue_fd(const gsel_queue *queue);
/* Adds the request to the queue when its call ends; immediately if it has ended and no test or wait has reported that.
 * A persistent request is added again at the end of every later start; gsel_request_run does not add it. The timeout of
 * a message begins here, as with a wait. gsel_queue_next returns `user`. A request has at most one queue: this one
 * replaces an earlier one, and NULL removes it. The end of a call on the stream of a device is noticed within a
 * millisecond, by a thread of the queue.
 * Errors: GSEL_ERR_FORKED, GSEL_ERR_NOMEM. Since 0.1. */
GSEL_API gsel_status gsel_request_notify(gsel_request *request, gsel_queue *queue, void *user, gsel_error **err);
/* Takes the first ended request: *found is 1, and *user is the value given to gsel_request_notify; *found is 0 if there
 * is none within `seconds`. 0 does not block, negative waits without a limit. gsel_request_wait then returns the result
 * of the call immediately. Freeing a request removes it from its queue.
 * Errors: GSEL_ERR_ARG (seconds is NaN), GSEL_ERR_FORKED. Since 0.1. */
GSEL_API gsel_status gsel_queue_next(gsel_queue *queue, double seconds, int32_t *found, void **user, gsel_error **err);
/* Frees the queue; requests continue without it. No other thread may use it any more. NULL is fine. Since 0.1. */
GSEL_API void gsel_queue_free(gsel_queue *queue);

/* ---- memory ------------------------------------------------------------------------------------------------ */

/* Allocates memory that all ranks can access: calls on it need no intermediate copies. Its pages are near the calling
 * thread (NUMA), aligned to at least 64 bytes, and filled with zeros. It serves this communicator and those split,
 * duplicated or shrunk from it, and lives until it is freed or the last of these communicators is freed on this rank. A
 * lack of memory is an error of this call, never a signal later.
 * Errors: GSEL_ERR_ARG, GSEL_ERR_NOMEM. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_mem_alloc(gsel_comm *comm, size_t bytes, void **out, gsel_error **err);
/* Frees memory of gsel_mem_alloc. No call may use this memory on any rank. NULL is fine; any other pointer that is not
 * from gsel_mem_alloc is GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_mem_free(gsel_comm *comm, void *memory, gsel_error **err);

/* Makes memory of the caller accessible to all ranks, like that of gsel_mem_alloc, in place and with its contents. It
 * must be private anonymous pages, as returned by mmap or a large malloc, and begin and end at page boundaries. No
 * thread may access it during the call. A child that is forked later shares the memory. Errors: GSEL_ERR_ARG (not whole
 * pages, or other memory; the message says what was found), GSEL_ERR_NOMEM. gsel_mem_unregister makes the memory
 * private again and keeps its contents. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_mem_register(gsel_comm *comm, void *memory, size_t bytes, gsel_error **err);
GSEL_API gsel_status gsel_mem_unregister(gsel_comm *comm, void *memory, gsel_error **err);

/* ---- devices -----------------------------------------------------------------------------------------------
 *
 * With an accelerator, buffers are memory of that device, or page-locked host memory. One thread at a time makes calls,
 * and running a request and gsel_mem_register are calls here; GSEL_ERR_STATE otherwise.
 * Calls are enqueued on the communicator's stream, and then return: they read and write the buffers when earlier work
 * on the stream has ended, and later work on the stream sees the results. Nothing else waits for them. Counts, offsets
 * and the fields of gsel_message are in host memory. A request is done when the stream has passed its call.
 * gsel_collective.stream names the stream of one call; NCCL still runs the calls of one communicator in order. Buffers
 * of another kind or device are GSEL_ERR_ARG. If ranks are threads of one process and the transport accesses buffers in
 * place, so is a mapping that the devices of the other ranks may not access.
 * A call that the transport cannot make, such as one with an operation of the caller's, goes through host memory, and
 * then the caller waits for the stream and for the other ranks; gsel_comm_explain reports this, and the first such call
 * is a warning in the log. Messages through a transport have tag 0, are received from a named rank, and have the type
 * and count of their receive; otherwise both ranks get GSEL_ERR_MISMATCH. Other messages are GSEL_ERR_UNSUPPORTED
 * unless the transport is "host".
 * A call that its stream has reached and that does not end within its timeout is GSEL_ERR_TIMEOUT. Failures after a
 * call has returned are reported by the next call, by gsel_comm_get_async_error and by gsel_comm_synchronize:
 * GSEL_ERR_PEER, GSEL_ERR_TIMEOUT, GSEL_ERR_MISMATCH and GSEL_ERR_ABORTED as above, all of which break the communicator
 * here, and GSEL_ERR_DEVICE. After the program's own wait, such as cudaStreamSynchronize, results are defined if
 * gsel_comm_get_async_error returns GSEL_OK. Work of other ranks' calls that still waits on this device is ended.
 * The promise on results above holds through host memory; with a transport plugin results are those of its library.
 * gsel_mem_alloc returns memory of the device, and gsel_mem_register accepts it; with a transport all ranks register
 * together, with equal sizes, and use the memory in the same calls, in allreduce, allgather (recv) and reduce_scatter
 * (send) at the same offset (GSEL_ERR_MISMATCH). gsel_mem_unregister waits for
 * earlier calls, and so does gsel_comm_free while memory is registered. Communicators made from one with an accelerator
 * have it too, and begin on the default stream. */

/* Sets the stream of all later calls: a CUstream or cudaStream_t of the accelerator's device, borrowed until another is
 * set or comm is freed; NULL: the device's default stream, with which a communicator begins. Does not wait: the caller
 * orders earlier work on the old stream with later work, as for any two streams. Errors: GSEL_ERR_ARG (comm has no
 * accelerator, a stream of another device), GSEL_ERR_DEVICE. Since 0.1. */
GSEL_API gsel_status gsel_comm_set_stream(gsel_comm *comm, void *stream, gsel_error **err);

/* Waits until all calls on the communicator's stream have ended, and returns what failed. Unlike a wait on the stream
 * itself it ends within a second when another rank dies. Without an accelerator it returns immediately. Since 0.1. */
GSEL_API gsel_status gsel_comm_synchronize(gsel_comm *comm, gsel_error **err);

/* Returns what has failed until now, as ncclCommGetAsyncError does; does not wait. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_comm_get_async_error(gsel_comm *comm, gsel_error **err);

/* ---- operations -------------------------------------------------------------------------------------------- */

/* Computes accumulated[count] = accumulated op next[count], elements of dtype. Called once per rank and piece of the
 * buffer, in the communicator's order, from the thread that makes the call or a thread of the library; several threads
 * may call it at the same time. count is a multiple of the operation's record_elems, and a piece begins with a record.
 * The result may depend only on the arguments: the same bits for the same bits. In this function, a call that would
 * wait for the running call, such as another call on the communicator or a wait for its requests, is GSEL_ERR_STATE;
 * gsel_request_free and gsel_comm_free then release nothing, and log an error. Returns 0, or any other value to fail
 * the call with GSEL_ERR_CALLBACK. */
typedef int32_t (*gsel_op_fn)(void *accumulated, const void *next, size_t count, gsel_dtype dtype, void *user_data);

/* Creates an operation of the caller. Every rank creates its own under the same `name` (at most 31 bytes); ranks
 * compare operations by name. user_data is kept until gsel_op_free.
 *   record_elems  elements that form a record, such as 2 for a value and its index; 1: each element by itself. A count
 *                 that is no multiple of it is GSEL_ERR_ARG, and no record is cut. A record has at most 4,096 bytes; on
 *                 more than 64 ranks a record that is larger than a rank's part of the staging memory is
 *                 GSEL_ERR_UNSUPPORTED
 * GSEL_ERR_ARG; GSEL_ERR_NOMEM if 4,096 operations exist. Since 0.1. */
GSEL_API gsel_status gsel_op_create(gsel_str name, size_t record_elems, gsel_op_fn function, void *user_data,
                                    gsel_free_fn free_user_data, gsel_op *out, gsel_error **err);
/* Creates GSEL_SCALED_SUM with this rank's factor, for functions that do not take a gsel_collective. Since 0.1. */
GSEL_API gsel_status gsel_op_create_scaled_sum(double factor, gsel_op *out, gsel_error **err);
/* Releases an operation. No unfinished call may use it. Unknown numbers are ignored. Any thread. Since 0.1. */
GSEL_API void gsel_op_free(gsel_op op);

/* out[count] = op over inputs[n][count] of this process, in `order` (GSEL_ORDER_*): the reduction of the collectives,
 * without other ranks. out may be one of the inputs. GSEL_SCALED_SUM is refused. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_reduce_local(const void *const *inputs, size_t n, void *out, size_t count, gsel_dtype dtype,
                                       gsel_op op, int32_t order, gsel_error **err);

/* ---- more communicators ------------------------------------------------------------------------------------ */

/* Makes a communicator for each colour, of the ranks that gave this colour, ordered by (key, rank), as MPI_Comm_split
 * does. Collective. On one host it needs no sockets and uses the shared memory of comm; a group with ranks on several
 * hosts gets its own connections and its own link of the transport. colour < 0: *out is NULL. Errors as those of a
 * collective. Since 0.1. */
GSEL_API gsel_status gsel_comm_split(gsel_comm *comm, int32_t colour, int32_t key, gsel_comm **out, gsel_error **err);
/* Makes a communicator of ranks[n] of comm, in that order. Only these ranks call it, each with the same list; the other
 * ranks need not know. Errors as those of a message; GSEL_ERR_ARG also if the list names a rank twice or does not name
 * the caller; GSEL_ERR_MISMATCH if two of the ranks give different lists (comm stays usable). comm may be broken; then
 * different lists are GSEL_ERR_TIMEOUT, and after an error all ranks of the list may call again. Since 0.1. */
GSEL_API gsel_status gsel_comm_create_group(gsel_comm *comm, const int32_t *ranks, size_t n, gsel_comm **out,
                                            gsel_error **err);
/* Makes another communicator of the same ranks. Since 0.1. */
GSEL_API gsel_status gsel_comm_dup(gsel_comm *comm, gsel_comm **out, gsel_error **err);

/* After a failure, makes a communicator of the ranks that still answer, in their old order. Every survivor calls this
 * function, once per communicator. It breaks comm if comm is not broken yet: with GSEL_ERR_PEER about a rank that is
 * dead, otherwise with GSEL_ERR_STATE. Ranks that are dead, have left or do not call within the timeout are left out; a
 * rank that calls too late gets GSEL_ERR_PEER. Since 0.1. */
GSEL_API gsel_status gsel_comm_shrink(gsel_comm *comm, gsel_comm **out, gsel_error **err);
/* The same without ranks[n] of comm, like the list of ncclCommShrink: nobody waits for these ranks, whether they are
 * alive or not. An excluded rank must not call; if it has called gsel_comm_shrink already, the rank that excludes it
 * gets GSEL_ERR_MISMATCH, and the others continue without the caller. If it calls later, it gets GSEL_ERR_PEER. It is
 * enough that one rank excludes it; ranks may exclude different ones.
 *   ranks  [n] without the caller's, each once; n may be 0
 * Errors: GSEL_ERR_ARG (nothing happened), and those of gsel_comm_shrink. Threads: as a call. Since 0.1. */
GSEL_API gsel_status gsel_comm_shrink_without(gsel_comm *comm, const int32_t *ranks, size_t n, gsel_comm **out,
                                              gsel_error **err);
/* Makes comm usable again for all its ranks after a mismatch, timeout or abort. Every rank calls this function. It ends
 * the calls that other ranks are in (they return GSEL_ERR_STATE, which names the rank that called first), and waits
 * until all ranks have called it. A rank that is dead or does not call in time is GSEL_ERR_PEER or GSEL_ERR_TIMEOUT.
 * Since 0.1. */
GSEL_API gsel_status gsel_comm_resync(gsel_comm *comm, gsel_error **err);
/* Makes a larger communicator. Ranks of comm keep their numbers; new ranks join by gsel_comm_init with the same id, as
 * ranks world_size(comm) to options->world_size - 1. options->rank is ignored here. Memory of gsel_mem_alloc on comm is
 * not shared in the new communicator. Over several hosts, options->rendezvous is where all ranks meet, at rank 0's
 * host; GSEL_ERR_ARG if it is not given. Errors as those of gsel_comm_init. Since 0.1. */
GSEL_API gsel_status gsel_comm_grow(gsel_comm *comm, const gsel_comm_options *options, gsel_comm **out, gsel_error **err);
/* Makes one communicator of two, like MPI_Intercomm_merge. Every rank of both calls this function, with the same id, and
 * with the sum of both sizes as options->world_size. The ranks of the communicator with high = 0 keep their numbers;
 * those of the one with high = 1 follow in their order. Both communicators stay usable. Otherwise like gsel_comm_grow.
 *   high  0 or 1, the same on all ranks of comm, and not the same in both communicators
 * Errors: those of gsel_comm_grow; GSEL_ERR_MISMATCH if both are high or both are low. Since 0.1. */
GSEL_API gsel_status gsel_comm_merge(gsel_comm *comm, int32_t high, const gsel_comm_options *options, gsel_comm **out,
                                     gsel_error **err);

/* The same without blocking, as MPI_Comm_idup does: *out is a request, given to the caller, that ends once the
 * communicator is made. gsel_request_take_comm returns the communicator, and gsel_request_free frees one that was not
 * taken.
 *   gsel_comm_start_split, gsel_comm_start_dup            are ordered with the other started collectives of comm
 *   gsel_comm_start_create_group, gsel_comm_start_shrink  |run on a separate thread; without[n]: see
 *   gsel_comm_shrink_without, n may be 0
 * They match the blocking form on another rank. Errors: those of the blocking form, of which local errors are returned
 * immediately; GSEL_ERR_UNSUPPORTED with GSEL_COMM_NO_THREAD. Since 0.1. */
GSEL_API gsel_status gsel_comm_start_split(gsel_comm *comm, int32_t colour, int32_t key, gsel_request **out,
                                           gsel_error **err);
GSEL_API gsel_status gsel_comm_start_dup(gsel_comm *comm, gsel_request **out, gsel_error **err);
GSEL_API gsel_status gsel_comm_start_create_group(gsel_comm *comm, const int32_t *ranks, size_t n, gsel_request **out,
                                                  gsel_error **err);
GSEL_API gsel_status gsel_comm_start_shrink(gsel_comm *comm, const int32_t *without, size_t n, gsel_request **out,
                                            gsel_error **err);
/* Returns the communicator that such a request has made, once: *out is given to the caller, free with gsel_comm_free;
 * NULL if the split has none for this rank, and from the second time on. Errors: that of the request; GSEL_ERR_STATE
 * (it has not ended), GSEL_ERR_ARG (another request). Since 0.1. */
GSEL_API gsel_status gsel_request_take_comm(gsel_request *request, gsel_comm **out, gsel_error **err);

/* Sets the bound on each later call, seconds, > 0. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_comm_set_timeout(gsel_comm *comm, double timeout_s, gsel_error **err);

/* ---- queries ------------------------------------------------------------------------------------------------ */

/* How a call would run.
 *   protocol      of the part of the call that the host does (docs/communicator.md): "alone" (one rank); on one host
 *                 "line", "slots", "staged", "direct" or "single copy"; of a collective over hosts "assembly",
 *                 "at-first", "direct", "two-level", "chain", "host-slices", "lanes" or "slices"; of a message
 *                 between two hosts "frame" or "transfer"; "stream" if the host does none; static
 *   reason        why this protocol, such as "send is not memory of gsel_mem_alloc"; static
 *   chunk_bytes   bytes that are processed at a time; 0: the whole
 *   seconds       predicted from the tuning file; 0: unknown
 *   sent_bytes    what gsel_comm_counts will add
 *   transport     "shm"; over several hosts "control" (the communicator's own connections), the plugin that moves the
 *                 bytes, such as "gloo", "mpi_openmpi" or "mpi_mpich", or "none"; with an accelerator the transport of
 *                 the call, such as "nccl", or "host"
 *   transport_reason  why this transport and no other, and what a program must know about it, such as the thread level
 *                     of an MPI; both live as long as comm */
typedef struct gsel_comm_explanation {
  uint32_t struct_size;
  uint32_t reserved;
  const char *protocol;
  const char *reason;
  uint64_t chunk_bytes;
  double seconds;
  uint64_t sent_bytes;
  const char *transport;
  const char *transport_reason;
} gsel_comm_explanation;
#define GSEL_COMM_EXPLANATION_INIT GSEL_STRUCT_INIT(gsel_comm_explanation)
GSEL_API void gsel_comm_explanation_init(gsel_comm_explanation *explanation, size_t struct_size);
/* Explains how a call would run. Local: assumes that the buffers of all ranks are of the same kind as this rank's.
 * Errors: GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_comm_explain(gsel_comm *comm, const gsel_collective *call, gsel_comm_explanation *out,
                                       gsel_error **err);

/* The flight recorder: the last 256 calls of every rank, with times, as JSON (docs/trace.md). It is always on, and
 * reading it stops no rank. gsel_comm_trace reads this communicator, broken or not. gsel_trace_process reads the
 * communicators of another process of this user, as `gsel trace PID` does; GSEL_ERR_NOT_FOUND if that process has none.
 * With [comm] trace = "folder" or GSEL_TRACE=folder every rank that meets an error writes the file
 * folder/gsel-PID-RANK.json.
 *   out  given to the caller, free with gsel_trace_free. Any thread. Since 0.1. */
typedef struct gsel_trace gsel_trace;
GSEL_API gsel_status gsel_comm_trace(const gsel_comm *comm, gsel_trace **out, gsel_error **err);
GSEL_API gsel_status gsel_trace_process(int32_t pid, gsel_trace **out, gsel_error **err);
GSEL_API gsel_str gsel_trace_json(const gsel_trace *trace);
GSEL_API void gsel_trace_free(gsel_trace *trace);

/* What this rank has sent: the number of calls of one kind, and the payload bytes that they made available to other
 * ranks. With S bytes, n ranks, and `slice` the bytes of S that this rank reduces:
 *   allreduce    S + (n-2) * slice, which is 2(n-1)/n * S when n divides S
 *   reduce       S on ranks other than the root, S - slice on the root
 *   other kinds  the bytes of send that other ranks read, summed over these ranks, whatever the protocol
 *   out  zeros for an unknown kind
 * GSEL_ERR_ARG. Any thread, at the same time as other calls. Since 0.1. */
GSEL_API gsel_status gsel_comm_counts(const gsel_comm *comm, gsel_collective_kind kind, gsel_comm_count *out,
                                      gsel_error **err);

/* Breaks the communicator on every rank: current and later calls return GSEL_ERR_ABORTED with `reason` (cut to 1900
 * bytes; may be not given). Does not block. Any thread, any time before gsel_comm_free. Since 0.1. */
GSEL_API void gsel_comm_abort(gsel_comm *comm, gsel_str reason);

/* Leaves and releases the communicator; NULL is fine. Does not wait for other ranks of this host. Waits at most two
 * seconds until other hosts have received the data sent to them. Ranks that still wait for this one get GSEL_ERR_PEER.
 * Memory of gsel_mem_alloc goes back to the system with the last rank that leaves. Unmapping it takes the operating
 * system some milliseconds per 100 MiB, and so does making registered memory private again. No call may be unfinished.
 * A program that uses an MPI between hosts and calls MPI_Finalize itself must call gsel_comm_free first. In a forked
 * child it releases only the memory of the child. Since 0.1. */
GSEL_API void gsel_comm_free(gsel_comm *comm);

GSEL_EXTERN_C_END

#endif
