/* gsel/pipeline.h: stages of any computation as a pipeline over ranks, without a trainer: forward alone for inference,
 * or forward and backward. Stages keep their own parameters; gsel moves what goes from stage to stage, in the order of
 * a schedule (gsel/schedule.h), and tells where time went. examples/pipeline. */
#ifndef GSEL_PIPELINE_H
#define GSEL_PIPELINE_H

#include <gsel/comm.h>
#include <gsel/error.h>
#include <gsel/model.h>
#include <gsel/train.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_pipeline gsel_pipeline;

/* How stages are run. Zeros: "1f1b", a stage per rank.
 *   schedule            a name of gsel_schedule_create, or a file that gsel_schedule_parse reads when it has a '/' or
 *                       ends in .csv or .txt; empty: 1f1b
 *   chunks              stages of each rank; 0: what the schedule needs
 *   microbatches        of one run, >= 1
 *   microbatch_samples  batch dimension of each, >= 1
 *   first_layers        [n_first_layers] first layer of stages 1, 2, ...: manual cuts. NULL: a layer is a stage where
 *                       there are as many, else by cost
 *   data                fills inputs on the ranks that read them, as of a trainer; may be NULL without inputs. Sample
 *                       ids go on from run to run, counted apart for the two kinds of run
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

/* Cuts the model's layers into stages, one or more per rank of comm, and checks everything: the schedule, that all
 * ranks describe the same, that their programs fit together. Collective.
 *   model  layers with callbacks; finished here if it is not, and kept. Parameters it declares must be
 *          frozen (else GSEL_ERR_UNSUPPORTED): their initialisers fill what each rank has of them. A layer whose
 *          parameters are its own affair says so with GSEL_LAYER_OWN_PARAMS; a backward that nothing would call is refused.
 *          Without a loss layer it runs forward alone
 *   comm   must live longer, and is not used for anything else while a run is under way
 *   out    given to the caller, free with gsel_pipeline_free
 * Errors: GSEL_ERR_ARG, GSEL_ERR_CONFIG (a schedule that is not known, more stages than layers), GSEL_ERR_MODEL,
 * GSEL_ERR_PARSE and GSEL_ERR_PROGRAM (a schedule that does not work: file, line, action), GSEL_ERR_MISMATCH (names what
 * ranks describe differently), GSEL_ERR_PEER (names a rank that could not make its own); the communicator stays usable.
 * One thread at a time per pipeline. Since 0.1. */
GSEL_API gsel_status gsel_pipeline_create(gsel_comm *comm, gsel_model *model, const gsel_pipeline_options *options,
                                          gsel_pipeline **out, gsel_error **err);

/* Where this rank's time went in a run, seconds: busy, idle, comm and overhead make up elapsed.
 *   busy_s      in callbacks
 *   idle_s      waiting for messages that had not come, and at the end for the sum of losses: the bubble
 *   comm_s      giving messages to the communicator, and waiting until earlier ones have left
 *   overhead_s  the library's own */
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

#define GSEL_FORWARD_BACKWARD 6 /* beside GSEL_FORWARD of gsel/types.h */

/* Runs all micro-batches. Collective. Callbacks are called on this thread. Nothing brings the ranks together in the end:
 * each returns once its own stages are done and the loss, where there is one, has come; so the next run begins while
 * other stages still work on this one, and a failure there is an error of its next run.
 *   what  GSEL_FORWARD: callbacks see call->evaluating = 1; GSEL_FORWARD_BACKWARD: what stages sum up
 *         over the micro-batches of a run is theirs, to step and to clear between runs
 *   out   may be NULL
 * Errors: GSEL_ERR_CALLBACK with layer, rank and message (the other ranks get GSEL_ERR_ABORTED with the same text),
 * GSEL_ERR_PEER, GSEL_ERR_TIMEOUT: the pipeline and its communicator are then broken on every rank. GSEL_ERR_ARG,
 * GSEL_ERR_STATE (backward without a loss layer or without parameters to learn; an earlier run failed): nothing happened. Since 0.1. */
GSEL_API gsel_status gsel_pipeline_run(gsel_pipeline *pipeline, int32_t what, gsel_pipeline_report *out,
                                       gsel_error **err);

/* One of this rank's stages, and the seconds it took in the last run, over all micro-batches: divided by their number
 * they are what gsel_schedule_times.stage_times wants. A fused backward counts as backward_input. */
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

/* How many stages this rank has; its stage i, from 0, in order of stages. Since 0.1. */
GSEL_API int32_t gsel_pipeline_stage_count(const gsel_pipeline *pipeline);
GSEL_API gsel_status gsel_pipeline_stage_get(const gsel_pipeline *pipeline, int32_t i, gsel_pipeline_stage *out,
                                             gsel_error **err);

/* This rank's program, with notes that explain the cuts; borrowed until gsel_pipeline_free. Any thread. Since 0.1. */
GSEL_API const gsel_program *gsel_pipeline_program(const gsel_pipeline *pipeline);

/* Releases; NULL is fine. Does not free the communicator. Since 0.1. */
GSEL_API void gsel_pipeline_free(gsel_pipeline *pipeline);

GSEL_EXTERN_C_END

#endif
