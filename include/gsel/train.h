/* gsel/train.h: trains a model on the ranks of a communicator, under the strategy that the configuration names.
 *
 * A step can be driven in two ways, with the same program and the same results:
 *   push  gsel_trainer_step calls the model's callbacks on the calling thread
 *   pull  gsel_trainer_next_work returns a piece of work; the caller runs its kernel and calls gsel_trainer_complete,
 *         and repeats both until GSEL_WORK_DONE
 * Pull suits Go and Rust: the library calls no callback of the model. */
#ifndef GSEL_TRAIN_H
#define GSEL_TRAIN_H

#include <gsel/comm.h>
#include <gsel/config.h>
#include <gsel/model.h>
#include <gsel/program.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_trainer gsel_trainer;

/* Asks the embedder to fill an input value. Borrowed for the call.
 *   sample_ids  [n_samples] global sample ids: over all ranks, step k has the same ids under every strategy
 *   dst         [n_samples][value's dims], to be written completely */
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
  void *stream;                 /* as in gsel_call */
} gsel_data_request;

/* Returned by a gsel_data_fn, or passed to gsel_trainer_complete, when this rank has no samples left. The micro-batch
 * then has weight 0 and runs no callback, and the rank still takes part in every collective. Refused in a pipeline, and
 * if the samples of one rank are scattered to others (`dp`): other ranks count on these samples. */
#define GSEL_NO_SAMPLES 1

/* Fills an input. Returns GSEL_OK, GSEL_NO_SAMPLES, or any other code to end the step on every rank, as gsel_layer_fn
 * does. Called on the thread that drives the trainer. */
typedef gsel_status (*gsel_data_fn)(const gsel_data_request *request, void *user_data);

/* A call of the embedder's optimizer, which replaces train.optimizer. It steps the elements of a parameter that this
 * rank owns, piece by piece, in f32.
 *   param          id; the call is for elements [first, first + count) of this parameter
 *   values         [count] to be updated; the library rounds them to the parameter's dtype
 *   gradient       [count] gradient of the mean loss, clipped; may be overwritten
 *   states         [n_states][count] zero before the first step, kept between steps
 *   t              step from 1
 *   learning_rate  includes the schedule and the parameter's lr_factor
 *   weight_decay   0 if the parameter has none
 *   phase          0. With GSEL_NEEDS_PARAM_NORM there are two phases: phase 0 replaces `gradient` by the update, and
 *                  phase 1 applies it, with param_norm and update_norm of the whole parameter */
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
  void *stream;                 /* as in gsel_call */
} gsel_optimizer_call;

/* Steps elements of a parameter. Results and threads as for gsel_layer_fn. */
typedef gsel_status (*gsel_optimizer_fn)(const gsel_optimizer_call *call, void *user_data);

/* How an optimizer gets a parameter. */
#define GSEL_NEEDS_ELEMENTS 0    /* any pieces: each element is stepped independently */
#define GSEL_NEEDS_PARAM_NORM 1  /* any pieces, with norms of the parameter and its update (LAMB) */
#define GSEL_NEEDS_WHOLE_PARAM 2 /* the whole parameter in one call (Muon): shards end between parameters */

/* The embedder's optimizer, which replaces train.optimizer. */
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

/* How a trainer is made.
 *   config          borrowed for the call; NULL: all defaults
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

/* Loads the strategies' plugins, checks that all ranks described the same model, compiles it to programs, and
 * initialises the parameters. A collective: every rank of comm calls it.
 *   comm     borrowed until gsel_trainer_free. The caller may also use it between calls of the trainer, but not from
 *            the first gsel_trainer_next_work of a step until GSEL_WORK_DONE. NULL: one rank, whatever a launcher says,
 *            on the device that [train] device names
 *   model    finished here if it is not; the trainer keeps a reference to it
 *   options  NULL: defaults
 *   out      given to the caller, free with gsel_trainer_free
 * Errors: GSEL_ERR_ARG, GSEL_ERR_MODEL (also for a kernel that breaks its contract, under [train] check = "kernels";
 * see gsel/check.h), GSEL_ERR_CONFIG (with file, line, key), GSEL_ERR_NOT_FOUND (no such plugin), GSEL_ERR_PLUGIN
 * (refused or failed), GSEL_ERR_PROGRAM, GSEL_ERR_UNSUPPORTED (the text says which combination), GSEL_ERR_CALLBACK (an
 * initialiser), GSEL_ERR_MISMATCH (names the setting by its key, or the parameter, value or layer with its field, two
 * ranks, and the value on each), GSEL_ERR_PEER (names a rank that could not create its trainer), GSEL_ERR_NOMEM (also
 * when train.memory_bytes is not enough: with a table of the memory needed and a change that fits), those of
 * gsel_broadcast. Since 0.1. */
