/* gsel/plan.h: which strategy, will it fit, how fast, and why: answered from descriptions of a model and of devices,
 * without an accelerator.
 *
 *     gsel_plan_options options = GSEL_PLAN_OPTIONS_INIT;
 *     options.model = gsel_str_from(config_json), options.cluster = gsel_str_from("8xH100");
 *     options.nodes = 4, options.batch = 1024, options.sequence = 4096;
 *     gsel_plan *plan;
 *     gsel_status status = gsel_plan_create(&options, &plan, &err);
 *     if (!status) puts(gsel_plan_text(plan).data);
 *
 * docs/plan.md has the formulas, and the errors of the forecasts on published measurements. */
#ifndef GSEL_PLAN_H
#define GSEL_PLAN_H

#include <gsel/config.h>
#include <gsel/model.h>
#include <gsel/select.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_plan gsel_plan;

/* Called from time to time during a long search with the number of layouts tried, on the thread that makes the plan.
 * Returns 0 to continue; any other value ends the search with GSEL_ERR_ABORTED. */
typedef int32_t (*gsel_plan_progress_fn)(int64_t n_tried, void *user_data);

/* The request of a plan. Texts and handles are borrowed for the call.
 *   model         JSON: a config.json of the Hugging Face hub, or a list of layers (docs/plan.md). Not given:
 *                 `described`
 *   model_name    name of the model in messages, such as its file
 *   described     a model of this program, used if `model` is not given; its layers must have flop_per_sample
 *   cluster       devices of one node: "8xH100", or unequal ones, "2xA100-80GB+1xRTX4090". Not given: `inventory`
 *   inventory     NULL: this machine
 *   nodes         0 means 1
 *   link          between two devices of a node: a class of nvidia-smi topo -m ("NV4", "PHB"), "p2p-off", or a rate
 *                 ("300GB/s"). Not given: usual for the device
 *   network       of each node: "8x400Gb/s", or a rate. Not given: usual for the device
 *   memory_bytes  of each device; 0: from the cluster or inventory
 *   batch         samples of a step over all ranks; 0: one for each device
 *   sequence      tokens of a sample; 0: the model's own
 *   precision     how parameters and states are kept: "gsel-bf16" (the default), "gsel-f32", or as in another program
 *                 ("megatron-bf16", "fsdp2-bf16", "deepspeed-fp16", "ddp-f32")
 *   fixed         decisions of the caller: "tensor=2, zero=1, recompute=all"
 *   measured      the caller's measurements, in the format of gsel_plan_rows: one factor for the class of device is
 *                 fitted to them
 *   n_shown       number of candidates in the text; 0 means 10
 *   progress      may be NULL */
typedef struct gsel_plan_options {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str model;
  gsel_str model_name;
  const gsel_model *described;
  gsel_str cluster;
  const gsel_inventory *inventory;
  gsel_str link;
  gsel_str network;
  double memory_bytes;
  int64_t batch;
  int64_t sequence;
  gsel_str precision;
  gsel_str fixed;
  gsel_str measured;
  int32_t nodes;
  int32_t n_shown;
  gsel_plan_progress_fn progress;
  void *user_data;
} gsel_plan_options;
#define GSEL_PLAN_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_plan_options)
GSEL_API void gsel_plan_options_init(gsel_plan_options *options, size_t struct_size);

/* Searches for the fastest layouts. A plan without candidates is no error: its text says what is lacking and which
 * change fits.
 *   out  given to the caller, free with gsel_plan_free
 * Errors: GSEL_ERR_CONFIG for a model whose fields are missing or contradict each other, with file and key;
 * GSEL_ERR_PARSE for text that is no JSON, with line and column, and for a value of a wrong type; GSEL_ERR_ARG for a
 * wrong cluster, link, precision or `fixed`, with the token and the accepted values; GSEL_ERR_ABORTED when `progress`
 * ended the search. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_plan_create(const gsel_plan_options *options, gsel_plan **out, gsel_error **err);

/* A layout and its forecast. step_s and later fields are forecasts from closed forms and a simulation of the schedule.
 *   tensor, context, data, pipeline  sizes of the axes; their product is the number of ranks
 *   zero_stage     0 to 3
 *   chunks         stages per rank
 *   microbatch     samples
 *   microbatches   per replica and step
 *   flags          GSEL_PLAN_*
 *   step_s         seconds per step
 *   samples_per_s, tokens_per_s  over all ranks
 *   mfu, hfu       shares of the dense 16-bit peak, without and with recomputation
 *   bubble, exposed  shares of the step: waiting in the pipeline; communication that nothing hides
 *   memory_bytes   on the rank that comes nearest to its device's memory; host_bytes: in the memory of its host
 *   name           for display; lives as long as the plan */
