/* gsel/plugin.h: for authors of strategies and backends. A plugin is a shared object that exports one data symbol,
 * `gsel_plugin_v1`, and does not link to libgsel: what it needs of the host arrives as tables.
 *
 *     GSEL_STRATEGY_DEFINE("mine", "1.0", .axes = 1u << GSEL_AXIS_DATA, .compile = compile);      see examples/plugin
 *
 * Rules: no work in constructors, no threads before open, no exception out, no change to locale, signal handlers or
 * environment. A plugin that was initialised stays loaded until the process ends. Text inside tables is NUL-terminated
 * and static.
 *
 * Growth: tables grow at the end, a minor version of the plugin ABI adds, a major one gets a new symbol. The host takes
 * tables from their size in version 1.0 on and reads what is missing as zeros; a table that is longer than the host knows
 * is taken where the plugin's abi_minor says that it needs no more than the host's. A plugin that makes use of newer
 * entries of the host's tables, where they are there, looks at their struct_size and states the older abi_minor. */
#ifndef GSEL_PLUGIN_H
#define GSEL_PLUGIN_H

#include <gsel/comm.h>
#include <gsel/error.h>
#include <gsel/model.h>
#include <gsel/program.h>
#include <gsel/schedule.h>
#include <gsel/types.h>

GSEL_EXTERN_C_BEGIN

#define GSEL_PLUGIN_ABI_MAJOR 1
#define GSEL_PLUGIN_ABI_MINOR 1

#define GSEL_PLUGIN_STRATEGY 1
#define GSEL_PLUGIN_BACKEND 2

/* Opens the definition of the exported symbol; an initialiser of gsel_plugin_v1 follows. */
#ifdef __cplusplus
#define GSEL_PLUGIN_DEFINE \
  extern "C" __attribute__((visibility("default"))) const struct gsel_plugin_v1 gsel_plugin_v1
#else
#define GSEL_PLUGIN_DEFINE __attribute__((visibility("default"))) const struct gsel_plugin_v1 gsel_plugin_v1
#endif

/* Services of the host; the table lives as long as the process. Any thread. */
typedef struct gsel_host_v1 {
  uint32_t struct_size;
  uint32_t abi_minor;
  /* A line for the host's log sink. */
  void (*log)(int32_t level, const char *component, const char *line);
  /* A new error object to return through a `gsel_error **err`; NULL when out of memory, which is still an error. */
  gsel_error *(*error_new)(gsel_status code, const char *message);
} gsel_host_v1;

/* What the module exports under the name "gsel_plugin_v1"; a struct tag alone, because in C a type name and that
 * symbol could not share a file. */
struct gsel_plugin_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  uint32_t abi_major;      /* GSEL_PLUGIN_ABI_MAJOR the plugin was built with */
  uint32_t abi_minor;
  int32_t kind;            /* GSEL_PLUGIN_STRATEGY or GSEL_PLUGIN_BACKEND */
  int32_t reserved2;
  const char *name;        /* how a config file names it: lower case letters, digits, '_' */
  const char *version;
  const char *build;       /* compiler, date, anything; shown to people */
  const void *table;       /* gsel_strategy_v1 or gsel_backend_v1, by kind */
  /* Optional, cheap, free of side effects: 0 when the plugin cannot run here, with the reason written to
   * reason[capacity]; else a score, higher is better. */
  int32_t (*probe)(const gsel_host_v1 *host, char *reason, size_t capacity);
};

/* ---- strategies ---------------------------------------------------------------------------------------- */

/* An option of the plugin, a key of its section in gsel.toml. Integers and numbers are checked against
 * [minimum, maximum]. */
