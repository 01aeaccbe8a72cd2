/* gsel/train.h: trains a model on the ranks of a communicator, under the strategy that the configuration names.
 *
 * Two ways to drive one step, same program, same results:
 *   push  gsel_trainer_step calls the model's callbacks on the calling thread
 *   pull  gsel_trainer_next_work hands out work; run your kernel, then gsel_trainer_complete; until GSEL_WORK_DONE
 * Pull suits Go and Rust: the library calls nothing back. */
#ifndef GSEL_TRAIN_H
#define GSEL_TRAIN_H

#include <gsel/comm.h>
#include <gsel/config.h>
#include <gsel/model.h>
#include <gsel/program.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_trainer gsel_trainer;

/* Asks the embedder to fill an input value. Borrowed for the call.
 *   sample_ids  [n_samples] global sample ids: the same ids make up step k under every layout
 *   dst         [n_samples][value's dims] to be written whole */
typedef struct gsel_data_request {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t value;
  int32_t microbatch;
  int64_t n_samples;
  const int64_t *sample_ids;
  gsel_tensor dst;
  char *message;                /* [message_capacity] a failing callback may write its reason here, NUL-terminated */
  size_t message_capacity;
} gsel_data_request;

/* What a gsel_data_fn returns, or gsel_trainer_complete is given, when this rank has no samples left: its micro-batch
 * then has weight 0 and runs no callback, while the rank goes on to take part in every collective. Refused in a pipeline,
 * and where one rank's batch is divided among all: other ranks count on these samples. */
#define GSEL_NO_SAMPLES 1

/* Returns GSEL_OK, GSEL_NO_SAMPLES, or any other code to end the step on every rank, as gsel_layer_fn does. Called on
 * the thread that drives the trainer. */
typedef gsel_status (*gsel_data_fn)(const gsel_data_request *request, void *user_data);

/* An optimizer of the embedder's, instead of train.optimizer. It steps what this rank owns of a parameter, piece by
 * piece, in f32.
 *   param          id; elements [first, first + count) of it
 *   values         [count] to be updated; the library rounds them to the parameter's dtype
 *   gradient       [count] of the mean loss, clipped; may be overwritten
 *   states         [n_states][count] zero before the first step, kept
 *   t              step from 1; learning_rate has schedule and lr_factor in it; weight_decay is 0 where it does not apply
 *   phase          0; GSEL_NEEDS_PARAM_NORM: in phase 0 `gradient` becomes the update, in phase 1 it is applied, with
 *                  param_norm and update_norm of the whole parameter */
typedef struct gsel_optimizer_call {
  uint32_t struct_size;
  int32_t phase;
  int32_t param;
  uint32_t flags;               /* GSEL_PARAM_* */
  const int64_t *dims;          /* [n_dims] the parameter's */
  int32_t n_dims;
  int32_t n_states;
  int64_t first;
  int64_t count;
  float *values;
  float *gradient;
  float *const *states;
  int64_t t;
  double learning_rate;
  double weight_decay;
  double param_norm;
  double update_norm;
  char *message;                /* [message_capacity] as in gsel_call */
  size_t message_capacity;
} gsel_optimizer_call;

/* As gsel_layer_fn. */
typedef gsel_status (*gsel_optimizer_fn)(const gsel_optimizer_call *call, void *user_data);

#define GSEL_NEEDS_ELEMENTS 0    /* each element by itself: any piece will do */
#define GSEL_NEEDS_PARAM_NORM 1  /* norms of the parameter and of its update (LAMB) */
#define GSEL_NEEDS_WHOLE_PARAM 2 /* first is 0 and count is all (Muon): shards end between parameters */

typedef struct gsel_optimizer_options {
  uint32_t struct_size;
  int32_t needs;                /* GSEL_NEEDS_* */
  int32_t n_states;             /* 0 to 4 */
  int32_t reserved;
  gsel_optimizer_fn step;
  void *user_data;              /* kept until gsel_trainer_free */
  gsel_free_fn free_user_data;  /* see gsel/types.h */
} gsel_optimizer_options;
#define GSEL_OPTIMIZER_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_optimizer_options)
GSEL_API void gsel_optimizer_options_init(gsel_optimizer_options *options, size_t struct_size);

/*   config          borrowed for the call; NULL: all defaults
 *   data            fills input values; may be NULL when only pull is used
 *   data_user_data  kept until gsel_trainer_free
 *   optimizer       borrowed for the call; NULL: train.optimizer
 *   data_free_user_data  see gsel/types.h                                                                   */
