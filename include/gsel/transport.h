/* gsel/transport.h: for authors of transports. A transport moves bytes between ranks. For device memory it runs
 * collectives and messages, enqueued on a stream. Between hosts, for host memory, it only moves bytes from rank to
 * rank, and the host (libgsel) builds collectives and messages on top. A transport is small, because the communicator's
 * control keeps every promise of gsel/comm.h: whether ranks make the same calls, whether all ranks are alive, timeouts,
 * recordings, and links made from links, which join again. Memory, streams and kernels are in another table:
 * gsel/device.h. Host memory of ranks on one host needs no transport. */
#ifndef GSEL_TRANSPORT_H
#define GSEL_TRANSPORT_H

#include <gsel/comm.h>
#include <gsel/device.h>
#include <gsel/error.h>
#include <gsel/plugin.h>
#include <gsel/types.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_link gsel_link;     /* one rank's end of a communicator */
typedef struct gsel_window gsel_window; /* memory registered with a link */
typedef struct gsel_posted gsel_posted; /* a transfer in flight */

/* The control of the communicator that a link belongs to. Lives until link_leave has returned.
 *   ctx          the first argument of all functions
 *   exchange     all[world_size][bytes] is mine[bytes] of each rank. Each rank calls it equally often, and only within
 *                link_join and window_register, which all ranks call together
 *   announce     announces a call that the transport makes on its own. The host announces every call that it passes to
 *                enqueue: a rank that disagrees gets an error before anything is enqueued
 *   look         fails once a rank has died or the communicator is broken, so that a function that waits for other
 *                ranks can stop. Any thread
 *   await_break  waits at most `seconds` until look fails; returns 1 if it does. Any thread */
typedef struct gsel_control_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  void *ctx;
  gsel_status (*exchange)(void *ctx, const void *mine, void *all, uint64_t bytes, gsel_error **err);
  gsel_status (*announce)(void *ctx, const gsel_collective *call, gsel_error **err);
  gsel_status (*look)(void *ctx, gsel_error **err);
  int32_t (*await_break)(void *ctx, double seconds);
} gsel_control_v1;

/* How a rank joins.
 *   timeout_s       bound on each later call, seconds
 *   join_timeout_s  bound on link_join, seconds
 *   device_table, device_ctx  the opened device of this rank
 *   flags           GSEL_COMM_*
 *   address         at which other hosts have reached this one, a number or a name; empty: unknown, or all ranks are on
 *                   one host. Lives until link_join has returned */
typedef struct gsel_join {
  uint32_t struct_size;
  uint32_t flags;
  int32_t rank;
  int32_t world_size;
  double timeout_s;
  double join_timeout_s;
  const gsel_device_v1 *device_table;
  void *device_ctx;
  const gsel_control_v1 *control;
  gsel_str address;
} gsel_join;

/* Describes a transport.
 *   flags         GSEL_TRANSPORT_*
 *   dlpack_types  bits 1 << device type, as in dlpack.h, of the devices whose memory it accepts
 *   version       of the library that it wraps; ranks with different ones do not join
 *   library       the file of this library, for display; lives as long as ctx */
#define GSEL_TRANSPORT_BITWISE 1u    /* all ranks get the same bits, in every run */
#define GSEL_TRANSPORT_OWN_DEVICE 2u /* each rank needs its own device */
#define GSEL_TRANSPORT_HOST_SYNCHRONOUS 4u /* a call has ended when enqueue returns */
#define GSEL_TRANSPORT_ONE_ORDER 8u /* the calls of a link run in the order enqueued, also on several streams */
#define GSEL_TRANSPORT_CAPTURE 16u  /* calls may be captured in a graph */
#define GSEL_TRANSPORT_TAGS 32u     /* messages have tags, can be probed, and can come from any rank */
#define GSEL_TRANSPORT_IN_PLACE 64u /* devices of one process access each other's buffers in place */
#define GSEL_TRANSPORT_PROMPT 128u  /* short transfers between hosts take no longer than over a socket, and received
                                     * data may be shorter than the receive */
#define GSEL_TRANSPORT_LAUNCH_ORDER 256u /* the calls of all links of a device begin in the order in which they were
                                          * enqueued, also on several streams, or a call that waits for other ranks
                                          * keeps nothing of the device from others */
#define GSEL_TRANSPORT_SHARED_DEVICE 512u /* for ranks of one host; of itself gsel takes it where ranks share a device */
typedef struct gsel_transport_description {
  uint32_t struct_size;
  uint32_t flags;
  uint64_t dlpack_types;
  int32_t version;
  int32_t reserved;
  gsel_str library;
} gsel_transport_description;

/* A call, on a stream of the device whose memory it uses; NULL is the default stream. Layout is frozen. */
typedef struct gsel_enqueued {
  gsel_link *link;
  const gsel_collective *call;
  gsel_stream *stream;
} gsel_enqueued;

/* A transfer of bytes to a rank of the link, or from one. Transfers from one rank to another with one tag arrive in the
 * order posted, each in a receive of the same size. Layout is frozen.
 *   peer   not this rank
 *   tag    0 to 2^24 - 1
 *   bytes  at most 2^40; 0 is also a transfer */