GSEL_API gsel_status gsel_trainer_create(gsel_comm *comm, gsel_model *model, const gsel_trainer_options *options,
                                         gsel_trainer **out, gsel_error **err);

/* Results of a step. Times in seconds on this rank. */
typedef struct gsel_step_report {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t step;                  /* from 0 */
  double loss;                   /* sum of losses over all ranks / sum of weights */
  double loss_sum;
  double weight;
  double gradient_norm;          /* of the mean gradient, before clipping; 0 unless train.clip_norm is set, or
                                  * train.gradient_norm is "always", or a strategy computes it */
  double seconds;
  double compute_s;              /* inside callbacks; on a device these three are the host's time, until work is given to it */
  double exposed_comm_s;         /* waiting for communication */
  double optimizer_s;
  uint64_t bytes_sent;           /* by this rank in this step */
  int32_t n_reduces;             /* gradient buckets reduced */
  int32_t n_overlapped;          /* reduces that began before the last backward callback had ended */
  int32_t n_allgathers;          /* allgathers of parameters */
  int32_t skipped;               /* 1: a gradient of some rank was not finite; nothing was updated (train.non_finite) */
  double allgather_s;            /* duration of the allgathers */
  double exposed_allgather_s;    /* the part of allgather_s spent waiting; included in exposed_comm_s */
  double learning_rate;          /* of this step */
  double loss_scale;             /* of this step; 1 unless train.precision is "fp16" */
  uint64_t peak_bytes;           /* peak memory of this rank's trainer */
  uint64_t offload_bytes_in;     /* read from offload memory in this step */
  uint64_t offload_bytes_out;    /* written to offload memory in this step */
  int64_t validated_step;        /* the step that gradient_norm, skipped and non_finite_* belong to: this step, or with
                                  * optimistic steps of a pipeline (post_validate) the previous one; -1: none yet */
  int32_t restarts;              /* 1: the previous step should have clipped or been skipped, so it was undone and
                                  * repeated, and this step was restarted. Times and bytes include both attempts */
  int32_t non_finite_rank;       /* origin of the first non-finite number, in the order of */
  int32_t non_finite_layer;      /* micro-batches, of forward, and of backward: rank, ids of layer and parameter, */
  int32_t non_finite_param;      /* micro-batch of that rank. -1: all finite, or only a sum over ranks was not */
  int32_t non_finite_microbatch;
  int32_t non_finite_value;      /* id of the first non-finite value, written by the forward of non_finite_layer
                                  * (-1: an input); non_finite_param is then -1. -1: a backward wrote the gradient:
                                  * of the parameter, or of its inputs if non_finite_param is also -1 */
  int32_t save;                  /* GSEL_SAVE_*: of a save in the background, when the report was made */
  uint32_t reserved2;
} gsel_step_report;
#define GSEL_STEP_REPORT_INIT GSEL_STRUCT_INIT(gsel_step_report)
GSEL_API void gsel_step_report_init(gsel_step_report *report, size_t struct_size);

/* Runs one step in push mode. report may be NULL.
 * Errors: GSEL_ERR_CALLBACK (layer, rank, message; the other ranks get GSEL_ERR_ABORTED with the same text, cut to 1900
 * bytes), GSEL_ERR_MISMATCH if another rank makes a different call of the trainer, such as gsel_trainer_evaluate (names
 * both calls and ranks, on every rank), those of the collectives; GSEL_ERR_STATE for a layer without callbacks (nothing
 * happened); GSEL_ERR_IO if train.timeline cannot be written (the step is complete, gsel_trainer_report has it, and the
 * next one can follow). After any other error, trainer and communicator are broken on every rank: free them. In a
 * pipeline, a rank may return while others still work on the step; their failure is then an error of this rank's next
 * step. docs/pipeline.md. Since 0.1. */
GSEL_API gsel_status gsel_trainer_step(gsel_trainer *trainer, gsel_step_report *report, gsel_error **err);

/* A piece of work in pull mode. Borrowed until gsel_trainer_complete.
 *   kind    GSEL_INPUT, GSEL_FORWARD, GSEL_BACKWARD_INPUT, GSEL_BACKWARD_WEIGHT or GSEL_BACKWARD; GSEL_WORK_DONE: the
 *           step is over
 *   ticket  to be passed to gsel_trainer_complete
 *   call    the argument that the layer's callback would get; NULL for GSEL_INPUT
 *   input   the argument that a gsel_data_fn would get; NULL for other kinds */
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