typedef struct gsel_trainer_options {
  uint32_t struct_size;
  uint32_t reserved;
  const gsel_config *config;
  gsel_data_fn data;
  void *data_user_data;
  const gsel_optimizer_options *optimizer;
  gsel_free_fn data_free_user_data;
} gsel_trainer_options;
#define GSEL_TRAINER_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_trainer_options)
GSEL_API void gsel_trainer_options_init(gsel_trainer_options *options, size_t struct_size);

/* Compiles the model, loads the strategy's plugin, checks that all ranks described the same model, initialises the
 * parameters. A collective: every rank of comm calls it.
 *   comm     borrowed until gsel_trainer_free; while a step runs the trainer alone uses it
 *   model    finished here if it is not; the trainer keeps a hold on it
 *   options  NULL: defaults
 *   out      given to the caller, free with gsel_trainer_free
 * Errors: GSEL_ERR_ARG, GSEL_ERR_MODEL (also for a kernel that breaks its contract, under [train] check = "kernels"; see
 * gsel/check.h), GSEL_ERR_CONFIG (with file, line, key), GSEL_ERR_NOT_FOUND (no such plugin),
 * GSEL_ERR_PLUGIN (refused or failed), GSEL_ERR_PROGRAM, GSEL_ERR_UNSUPPORTED (a combination: its text says),
 * GSEL_ERR_CALLBACK (an initialiser), GSEL_ERR_MISMATCH (names the parameter or setting), GSEL_ERR_PEER (names a rank
 * that could not make its trainer), GSEL_ERR_NOMEM (also when train.memory_bytes is not enough: with a table of what is
 * needed and a change that would fit), those of gsel_broadcast. Since 0.1. */
GSEL_API gsel_status gsel_trainer_create(gsel_comm *comm, gsel_model *model, const gsel_trainer_options *options,
                                         gsel_trainer **out, gsel_error **err);

/* What a step did. Times in seconds on this rank. */
typedef struct gsel_step_report {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t step;                  /* from 0 */
  double loss;                   /* sum of losses over all ranks / sum of weights */
  double loss_sum;
  double weight;
  double gradient_norm;          /* of the mean gradient; 0 unless train.clip_norm is set or a strategy computes it */
  double seconds;
  double compute_s;              /* inside callbacks */
  double exposed_comm_s;         /* waiting for communication */
  double optimizer_s;
  uint64_t bytes_sent;           /* by this rank in this step */
  int32_t n_reduces;             /* gradient buckets reduced */
  int32_t n_overlapped;          /* of them, begun before the last backward callback had ended */
  int32_t n_allgathers;          /* allgathers of parameters */
  int32_t skipped;               /* 1: a gradient was not finite, on any rank; nothing was updated (train.non_finite) */
  double allgather_s;            /* duration of the allgathers */
  double exposed_allgather_s;    /* of it, waited for; a part of exposed_comm_s */
  double learning_rate;          /* of this step */
  double loss_scale;             /* of this step; 1 unless train.precision is "fp16" */
  uint64_t peak_bytes;           /* of memory this rank's trainer has held at once */
  uint64_t offload_bytes_in;     /* read from offload memory in this step */
  uint64_t offload_bytes_out;    /* written to it */
  int64_t validated_step;        /* the step that gradient_norm and skipped speak of: this one, unless a pipeline's ranks step
                                  * before they know them (post_validate); then the one before, -1: none yet */
  int32_t restarts;              /* 1: that step was to be clipped or skipped, so it was undone and done again, and this one
                                  * begun a second time; its times and bytes have both */
  int32_t non_finite_rank;       /* where a gradient that was not finite came from first, in the order of micro-batches */
  int32_t non_finite_layer;      /* and of backward: rank, layer and parameter of the description, micro-batch of that rank; */
  int32_t non_finite_param;      /* -1: all were finite, or each rank's were and a sum over ranks was not. Of validated_step */
  int32_t non_finite_microbatch;
  int32_t reserved2;
} gsel_step_report;
#define GSEL_STEP_REPORT_INIT GSEL_STRUCT_INIT(gsel_step_report)
GSEL_API void gsel_step_report_init(gsel_step_report *report, size_t struct_size);

