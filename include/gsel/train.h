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

/* Returns GSEL_OK, or a negative code to end the step on every rank. Called on the thread that drives the trainer. */
typedef gsel_status (*gsel_data_fn)(const gsel_data_request *request, void *user_data);

/*   config          borrowed for the call; NULL: all defaults
 *   data            fills input values; may be NULL when only pull is used
 *   data_user_data  kept until gsel_trainer_free                                                           */
typedef struct gsel_trainer_options {
  uint32_t struct_size;
  uint32_t reserved;
  const gsel_config *config;
  gsel_data_fn data;
  void *data_user_data;
} gsel_trainer_options;
#define GSEL_TRAINER_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_trainer_options)
GSEL_API void gsel_trainer_options_init(gsel_trainer_options *options, size_t struct_size);

/* Compiles the model, loads the strategy's plugin, checks that all ranks described the same model, initialises the
 * parameters. A collective: every rank of comm calls it.
 *   model    finished here if it is not; the trainer keeps a hold on it
 *   comm     borrowed until gsel_trainer_free; while a step runs the trainer alone uses it
 *   options  NULL: defaults
 *   out      given to the caller, free with gsel_trainer_free
 * Errors: GSEL_ERR_ARG, GSEL_ERR_MODEL, GSEL_ERR_CONFIG (with file, line, key), GSEL_ERR_NOT_FOUND (no such plugin),
 * GSEL_ERR_PLUGIN (refused or failed), GSEL_ERR_PROGRAM, GSEL_ERR_UNSUPPORTED (an axis this version does not run),
 * GSEL_ERR_CALLBACK (an initialiser), GSEL_ERR_MISMATCH (names the parameter or setting), GSEL_ERR_PEER (names a rank
 * that could not make its trainer), GSEL_ERR_NOMEM, those of gsel_broadcast. Since 0.1. */
GSEL_API gsel_status gsel_trainer_create(gsel_model *model, gsel_comm *comm, const gsel_trainer_options *options,
                                         gsel_trainer **out, gsel_error **err);

/* What a step did. Times in seconds on this rank. */
typedef struct gsel_step_report {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t step;                  /* from 0 */
  double loss;                   /* sum of losses over all ranks / sum of weights */
  double loss_sum;
  double weight;
  double gradient_norm;          /* of the mean gradient; 0 unless train.clip_norm is set */
  double seconds;
  double compute_s;              /* inside callbacks */
  double exposed_comm_s;         /* waiting for communication */
  double optimizer_s;
  uint64_t bytes_sent;           /* by this rank in this step */
  int32_t n_reduces;             /* gradient buckets reduced */
  int32_t n_overlapped;          /* of them, begun before the last backward callback had ended */
} gsel_step_report;
#define GSEL_STEP_REPORT_INIT GSEL_STRUCT_INIT(gsel_step_report)
GSEL_API void gsel_step_report_init(gsel_step_report *report, size_t struct_size);

/* One whole step, push. report may be NULL.
 * Errors: GSEL_ERR_CALLBACK (layer, rank, message; the other ranks get GSEL_ERR_ABORTED with the same text),
 * those of the collectives; GSEL_ERR_STATE for a layer without callbacks (nothing happened). After any other error the
 * trainer and its communicator are broken, here and on every rank: free them. Since 0.1. */
GSEL_API gsel_status gsel_trainer_step(gsel_trainer *trainer, gsel_step_report *report, gsel_error **err);

/* Kinds of work handed out in pull mode. */
#define GSEL_WORK_INPUT 1
#define GSEL_WORK_FORWARD 2
#define GSEL_WORK_BACKWARD_INPUT 3
#define GSEL_WORK_BACKWARD_WEIGHT 4
#define GSEL_WORK_BACKWARD 5
#define GSEL_WORK_DONE 6

/* Work: `call` for a layer, `input` for an input value; the other is NULL, both when DONE. Borrowed until
 * gsel_trainer_complete. */
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
 * Errors: GSEL_ERR_STATE (the work handed out is not complete), those of gsel_trainer_step. Since 0.1. */
GSEL_API gsel_status gsel_trainer_next_work(gsel_trainer *trainer, gsel_work *out, gsel_error **err);

/* Says that the work is done (status GSEL_OK) or failed (any other code, and why). GSEL_ERR_STATE for a ticket not
 * handed out; GSEL_ERR_CALLBACK when status is not GSEL_OK: the step is over on every rank. Since 0.1. */
GSEL_API gsel_status gsel_trainer_complete(gsel_trainer *trainer, uint64_t ticket, gsel_status status, gsel_str message,
                                           gsel_error **err);

/* Report of the last finished step. GSEL_ERR_STATE when there is none. Since 0.1. */
GSEL_API gsel_status gsel_trainer_report(const gsel_trainer *trainer, gsel_step_report *report, gsel_error **err);

/* Runs forward callbacks alone, on this rank alone, until `value` is written; then copies it out.
 *   n_samples  1 or more; inputs are asked from `data` (push) with sample ids 0 .. n_samples-1
 *   data       fills the inputs the value depends on; called on this thread
 *   dst        [dst_bytes] exactly n_samples * dims of the value
 * Errors: GSEL_ERR_ARG, GSEL_ERR_CALLBACK (trainer stays usable), GSEL_ERR_STATE (a step is under way, or a layer has
 * no callbacks), GSEL_ERR_NOMEM. Since 0.1. */
GSEL_API gsel_status gsel_trainer_infer(gsel_trainer *trainer, int32_t value, int64_t n_samples, gsel_data_fn data,
                                        void *user_data, void *dst, size_t dst_bytes, gsel_error **err);

/* Copies a parameter out, whole. dst [dst_bytes] exactly the parameter's size. GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_trainer_read_param(gsel_trainer *trainer, int32_t param, void *dst, size_t dst_bytes,
                                             gsel_error **err);

/* This rank's program; borrowed until gsel_trainer_free. Any thread. Since 0.1. */
GSEL_API const gsel_program *gsel_trainer_program(const gsel_trainer *trainer);

/* Bytes this rank has sent since it was created, and calls made, for one instruction kind on one axis:
 * GSEL_INSTR_REDUCE, GSEL_INSTR_BROADCAST, GSEL_INSTR_LOSS_REDUCE, GSEL_INSTR_SEND. Zeros otherwise. Since 0.1. */
GSEL_API gsel_comm_count gsel_trainer_counts(const gsel_trainer *trainer, gsel_instr_kind kind, gsel_axis axis);

/* Releases; NULL is fine. Does not free the communicator. Since 0.1. */
GSEL_API void gsel_trainer_free(gsel_trainer *trainer);

/* Every function above: one thread at a time per trainer, unless it says "any thread". In a forked child they answer
 * GSEL_ERR_FORKED; gsel_trainer_free releases there what no thread of the parent can hold. */

GSEL_EXTERN_C_END

#endif
