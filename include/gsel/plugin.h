/* gsel/plugin.h: for authors of plugins. A plugin is a shared object that exports one data symbol, `gsel_plugin_v1`. It
 * does not link to libgsel: the host (libgsel) passes its functions to the plugin in tables. A plugin is a strategy
 * (below), a device (gsel/device.h) or a transport (gsel/transport.h).
 *
 *     GSEL_STRATEGY_DEFINE("mine", "1.0", .axes = 1u << GSEL_AXIS_DATA, .compile = compile);      see examples/plugin
 *
 * Rules: no work in constructors, no threads before open, no exception may leave the plugin, no change to locale,
 * signal handlers or environment. A plugin that was initialised stays loaded until the process ends. Text inside tables
 * is NUL-terminated and static.
 *
 * Growth: tables grow at the end. A minor version of the plugin ABI adds entries, a major version gets a new symbol.
 * The host accepts a table that is at least as long as in version 1.0, and reads missing entries as zeros. It accepts a
 * table that is longer than the one it knows if the plugin's abi_minor is not above the host's. A plugin may use newer
 * entries of the host's tables only if they exist: it then checks their struct_size, and states the older abi_minor. */
#ifndef GSEL_PLUGIN_H
#define GSEL_PLUGIN_H

#include <gsel/comm.h>
#include <gsel/error.h>
#include <gsel/model.h>
#include <gsel/program.h>
#include <gsel/schedule.h>
#include <gsel/types.h>

GSEL_EXTERN_C_BEGIN

/* Version of the interface that these headers describe. A host accepts its own major version, and minor versions up to
 * its own. */
#define GSEL_PLUGIN_ABI_MAJOR 1
#define GSEL_PLUGIN_ABI_MINOR 11

/* Kinds of plugins. */
#define GSEL_PLUGIN_STRATEGY 1
#define GSEL_PLUGIN_DEVICE 3
#define GSEL_PLUGIN_TRANSPORT 5

/* The symbol. A plugin that is compiled with -DGSEL_PLUGIN_STATIC=NAME is linked into a program, which gives
 * gsel_plugin_v1_NAME to gsel_plugin_register (gsel/registry.h). */
#ifdef GSEL_PLUGIN_STATIC
#define GSEL_PLUGIN_JOIN(name) gsel_plugin_v1_##name
#define GSEL_PLUGIN_SYMBOL_OF(name) GSEL_PLUGIN_JOIN(name)
#define GSEL_PLUGIN_SYMBOL GSEL_PLUGIN_SYMBOL_OF(GSEL_PLUGIN_STATIC)
#define GSEL_PLUGIN_VISIBILITY "hidden"
#else
#define GSEL_PLUGIN_SYMBOL gsel_plugin_v1
#define GSEL_PLUGIN_VISIBILITY "default"
#endif

/* Opens the definition of the symbol; an initialiser of gsel_plugin_v1 follows. */
#ifdef __cplusplus
#define GSEL_PLUGIN_DEFINE \
  extern "C" __attribute__((visibility(GSEL_PLUGIN_VISIBILITY))) const struct gsel_plugin_v1 GSEL_PLUGIN_SYMBOL
#else
#define GSEL_PLUGIN_DEFINE \
  __attribute__((visibility(GSEL_PLUGIN_VISIBILITY))) const struct gsel_plugin_v1 GSEL_PLUGIN_SYMBOL
#endif

/* Services of the host; the table lives as long as the process. Any thread. */
typedef struct gsel_host_v1 {
  uint32_t struct_size;
  uint32_t abi_minor;
  /* Writes a line to the host's log sink. */
  void (*log)(int32_t level, const char* component, const char* line);
  /* Makes an error object to return through a `gsel_error **err`. NULL if there is no memory for it; the plugin still
   * returns an error status. */
  gsel_error* (*error_new)(gsel_status code, const char* message);
} gsel_host_v1;

/* What the plugin exports under the name "gsel_plugin_v1". It is only a struct tag, because in C a type name and a
 * symbol of the same name cannot be in one file. */