typedef struct gsel_plan_candidate {
  uint32_t struct_size;
  uint32_t flags;
  int32_t tensor;
  int32_t context;
  int32_t data;
  int32_t pipeline;
  int32_t zero_stage;
  int32_t chunks;
  int64_t microbatch;
  int64_t microbatches;
  double step_s;
  double samples_per_s;
  double tokens_per_s;
  double mfu;
  double hfu;
  double bubble;
  double exposed;
  double memory_bytes;
  double host_bytes;
  gsel_str name;
} gsel_plan_candidate;
#define GSEL_PLAN_CANDIDATE_INIT GSEL_STRUCT_INIT(gsel_plan_candidate)
GSEL_API void gsel_plan_candidate_init(gsel_plan_candidate *candidate, size_t struct_size);

#define GSEL_PLAN_SEQUENCE_PARALLEL 1u /* on the tensor axis */
#define GSEL_PLAN_RECOMPUTE 2u         /* all recomputable layers */
#define GSEL_PLAN_OFFLOAD_STATE 4u     /* optimizer state in host memory */
#define GSEL_PLAN_OFFLOAD_PARAMS 8u    /* parameters in host memory too */

/* Number of candidates: layouts that fit, fastest first; at most 32. 0 for NULL. Any thread. Since 0.1. */
GSEL_API int32_t gsel_plan_candidate_count(const gsel_plan *plan);
/* Errors: GSEL_ERR_ARG for an index out of range. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_plan_candidate_get(const gsel_plan *plan, int32_t i, gsel_plan_candidate *out,
                                             gsel_error **err);

/* The plan as text (the questions that decide, the ranked list, and details of the first choice), and as JSON with all
 * candidates (docs/plan.md). The same text for the same options on every machine. Borrowed until the plan is freed. Any
 * thread. Since 0.1. */
GSEL_API gsel_str gsel_plan_text(const gsel_plan *plan);
GSEL_API gsel_str gsel_plan_json(const gsel_plan *plan);

/* A candidate as gsel.toml, which gsel run and gsel_config_parse accept unchanged; and the simulated schedule of a
 * candidate with a pipeline, which gsel_timeline_add draws.
 *   out  borrowed until the next such call with this plan
 * Errors: GSEL_ERR_ARG for an index out of range, or a schedule without a pipeline; for gsel_plan_toml also the error
 * with which a run would refuse the candidate's programs, such as GSEL_ERR_NOMEM. One thread at a time per plan. Since
 * 0.1. */
GSEL_API gsel_status gsel_plan_toml(gsel_plan *plan, int32_t i, gsel_str *out, gsel_error **err);
GSEL_API gsel_status gsel_plan_simulation(gsel_plan *plan, int32_t i, gsel_str *out, gsel_error **err);

/* The parts of a step as bars, one for each candidate in the text, as a self-contained SVG.
 *   out  borrowed until the next such call with this plan
 * Errors: GSEL_ERR_ARG for a plan without candidates. One thread at a time per plan. Since 0.1. */
GSEL_API gsel_status gsel_plan_picture(gsel_plan *plan, gsel_str *out, gsel_error **err);

/* Memory of a rank under each strategy, whether it fits or not, without a search. Uses model, cluster and precision of
 * the options and, from `fixed`, devices, microbatch and recompute. As text or JSON; `out` is a plan without
 * candidates. Errors as gsel_plan_create. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_plan_estimate(const gsel_plan_options *options, gsel_plan **out, gsel_error **err);

/* Compares configurations: the forecast of each by parts, whether it fits or not. Batch and precision are those of each
 * configuration.
 *   configs  [n] from gsel_config_load; their files name the columns
 *   out      a plan without candidates
 * Errors: as gsel_plan_create; GSEL_ERR_CONFIG, with the place, if a configuration has a setting that the planner
 * cannot price. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_plan_compare(const gsel_plan_options *options, const gsel_config *const *configs, int32_t n,
                                       gsel_plan **out, gsel_error **err);

/* Forecasts for a table of published or own measurements (docs/plan.md has the columns), with errors before and after
 * one factor for each class of device is fitted. `out` is a plan without candidates, whose text and JSON are the
 * report.
 *   rows  tab-separated, the first line names the columns
 *   name  name of the text in messages
 * Errors: GSEL_ERR_PARSE with file, line and column. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_plan_rows(gsel_str rows, gsel_str name, gsel_plan **out, gsel_error **err);

/* Releases; NULL is fine. Since 0.1. */
GSEL_API void gsel_plan_free(gsel_plan *plan);

GSEL_EXTERN_C_END

#endif
