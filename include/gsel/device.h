/* gsel/device.h: for authors of devices. A device has the functions for memory, streams, events and kernels of one kind
 * of accelerator. The trainer accesses tensors only through them. Ranks exchange bytes through another table:
 * gsel/transport.h.
 *
 * `ctx` is the context that open returned. A stream is a queue of work that runs in order; NULL is the device's default
 * stream. A failure of work on a stream is reported by the next wait on the stream, or on an event recorded after the
 * work. If threads have a current device (CUDA, HIP), every function sets it and restores it, also when it fails. */
#ifndef GSEL_DEVICE_H
#define GSEL_DEVICE_H

#include <gsel/error.h>
#include <gsel/plugin.h>
#include <gsel/types.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_stream gsel_stream;
typedef struct gsel_event gsel_event;
typedef struct gsel_graph gsel_graph;

#define GSEL_OPTIMIZER_SGD 1       /* g += weight_decay * param; with momentum when momentum != 0 */
#define GSEL_OPTIMIZER_SIGN_SGD 2  /* param -= learning_rate * (sign(g) + weight_decay * param) */
#define GSEL_OPTIMIZER_ADAMW 3     /* Loshchilov & Hutter, ICLR 2019, algorithm 2 */
#define GSEL_OPTIMIZER_ADAM 4      /* Kingma & Ba, ICLR 2015; g += weight_decay * param */
#define GSEL_OPTIMIZER_LION 5      /* Chen et al., NeurIPS 2023, algorithm 2 */
#define GSEL_OPTIMIZER_ADAMW_8BIT 6 /* moments in 8 bits, a scale per 256 elements: Dettmers et al., ICLR 2022 */

/* One optimizer step on count elements, f32. g = gradient * gradient_scale.
 *   state0, state1  [count] momentum, or first and second moment; NULL if the kind has none. ADAMW_8BIT: [count] bytes,
 *                   see below
 *   scale0, scale1  ADAMW_8BIT: [ceil(count / 256)] the largest magnitude of each block of 256 elements; the call's
 *                   first element begins a block; zeros before the first step
 *   t               step number from 1, for bias correction
 *   param16         [count] where param is also written, rounded to param16_dtype; NULL: nowhere
 * The 8-bit code of ADAMW_8BIT: a moment is scale * value(code), and value(0) = 0. In state0 bit 7 is the sign, c are
 * the lower bits, and code 128 has the value 1. In state1 c is the whole code, and code 1 has the value 1. With n the
 * highest power of two in c, and i = 0..6 its exponent (state0: n = 2^i, state1: n = 2^(i+1)), the value of other codes
 * is 10^(i-6) * (0.1 + 0.9 * (c - n + 0.5) / n). A moment is stored as the code of the nearest value; a second moment
 * above 0 is never stored as 0. The step itself uses the moments before they are rounded. */
typedef struct gsel_optimizer_step {
  uint32_t struct_size;
  int32_t kind;
  float *param;
  const float *gradient;
  float *state0;
  float *state1;
  uint64_t count;
  int64_t t;
  double gradient_scale;
  double learning_rate;
  double weight_decay;
  double momentum;
  double beta1;
  double beta2;
  double epsilon;
  void *param16;
  gsel_dtype param16_dtype;
  int32_t reserved;
  float *scale0;
  float *scale1;
  const void *factors;     /* memory of the device with what step_factors has written of this step: in place of t and all
                            * rates, for graphs; NULL: none. Needs update_scale */
  const double *update_scale; /* memory of the device: in place of gradient_scale; NaN: nothing is updated */
} gsel_optimizer_step;

#define GSEL_REDUCE_SOURCES 64 /* the most that reduce takes */

#define GSEL_STEP_FACTOR_BYTES 64 /* that step_factors writes for each call of optimizer_step */