typedef struct gsel_transfer {
  int32_t peer;
  uint32_t tag;
  const void *send; /* NULL: a receive */
  void *recv;
  uint64_t bytes;
} gsel_transfer;

/* One thread at a time calls the functions of a link, except link_abort and link_error, which any thread may call.
 *   open, close       set up what all links of the transport share. `ctx` is the first argument of link_join
 *   describe          describes the transport; starts nothing on a device
 *   link_join         waits for the other ranks, at most join_timeout_s
 *   link_leave        called while no call is being enqueued: waits for the enqueued work of the link, unless the
 *                     control says that the communicator is broken
 *   link_abort        ends the link's work that waits for other ranks, and calls in other threads. May wait; the host
 *                     calls it on a separate thread
 *   link_error        what has failed since the calls were enqueued; does not wait
 *   supports          whether the link can make a call; if not, writes the reason to reason[capacity]. The same on all
 *                     ranks. Unsupported calls go through host memory
 *   enqueue           makes the calls together, as ncclGroupStart and ncclGroupEnd do, and returns when all are on
 *                     their streams; the links are of this transport. If it must wait for other ranks, for example for
 *                     a first connection, it ends with GSEL_ERR_TIMEOUT after timeout_s
 *   memory_alloc, memory_free       memory of a device that the transport can register; NULL: the device's own
 *                                   functions are used. The memory belongs to no link
 *   window_register   called by all ranks of a link: the other ranks may read and write each rank's memory[bytes] in
 *                     place; NULL: not needed. In allreduce, allgather (recv) and reduce_scatter (send), registered
 *                     buffers lie at the same offset on all ranks. An error other than GSEL_ERR_ARG, which all ranks
 *                     return, breaks the communicator. window_release: no unfinished call uses the memory
 *   link_native       the handle of the wrapped library, such as ncclComm_t, for programs that know it; NULL: none
 * Between hosts, for host memory (dlpack_types has kDLCPU, GSEL_TRANSPORT_HOST_SYNCHRONOUS is set); supports and
 * enqueue need not make any call then:
 *   post              begins a transfer and returns immediately, whatever other ranks do; the memory must stay
 *                     unchanged and allocated until the transfer is done
 *   test              *done: 1 once the bytes were sent, so that their memory can be reused, or received. Waits at most
 *                     `seconds`, without a lock that another thread's post or test needs; 0: does not block. It may
 *                     return before either. An error means that the link is broken: GSEL_ERR_PEER,
 *                     GSEL_ERR_ABORTED; GSEL_ERR_STATE if this rank's own program has shut down the wrapped library
 *   release           after it returns, the memory is not used any more. Before the end of the transfer only after
 *                     link_abort. Any thread; before link_leave
 *                     post and test may be called by several threads at the same time
 *   link_note         what a program must know about the link, in one line, for gsel_comm_explain; asked again after
 *                     window_register; each text lives as long as the link; NULL: nothing
 *   library_note      what the library that the transport wraps has, and what of it the transport uses, in one line,
 *                     for `gsel plugins`; static. Called after the probe, before open; starts nothing */
typedef struct gsel_transport_v2 {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_status (*open)(const gsel_host_v1 *host, void **out_ctx, gsel_error **err);
  void (*close)(void *ctx);
  gsel_status (*describe)(void *ctx, gsel_transport_description *out, gsel_error **err);

  gsel_status (*link_join)(void *ctx, const gsel_join *join, gsel_link **out, gsel_error **err);
  void (*link_leave)(gsel_link *link);
  void (*link_abort)(gsel_link *link, const char *reason);
  gsel_status (*link_error)(gsel_link *link, gsel_error **err);

  int32_t (*supports)(gsel_link *link, const gsel_collective *call, char *reason, size_t capacity);
  gsel_status (*enqueue)(const gsel_enqueued *calls, uint64_t n, double timeout_s, gsel_error **err);

  /* The functions below may be NULL. */
  gsel_status (*memory_alloc)(void *ctx, const gsel_device_v1 *device_table, void *device_ctx, uint64_t bytes,
                              void **out, gsel_error **err);
  void (*memory_free)(void *ctx, const gsel_device_v1 *device_table, void *device_ctx, void *memory);
  gsel_status (*window_register)(gsel_link *link, void *memory, uint64_t bytes, gsel_window **out, gsel_error **err);
  void (*window_release)(gsel_link *link, gsel_window *window);
  void *(*link_native)(gsel_link *link);

  gsel_status (*post)(gsel_link *link, const gsel_transfer *transfer, gsel_posted **out, gsel_error **err);
  gsel_status (*test)(gsel_posted *posted, double seconds, int32_t *done, gsel_error **err);
  void (*release)(gsel_posted *posted);
  const char *(*link_note)(gsel_link *link);
  const char *(*library_note)(void);
} gsel_transport_v2;

GSEL_EXTERN_C_END

#endif
