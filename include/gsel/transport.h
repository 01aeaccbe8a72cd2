/* gsel/transport.h: for authors of transports. A transport connects ranks: it makes links from ranks that join, and runs
 * collectives and messages over them. Memory, streams and kernels are another table: gsel/device.h. */
#ifndef GSEL_TRANSPORT_H
#define GSEL_TRANSPORT_H

#include <gsel/comm.h>
#include <gsel/device.h>
#include <gsel/error.h>
#include <gsel/plugin.h>
#include <gsel/types.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_link gsel_link; /* one rank's end of a communicator */
typedef struct gsel_pending gsel_pending; /* asynchronous calls under way */

/* How a rank joins: the fields of gsel_comm_options, with all defaults filled in. */
typedef struct gsel_join {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t rank;
  int32_t world_size;
  gsel_unique_id id;
  double timeout_s;
  double join_timeout_s;
  gsel_str device; /* identity of the device that this rank computes on; empty: unknown */
  int32_t order;   /* GSEL_ORDER_* */
  uint32_t flags;  /* GSEL_COMM_* */
  gsel_str trace;  /* folder to write recordings to at a failure; empty: none */
  gsel_str name;   /* of the communicator, as rank 0 gives it; empty: not given */

  /* For a transport of devices, since plugin ABI 1.3: the opened device of this rank, and a way to exchange bytes with
   * the ranks that join, which are known to one another through the host by then. exchange: all[world_size][bytes] is
   * mine[bytes] of each rank; each rank calls it equally often, and only within link_join. look: fails once a rank has
   * died or given up, so that link_join, wherever it waits for other ranks, can stop. */
  const gsel_device_v1 *device_table;
  void *device_ctx;
  gsel_status (*exchange)(void *control, const void *mine, void *all, uint64_t bytes, gsel_error **err);
  gsel_status (*look)(void *control, gsel_error **err);
  void *control;
} gsel_join;

/* What a transport of devices can do. A call that it cannot make goes through host memory.
 *   flags        GSEL_TRANSPORT_*
 *   dlpack_type  of the devices whose memory it takes, as in dlpack.h
 *   kinds        bits 1 << GSEL_COLLECTIVE_*
 *   dtypes       bits 1 << GSEL_F32 and so on: what it reduces; other calls take every type
 *   ops          bits 1 << GSEL_SUM and so on
 *   version      of the library behind it; ranks with different ones do not join
 *   library      the file it was found in, for people */
#define GSEL_TRANSPORT_BITWISE 1u    /* all ranks get the same bits, the same ones in every run */
#define GSEL_TRANSPORT_OWN_DEVICE 2u /* each rank has a device of its own */
typedef struct gsel_transport_description {
  uint32_t struct_size;
  uint32_t flags;
  int32_t dlpack_type;
  int32_t version;
  uint64_t kinds;
  uint64_t dtypes;
  uint64_t ops;
  gsel_str library;
} gsel_transport_description;

/* Rank and size of a communicator made from another. Layout is frozen. */
typedef struct gsel_membership {
  int32_t rank;
  int32_t world_size;
} gsel_membership;

/* One thread at a time calls the functions of a link, except link_abort and link_counts, which any thread may call. A
 * stream belongs to the device whose memory the call uses; NULL is its default stream. */