/* How the scale of gradients and the clip factor are computed on the device, from numbers in memory of the device or page-locked memory.
 *   weights  [n_weights] where the sum of weights of each micro-batch is
 *   squares  [ends[n_ends - 1]] sums of squares of gradients; group i goes up to ends[i]. Squares of a group are added in
 *            order, then groups are; those before first_norm only refuse
 *   out      [2] 1 / (weight * loss_scale), where weight is the sum of these in order; and the same times clip.
 *            Both are NaN if the weight is not positive and finite, or with refuses_non_finite if a square is not finite
 * clip is 1, or with clip_norm > 0 the smaller of 1 and clip_norm / (norm + 1e-6), where norm is the square root of the
 * sum of squares, divided by (weight * loss_scale). All in f64, rounded to nearest. */
typedef struct gsel_update_scale {
  uint32_t struct_size;
  int32_t n_weights;
  const double *const *weights;
  const double *squares;
  const int32_t *ends;
  int32_t n_ends;
  int32_t first_norm;
  double loss_scale;
  double clip_norm;
  double *out;
  int32_t refuses_non_finite;
  int32_t reserved;
} gsel_update_scale;

/* A part of a low-rank reduction of one matrix (PowerSGD: Vogels et al., NeurIPS 2019, algorithms 1 and 2), f32.
 * matrix and error are [rows][cols], left is [rank][rows] and right [rank][cols]: column after column of the factors.
 *   GSEL_LOW_RANK_START   right = random columns
 *   GSEL_LOW_RANK_LEFT    matrix += old_error * scale; right is made orthonormal; left = matrix * right
 *   GSEL_LOW_RANK_RIGHT   left is made orthonormal; right = transposed matrix * left
 *   GSEL_LOW_RANK_FINISH  product = left * transposed right; error = (matrix - product * (1 / ranks)) * (1 / scale);
 *                         matrix = product. If an element of the product may be infinite or NaN (an element of left is,
 *                         or the sum of magnitudes of a row of right): matrix = NaN, error = old_error, and right as
 *                         START makes it; left may be overwritten
 * old_error may be error. scale, 1 / ranks and 1 / scale are rounded to f32. Results have the same bits on every device:
 *   left       sum s of 16 adds the products of elements s, s + 16, ... of a row; sums are added in order, all in f32
 *   right      the products of rows are added in order to 0, in f32; so are those of columns in `product`
 *   orthonormal  column by column. A sum over a column is in f64: lane t of 256 adds the elements t, t + 256, ...; lanes
 *              are added by halves, as in sum_squares. If the length of a column is infinite or NaN, all columns become
 *              NaN. A column is divided by its length, unless that is 0; twice, in order, its component along each
 *              earlier column is taken out, as that column times minus the sum of products rounded to f32; then it is
 *              divided by its length. A column of length 0, or with at most 1e-6 left of it, becomes a random one first
 *   random     column number c: element i is 2 * gsel_random_uniform(key of c, i) - 1. The key of c is the first two words
 *              of Philox 4x32-10 of (key, c), the second above the first. START takes the numbers 0 to rank - 1; for
 *              column k of a factor c is k, then k + rank, ...
 * All rounding is to nearest; no product is contracted into a fused addition. */
#define GSEL_LOW_RANK_START 1
#define GSEL_LOW_RANK_LEFT 2
#define GSEL_LOW_RANK_RIGHT 3
#define GSEL_LOW_RANK_FINISH 4
typedef struct gsel_low_rank_step {
  uint32_t struct_size;
  int32_t kind;
  int64_t rows;
  int64_t cols;
  int64_t rank;
  float *matrix;
  float *left;
  float *right;
  float *error;
  const float *old_error;
  uint64_t key;            /* of random columns */
  double scale;
  int32_t ranks;
  int32_t reserved;
} gsel_low_rank_step;

/* Directions of a copy. */
#define GSEL_COPY_TO_DEVICE 1
#define GSEL_COPY_TO_HOST 2
#define GSEL_COPY_ON_DEVICE 3

/* Kinds of memory. The host can only access the first kind if the device has GSEL_DEVICE_HOST_MEMORY. */
#define GSEL_MEMORY_DEVICE 1 /* of the device itself */
#define GSEL_MEMORY_PINNED 2 /* of the host, page-locked: the device copies asynchronously */
#define GSEL_MEMORY_HOST 3   /* any other host memory; not available from alloc */