/* Returns the next work of the step; begins a step if none is in progress. GSEL_WORK_DONE says that the step is over,
 * and must not be completed.
 * Errors: GSEL_ERR_STATE (the previous work is not complete), those of gsel_trainer_step and, in an evaluation, those
 * of gsel_trainer_evaluate in place of GSEL_WORK_DONE. Since 0.1. */
GSEL_API gsel_status gsel_trainer_next_work(gsel_trainer *trainer, gsel_work *out, gsel_error **err);

/* Reports that the work is done (status GSEL_OK) or has failed (any other code; message says why). GSEL_ERR_STATE for a
 * ticket that was not handed out; GSEL_ERR_CALLBACK when status is not GSEL_OK: the step is over on every rank. Since
 * 0.1. */
GSEL_API gsel_status gsel_trainer_complete(gsel_trainer *trainer, uint64_t ticket, gsel_status status, gsel_str message,
                                           gsel_error **err);

/* Report of the last finished step. GSEL_ERR_STATE when there is none. Since 0.1. */
GSEL_API gsel_status gsel_trainer_report(const gsel_trainer *trainer, gsel_step_report *report, gsel_error **err);

/* Evaluates one batch of train.batch samples: only forward and loss, on all ranks. A collective. Noise is that of the
 * next step; layers get call->evaluating = 1.
 *   first_sample  global id of the batch's first sample
 *   data          fills the inputs; NULL: the trainer's
 *   report        loss, loss_sum, weight, times and bytes; may be NULL. gsel_trainer_report still returns the last step
 * Errors: those of gsel_trainer_step. Nothing is broken by GSEL_ERR_MODEL: the loss weights of all ranks sum to 0, as
 * without samples; nor by GSEL_ERR_NOMEM, with GSEL_ERR_PEER on other ranks: a rank lacks memory for an arena that is
 * larger than a step's. Since 0.1. */
GSEL_API gsel_status gsel_trainer_evaluate(gsel_trainer *trainer, int64_t first_sample, gsel_data_fn data,
                                           void *user_data, gsel_step_report *report, gsel_error **err);

/* Begins an evaluation in pull mode. gsel_trainer_next_work then hands out its work until GSEL_WORK_DONE. The next call
 * of gsel_trainer_report, but no later one, returns the report of the evaluation, unless a step has begun by then.
 * GSEL_ERR_STATE while a step is in progress; GSEL_ERR_NOMEM and GSEL_ERR_PEER as gsel_trainer_evaluate. Since 0.1. */
GSEL_API gsel_status gsel_trainer_begin_evaluation(gsel_trainer *trainer, int64_t first_sample, gsel_error **err);

/* Returns 1 if this rank has every parameter whole and exact between steps. Returns 0 otherwise: then
 * gsel_trainer_infer and gsel_trainer_read_param are collectives, which all ranks must call in the same way. It is 0
 * for `zero` stage 3, for every stage of `zero` if parameters are kept in 16 bits (master copies are sharded), for
 * `dp`, and if the pipeline, tensor or context axis has several ranks. Any thread. Since 0.1. */
GSEL_API int32_t gsel_trainer_holds_params(const gsel_trainer *trainer);

/* Runs forward callbacks until `value` is written, and copies the value to dst. The ranks of a replica (they differ
 * only in their coordinates on the tensor, context and pipeline axes) compute the value together on the same samples,
 * and each gets the whole value. Different replicas have different samples. A collective if gsel_trainer_holds_params
 * is 0: sharded parameters are gathered layer by layer.
 *   n_samples  1 or more; `data` is asked for inputs (push) with sample ids 0 .. n_samples-1
 *   data       fills the inputs on which the value depends, equally on all ranks whose layers read them; called on this
 *              thread
 *   dst        [dst_bytes] exactly the bytes of n_samples samples of the value
 * Errors: GSEL_ERR_ARG, GSEL_ERR_CALLBACK (other ranks of the replica get GSEL_ERR_PEER with the same text; the trainer
 * stays usable), GSEL_ERR_STATE (a step is in progress or has failed, or a layer has no callbacks), GSEL_ERR_NOMEM.
 * Since 0.1. */
GSEL_API gsel_status gsel_trainer_infer(gsel_trainer *trainer, int32_t value, int64_t n_samples, gsel_data_fn data,
                                        void *user_data, void *dst, size_t dst_bytes, gsel_error **err);

/* Copies the whole parameter to dst as f32; if it is kept in 16 bits, this is its master copy. dst_bytes is exactly 4
 * bytes per element. A collective if gsel_trainer_holds_params is 0. GSEL_ERR_ARG; GSEL_ERR_STATE while a step is in
 * progress. Since 0.1. */
GSEL_API gsel_status gsel_trainer_read_param(gsel_trainer *trainer, int32_t param, void *dst, size_t dst_bytes,
                                             gsel_error **err);

