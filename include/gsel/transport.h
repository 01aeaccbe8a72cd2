/* gsel/transport.h: for authors of transports. A transport moves bytes between ranks whose buffers are memory of devices:
 * collectives and messages, enqueued on a stream; or between hosts, from memory of the host: bytes from rank to rank,
 * of which the host makes collectives and messages. It is small, because the control of the communicator keeps every
 * promise of gsel/comm.h: whether ranks make the same calls, whether all of them live, timeouts, recordings, and links
 * made from links, which join anew. Memory, streams and kernels are another table: gsel/device.h. Ranks of one host and
 * memory of the host need no transport. */
#ifndef GSEL_TRANSPORT_H
#define GSEL_TRANSPORT_H

#include <gsel/comm.h>
#include <gsel/device.h>
#include <gsel/error.h>
#include <gsel/plugin.h>
#include <gsel/types.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_link gsel_link;     /* one rank's end of a communicator */
typedef struct gsel_window gsel_window; /* memory that a link knows */
typedef struct gsel_posted gsel_posted; /* bytes that are on their way */

/* The control of the communicator that a link belongs to. Lives until link_leave has returned.
 *   ctx          the first argument of all functions
 *   exchange     all[world_size][bytes] is mine[bytes] of each rank. Each rank calls it equally often, and only within
 *                link_join and window_register, which all ranks call together
 *   announce     makes a call known that the transport makes of its own accord. The host announces every call that it
 *                gives to enqueue: a rank that disagrees is told before anything is enqueued
 *   look         fails once a rank has died or the communicator is broken, so that a function that waits for other
 *                ranks can stop. Any thread
 *   await_break  waits until look fails, at most so long; 1: it does. Any thread */
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
 *   address         at which the other hosts have reached this one, a number or a name; empty: not known, or all ranks
 *                   are on one host. Lives until link_join has returned */
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

/* What a transport is.
 *   flags         GSEL_TRANSPORT_*
 *   dlpack_types  bits 1 << device type, as in dlpack.h, of the devices whose memory it takes
 *   version       of the library behind it; ranks with different ones do not join
 *   library       the file it was found in, for people; lives as long as ctx */
#define GSEL_TRANSPORT_BITWISE 1u    /* all ranks get the same bits, the same ones in every run */
#define GSEL_TRANSPORT_OWN_DEVICE 2u /* each rank has a device of its own */
#define GSEL_TRANSPORT_HOST_SYNCHRONOUS 4u /* a call has ended when enqueue returns */
#define GSEL_TRANSPORT_ONE_ORDER 8u /* the calls of a link run in the order enqueued, also on several streams */
#define GSEL_TRANSPORT_CAPTURE 16u  /* calls may be captured in a graph */
#define GSEL_TRANSPORT_TAGS 32u     /* messages have tags, can be probed, and can come from any rank */
#define GSEL_TRANSPORT_IN_PLACE 64u /* devices of one process reach the buffers of a call where they are */
#define GSEL_TRANSPORT_PROMPT 128u  /* short bytes between hosts take no longer than over a socket, and what is received
                                     * may be shorter than what was asked for */
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

/* Bytes that go to a rank of the link, or come from one. Those that go from one rank to another under one tag arrive in
 * the order posted, each in one that takes as many bytes. Layout is frozen.
 *   peer   not this rank
 *   tag    0 to 2^24 - 1
 *   bytes  at most 2^40; 0 is a message as well */
typedef struct gsel_transfer {
  int32_t peer;
  uint32_t tag;
  const void *send; /* NULL: the bytes come */
  void *recv;
  uint64_t bytes;
} gsel_transfer;

/* One thread at a time calls the functions of a link, except link_abort and link_error, which any thread may call.
 *   open, close       what the transport needs once for all its links. `ctx` is the first argument of link_join
 *   describe          what it is; starts nothing on a device
 *   link_join         waits for the other ranks, at most join_timeout_s
 *   link_leave        while no call is being enqueued: waits for what the link has enqueued, as long as the control does
 *                     not say that the communicator is broken
 *   link_abort        ends the work of the link that waits for other ranks, and calls that other threads are in. May
 *                     wait; the host gives it a thread of its own
 *   link_error        what has failed since the calls were enqueued; does not wait
 *   supports          whether the link makes such a call; if not, writes why not to reason[capacity]. Alike on all
 *                     ranks. What it does not make goes through host memory
 *   enqueue           makes the calls together, as ncclGroupStart and ncclGroupEnd do, and returns when all are on their
 *                     streams; the links are of this transport. Where it must wait for other ranks, such as for a first
 *                     connection, it ends with GSEL_ERR_TIMEOUT after timeout_s
 *   memory_alloc, memory_free       memory of a device that the transport can register; NULL: that of the device's own
 *                     table. It belongs to no link
 *   window_register   all ranks of a link: memory[bytes] of each of them may be read and written by the others in place;
 *                     NULL: not needed. window_release: no call on the memory is under way
 *   link_native       the handle of the library behind it, such as ncclComm_t; NULL: none. For people who know it
 * Between hosts, for memory of the host (dlpack_types has kDLCPU, GSEL_TRANSPORT_HOST_SYNCHRONOUS is set); supports and
 * enqueue need not make any call then:
 *   post              begins to move bytes and returns at once, whatever other ranks do; the memory stays as it is, and
 *                     allocated, until they have gone or come
 *   test              *done: 1 once the bytes have gone, so that their memory can be used again, or come. Waits for at
 *                     most so long, without a lock that another thread's post or test needs; 0: only looks. It may
 *                     return before either. An error says that the link is broken: GSEL_ERR_PEER, GSEL_ERR_ABORTED;
 *                     GSEL_ERR_STATE where this rank's own program has ended the library behind it
 *   release           the memory is used no more when it returns. Before the end of what was posted only behind
 *                     link_abort. Any thread; before link_leave
 *                     post and test may be called by several threads at the same time
 *   link_note         what a program must know of the link, in one line, for gsel_comm_explain; lives as long as the
 *                     link; NULL: nothing */
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
} gsel_transport_v2;

GSEL_EXTERN_C_END

#endif