struct gsel_plugin_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  uint32_t abi_major; /* GSEL_PLUGIN_ABI_MAJOR the plugin was built with */
  uint32_t abi_minor;
  int32_t kind; /* GSEL_PLUGIN_*; 2 and 4 are reserved: tables from before 1.0 */
  int32_t reserved2;
  const char* name; /* name in config files: lower case letters, digits, '_' */
  const char* version;
  const char* build; /* compiler, date, anything; shown to users */
  const void* table; /* gsel_strategy_v1, gsel_device_v1 or gsel_transport_v2, by kind */
  /* Optional. Returns 0 when the plugin cannot run here, and writes the reason to reason[capacity]; otherwise a score,
   * higher is better. Cheap; only runs when the plugin is requested, and may load and start what the plugin needs. */
  int32_t (*probe)(const gsel_host_v1* host, char* reason, size_t capacity);
};

/* ---- strategies ---------------------------------------------------------------------------------------- */

/* An option of the plugin, a key of its section in gsel.toml. Integers and numbers are checked against
 * [minimum, maximum]. */
#define GSEL_OPTION_INTEGER 1
#define GSEL_OPTION_NUMBER 2
#define GSEL_OPTION_BOOLEAN 3
#define GSEL_OPTION_TEXT 4
typedef struct gsel_option_v1 {
  uint32_t struct_size; /* the same in each option of a list: the distance between them */
  int32_t type;         /* GSEL_OPTION_* */
  const char* name;
  const char* help; /* with the unit */
  double minimum;
  double maximum;
  const char* default_text; /* as written in the file */
} gsel_option_v1;

/* A pass: the call of one plugin's `compile`, which rewrites a program for one axis, or of its `advise`. Owned by the
 * host and valid during the call only. */
typedef struct gsel_pass gsel_pass;

/* How a bucket is kept. A bucket is a list of parameters that are stored side by side. Zeros and owner = -1: whole on
 * every rank.
 *   flags              GSEL_BUCKET_*
 *   axis               of the shards and of the owner
 *   owner              coordinate on the axis of the one rank that keeps optimizer state and steps; -1: all ranks do
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

/* A value of the model, as it is on this rank. */
typedef struct gsel_value_info {
  uint32_t struct_size;
  uint32_t flags; /* GSEL_VALUE_* of gsel/model.h */
  const char* name;
  int64_t sample_bytes; /* of one sample, or of the scalar */
  int32_t producer;     /* layer, -1 for an input */
  int32_t needs_gradient;
  int32_t placement; /* this and later fields as the model declares them, see gsel_value_options */
  int32_t shard_dim;
  int32_t shard_granularity;
  int32_t shard_blocks;
  int32_t sequence_dim;
  int32_t n_dims;
  const int64_t* dims; /* [n_dims] of one sample, whole */
} gsel_value_info;

/* A micro-batch: samples [first, first + count) of the step's batch. Every rank of the data axis has equally many
 * micro-batches; one without samples runs no callback. If the micro-batch is part of another, `whole` is that one, else
 * -1: SCATTER and GATHER work on a part and the whole. */
typedef struct gsel_microbatch_info {
  uint32_t struct_size;
  int32_t whole;
  int64_t first;
  int64_t count;
} gsel_microbatch_info;

/* A parameter of the model, as it is on this rank. */
typedef struct gsel_param_info {
  uint32_t struct_size;
  uint32_t flags; /* GSEL_PARAM_* of gsel/model.h */
  const char* name;
  int64_t n_elems;
  int32_t dtype;  /* as it is kept; gradients are f32 */
  int32_t absent; /* 1: no layer of this rank's stages uses it; no bucket of this rank may hold it */
  int32_t tie;    /* tie-group id, or -1. A bucket holds parameters of one group. A group consists of the parameters
                   * that the same two or more pipeline ranks have, or of those whose gradients are partial on the
                   * ranks that share layers */
  int32_t shard;  /* this and later fields as the model declares them, see gsel_param_options */
  int32_t shard_dim;
  int32_t shard_blocks;
  int32_t shard_granularity;
  int32_t n_dims;
  const int64_t* dims; /* [n_dims] whole */
} gsel_param_info;

/* What a layer's backward has to produce, and how it may run; see gsel_layer_options. */
#define GSEL_BACKWARD_PRODUCES_INPUT 1u  /* gradients of inputs */
#define GSEL_BACKWARD_PRODUCES_WEIGHT 2u /* gradients of parameters */
#define GSEL_BACKWARD_IN_HALVES 4u       /* it has backward_input and backward_weight */
#define GSEL_BACKWARD_IN_ONE 8u          /* it has the fused backward */

