/* gsel/plan.h: which strategy, will it fit, how fast, and why: answered from descriptions of a model and of devices, with
 * no accelerator at hand.
 *
 *     gsel_plan_options options = GSEL_PLAN_OPTIONS_INIT;
 *     options.model = gsel_str_from(config_json), options.cluster = gsel_str_from("8xH100");
 *     options.nodes = 4, options.batch = 1024, options.sequence = 4096;
 *     gsel_plan *plan;
 *     gsel_status status = gsel_plan_create(&options, &plan, &err);
 *     if (!status) puts(gsel_plan_text(plan).data);
 *
 * docs/plan.md has the formulas, and how far the forecasts were from what others measured. */
#ifndef GSEL_PLAN_H
#define GSEL_PLAN_H

#include <gsel/config.h>
#include <gsel/model.h>
#include <gsel/select.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_plan gsel_plan;

/* Called now and then during a long search with how many layouts were tried, on the thread that makes the plan. Returns
 * 0 to go on; anything else ends the search with GSEL_ERR_ABORTED. */
typedef int32_t (*gsel_plan_progress_fn)(int64_t n_tried, void *user_data);

/* What is to be planned. Texts and handles are borrowed for the call.
 *   model         JSON: a config.json of the Hugging Face hub, or a list of layers (docs/plan.md). Not given: `described`
 *   model_name    stands for the text in messages, such as its file
 *   described     a model of this program, used where `model` is not given; its layers say flop_per_sample
 *   cluster       devices of one node: "8xH100", or unequal ones, "2xA100-80GB+1xRTX4090". Not given: `inventory`
 *   inventory     NULL: this machine
 *   nodes         0 means 1
 *   link          between two devices of a node: a class of nvidia-smi topo -m ("NV4", "PHB"), "p2p-off", or a rate
 *                 ("300GB/s"). Not given: what the device usually has
 *   network       of each node: "8x400Gb/s", or a rate. Not given: usual for the device
 *   memory_bytes  of each device; 0: as the cluster or inventory says
 *   batch         samples of a step over all ranks; 0: one for each device
 *   sequence      tokens of a sample; 0: the model's own
 *   precision     how parameters and states are kept: "gsel-bf16" (the default), "gsel-f32", or of another program
 *                 ("megatron-bf16", "fsdp2-bf16", "deepspeed-fp16", "ddp-f32")
 *   fixed         what is decided already: "tensor=2, zero=1, recompute=all"
 *   measured      own measurements, as gsel_plan_rows reads them: one scalar for the class of device is fitted to them
 *   n_shown       candidates in the text; 0 means 10
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

/* Searches. A plan without candidates is no error: its text says what is short and which change fits.
 *   out  given to the caller, free with gsel_plan_free
 * Errors: GSEL_ERR_CONFIG for a model whose fields are missing or contradict each other, with file and key;
 * GSEL_ERR_PARSE for text that is no JSON, with line and column, and for a value of a wrong type; GSEL_ERR_ARG for a
 * cluster, a link, a precision or what is fixed, with the token and what is accepted; GSEL_ERR_ABORTED when `progress`
 * ended it. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_plan_create(const gsel_plan_options *options, gsel_plan **out, gsel_error **err);

/* A layout and its forecast. step_s and what follows are forecasts of closed forms and of a simulation of the schedule.
 *   tensor, context, data, pipeline  ranks on the axes; their product are the ranks
 *   zero_stage     0 to 3
 *   chunks         stages of a rank
 *   microbatch     samples
 *   microbatches   of one replica and step
 *   flags          GSEL_PLAN_*
 *   step_s         seconds of a step
 *   samples_per_s, tokens_per_s  over all ranks
 *   mfu, hfu       shares of the dense 16-bit peak, without and with recomputation
 *   bubble, exposed  shares of the step: waiting in the pipeline; communication that nothing hides
 *   memory_bytes   of the rank that is nearest to the memory of its device; host_bytes of the memory of its host
 *   name           for people; lives as long as the plan */
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
#define GSEL_PLAN_RECOMPUTE 2u         /* all layers that may */
#define GSEL_PLAN_OFFLOAD_STATE 4u     /* optimizer state in the memory of the host */
#define GSEL_PLAN_OFFLOAD_PARAMS 8u    /* and parameters */

/* How many layouts fit, fastest first; at most 32. 0 for NULL. Any thread. Since 0.1. */
GSEL_API int32_t gsel_plan_candidate_count(const gsel_plan *plan);
/* Errors: GSEL_ERR_ARG for an index that is none. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_plan_candidate_get(const gsel_plan *plan, int32_t i, gsel_plan_candidate *out,
                                             gsel_error **err);

/* The plan for people: the questions that decide, the ranked list, and the first choice in parts; and as JSON with all
 * candidates (docs/plan.md). The same text for the same options on every machine. Borrowed until the plan is freed. Any
 * thread. Since 0.1. */
GSEL_API gsel_str gsel_plan_text(const gsel_plan *plan);
GSEL_API gsel_str gsel_plan_json(const gsel_plan *plan);

/* A candidate as gsel.toml, which gsel run and gsel_config_parse take as it is; and the simulated schedule of a candidate
 * with a pipeline, which gsel_timeline_add draws.
 *   out  borrowed until the next such call with this plan
 * Errors: GSEL_ERR_ARG for an index that is none, or a schedule without a pipeline; of gsel_plan_toml also why a run
 * refuses the candidate's programs, such as GSEL_ERR_NOMEM. One thread at a time per plan. Since 0.1. */
GSEL_API gsel_status gsel_plan_toml(gsel_plan *plan, int32_t i, gsel_str *out, gsel_error **err);
GSEL_API gsel_status gsel_plan_simulation(gsel_plan *plan, int32_t i, gsel_str *out, gsel_error **err);

/* The parts of a step of the candidates that the text shows, as bars one below the other: an SVG that needs nothing else.
 *   out  borrowed until the next such call with this plan
 * Errors: GSEL_ERR_ARG for a plan without candidates. One thread at a time per plan. Since 0.1. */
GSEL_API gsel_status gsel_plan_picture(gsel_plan *plan, gsel_str *out, gsel_error **err);

/* Memory of a rank under each strategy, whether it fits or not, without a search: model, cluster, precision and, of
 * `fixed`, devices, microbatch and recompute of the options. As text or JSON; `out` is a plan without candidates. Errors
 * as gsel_plan_create. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_plan_estimate(const gsel_plan_options *options, gsel_plan **out, gsel_error **err);

/* Configurations beside each other: the forecast of each by part, whether it fits or not. Batch and precision are those
 * of each configuration.
 *   configs  [n] as gsel_config_load gives them, whose files name the columns
 *   out      a plan without candidates
 * Errors: as gsel_plan_create; GSEL_ERR_CONFIG, with the place, where a configuration asks for what the planner does not
 * price. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_plan_compare(const gsel_plan_options *options, const gsel_config *const *configs, int32_t n,
                                       gsel_plan **out, gsel_error **err);

/* Forecasts for a table of published or own measurements (docs/plan.md has the columns), with errors before and after
 * one scalar for each class of device is fitted: `out` is a plan without candidates, whose text and JSON are the report.
 *   rows  tab-separated, the first line names the columns
 *   name  stands for the text in messages
 * Errors: GSEL_ERR_PARSE with file, line and column. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_plan_rows(gsel_str rows, gsel_str name, gsel_plan **out, gsel_error **err);

/* Releases; NULL is fine. Since 0.1. */
GSEL_API void gsel_plan_free(gsel_plan *plan);

GSEL_EXTERN_C_END

#endif
