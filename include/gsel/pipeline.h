/* gsel/pipeline.h: runs stages of any computation as a pipeline over ranks, without a trainer: forward only, for
 * inference, or forward and backward. Layers keep their own parameters. gsel runs the stages in the order of a schedule
 * (gsel/schedule.h), sends values between stages, and reports where the time went. See examples/pipeline. */
#ifndef GSEL_PIPELINE_H
#define GSEL_PIPELINE_H

#include <gsel/comm.h>
#include <gsel/error.h>
#include <gsel/model.h>
#include <gsel/train.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_pipeline gsel_pipeline;

/* How stages are run. Zero fields mean schedule "1f1b" with one stage per rank.
 *   schedule            a name of gsel_schedule_create; or, if it has a '/' or ends in .csv or .txt, a file in the
 *                       format of gsel_schedule_parse; empty: 1f1b
 *   chunks              stages of each rank; 0: as many as the schedule needs
 *   microbatches        micro-batches of one run, >= 1
 *   microbatch_samples  samples of each micro-batch, >= 1
 *   first_layers        [n_first_layers] first layers of stages 1, 2, ...: manual cuts. NULL: each layer is a stage if
 *                       there are as many layers as stages, else the library cuts by cost
 *   data                fills inputs on the ranks that read them, as in gsel_trainer_options; may be NULL without
 *                       inputs. Sample ids continue from run to run, counted separately for the two kinds of run
 *   tensor_ranks        ranks that share each stage by plugin "tp" (docs/tensor.md); 0 means 1
 *   data_free_user_data  see gsel/types.h
 *   timeline            folder where each rank writes step-RANK.json of its last run, for `gsel trace`; empty: nowhere
 * Text and arrays are borrowed for the call; data_user_data is kept until gsel_pipeline_free. */
typedef struct gsel_pipeline_options {
  uint32_t struct_size;
  int32_t chunks;
  gsel_str schedule;
  int32_t microbatches;
  int32_t n_first_layers;
  int64_t microbatch_samples;
  const int32_t *first_layers;
  gsel_data_fn data;
  void *data_user_data;
  gsel_str timeline;
  int32_t tensor_ranks;
  int32_t reserved;
  gsel_free_fn data_free_user_data;
} gsel_pipeline_options;
#define GSEL_PIPELINE_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_pipeline_options)
GSEL_API void gsel_pipeline_options_init(gsel_pipeline_options *options, size_t struct_size);

/* Cuts the model's layers into stages, one or more per rank of comm. Checks the schedule, that all ranks describe the
 * same model, and that their programs fit together. Collective.
 *   model  layers with callbacks; finished here if it is not, and kept. Declared parameters must be frozen (else
 *          GSEL_ERR_UNSUPPORTED); their initialisers fill the shard that each rank has. A layer that keeps its own
 *          parameters has the flag GSEL_LAYER_OWN_PARAMS; a backward that would never be called is refused. A model
 *          without a loss layer only runs forward
 *   comm   must outlive the pipeline. Between runs the caller may also use it. This rank makes no other call with it
 *          from the time when any rank begins gsel_pipeline_run until gsel_pipeline_run has returned on this rank
 *   out    given to the caller, free with gsel_pipeline_free
 * Errors: GSEL_ERR_ARG, GSEL_ERR_CONFIG (an unknown schedule, more stages than layers), GSEL_ERR_MODEL, GSEL_ERR_PARSE
 * and GSEL_ERR_PROGRAM (a schedule that cannot run: file, line, action), GSEL_ERR_MISMATCH (names the part of the
 * description in which ranks differ), GSEL_ERR_PEER (names a rank whose call failed); the communicator stays usable.
 * One thread at a time per pipeline. Since 0.1. */
GSEL_API gsel_status gsel_pipeline_create(gsel_comm *comm, gsel_model *model, const gsel_pipeline_options *options,
                                          gsel_pipeline **out, gsel_error **err);