#define GSEL_OPTION_INTEGER 1
#define GSEL_OPTION_NUMBER 2
#define GSEL_OPTION_BOOLEAN 3
#define GSEL_OPTION_TEXT 4
typedef struct gsel_option_v1 {
  uint32_t struct_size;        /* the same in each option of a list: the distance between them */
  int32_t type;                /* GSEL_OPTION_* */
  const char *name;
  const char *help;            /* with the unit */
  double minimum;
  double maximum;
  const char *default_text;    /* as it would stand in the file */
} gsel_option_v1;

/* The compilation under way; the host's. Valid during `compile` only. */
typedef struct gsel_pass gsel_pass;

/* How a bucket is kept. Zeros and owner = -1: whole on every rank.
 *   axis               of the shards and of the owner
 *   owner              coordinate on the axis of the one rank that keeps optimizer state and steps; -1: all
 *   compression        GSEL_COMPRESS_*; compression_rank: columns of a factor; compression_start: first step, from 0,
 *                      that compresses */
typedef struct gsel_bucket_options {
  uint32_t struct_size;
  uint32_t flags;
  gsel_axis axis;
  int32_t owner;
  int32_t compression;
  int32_t compression_rank;
  int64_t compression_start;
} gsel_bucket_options;

typedef struct gsel_value_info {
  uint32_t struct_size;
  uint32_t flags;              /* GSEL_VALUE_* of gsel/model.h */
  const char *name;
  int64_t sample_bytes;        /* of one sample; of the whole where it is a scalar */
  int32_t producer;            /* layer, -1 for an input */
  int32_t needs_gradient;
  int32_t placement;           /* as the model says, see gsel_value_options: its author's, not of this rank */
  int32_t shard_dim;
  int32_t shard_granularity;
  int32_t shard_blocks;
  int32_t sequence_dim;
  int32_t n_dims;
  const int64_t *dims;         /* [n_dims] of one sample, whole */
} gsel_value_info;

/* A micro-batch: samples [first, first + count) of the step's batch. Every rank of the data axis has equally many;
 * one without samples runs no callback. `whole` is the micro-batch that it is a part of, -1 for none: SCATTER and
 * GATHER work on a part and the whole. */
typedef struct gsel_microbatch_info {
  uint32_t struct_size;
  int32_t whole;
  int64_t first;
  int64_t count;
} gsel_microbatch_info;

typedef struct gsel_param_info {
  uint32_t struct_size;
  uint32_t flags;              /* GSEL_PARAM_* of gsel/model.h */
  const char *name;
  int64_t n_elems;
  int32_t dtype;               /* as it is kept; gradients are f32 */
  int32_t absent;              /* 1: no layer of this rank's stages uses it; no bucket here may hold it */
  int32_t tie;                 /* -1, or a number that parameters have in common which the same several stages of the
                                * pipeline hold, or whose gradients are partial on the ranks that share layers: a bucket's
                                * parameters have one tie */
  int32_t shard;               /* as the model says, see gsel_param_options */
  int32_t shard_dim;
  int32_t shard_blocks;
  int32_t shard_granularity;
  int32_t n_dims;
  const int64_t *dims;         /* [n_dims] whole */
} gsel_param_info;

/* What a layer's backward has to produce, and how it may run; see gsel_layer_options. */
#define GSEL_BACKWARD_PRODUCES_INPUT 1u
#define GSEL_BACKWARD_PRODUCES_WEIGHT 2u
#define GSEL_BACKWARD_IN_HALVES 4u /* backward_input and backward_weight */
#define GSEL_BACKWARD_IN_ONE 8u    /* backward */

typedef struct gsel_layer_info {
  uint32_t struct_size;
  uint32_t flags;              /* GSEL_LAYER_* of gsel/model.h */
  const char *name;
  const int32_t *inputs;       /* value ids */
  const int32_t *outputs;
  const int32_t *params;       /* parameter ids */
  int32_t n_inputs;
  int32_t n_outputs;
  int32_t n_params;
  int32_t redistributes;       /* 1: the host's own, from one placement of a value to another */
  uint64_t backward_unread_params; /* bit i: neither backward_input nor backward reads params[i]; backward_weight never does */
  uint32_t backward;           /* GSEL_BACKWARD_* */
  int32_t stage;               /* of the pipeline, see set_stages; 0 before it */
  int64_t saved_bytes_per_sample;
  double flop_per_sample;      /* 0: unknown */
  int32_t n_tensor_phases;     /* of either direction, over the axis whose ranks share layers */
  int32_t ring_shifts;         /* 1: some of them are ring shifts */
} gsel_layer_info;