/* How a device is opened. Zeros: the first device. */
#define GSEL_DEVICE_BY_UUID (-1) /* as an ordinal: the device with the given uuid, which must not be empty */
typedef struct gsel_device_options {
  uint32_t struct_size;
  uint32_t flags;          /* 0 */
  int32_t ordinal;         /* index among the devices that the process's masks leave; or GSEL_DEVICE_BY_UUID.
                            * GSEL_ERR_ARG: the process sees fewer */
  int32_t reserved;
  gsel_str uuid;           /* required uuid, as in the inventory, or GSEL_ERR_NO_DEVICES; empty: any */
} gsel_device_options;

#define GSEL_DEVICE_HOST_MEMORY 1u /* the host reads and writes GSEL_MEMORY_DEVICE */
#define GSEL_DEVICE_SYNCHRONOUS 2u /* work on the NULL stream has ended when the call returns */

/* The opened device. Text lives as long as ctx. */
typedef struct gsel_device_description {
  uint32_t struct_size;
  uint32_t flags;          /* GSEL_DEVICE_* */
  int32_t dlpack_type;     /* as in dlpack.h: 1 CPU, 2 CUDA, 10 ROCm */
  int32_t ordinal;
  uint64_t memory_bytes;   /* of the device; 0: unknown */
  uint64_t free_bytes;     /* currently free */
  gsel_str name;
  gsel_str uuid;           /* empty: it has none */
} gsel_device_description;

/* Where an address points to. */
typedef struct gsel_memory_info {
  uint32_t struct_size;
  int32_t kind;            /* GSEL_MEMORY_* */
  int32_t ordinal;         /* of the device that owns it; -1: host memory */
  int32_t reserved;
  void *base;              /* of the allocation, if known; else the address asked for */
  uint64_t bytes;          /* of the allocation; 0: unknown */
} gsel_memory_info;

/* Flags of a stream. */
#define GSEL_STREAM_HIGH_PRIORITY 1u
#define GSEL_EVENT_TIMING 1u /* event_seconds accepts the event */