/* A layer of the model. */
typedef struct gsel_layer_info {
  uint32_t struct_size;
  uint32_t flags; /* GSEL_LAYER_* of gsel/model.h */
  const char* name;
  const int32_t* inputs; /* value ids */
  const int32_t* outputs;
  const int32_t* params; /* parameter ids */
  int32_t n_inputs;
  int32_t n_outputs;
  int32_t n_params;
  int32_t redistributes;           /* 1: a layer of the host that redistributes a value */
  uint64_t backward_unread_params; /* bit i: neither backward_input nor backward reads params[i]; backward_weight reads
                                    * none */
  uint32_t backward;               /* GSEL_BACKWARD_* */
  int32_t stage;                   /* of the pipeline, see set_stages; 0 before set_stages */
  int64_t saved_bytes_per_sample;
  double flop_per_sample;  /* 0: unknown */
  int32_t n_tensor_phases; /* of either direction, over the axis whose ranks share layers */
  int32_t ring_shifts;     /* 1: some of them are ring shifts */
} gsel_layer_info;

/* How a layer reads or writes a value on the axis whose ranks share it; see set_layer_placements. Layout is frozen. */
typedef struct gsel_placement {
  int32_t kind; /* GSEL_PLACEMENT_* */
  int32_t dim;  /* of GSEL_PLACEMENT_SHARD, counted with the batch dimension as 0 */
} gsel_placement;

/* The topic of `advise`.
 *   GSEL_ADVICE_IDLE    options of this plugin in the file that have no effect on this model in this mesh
 *   GSEL_ADVICE_MEMORY  settings of the [strategy.AXIS] section with which a rank needs less memory */
#define GSEL_ADVICE_IDLE 1
#define GSEL_ADVICE_MEMORY 2

/* A setting of a [strategy.AXIS] section. Layout is frozen. */
typedef struct gsel_setting {
  const char* key;   /* an option, or "plugin" */
  const char* value; /* as gsel_config_set takes it */
} gsel_setting;

#define GSEL_SUGGESTION_OFFLOADS 1u /* something goes to slower memory */

/* A suggestion of a plugin; borrowed for the call of `suggest`.
 *   settings  GSEL_ADVICE_IDLE: [1], the key without effect, with value NULL. GSEL_ADVICE_MEMORY: all settings to
 *             change; if "plugin" names another strategy, the section loses its other options
 *   reason    GSEL_ADVICE_IDLE: why, and what to set; it follows "strategy.data.stage = 3 " in a warning.
 *             GSEL_ADVICE_MEMORY: a name of the change; " needs 310.5 MiB of 512.0 MiB" follows it in a message */
typedef struct gsel_suggestion {
  uint32_t struct_size;
  uint32_t flags;               /* GSEL_SUGGESTION_* */
  const gsel_setting* settings; /* [n_settings], 1 or more */
  int32_t n_settings;
  int32_t reserved;
  const char* reason;
} gsel_suggestion;

/* The functions that a pass can call. Ids and positions count from 0; a call with one out of range returns GSEL_ERR_ARG
 * or 0. Only on the thread that called compile or advise. */