/* How a layer reads or writes a value on the axis whose ranks share it; see set_layer_placements. Layout is frozen. */
typedef struct gsel_placement {
  int32_t kind; /* GSEL_PLACEMENT_* */
  int32_t dim;  /* of GSEL_PLACEMENT_SHARD, counted with the batch dimension as 0 */
} gsel_placement;

/* What a pass can ask and do. Ids and positions count from 0; calls out of range return GSEL_ERR_ARG or 0.
 * One thread, the one that called compile. */
typedef struct gsel_pass_api_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* The mesh: size of an axis, 0 for an axis that the host does not have, and this rank's coordinate on it. */
  int32_t (*axis_size)(const gsel_pass *pass, gsel_axis axis);
  int32_t (*axis_coordinate)(const gsel_pass *pass, gsel_axis axis);
  /* The model. */
  int32_t (*param_count)(const gsel_pass *pass);
  int32_t (*layer_count)(const gsel_pass *pass);
  gsel_status (*param)(const gsel_pass *pass, int32_t id, gsel_param_info *out);
  gsel_status (*layer)(const gsel_pass *pass, int32_t id, gsel_layer_info *out);
  /* Options of this plugin, checked; a name it did not declare gives 0 or NULL. */
  int64_t (*option_integer)(const gsel_pass *pass, const char *name);
  double (*option_number)(const gsel_pass *pass, const char *name);
  const char *(*option_text)(const gsel_pass *pass, const char *name);
  /* The step's program so far: read, insert before `position` (length appends), remove. */
  int32_t (*length)(const gsel_pass *pass);
  gsel_status (*get)(const gsel_pass *pass, int32_t position, gsel_instr *out);
  gsel_status (*insert)(gsel_pass *pass, int32_t position, const gsel_instr *instr);
  gsel_status (*remove)(gsel_pass *pass, int32_t position);
  /* Appends to the program that runs once, before the first step. */
  gsel_status (*setup)(gsel_pass *pass, const gsel_instr *instr);
  /* Buckets: parameters stored side by side, in this order, with their gradients and optimizer state; what one
   * collective or one optimizer step works on. clear_buckets forgets those there are (at first: one per dtype, of all
   * trainable parameters); each trainable parameter must end up in exactly one, and the parameters of a bucket have one
   * dtype. add_bucket returns its id or GSEL_ERR_ARG. */
  void (*clear_buckets)(gsel_pass *pass);
  int32_t (*add_bucket)(gsel_pass *pass, const int32_t *params, int32_t n_params);
  /* How a bucket is kept. GSEL_ERR_ARG also for a combination that cannot be: gradients in shards without state in
   * shards, parameters in shards without gradients in shards. */
  gsel_status (*describe_bucket)(gsel_pass *pass, int32_t bucket, const gsel_bucket_options *options);
  /* Values and micro-batches. set_microbatch changes one, or appends when id is their number. */
  int32_t (*value_count)(const gsel_pass *pass);
  gsel_status (*value)(const gsel_pass *pass, int32_t id, gsel_value_info *out);
  int32_t (*microbatch_count)(const gsel_pass *pass);
  gsel_status (*microbatch)(const gsel_pass *pass, int32_t id, gsel_microbatch_info *out);
  gsel_status (*set_microbatch)(gsel_pass *pass, int32_t id, const gsel_microbatch_info *info);
  int64_t (*batch)(const gsel_pass *pass); /* samples of one step over all ranks */
  /* Pipelines. set_stages: stage_of_layer[layer_count], never falling; rank_of_stage[n_stages], a pipeline rank
   * (coordinate on the pipeline axis) for each. From then on parameters of other pipeline ranks are absent, and the buckets
   * are anew one per dtype and tie of those that are here. GSEL_ERR_ARG also where a stage is empty or a pipeline rank has
   * none. */
  gsel_status (*set_stages)(gsel_pass *pass, const int32_t *stage_of_layer, const int32_t *rank_of_stage,
                            int32_t n_stages);
  int32_t (*bucket_count)(const gsel_pass *pass);
  /* A schedule for as many ranks as the pipeline axis and as many micro-batches as there are: by name (gsel/schedule.h;
   * chunks 0: what it needs), or from a file. Borrowed until compile returns. The error tells why not, with its place. */
  gsel_status (*schedule)(gsel_pass *pass, const char *name, int32_t chunks, const gsel_schedule **out,
                          gsel_error **err);
  gsel_status (*schedule_file)(gsel_pass *pass, const char *path, const gsel_schedule **out, gsel_error **err);
  int32_t (*schedule_stages)(const gsel_schedule *schedule);
  int32_t (*schedule_rank_of)(const gsel_schedule *schedule, int32_t stage); /* pipeline ranks, here and below */
  int32_t (*schedule_length)(const gsel_schedule *schedule, int32_t rank);
  gsel_status (*schedule_action)(const gsel_schedule *schedule, int32_t rank, int32_t i, gsel_action *out);
  /* Measured seconds of layers, from steps that were recorded (train.timeline, gsel_trainer_step_json): seconds[3 *
   * layer_count] of forward, backward_input, backward_weight for one micro-batch; a fused backward counts as the
   * second. GSEL_ERR_CONFIG where the file lacks a layer. */
  gsel_status (*measured)(gsel_pass *pass, const char *path, double *seconds, gsel_error **err);
  /* A line that explains a decision: it stands as a comment in the program's text, and is logged once. */
  void (*note)(gsel_pass *pass, const char *line);
  /* The share of a coordinate in what an axis divides, in proportion to those of the others; 1 unless the file says
   * otherwise ([strategy.AXIS] weights). */
  double (*axis_weight)(const gsel_pass *pass, gsel_axis axis, int32_t coordinate);
  /* The axes whose ranks share layers: tensor and context. Their pass comes first, when there are no instructions yet: it
   * says which parameters are split, and how each layer finds and leaves its values. Layers for which nothing is said run
   * whole and alike on every rank. From this the host derives sizes, collectives between layers, and what each means for
   * gradients; what cannot be is an error of the compilation. A replicated parameter that lies in a layer of which
   * something is sharded or partial has a partial gradient, which the host sums.
   *   split_param  along its shard rule. GSEL_ERR_ARG where it has none
   *   set_layer_placements
   *                inputs[n_inputs], outputs[n_outputs] of the layer: as it reads them (never GSEL_PLACEMENT_PARTIAL), and as
   *                it writes them. Along its shard_dim a value is split at multiples of its shard_granularity, along another
   *                dimension between any elements
   * GSEL_ERR_STATE outside such a pass. */
  gsel_status (*split_param)(gsel_pass *pass, int32_t param);
  gsel_status (*set_layer_placements)(gsel_pass *pass, int32_t layer, const gsel_placement *inputs,
                             const gsel_placement *outputs);
  /* The rank at this rank's coordinates, but for that on one axis; -1 where there is none. Since plugin ABI 1.1. */
  int32_t (*rank_along)(const gsel_pass *pass, gsel_axis axis, int32_t coordinate);
} gsel_pass_api_v1;