/* One whole step, push. report may be NULL. Errors: GSEL_ERR_CALLBACK (layer, rank, message; the other ranks get
 * GSEL_ERR_ABORTED with the same text), those of the collectives; GSEL_ERR_STATE for a layer without callbacks (nothing
 * happened), GSEL_ERR_IO where train.timeline cannot be written (the step was taken, gsel_trainer_report has it, and the
 * next one can follow). After any other error trainer and communicator are broken on every rank: free them. In a
 * pipeline a rank may return while others are at the step; a failure there is then an error of its next one.
 * docs/pipeline.md. Since 0.1. */
GSEL_API gsel_status gsel_trainer_step(gsel_trainer *trainer, gsel_step_report *report, gsel_error **err);

/* Work of pull mode. Borrowed until gsel_trainer_complete.
 *   kind   GSEL_INPUT, GSEL_FORWARD, GSEL_BACKWARD_INPUT, GSEL_BACKWARD_WEIGHT or GSEL_BACKWARD; GSEL_WORK_DONE: the step is
 *          over
 *   call   of a layer, else NULL
 *   input  of an input value, else NULL */
#define GSEL_WORK_DONE 0
typedef struct gsel_work {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t kind;
  int32_t reserved2;
  uint64_t ticket;
  const gsel_call *call;
  const gsel_data_request *input;
} gsel_work;
#define GSEL_WORK_INIT GSEL_STRUCT_INIT(gsel_work)
GSEL_API void gsel_work_init(gsel_work *work, size_t struct_size);

/* Next work of the step; begins a step when none is under way. GSEL_WORK_DONE ends it (nothing to complete).
 * Errors: GSEL_ERR_STATE (the work handed out is not complete), those of gsel_trainer_step and, in place of
 * GSEL_WORK_DONE, of gsel_trainer_evaluate. Since 0.1. */
GSEL_API gsel_status gsel_trainer_next_work(gsel_trainer *trainer, gsel_work *out, gsel_error **err);

/* Says that the work is done (status GSEL_OK) or failed (any other code, and why). GSEL_ERR_STATE for a ticket not
 * handed out; GSEL_ERR_CALLBACK when status is not GSEL_OK: the step is over on every rank. Since 0.1. */
GSEL_API gsel_status gsel_trainer_complete(gsel_trainer *trainer, uint64_t ticket, gsel_status status, gsel_str message,
                                           gsel_error **err);

/* Report of the last finished step. GSEL_ERR_STATE when there is none. Since 0.1. */
GSEL_API gsel_status gsel_trainer_report(const gsel_trainer *trainer, gsel_step_report *report, gsel_error **err);

/* Evaluates one batch of train.batch samples: forward and loss alone, on all ranks. A collective. Noise is that of the
 * next step; layers see call->evaluating = 1.
 *   first_sample  global id of the batch's first sample
 *   data          fills the inputs; NULL: the trainer's
 *   report        loss, loss_sum, weight, times and bytes; may be NULL. gsel_trainer_report still gives the last step
 * Errors: as gsel_trainer_step; GSEL_ERR_MODEL where the loss weights of all ranks sum to 0, as without samples: nothing
 * is broken. Since 0.1. */
GSEL_API gsel_status gsel_trainer_evaluate(gsel_trainer *trainer, int64_t first_sample, gsel_data_fn data,
                                           void *user_data, gsel_step_report *report, gsel_error **err);

/* The same, pull: gsel_trainer_next_work then hands out the evaluation's work until GSEL_WORK_DONE, after which
 * gsel_trainer_report gives the evaluation once, unless a step has begun. GSEL_ERR_STATE while a step is under way.
 * Since 0.1. */
GSEL_API gsel_status gsel_trainer_begin_evaluation(gsel_trainer *trainer, int64_t first_sample, gsel_error **err);

/* 1 when this rank has every parameter whole and exact between steps; 0 when gsel_trainer_infer and
 * gsel_trainer_read_param are collectives, which all ranks call alike (ZeRO stage 3; every stage where parameters are
 * kept in 16 bits, since master copies are in shards; DP's replicas; every pipeline, tensor or context axis of several ranks).
 * Any thread. Since 0.1. */
GSEL_API int32_t gsel_trainer_holds_params(const gsel_trainer *trainer);