/* Copies the gradient of the whole parameter in the last step to dst as f32. It is the gradient of the mean loss: the
 * sum over all samples divided by the sum of weights, before clipping. dst_bytes is exactly 4 bytes per element. A
 * collective, which all ranks call in the same way.
 * Errors: GSEL_ERR_ARG (also for a frozen parameter, which has none); GSEL_ERR_STATE when no step is finished yet or
 * one is in progress; GSEL_ERR_UNSUPPORTED with the embedder's optimizer, which may overwrite gradients and gets them
 * in its call. Since 0.1. */
GSEL_API gsel_status gsel_trainer_read_gradient(gsel_trainer *trainer, int32_t param, void *dst, size_t dst_bytes,
                                                gsel_error **err);

/* Sets the learning rate of the next step and all later steps, in place of train.learning_rate, its warm-up and
 * train.schedule; lr_factor of parameters still multiplies it. For the caller's own schedule: call it before each step.
 * A step that has begun is not changed. All ranks make this call with the same number, between the same steps; they do
 * not wait for each other.
 *   learning_rate  finite, 0 or more
 * Errors: GSEL_ERR_ARG; GSEL_ERR_STATE while a step is in progress; GSEL_ERR_MISMATCH if another rank sets another
 * number or makes another call (on this rank, or on the other one in a later call). Since 0.1. */
GSEL_API gsel_status gsel_trainer_set_learning_rate(gsel_trainer *trainer, double learning_rate, gsel_error **err);

/* This rank's program; borrowed until gsel_trainer_free, or until gsel_trainer_rebind makes another. Any thread, but
 * not during gsel_trainer_rebind. Since 0.1. */
GSEL_API const gsel_program *gsel_trainer_program(const gsel_trainer *trainer);

/* Bytes that this rank's trainer has sent and calls that it has made since it was created, for one instruction kind on
 * one axis. Setup and steps count, evaluations do not. GSEL_FORWARD and GSEL_BACKWARD_INPUT count the phases of layers
 * and the redistribution of values.
 *   out  zeros for a kind that sends nothing
 * GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_trainer_counts(const gsel_trainer *trainer, gsel_instr_kind kind, gsel_axis axis,
                                         gsel_comm_count *out, gsel_error **err);

/* One part of the memory of this rank's trainer: the bytes forecast from the program, and the most bytes allocated. */
typedef struct gsel_memory_part {
  uint32_t struct_size;
  int32_t offloaded;             /* 0: the device's memory; 1: offload memory, or copies of train.redundancy in host
                                  * memory */
  const char *name;              /* "parameters", "gradients", "optimizer state", "values and windows" (the arena: what
                                  * lives for a part of a step), ... */
  uint64_t forecast_bytes;
  uint64_t peak_bytes;
} gsel_memory_part;
#define GSEL_MEMORY_PART_INIT GSEL_STRUCT_INIT(gsel_memory_part)
GSEL_API void gsel_memory_part_init(gsel_memory_part *part, size_t struct_size);

/* Number of parts of the trainer's memory, and part i, from 0, empty parts included. Memory that only
 * gsel_trainer_infer and gsel_trainer_read_param need is in the peak, but not in the forecast. Text lives as long as
 * the library. Since 0.1. */
GSEL_API int32_t gsel_trainer_memory_count(const gsel_trainer *trainer);
GSEL_API gsel_status gsel_trainer_memory(const gsel_trainer *trainer, int32_t i, gsel_memory_part *out,
                                         gsel_error **err);

/* The last step as JSON: the report, bytes and calls per axis and instruction, memory by part, and with train.timeline
 * the begin and end of each instruction (docs/step.md). Borrowed until the next call with this trainer. Since 0.1. */
GSEL_API gsel_status gsel_trainer_step_json(gsel_trainer *trainer, gsel_str *out, gsel_error **err);

/* Returns 1 if any backward of the last step produced this parameter's gradient on this rank, else 0; also 0 if only
 * other pipeline ranks have the parameter. A gradient that no rank produced is zero. GSEL_ERR_ARG, which is below 0,
 * for a wrong argument. Since 0.1. */
GSEL_API int32_t gsel_trainer_param_used(const gsel_trainer *trainer, int32_t param);

/* Releases the trainer; NULL is fine. Does not free the communicator. If a step or an evaluation is in progress, it
 * ends on every rank: the others get GSEL_ERR_ABORTED, and the communicator is broken. Since 0.1. */
GSEL_API void gsel_trainer_free(gsel_trainer *trainer);

/* All functions above: one thread at a time per trainer, unless stated otherwise. In a forked child they return
 * GSEL_ERR_FORKED; gsel_trainer_free then releases only what no thread of the parent can be using. */

GSEL_EXTERN_C_END

#endif