/* A strategy: rewrites the program of one rank for one axis of the mesh. It runs on every rank when a trainer or pipeline
 * is made, several times where it serves an axis whose ranks share layers or where memory is short, and must decide alike
 * everywhere and every time: what differs between ranks may only follow from axis_coordinate. */
typedef struct gsel_strategy_v1 {
  uint32_t struct_size;
  uint32_t axes;                   /* bit 1 << GSEL_AXIS_*: sections it may be named in */
  const gsel_option_v1 *options;   /* [n_options] */
  int32_t n_options;
  int32_t reserved;
  gsel_status (*compile)(const gsel_host_v1 *host, const gsel_pass_api_v1 *api, gsel_pass *pass, gsel_axis axis,
                         gsel_error **err);
} gsel_strategy_v1;

/* Defines a plugin that is one strategy: its name, its version, and initialisers of gsel_strategy_v1 but for
 * struct_size. */
#define GSEL_STRATEGY_DEFINE(plugin_name, plugin_version, ...)                                                        \
  static const gsel_strategy_v1 gsel_defined_strategy = {.struct_size = sizeof(gsel_strategy_v1), __VA_ARGS__};       \
  GSEL_PLUGIN_DEFINE = {.struct_size = sizeof(struct gsel_plugin_v1),                                                 \
                        .abi_major = GSEL_PLUGIN_ABI_MAJOR,                                                           \
                        .abi_minor = GSEL_PLUGIN_ABI_MINOR,                                                           \
                        .kind = GSEL_PLUGIN_STRATEGY,                                                                 \
                        .name = plugin_name,                                                                          \
                        .version = plugin_version,                                                                    \
                        .build = "compiler " __VERSION__,                                                             \
                        .table = &gsel_defined_strategy}