/* Runs forward callbacks alone until `value` is written, then copies it out. Ranks that differ in their coordinates on
 * the tensor, context and pipeline axes alone do so together, each what it has, and all get the whole value; others have samples
 * of their own. A collective where gsel_trainer_holds_params is 0: parameters in shards are gathered layer by layer.
 *   n_samples  1 or more; inputs are asked from `data` (push) with sample ids 0 .. n_samples-1
 *   data       fills the inputs the value depends on, alike on all ranks whose layers read them; called on this thread
 *   dst        [dst_bytes] exactly n_samples * dims of the value
 * Errors: GSEL_ERR_ARG, GSEL_ERR_CALLBACK (ranks of the same samples get GSEL_ERR_PEER with its text; trainer stays
 * usable), GSEL_ERR_STATE (a step is under way or has failed, or a layer has no callbacks), GSEL_ERR_NOMEM. Since 0.1. */
GSEL_API gsel_status gsel_trainer_infer(gsel_trainer *trainer, int32_t value, int64_t n_samples, gsel_data_fn data,
                                        void *user_data, void *dst, size_t dst_bytes, gsel_error **err);

/* Copies a parameter out, whole, as f32: its master copy where it is kept in 16 bits. dst [dst_bytes] exactly 4 bytes
 * per element. A collective where gsel_trainer_holds_params is 0. GSEL_ERR_ARG; GSEL_ERR_STATE while a step is under
 * way. Since 0.1. */
GSEL_API gsel_status gsel_trainer_read_param(gsel_trainer *trainer, int32_t param, void *dst, size_t dst_bytes,
                                             gsel_error **err);

/* This rank's program; borrowed until gsel_trainer_free. Any thread. Since 0.1. */
GSEL_API const gsel_program *gsel_trainer_program(const gsel_trainer *trainer);

/* Bytes this rank has sent since it was created, and calls made, for one instruction kind on one axis. Of setup and
 * steps, not of evaluations. GSEL_FORWARD and GSEL_BACKWARD_INPUT count the phases of layers and the redistribution of
 * values.
 *   out  zeros for a kind that sends nothing
 * GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_trainer_counts(const gsel_trainer *trainer, gsel_instr_kind kind, gsel_axis axis,
                                         gsel_comm_count *out, gsel_error **err);

/* One part of what this rank's trainer keeps in memory: as forecast from the program, and as allocated at most. */
typedef struct gsel_memory_part {
  uint32_t struct_size;
  int32_t offloaded;             /* 0: the device's memory; 1: offload memory */
  const char *name;              /* "parameters", "gradients", "optimizer state", "master copy", "values and windows", ... */
  uint64_t forecast_bytes;
  uint64_t peak_bytes;
} gsel_memory_part;
#define GSEL_MEMORY_PART_INIT GSEL_STRUCT_INIT(gsel_memory_part)
GSEL_API void gsel_memory_part_init(gsel_memory_part *part, size_t struct_size);

/* How many parts there are; part i of the trainer's memory, from 0, empty ones included. What
 * gsel_trainer_infer and _read_param need beside what steps have is in the peak and not in the forecast. Text lives as long as the library.
 * Since 0.1. */
GSEL_API int32_t gsel_trainer_memory_count(const gsel_trainer *trainer);
GSEL_API gsel_status gsel_trainer_memory(const gsel_trainer *trainer, int32_t i, gsel_memory_part *out,
                                         gsel_error **err);

/* The last step as JSON: the report, bytes and calls per axis and instruction, memory by part, and with train.timeline
 * the begin and end of each instruction (docs/step.md). Borrowed until the next call with this trainer. Since 0.1. */
GSEL_API gsel_status gsel_trainer_step_json(gsel_trainer *trainer, gsel_str *out, gsel_error **err);

/* Whether any backward of the last step produced this parameter's gradient on this rank: 1 or 0; 0 also where another
 * stage of a pipeline has the parameter. A gradient that no rank produced is zero. GSEL_ERR_ARG below 0. Since 0.1. */
GSEL_API int32_t gsel_trainer_param_used(const gsel_trainer *trainer, int32_t param);

/* Releases; NULL is fine. Does not free the communicator. While a step or an evaluation is under way it ends on every
 * rank: the others get GSEL_ERR_ABORTED, and the communicator is broken. Since 0.1. */
GSEL_API void gsel_trainer_free(gsel_trainer *trainer);

/* Every function above: one thread at a time per trainer, unless it says "any thread". In a forked child they answer
 * GSEL_ERR_FORKED; gsel_trainer_free releases there what no thread of the parent can hold. */

GSEL_EXTERN_C_END

#endif