typedef struct gsel_pass_api_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* The mesh: size of an axis, 0 for an axis that the host does not have, and this rank's coordinate on it. */
  int32_t (*axis_size)(const gsel_pass* pass, gsel_axis axis);
  int32_t (*axis_coordinate)(const gsel_pass* pass, gsel_axis axis);
  /* The model. */
  int32_t (*param_count)(const gsel_pass* pass);
  int32_t (*layer_count)(const gsel_pass* pass);
  gsel_status (*param)(const gsel_pass* pass, int32_t id, gsel_param_info* out);
  gsel_status (*layer)(const gsel_pass* pass, int32_t id, gsel_layer_info* out);
  /* Values of this plugin's options, checked; 0 or NULL for a name that the plugin did not declare. */
  int64_t (*option_integer)(const gsel_pass* pass, const char* name);
  double (*option_number)(const gsel_pass* pass, const char* name);
  const char* (*option_text)(const gsel_pass* pass, const char* name);
  /* The step's program so far: read, insert before `position` (length appends), remove. */
  int32_t (*length)(const gsel_pass* pass);
  gsel_status (*get)(const gsel_pass* pass, int32_t position, gsel_instr* out);
  gsel_status (*insert)(gsel_pass* pass, int32_t position, const gsel_instr* instr);
  gsel_status (*remove)(gsel_pass* pass, int32_t position);
  /* Appends to the program that runs once, before the first step. */
  gsel_status (*setup)(gsel_pass* pass, const gsel_instr* instr);
  /* Buckets: parameters stored side by side, in this order, with their gradients and optimizer state. One collective or
   * one optimizer step works on one bucket. Initially there is one bucket per dtype, with all trainable parameters.
   * clear_buckets removes all buckets. At the end each trainable parameter must be in exactly one bucket, and the
   * parameters of a bucket have the same dtype. add_bucket returns the bucket's id or GSEL_ERR_ARG. */
  void (*clear_buckets)(gsel_pass* pass);
  int32_t (*add_bucket)(gsel_pass* pass, const int32_t* params, int32_t n_params);
  /* Sets how a bucket is kept. GSEL_ERR_ARG also for an impossible combination: sharded gradients without sharded
   * state, sharded parameters without sharded gradients. */
  gsel_status (*describe_bucket)(gsel_pass* pass, int32_t bucket, const gsel_bucket_options* options);
  /* Values and micro-batches. set_microbatch changes micro-batch id, or appends one if id is their number. */
  int32_t (*value_count)(const gsel_pass* pass);
  gsel_status (*value)(const gsel_pass* pass, int32_t id, gsel_value_info* out);
  int32_t (*microbatch_count)(const gsel_pass* pass);
  gsel_status (*microbatch)(const gsel_pass* pass, int32_t id, gsel_microbatch_info* out);
  gsel_status (*set_microbatch)(gsel_pass* pass, int32_t id, const gsel_microbatch_info* info);
  int64_t (*batch)(const gsel_pass* pass); /* samples of one step over all ranks */
  /* Pipelines. set_stages takes stage_of_layer[layer_count], which never decreases, and rank_of_stage[n_stages], the
   * pipeline rank (coordinate on the pipeline axis) of each stage. Afterwards parameters that only other pipeline ranks
   * use are absent, and there are new buckets: one per dtype and tie of the other parameters. GSEL_ERR_ARG also if a
   * stage is empty or a pipeline rank has no stage. */
  gsel_status (*set_stages)(gsel_pass* pass, const int32_t* stage_of_layer, const int32_t* rank_of_stage,
                            int32_t n_stages);
  int32_t (*bucket_count)(const gsel_pass* pass);
  /* Makes a schedule for the ranks of the pipeline axis and the micro-batches of this rank, by name (gsel/schedule.h;
   * chunks 0: what the schedule needs) or from a file. Borrowed until compile returns. The error says what is wrong,
   * and where in the file. */
  gsel_status (*schedule)(gsel_pass* pass, const char* name, int32_t chunks, const gsel_schedule** out,
                          gsel_error** err);
  gsel_status (*schedule_file)(gsel_pass* pass, const char* path, const gsel_schedule** out, gsel_error** err);
  int32_t (*schedule_stages)(const gsel_schedule* schedule);
  int32_t (*schedule_rank_of)(const gsel_schedule* schedule, int32_t stage); /* pipeline ranks, here and below */
  int32_t (*schedule_length)(const gsel_schedule* schedule, int32_t rank);
  gsel_status (*schedule_action)(const gsel_schedule* schedule, int32_t rank, int32_t i, gsel_action* out);
  /* Measured seconds of layers, from recorded steps (train.timeline, gsel_trainer_step_json). Writes seconds[3 *
   * layer_count]: forward, backward_input and backward_weight for one micro-batch; a fused backward counts as
   * backward_input. GSEL_ERR_CONFIG if the file lacks a layer. */
  gsel_status (*measured)(gsel_pass* pass, const char* path, double* seconds, gsel_error** err);
  /* Adds a line that explains a decision: a comment in the program's text, which is also logged once. */
  void (*note)(gsel_pass* pass, const char* line);
  /* Weight of a coordinate when an axis divides work, relative to the other coordinates ([strategy.AXIS] weights);
   * default 1. */
  double (*axis_weight)(const gsel_pass* pass, gsel_axis axis, int32_t coordinate);
  /* For the pass of the tensor or context axis, whose ranks share layers. This pass comes first, before there are any
   * instructions. It decides which parameters are split, and with which placements each layer reads and writes its
   * values. All other layers run whole on every rank. From these decisions the host derives sizes, the collectives
   * between layers, and how gradients are summed; an impossible combination is an error of the compilation. A
   * replicated parameter of a layer with anything sharded or partial has a partial gradient, which the host sums.
   *   split_param  splits a parameter by its shard rule. GSEL_ERR_ARG if it has none
   *   set_layer_placements
   *                inputs[n_inputs] as the layer reads them (never GSEL_PLACEMENT_PARTIAL), outputs[n_outputs] as it
   *                writes them. Along its shard_dim a value is split at multiples of its shard_granularity, along other
   *                dimensions between any elements
   * GSEL_ERR_STATE in the pass of another axis. */
  gsel_status (*split_param)(gsel_pass* pass, int32_t param);
  gsel_status (*set_layer_placements)(gsel_pass* pass, int32_t layer, const gsel_placement* inputs,
                                      const gsel_placement* outputs);
  /* The rank whose coordinates are those of this rank, with `coordinate` on `axis`; -1 if there is none. Since plugin
   * ABI 1.1. */
  int32_t (*rank_along)(const gsel_pass* pass, gsel_axis axis, int32_t coordinate);
  /* For advise: adds a suggestion. GSEL_ERR_ARG for an empty one, GSEL_ERR_STATE in compile. Since plugin ABI 1.7. */
  gsel_status (*suggest)(gsel_pass* pass, const gsel_suggestion* suggestion);
} gsel_pass_api_v1;