/* ---- backends ------------------------------------------------------------------------------------------ */

/* A backend is memory, order and communication on one kind of device. The trainer touches tensors in no other way.
 * `ctx` is what open returned. A stream is a queue of work in order; NULL is the calling thread, at once.
 * Work enqueued on a stream reports its failure at the next wait on that stream or on an event recorded behind it. */
typedef struct gsel_stream gsel_stream;
typedef struct gsel_event gsel_event;
typedef struct gsel_link gsel_link; /* this rank's end of a communicator */
typedef struct gsel_pending gsel_pending; /* asynchronous calls */

/* How a rank joins; as gsel_comm_options, complete. */
typedef struct gsel_join {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t rank;
  int32_t world_size;
  gsel_unique_id id;
  double timeout_s;
  double join_timeout_s;
  gsel_str device; /* identity of the device this rank computes on; empty: not told */
  int32_t order;   /* GSEL_ORDER_* */
  uint32_t flags;  /* GSEL_COMM_* */
  gsel_str trace;  /* folder to write recordings to at a failure; empty: none */
  gsel_str name;   /* of the communicator, as rank 0 gives it; empty: not given */
} gsel_join;

/* Rank and size of a communicator made from another. Layout is frozen. */
typedef struct gsel_membership {
  int32_t rank;
  int32_t world_size;
} gsel_membership;

#define GSEL_OPTIMIZER_SGD 1       /* g += weight_decay * param; with momentum when momentum != 0 */
#define GSEL_OPTIMIZER_SIGN_SGD 2  /* param -= learning_rate * (sign(g) + weight_decay * param) */
#define GSEL_OPTIMIZER_ADAMW 3     /* Loshchilov & Hutter, ICLR 2019, algorithm 2 */
#define GSEL_OPTIMIZER_ADAM 4      /* Kingma & Ba, ICLR 2015; g += weight_decay * param */
#define GSEL_OPTIMIZER_LION 5      /* Chen et al., NeurIPS 2023, algorithm 2 */
#define GSEL_OPTIMIZER_ADAMW_8BIT 6 /* moments of one byte each with a scale per 256 elements: Dettmers et al., ICLR 2022 */

