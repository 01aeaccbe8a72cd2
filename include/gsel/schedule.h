/* gsel/schedule.h: pipeline schedules. A schedule says in which order each rank of a pipeline runs its stages on
 * micro-batches. Schedules are made by name or read from text, checked, simulated and drawn; nothing runs.
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
  int32_t stage; /* of the model, from 0; there are ranks x chunks stages */
  int32_t microbatch;
} gsel_action;

/* Makes a schedule by name.
 *   name          naive, gpipe, 1f1b, interleaved-1f1b, zb-h1, interleaved-zb, zb-h2, zb-v, dualpipe-v; also torch's
 *                 names (GPipe, 1F1B, Interleaved1F1B, InterleavedZeroBubble, ZBVZeroBubble, DualPipeV)
 *   ranks         ranks of the pipeline, >= 1
 *   microbatches  >= 1
 *   chunks        stages of each rank; 0: what the schedule needs (2 for interleaved and V-shaped schedules, else 1)
 *   out           given to the caller, free with gsel_schedule_free
 * In every schedule each stage processes its micro-batches in ascending order, so gradients are summed in the same
 * order.
 * Errors: GSEL_ERR_CONFIG with the request and what would work (an unknown name, a number of chunks that the schedule
 * cannot have, micro-batches that it cannot divide or that are too few); GSEL_ERR_ARG for numbers below 1. Any thread.
 * Since 0.1.
 * Source: arXiv 1811.06965 (gpipe), 2006.09503 (1f1b), 2104.04473 section 2.2 (interleaved-1f1b), 2401.10241 (zb-h1,
 * zb-h2, interleaved-zb, zb-v), 2412.19437 section 3.2 (dualpipe-v, folded so that no stage is on two ranks). */
GSEL_API gsel_status gsel_schedule_create(gsel_str name, int32_t ranks, int32_t microbatches, int32_t chunks,
                                          gsel_schedule **out, gsel_error **err);

/* Reads a schedule: a row for each rank, actions separated by commas, each "<stage><F|I|W|B><micro-batch>" such as 2F0,
 * the format of torch.distributed.pipelining. Empty cells are idle; lines that begin with # are comments. Sends,
 * receives, UNSHARD, RESHARD and REDUCE_GRAD are accepted and ignored, since gsel makes its own. "(2F4;5B0)OVERLAP_F_B"
 * is 2F4 and then 5B0. The schedule must be complete: every stage runs every micro-batch once, forward before backward,
 * without a deadlock.
 *   name  replaces the file in messages
 * Errors: GSEL_ERR_PARSE and GSEL_ERR_PROGRAM with file, line (row), column and action. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_schedule_parse(gsel_str text, gsel_str name, gsel_schedule **out, gsel_error **err);

/* The text form; gsel_schedule_parse reads it back. Borrowed until the schedule is freed. Any thread. Since 0.1. */
GSEL_API gsel_str gsel_schedule_text(const gsel_schedule *schedule);

/* Numbers of ranks, stages and micro-batches; the rank of a stage (-1: no such stage); number of actions of a rank, and
 * its action i. 0 for NULL. Any thread. Since 0.1. */
GSEL_API int32_t gsel_schedule_ranks(const gsel_schedule *schedule);
GSEL_API int32_t gsel_schedule_stages(const gsel_schedule *schedule);
GSEL_API int32_t gsel_schedule_microbatches(const gsel_schedule *schedule);
GSEL_API int32_t gsel_schedule_rank_of(const gsel_schedule *schedule, int32_t stage);
GSEL_API int32_t gsel_schedule_length(const gsel_schedule *schedule, int32_t rank);
GSEL_API gsel_status gsel_schedule_action(const gsel_schedule *schedule, int32_t rank, int32_t i, gsel_action *out,
                                          gsel_error **err);

/* Durations of actions, all in the same unit of time.
 *   forward, backward_input, backward_weight
 *         of all stages of a rank for one micro-batch; one stage takes 1 / chunks of it
 *   hop   time from the end of an action on one rank until another rank can use its result
 *   stage_times  [3 * stages] forward, backward_input, backward_weight of each stage; replaces the first three; NULL:
 *                not given */
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

/* Result of a simulation. A rank runs one action at a time. An action begins as soon as the previous action of its rank
 * has ended and its inputs have arrived. Sending costs the sender no time.
 *   makespan            from the begin of the first action to the end of the last
 *   ideal               work of the busiest rank: the time of a rank that never waits
 *   bubble_of_makespan  (makespan - ideal) / makespan: (p - 1) / (m + p - 1) for 1f1b
 *   bubble_of_ideal     (makespan - ideal) / ideal: (p - 1) / m for 1f1b, as quoted in papers
 *   longest_rank_span   the longest time from the first to the last action of a rank: the time per step if each rank
 *                       begins the next step when it is done. If all ranks end a step together, the time per step is
 *                       the makespan */
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

/* JSON (docs/pipeline.md), which gsel_timeline_add can draw: the numbers of gsel_simulation_report; for each rank busy,
 * peak_activations (most micro-batches, in units of its whole share, that it holds between forward and backward_weight)
 * and peak_until_input (the same if backward_input frees them); the messages of each boundary; and every action with
 * its begin and end. Borrowed until the simulation is freed. Any thread. Since 0.1. */
GSEL_API gsel_str gsel_simulation_json(const gsel_simulation *simulation);

/* Release; NULL is fine. Since 0.1. */
GSEL_API void gsel_simulation_free(gsel_simulation *simulation);
GSEL_API void gsel_schedule_free(gsel_schedule *schedule);

GSEL_EXTERN_C_END

#endif