typedef struct gsel_transport_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* What the transport needs once for all its links; `ctx` is passed to link_join. */
  gsel_status (*open)(const gsel_host_v1 *host, void **out_ctx, gsel_error **err);
  void (*close)(void *ctx);

  /* link_join: on any thread; waits for the other ranks, at most join_timeout_s. link_abort: on any thread, any time
   * before link_leave; does not block. link_leave: while no call is under way; never blocks. */
  gsel_status (*link_join)(void *ctx, const gsel_join *join, gsel_link **out, gsel_error **err);
  void (*link_leave)(gsel_link *link);
  void (*link_abort)(gsel_link *link, const char *reason);
  gsel_status (*collective)(gsel_link *link, const gsel_collective *call, gsel_stream *stream, gsel_error **err);
  gsel_status (*link_counts)(const gsel_link *link, gsel_collective_kind kind, gsel_comm_count *out, gsel_error **err);

  /* All functions below may be NULL: those of gsel/comm.h then return GSEL_ERR_UNSUPPORTED.
   * group makes the calls as gsel_group_run makes those of one communicator. work_start does the same, asynchronously.
   * work_wait waits at most `seconds` (0: does not wait, and does not begin the timeout of a message; negative: until the
   * end) and sets *done; its error is that of the first failed call. work_free: after the work is done. */
  gsel_status (*group)(gsel_link *link, const gsel_collective *calls, uint64_t n, gsel_error **err);
  gsel_status (*work_start)(gsel_link *link, const gsel_collective *calls, uint64_t n, gsel_pending **out,
                            gsel_error **err);
  gsel_status (*work_wait)(gsel_pending *work, double seconds, int32_t *done, gsel_error **err);
  void (*work_free)(gsel_pending *work);

  /* Links made from links, see gsel_comm_split and the functions after it; *out is NULL for a rank that gets none. */
  gsel_status (*link_split)(gsel_link *link, int32_t colour, int32_t key, gsel_membership *membership, gsel_link **out,
                            gsel_error **err);
  gsel_status (*link_shrink)(gsel_link *link, gsel_membership *membership, gsel_link **out, gsel_error **err);
  gsel_status (*link_resync)(gsel_link *link, gsel_error **err);
  gsel_status (*link_set_timeout)(gsel_link *link, double timeout_s, gsel_error **err);

  /* Memory that all ranks of a link can access; see gsel_mem_alloc and gsel_mem_register. */
  gsel_status (*link_alloc)(gsel_link *link, uint64_t bytes, void **out, gsel_error **err);
  gsel_status (*link_free)(gsel_link *link, void *memory, gsel_error **err);
  gsel_status (*link_register)(gsel_link *link, void *memory, uint64_t bytes, gsel_error **err);
  gsel_status (*link_unregister)(gsel_link *link, void *memory, gsel_error **err);

  /* link_trace: the JSON of docs/trace.md, allocated with malloc. */
  gsel_status (*link_explain)(gsel_link *link, const gsel_collective *call, gsel_comm_explanation *out,
                              gsel_error **err);
  gsel_status (*link_trace)(const gsel_link *link, char **out, gsel_error **err);

  /* Makes a link of ranks[n] in that order; only these ranks call it, see gsel_comm_create_group. May be NULL. */
  gsel_status (*link_create_group)(gsel_link *link, const int32_t *ranks, uint64_t n, gsel_membership *membership,
                                   gsel_link **out, gsel_error **err);
  /* link_dup: as link_split with all ranks in their order. link_name: see gsel_comm_name; valid as long as the link. */
  gsel_status (*link_dup)(gsel_link *link, gsel_membership *membership, gsel_link **out, gsel_error **err);
  const char *(*link_name)(const gsel_link *link);

  /* A transport of devices, since plugin ABI 1.3, has describe, and needs of the above open, close, link_join,
   * link_leave, link_abort and collective; link_alloc to link_unregister are of memory of the device. Its calls return
   * when they are enqueued on their stream. Everything else is done for it through the host: whether ranks make the
   * same calls, whether all of them live, timeouts, recordings, and links made from links, which join anew.
   *   describe    text lives as long as ctx
   *   enqueue     the calls together, each on its link and stream, as ncclGroupStart and ncclGroupEnd do; the links are
   *               of this transport
   *   link_error  what has failed since the calls were enqueued; does not wait. Any thread
   * link_abort may wait here; calls that other threads are in return then. */
  gsel_status (*describe)(void *ctx, gsel_transport_description *out, gsel_error **err);
  gsel_status (*enqueue)(gsel_link *const *links, const gsel_collective *calls, gsel_stream *const *streams, uint64_t n,
                         gsel_error **err);
  gsel_status (*link_error)(gsel_link *link, gsel_error **err);
} gsel_transport_v1;

GSEL_EXTERN_C_END

#endif