/* One optimizer step on count elements, f32. g = gradient * gradient_scale.
 *   state0, state1  [count]: momentum; first and second moment; NULL where the kind has none. ADAMW_8BIT: [count] bytes,
 *                   and scale0, scale1 [ceil(count / 256)], the largest magnitude of each block of 256, where the call's
 *                   first element begins one; zeros before the first step. A moment is scale * value of its code: 0 is
 *                   0; state0: bit 7 is the sign, c the lower bits, and 128 is 1; state1: c is the code, and 1 is 1;
 *                   n = highest power of two in c, i = 0..6 its place from the least (1; state1: 2):
 *                   value = 10^(i-6) * (0.1 + 0.9 * (c - n + 0.5) / n). A moment gets the code of the nearest value,
 *                   but a second moment above 0 none of 0. The step itself uses the moments before they are rounded
 *   t               step number from 1, for bias correction
 *   param16         [count] where param is also written, rounded to param16_dtype; NULL: nowhere */
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
} gsel_optimizer_step;

#define GSEL_COPY_TO_DEVICE 1
#define GSEL_COPY_TO_HOST 2
#define GSEL_COPY_ON_DEVICE 3

typedef struct gsel_backend_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* device: index among what the process sees. */
  gsel_status (*open)(const gsel_host_v1 *host, int32_t device, void **out_ctx, gsel_error **err);
  void (*close)(void *ctx);

  /* Memory: at least 64-byte aligned; contents undefined. free(NULL) is fine. */
  gsel_status (*alloc)(void *ctx, uint64_t bytes, void **out, gsel_error **err);
  void (*free)(void *ctx, void *memory);
  gsel_status (*copy)(void *ctx, void *dst, const void *src, uint64_t bytes, int32_t direction, gsel_stream *stream,
                      gsel_error **err);
  gsel_status (*zero)(void *ctx, void *dst, uint64_t bytes, gsel_stream *stream, gsel_error **err);

  /* Streams and events. event_wait blocks the caller; stream_wait_event makes a stream wait, not the caller.
   * event_seconds: time from event a to event b, both reached. */
  gsel_status (*stream_create)(void *ctx, gsel_stream **out, gsel_error **err);
  void (*stream_destroy)(void *ctx, gsel_stream *stream);
  gsel_status (*stream_wait)(void *ctx, gsel_stream *stream, gsel_error **err);
  gsel_status (*event_create)(void *ctx, gsel_event **out, gsel_error **err);
  void (*event_destroy)(void *ctx, gsel_event *event);
  gsel_status (*event_record)(void *ctx, gsel_event *event, gsel_stream *stream, gsel_error **err);
  gsel_status (*event_wait)(void *ctx, gsel_event *event, gsel_error **err);
  gsel_status (*stream_wait_event)(void *ctx, gsel_stream *stream, gsel_event *event, gsel_error **err);
  double (*event_seconds)(void *ctx, gsel_event *a, gsel_event *b);

  /* Kernels, count elements. cast converts with round to nearest even; scale is dst *= factor and add is dst += src, of
   * any floating-point type: 8 and 16 bits are computed in f32 and rounded once to nearest even. sum_squares (f32, f64)
   * writes one f64 of host memory, complete at the next wait. */
  gsel_status (*cast)(void *ctx, void *dst, gsel_dtype dst_dtype, const void *src, gsel_dtype src_dtype,
                      uint64_t count, gsel_stream *stream, gsel_error **err);
  gsel_status (*scale)(void *ctx, void *dst, gsel_dtype dtype, double factor, uint64_t count, gsel_stream *stream,
                       gsel_error **err);
  gsel_status (*add)(void *ctx, void *dst, const void *src, gsel_dtype dtype, uint64_t count, gsel_stream *stream,
                     gsel_error **err);
  gsel_status (*sum_squares)(void *ctx, const void *src, gsel_dtype dtype, uint64_t count, double *out,
                             gsel_stream *stream, gsel_error **err);
  gsel_status (*optimizer_step)(void *ctx, const gsel_optimizer_step *step, gsel_stream *stream, gsel_error **err);

  /* Communication. link_abort: any thread, any time before link_leave; does not block. link_leave: no call under
   * way; never blocks. */
  gsel_status (*link_join)(void *ctx, const gsel_join *join, gsel_link **out, gsel_error **err);
  void (*link_leave)(gsel_link *link);
  void (*link_abort)(gsel_link *link, const char *reason);
  gsel_status (*collective)(gsel_link *link, const gsel_collective *call, gsel_stream *stream, gsel_error **err);
  gsel_status (*link_counts)(const gsel_link *link, gsel_collective_kind kind, gsel_comm_count *out, gsel_error **err);

  /* All below may be NULL: gsel/comm.h then answers GSEL_ERR_UNSUPPORTED.
   * group: the calls as gsel_group_run makes those of one communicator. work_start: the same, asynchronous;
   * work_wait: at most `seconds` (0: a look, negative: to the end), *done tells; the error is that of the first failed
   * call. work_free: after it is done. */
  gsel_status (*group)(gsel_link *link, const gsel_collective *calls, uint64_t n, gsel_error **err);
  gsel_status (*work_start)(gsel_link *link, const gsel_collective *calls, uint64_t n, gsel_pending **out,
                            gsel_error **err);
  gsel_status (*work_wait)(gsel_pending *work, double seconds, int32_t *done, gsel_error **err);
  void (*work_free)(gsel_pending *work);

  /* Links from links; *out is NULL for a rank that gets none. */
  gsel_status (*link_split)(gsel_link *link, int32_t colour, int32_t key, gsel_membership *membership, gsel_link **out,
                            gsel_error **err);
  gsel_status (*link_shrink)(gsel_link *link, gsel_membership *membership, gsel_link **out, gsel_error **err);
  gsel_status (*link_resync)(gsel_link *link, gsel_error **err);
  gsel_status (*link_set_timeout)(gsel_link *link, double timeout_s, gsel_error **err);

  /* Memory the ranks of a link reach; see gsel_mem_alloc and gsel_mem_register. */
  gsel_status (*link_alloc)(gsel_link *link, uint64_t bytes, void **out, gsel_error **err);
  gsel_status (*link_free)(gsel_link *link, void *memory, gsel_error **err);
  gsel_status (*link_register)(gsel_link *link, void *memory, uint64_t bytes, gsel_error **err);
  gsel_status (*link_unregister)(gsel_link *link, void *memory, gsel_error **err);

  /* link_trace: JSON of docs/trace.md, allocated with malloc. */
  gsel_status (*link_explain)(gsel_link *link, const gsel_collective *call, gsel_comm_explanation *out,
                              gsel_error **err);
  gsel_status (*link_trace)(const gsel_link *link, char **out, gsel_error **err);

  /* Rows of equal length, each at its distance from the one before: a part of a tensor to or from memory of its own, on the
   * device. May be NULL: then row by row with `copy`. */
  gsel_status (*copy_rows)(void *ctx, void *dst, uint64_t dst_stride_bytes, const void *src, uint64_t src_stride_bytes,
                           uint64_t row_bytes, uint64_t rows, gsel_stream *stream, gsel_error **err);

  /* As link_split, of ranks[n] in that order, which alone call it; see gsel_comm_create_group. May be NULL. */
  gsel_status (*link_create_group)(gsel_link *link, const int32_t *ranks, uint64_t n, gsel_membership *membership,
                                   gsel_link **out, gsel_error **err);
  /* link_dup: as link_split with all ranks in their order. link_name: see gsel_comm_name; lives as long as the link. */
  gsel_status (*link_dup)(gsel_link *link, gsel_membership *membership, gsel_link **out, gsel_error **err);
  const char *(*link_name)(const gsel_link *link);
} gsel_backend_v1;

GSEL_EXTERN_C_END

#endif
