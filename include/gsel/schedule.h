/* gsel/schedule.h: pipeline schedules: which stage works on which micro-batch, in what order, on each rank of a
 * pipeline. A schedule is made by name or read from text, checked, simulated and drawn; nothing runs.
 * docs/pipeline.md shows them. */
#ifndef GSEL_SCHEDULE_H
#define GSEL_SCHEDULE_H

#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_schedule gsel_schedule;

/* One action. Layout is frozen: arrays of it are passed.
 *   kind  GSEL_FORWARD (F in text), GSEL_BACKWARD_INPUT (I), GSEL_BACKWARD_WEIGHT (W) or GSEL_BACKWARD (B) */
typedef struct gsel_action {
  int32_t kind;
  int32_t stage; /* of the model, from 0: stages x chunks of them where each rank has several chunks */
  int32_t microbatch;
} gsel_action;

/* Makes a schedule by name.
 *   name          naive, gpipe, 1f1b, interleaved-1f1b, zb-h1, interleaved-zb, zb-h2, zb-v, dualpipe-v; also as torch
 *                 names them (GPipe, 1F1B, Interleaved1F1B, InterleavedZeroBubble, ZBVZeroBubble, DualPipeV)
 *   ranks         of the pipeline, >= 1
 *   microbatches  >= 1
 *   chunks        stages of each rank; 0: what the schedule needs (1, or 2 for interleaved ones and those of a V)
 *   out           given to the caller, free with gsel_schedule_free
 * Every stage works through its micro-batches in ascending order: gradients add up in the same order in all of them.
 * Errors: GSEL_ERR_CONFIG says what was asked and what would do (an unknown name, chunks the schedule cannot have,
 * micro-batches it cannot divide or that are too few); GSEL_ERR_ARG for numbers below 1. Any thread. Since 0.1.
 * Source: arXiv 1811.06965 (gpipe), 2006.09503 (1f1b), 2104.04473 section 2.2 (interleaved-1f1b), 2401.10241 (zb-h1,
 * zb-h2, interleaved-zb, zb-v), 2412.19437 section 3.2 (dualpipe-v, folded so that no stage is on two ranks). */
GSEL_API gsel_status gsel_schedule_create(gsel_str name, int32_t ranks, int32_t microbatches, int32_t chunks,
                                          gsel_schedule **out, gsel_error **err);

/* Reads a schedule: a row for each rank, actions separated by commas, each "<stage><F|I|W|B><micro-batch>" such as
 * 2F0, as torch.distributed.pipelining writes them; empty cells are idle, lines that begin with # are comments. Sends,
 * receives, UNSHARD, RESHARD and REDUCE_GRAD are taken and left out: gsel makes its own; "(2F4;5B0)OVERLAP_F_B" is 2F4
 * and then 5B0. The schedule is complete: every stage sees every micro-batch once, forward before backward, and no rank
 * waits for ever.
 *   name  stands for the file in messages
 * Errors: GSEL_ERR_PARSE and GSEL_ERR_PROGRAM with file, line (row), column and action. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_schedule_parse(gsel_str text, gsel_str name, gsel_schedule **out, gsel_error **err);

/* The text form; gsel_schedule_parse reads it back. Borrowed until the schedule is freed. Any thread. Since 0.1. */
GSEL_API gsel_str gsel_schedule_text(const gsel_schedule *schedule);

/* Numbers of ranks, stages and micro-batches; the rank of a stage (-1: no such stage); actions of a rank. 0 for NULL.
 * Any thread. Since 0.1. */
GSEL_API int32_t gsel_schedule_ranks(const gsel_schedule *schedule);
GSEL_API int32_t gsel_schedule_stages(const gsel_schedule *schedule);
GSEL_API int32_t gsel_schedule_microbatches(const gsel_schedule *schedule);
GSEL_API int32_t gsel_schedule_rank_of(const gsel_schedule *schedule, int32_t stage);
GSEL_API int32_t gsel_schedule_length(const gsel_schedule *schedule, int32_t rank);
GSEL_API gsel_status gsel_schedule_action(const gsel_schedule *schedule, int32_t rank, int32_t i, gsel_action *out,
                                          gsel_error **err);

/* What actions take, in any one unit of time.
 *   forward, backward_input, backward_weight
 *         of a rank's whole share of the model for one micro-batch; a stage takes 1 / chunks of it
 *   hop   from the end of an action on one rank until another rank can use what it made
 *   stage_times  [3 * stages] forward, backward_input, backward_weight of each stage in their place; NULL: as above */
typedef struct gsel_schedule_times {
  uint32_t struct_size;
  uint32_t reserved;
  double forward;
  double backward_input;
  double backward_weight;
  double hop;
  const double *stage_times;
} gsel_schedule_times;
#define GSEL_SCHEDULE_TIMES_INIT GSEL_STRUCT_INIT(gsel_schedule_times)
GSEL_API void gsel_schedule_times_init(gsel_schedule_times *times, size_t struct_size);

/* What a simulation found. Every rank works on one action at a time, each as soon as the one before it on its rank has
 * ended and what it reads has come; sending costs the sender nothing.
 *   makespan            from the first action's begin to the last one's end
 *   ideal               work of the busiest rank: the time of a rank that never waits
 *   bubble_of_makespan  (makespan - ideal) / makespan: (p - 1) / (m + p - 1) for 1f1b
 *   bubble_of_ideal     (makespan - ideal) / ideal: (p - 1) / m for 1f1b, as papers quote it
 *   longest_rank_span   most time from a rank's own first action to its own last: the makespan where the ends are
 *                       waited for together, less where ranks begin the next step as they are */
typedef struct gsel_simulation_report {
  uint32_t struct_size;
  uint32_t reserved;
  double makespan;
  double ideal;
  double bubble_of_makespan;
  double bubble_of_ideal;
  double longest_rank_span;
} gsel_simulation_report;
#define GSEL_SIMULATION_REPORT_INIT GSEL_STRUCT_INIT(gsel_simulation_report)
GSEL_API void gsel_simulation_report_init(gsel_simulation_report *report, size_t struct_size);

/* Simulates.
 *   times  NULL: forward, backward_input and backward_weight 1, no hop
 *   out    given to the caller, free with gsel_simulation_free; independent of the schedule
 * Errors: GSEL_ERR_ARG for times that are negative, infinite, or too large to be added up. Any thread. Since 0.1. */
typedef struct gsel_simulation gsel_simulation;
GSEL_API gsel_status gsel_schedule_simulate(const gsel_schedule *schedule, const gsel_schedule_times *times,
                                            gsel_simulation **out, gsel_error **err);
GSEL_API gsel_status gsel_simulation_get(const gsel_simulation *simulation, gsel_simulation_report *out,
                                         gsel_error **err);

/* JSON: what gsel_simulation_report says, and busy, peak_activations (most micro-batches that a rank holds between
 * forward and backward_weight, in units of its whole share), peak_until_input (freed at backward_input) per rank,
 * messages per boundary, and every action with its begin and end: what gsel_timeline_add draws. docs/pipeline.md.
 * Borrowed until the simulation is freed. Any thread. Since 0.1. */
GSEL_API gsel_str gsel_simulation_json(const gsel_simulation *simulation);

/* Release; NULL is fine. Since 0.1. */
GSEL_API void gsel_simulation_free(gsel_simulation *simulation);
GSEL_API void gsel_schedule_free(gsel_schedule *schedule);

GSEL_EXTERN_C_END

#endif