/* A strategy rewrites the program of one rank for one axis of the mesh.
 *   compile  runs on every rank when a trainer or pipeline is created. It runs several times if its axis is the tensor
 *            or context axis, or if memory is short. It must make the same decisions on every rank and every time:
 *            differences between ranks may only follow from axis_coordinate
 *   advise   optional. Calls `suggest` for the given topic (GSEL_ADVICE_*; does nothing for an unknown one). It gets
 *            the same pass as compile; changes to the pass are dropped. GSEL_ADVICE_IDLE is requested on rank 0.
 *            GSEL_ADVICE_MEMORY is requested on every rank, from the strategy of the data axis, if the model does not
 *            fit in train.memory_bytes: the same suggestions on every rank, the cheapest first. The host tries these
 *            one after the other, interleaved with changes of its own, and names the first that fits. If advise fails,
 *            nothing is suggested; for GSEL_ADVICE_IDLE the failure is a warning. Since plugin ABI 1.7 */
typedef struct gsel_strategy_v1 {
  uint32_t struct_size;
  uint32_t axes;                 /* bits 1 << GSEL_AXIS_*: the axes that it serves ([strategy.AXIS] sections) */
  const gsel_option_v1* options; /* [n_options] */
  int32_t n_options;
  int32_t reserved;
  gsel_status (*compile)(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                         gsel_error** err);
  gsel_status (*advise)(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                        int32_t topic, gsel_error** err);
} gsel_strategy_v1;

/* Defines a plugin that is one strategy: its name, its version, and initialisers of the fields of gsel_strategy_v1
 * (without struct_size). */
#define GSEL_STRATEGY_DEFINE(plugin_name, plugin_version, ...)                                                  \
  static const gsel_strategy_v1 gsel_defined_strategy = {.struct_size = sizeof(gsel_strategy_v1), __VA_ARGS__}; \
  GSEL_PLUGIN_DEFINE = {.struct_size = sizeof(struct gsel_plugin_v1),                                           \
                        .abi_major = GSEL_PLUGIN_ABI_MAJOR,                                                     \
                        .abi_minor = GSEL_PLUGIN_ABI_MINOR,                                                     \
                        .kind = GSEL_PLUGIN_STRATEGY,                                                           \
                        .name = plugin_name,                                                                    \
                        .version = plugin_version,                                                              \
                        .build = "compiler " __VERSION__,                                                       \
                        .table = &gsel_defined_strategy}

GSEL_EXTERN_C_END

#endif