/* Any thread may call any function; calls on one stream or event must not overlap. */
typedef struct gsel_device_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_status (*open)(const gsel_host_v1 *host, const gsel_device_options *options, void **out_ctx, gsel_error **err);
  void (*close)(void *ctx);
  gsel_status (*describe)(void *ctx, gsel_device_description *out, gsel_error **err);

  /* Memory. alloc: kind GSEL_MEMORY_DEVICE or _PINNED; at least 64-byte aligned; contents undefined; GSEL_ERR_NOMEM.
   * free: no unfinished work uses the memory; NULL is fine. memory_of: accepts any address.
   * copy: direction GSEL_COPY_*, of bytes that do not overlap. Host memory of a copy on a stream must not change until
   * the stream has passed the copy. copy_rows: rows of equal length at fixed distances, for copying a shard of a tensor
   * to or from separate memory on the device. */
  gsel_status (*alloc)(void *ctx, int32_t kind, uint64_t bytes, void **out, gsel_error **err);
  void (*free)(void *ctx, void *memory);
  gsel_status (*memory_of)(void *ctx, const void *memory, gsel_memory_info *out, gsel_error **err);
  gsel_status (*copy)(void *ctx, void *dst, const void *src, uint64_t bytes, int32_t direction, gsel_stream *stream,
                      gsel_error **err);
  gsel_status (*copy_rows)(void *ctx, void *dst, uint64_t dst_stride_bytes, const void *src, uint64_t src_stride_bytes,
                           uint64_t row_bytes, uint64_t rows, gsel_stream *stream, gsel_error **err);
  gsel_status (*zero)(void *ctx, void *dst, uint64_t bytes, gsel_stream *stream, gsel_error **err);

  /* Streams and events. flags: GSEL_STREAM_*, GSEL_EVENT_*. The import functions wrap a stream or event that the
   * program owns, a CUstream or CUevent of the same device, which must outlive the handle; the free functions then
   * release only the handle. The native functions return the stream or event, also of one that create made; NULL if the
   * device has no such object.
   *   stream_wait        blocks the caller until the stream is empty
   *   event_wait         blocks the caller until the work before the last record has ended; returns immediately if
   *                      never recorded
   *   event_done         the same without blocking: *done is 1 or 0
   *   stream_wait_event  makes the stream wait, not the caller
   *   event_seconds      time from event a to event b, both of GSEL_EVENT_TIMING and reached */
  gsel_status (*stream_create)(void *ctx, uint32_t flags, gsel_stream **out, gsel_error **err);
  gsel_status (*stream_import)(void *ctx, void *native, gsel_stream **out, gsel_error **err);
  void *(*stream_native)(void *ctx, gsel_stream *stream);
  void (*stream_free)(void *ctx, gsel_stream *stream);
  gsel_status (*stream_wait)(void *ctx, gsel_stream *stream, gsel_error **err);
  gsel_status (*event_create)(void *ctx, uint32_t flags, gsel_event **out, gsel_error **err);
  gsel_status (*event_import)(void *ctx, void *native, gsel_event **out, gsel_error **err);
  void *(*event_native)(void *ctx, gsel_event *event);
  void (*event_free)(void *ctx, gsel_event *event);
  gsel_status (*event_record)(void *ctx, gsel_event *event, gsel_stream *stream, gsel_error **err);
  gsel_status (*event_wait)(void *ctx, gsel_event *event, gsel_error **err);
  gsel_status (*event_done)(void *ctx, gsel_event *event, int32_t *done, gsel_error **err);
  gsel_status (*stream_wait_event)(void *ctx, gsel_stream *stream, gsel_event *event, gsel_error **err);
  double (*event_seconds)(void *ctx, gsel_event *a, gsel_event *b);

  /* Kernels on count elements of memory that the device can access. cast rounds to nearest even; scale is dst *= factor
   * and add is dst += src, for any floating-point type: 8-bit and 16-bit types are computed in f32 and rounded once, to
   * nearest even. sum_squares (f32, f64) writes one f64 to out, in an order that gives the same bits on every device:
   * in each chunk of 4096 elements lane t of 256 adds x * x of the elements t, t + 256, ... in f64, and lanes are added
   * by halves (t and t + 128, then t and t + 64, down to 1). The sums of several chunks are added in the same way,
   * without the square, until one is left. For f32 the result is finite if and only if every element is. */
  gsel_status (*cast)(void *ctx, void *dst, gsel_dtype dst_dtype, const void *src, gsel_dtype src_dtype,
                      uint64_t count, gsel_stream *stream, gsel_error **err);
  gsel_status (*scale)(void *ctx, void *dst, gsel_dtype dtype, double factor, uint64_t count, gsel_stream *stream,
                       gsel_error **err);
  gsel_status (*add)(void *ctx, void *dst, const void *src, gsel_dtype dtype, uint64_t count, gsel_stream *stream,
                     gsel_error **err);
  gsel_status (*sum_squares)(void *ctx, const void *src, gsel_dtype dtype, uint64_t count, double *out,
                             gsel_stream *stream, gsel_error **err);
  gsel_status (*optimizer_step)(void *ctx, const gsel_optimizer_step *step, gsel_stream *stream, gsel_error **err);

  /* For transports whose libraries need the device to be current on the calling thread: enter makes it current, and
   * leave restores what enter wrote to *before. Since plugin ABI 1.3; NULL if the device has no such concept. */
  gsel_status (*enter)(void *ctx, void **before, gsel_error **err);
  void (*leave)(void *ctx, void *before);

  /* Whether memory of this device is inaccessible to another device of this process that can otherwise access this
   * device's memory: *closed is 1 if the other device may not both read and write the address, as in a mapping made for
   * its owner alone; else 0. Since plugin ABI 1.4; NULL: all memory is accessible. */
  gsel_status (*memory_closed)(void *ctx, const void *memory, int32_t ordinal, int32_t *closed, gsel_error **err);

  /* See gsel_low_rank_step. Since plugin ABI 1.9; NULL: low-rank compression is refused on this device. */
  gsel_status (*low_rank_step)(void *ctx, const gsel_low_rank_step *step, gsel_stream *stream, gsel_error **err);

  /* Graphs: work that is recorded once and launched many times, with the arguments and addresses of the recording.
   *   capture_begin  from here on, work for the stream is recorded and does not run, and so is work for streams that
   *                  wait for an event recorded in it; the stream waits for these streams again before the end. The
   *                  thread that begins a capture ends it. The NULL stream cannot be captured
   *   capture_check  an error if a call that a capture forbids has invalidated it: a wait of the host, a look at an
   *                  event of the capture, an allocation. Work for its streams then fails until capture_end
   *   capture_end    ends it in any case. The graph is freed with graph_free
   *   graph_launch   enqueues the graph on a stream, after the launch before
   *   graph_free     no launch is unfinished; NULL is fine
   * Since plugin ABI 1.10; NULL, all of them: this device has no graphs. GSEL_ERR_UNSUPPORTED from capture_begin: its
   * driver has none. */
  gsel_status (*capture_begin)(void *ctx, gsel_stream *stream, gsel_error **err);
  gsel_status (*capture_check)(void *ctx, gsel_stream *stream, gsel_error **err);
  gsel_status (*capture_end)(void *ctx, gsel_stream *stream, gsel_graph **out, gsel_error **err);
  gsel_status (*graph_launch)(void *ctx, gsel_graph *graph, gsel_stream *stream, gsel_error **err);
  void (*graph_free)(void *ctx, gsel_graph *graph);

  /* For optimizer steps in graphs, whose numbers differ from launch to launch. step_factors writes what optimizer_step
   * needs of a step's t and rates to memory of the host, [GSEL_STEP_FACTOR_BYTES]; update_scale is described at
   * gsel_update_scale. Since plugin ABI 1.10; NULL: a graph has no optimizer steps. */
  gsel_status (*step_factors)(void *ctx, const gsel_optimizer_step *step, void *out, gsel_error **err);
  gsel_status (*update_scale)(void *ctx, const gsel_update_scale *scale, gsel_stream *stream, gsel_error **err);

  /* Sums of numbers that stay on the device: writes the sum of numbers[ends[n_ends - 1]] to out, an f64. Group i goes up
   * to ends[i]; numbers of a group are added in order, then groups are, all in f64. numbers and out are memory of the
   * device or page-locked memory; ends is page-locked memory, and keeps its values until the stream has passed the call.
   * n_ends may be 0. Since plugin ABI 1.10; NULL: the host waits in each step for its loss and its norm. */
  gsel_status (*sum_numbers)(void *ctx, const double *numbers, const int32_t *ends, int32_t n_ends, double *out,
                             gsel_stream *stream, gsel_error **err);

  /* Reduction over several buffers, such as those of ranks that share this device: dst[i] = srcs[0][i] op srcs[1][i] op
   * ... op srcs[n - 1][i], in this order, for count elements of memory that the device can access. The bits are those of
   * gsel_allreduce in host memory, of n ranks with these inputs in this order (GSEL_ORDER_RANKS), as stated at gsel_op in
   * gsel/types.h: floating-point types of 8 and 16 bits are computed in f32 and rounded once at the end, integers wrap,
   * GSEL_AVG divides by n, a NaN is the one of its type, and with n = 1 the result is a copy.
   *   dst    [count]; may equal sources, but not overlap one partly
   *   srcs   [n] memory of the host, read during the call only; its addresses may be equal
   *   n      1 to GSEL_REDUCE_SOURCES
   *   dtype  any
   *   op     GSEL_SUM to GSEL_BXOR, those that gsel_allreduce takes for the dtype
   *   count  0: nothing is enqueued
   * GSEL_ERR_ARG: n out of range, unknown dtype or op, an op that the dtype does not have, or NULL. GSEL_ERR_UNSUPPORTED:
   * GSEL_SCALED_SUM, which needs factors, and operations of the program. Nothing is enqueued then. Since plugin ABI 1.11;
   * NULL: none. */
  gsel_status (*reduce)(void *ctx, void *dst, const void *const *srcs, int32_t n, gsel_dtype dtype, gsel_op op,
                        uint64_t count, gsel_stream *stream, gsel_error **err);
} gsel_device_v1;

GSEL_EXTERN_C_END

#endif