/* Where this rank's time went in a run, seconds: elapsed is the sum of busy, idle, comm and overhead.
 *   busy_s      in callbacks
 *   idle_s      waiting for messages that had not arrived, and at the end for the sum of losses: the bubble
 *   comm_s      passing messages to the communicator, and waiting until earlier ones have been sent
 *   overhead_s  everything else, inside the library */
typedef struct gsel_pipeline_report {
  uint32_t struct_size;
  int32_t rank;
  double elapsed_s;
  double busy_s;
  double idle_s;
  double comm_s;
  double overhead_s;
  uint64_t messages_sent;
  uint64_t bytes_sent;
  uint64_t peak_bytes;  /* of values, gradients and saved bytes */
  double loss_sum;      /* over all ranks, on every rank; 0 without a loss layer */
  double loss_weight;
} gsel_pipeline_report;
#define GSEL_PIPELINE_REPORT_INIT GSEL_STRUCT_INIT(gsel_pipeline_report)
GSEL_API void gsel_pipeline_report_init(gsel_pipeline_report *report, size_t struct_size);

#define GSEL_FORWARD_BACKWARD 6 /* a kind of run, as is GSEL_FORWARD of gsel/types.h */

/* Runs all micro-batches. Collective. Callbacks are called on this thread. The ranks do not wait for each other at the
 * end: each returns when its own stages are done and the loss, if there is one, has arrived. So the next run may begin
 * while other ranks still work on this one; their failure is then an error of this rank's next run.
 *   what  GSEL_FORWARD: callbacks get call->evaluating = 1. GSEL_FORWARD_BACKWARD: layers sum their own gradients over
 *         the micro-batches of a run; the embedder steps the parameters and clears the gradients between runs
 *   out   may be NULL
 * Errors: GSEL_ERR_CALLBACK with layer, rank and message (the other ranks get GSEL_ERR_ABORTED with the same text),
 * GSEL_ERR_PEER, GSEL_ERR_TIMEOUT: the pipeline and its communicator are then broken on every rank. GSEL_ERR_ARG,
 * GSEL_ERR_STATE (backward without a loss layer or without parameters to train; an earlier run failed): nothing
 * happened. Since 0.1. */
GSEL_API gsel_status gsel_pipeline_run(gsel_pipeline *pipeline, int32_t what, gsel_pipeline_report *out,
                                       gsel_error **err);

/* One of this rank's stages, and its seconds in the last run, summed over all micro-batches. Divided by the number of
 * micro-batches they can be used as gsel_schedule_times.stage_times. A fused backward counts as backward_input. */
typedef struct gsel_pipeline_stage {
  uint32_t struct_size;
  int32_t stage;        /* of the pipeline, from 0 */
  int32_t first_layer;
  int32_t n_layers;
  double forward_s;
  double backward_input_s;
  double backward_weight_s;
} gsel_pipeline_stage;
#define GSEL_PIPELINE_STAGE_INIT GSEL_STRUCT_INIT(gsel_pipeline_stage)
GSEL_API void gsel_pipeline_stage_init(gsel_pipeline_stage *stage, size_t struct_size);

/* Number of stages of this rank; its stage i, from 0, in ascending order. Since 0.1. */
GSEL_API int32_t gsel_pipeline_stage_count(const gsel_pipeline *pipeline);
GSEL_API gsel_status gsel_pipeline_stage_get(const gsel_pipeline *pipeline, int32_t i, gsel_pipeline_stage *out,
                                             gsel_error **err);

/* This rank's program, with notes that explain the cuts; borrowed until gsel_pipeline_free. Any thread. Since 0.1. */
GSEL_API const gsel_program *gsel_pipeline_program(const gsel_pipeline *pipeline);

/* Releases; NULL is fine. Does not free the communicator. Since 0.1. */
GSEL_API void gsel_pipeline_free(gsel_pipeline *pipeline);

GSEL_EXTERN_C_END

#endif
