/* gsel/state.h: what a trainer holds between steps, by name: each parameter and each state of the optimizer, with its
 * shape in the model and the part of it that this rank has under today's placement; the numbers that training goes on
 * from; and states of the program's own. What checkpoints save (gsel/checkpoint.h), for programs that keep or move it in
 * a way of their own. */
#ifndef GSEL_STATE_H
#define GSEL_STATE_H

#include <gsel/error.h>
#include <gsel/train.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_state gsel_state;

/* Makes the last step final and lists the state, with what gsel_trainer_add_state has added. A collective between steps.
 *   out  given to the caller, free with gsel_state_free before the trainer; of use until the next step, evaluation,
 *        load or rebind of the trainer, after which its calls fail with GSEL_ERR_STATE
 * Errors: GSEL_ERR_ARG; GSEL_ERR_STATE (a step is in progress or has failed); GSEL_ERR_UNSUPPORTED (8-bit states,
 * low-rank compression); GSEL_ERR_MISMATCH if another rank makes another call; those of the collectives. Since 0.1. */
GSEL_API gsel_status gsel_state_open(gsel_trainer *trainer, gsel_state **out, gsel_error **err);
GSEL_API void gsel_state_free(gsel_state *state);

/* Tensors of the state, the same on every rank; 0 for NULL. Since 0.1. */
GSEL_API int32_t gsel_state_count(const gsel_state *state);

/* A tensor. Elements are f32: of parameters that are kept in 16 bits these are the master copies.
 *   name      "param:NAME", or of a state of the optimizer such as "exp_avg:NAME"; lives as long as the gsel_state
 *   role      what is before the colon
 *   param     id of the parameter
 *   shape     in the model, n_dims numbers
 *   n_pieces  parts of it that this rank has; 0 where others have it all */
typedef struct gsel_state_entry {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str name;
  gsel_str role;
  int32_t param;
  gsel_dtype dtype;
  int32_t n_dims;
  int32_t n_pieces;
  int64_t shape[GSEL_MAX_DIMS];
} gsel_state_entry;
#define GSEL_STATE_ENTRY_INIT GSEL_STRUCT_INIT(gsel_state_entry)
GSEL_API void gsel_state_entry_init(gsel_state_entry *entry, size_t struct_size);
/* i: from 0 to gsel_state_count - 1. Since 0.1. */
GSEL_API gsel_status gsel_state_entry_at(const gsel_state *state, int32_t i, gsel_state_entry *out, gsel_error **err);

/* Consecutive elements of a piece that are consecutive in the whole tensor, too.
 *   whole  offset of the first in the whole tensor, elements, row-major
 *   local  offset of the first in the piece */
typedef struct gsel_state_run {
  int64_t whole;
  int64_t local;
  int64_t count;
} gsel_state_run;

/* A piece as a list of runs, in ascending order of both offsets; as many as `capacity` are written.
 *   total  of all runs; may be NULL
 * Since 0.1. */
GSEL_API gsel_status gsel_state_runs(const gsel_state *state, int32_t i, int32_t piece, gsel_state_run *runs,
                                     int64_t capacity, int64_t *total, gsel_error **err);

/* Copies elements [first, first + count) of a piece to host memory. Not a collective. GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_state_read_piece(gsel_state *state, int32_t i, int32_t piece, int64_t first, int64_t count,
                                           float *dst, gsel_error **err);

/* Elements [first, first + count) of the whole tensor, row-major, from the ranks that have them to all ranks. A
 * collective; all ranks ask for the same. dst may be NULL on a rank that does not want them. Errors: GSEL_ERR_ARG,
 * those of the collectives. Since 0.1. */
GSEL_API gsel_status gsel_state_read(gsel_state *state, int32_t i, int64_t first, int64_t count, float *dst,
                                     gsel_error **err);

/* Sets elements [first, first + count) of the whole tensor on this rank, as far as it has them; 16-bit copies follow.
 * Every rank makes the call with the same elements, or ranks hold different values of what they hold alike. Not a
 * collective.
 *   written  elements that this rank has; may be NULL
 * Since 0.1. */
GSEL_API gsel_status gsel_state_write(gsel_state *state, int32_t i, int64_t first, int64_t count, const float *src,
                                      int64_t *written, gsel_error **err);

/* The numbers that training goes on from.
 *   step           the next one, from 0
 *   updates        steps that were not skipped
 *   loss_scale     of the next step; good_steps, overflows_left: how it changes (train.loss_scale)
 *   learning_rate  as set by gsel_trainer_set_learning_rate; negative: that of the configuration
 *   first_sample   number of the next step's first sample; each step has as many as train.batch says
 *   seed           of the random numbers of a step, which follow from it and from step; at first train.seed */
typedef struct gsel_training_numbers {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t step;
  int64_t updates;
  double loss_scale;
  int64_t good_steps;
  int64_t overflows_left;
  double learning_rate;
  int64_t first_sample;
  int64_t seed;
} gsel_training_numbers;
#define GSEL_TRAINING_NUMBERS_INIT GSEL_STRUCT_INIT(gsel_training_numbers)
GSEL_API void gsel_training_numbers_init(gsel_training_numbers *numbers, size_t struct_size);
/* Those of now. Since 0.1. */
GSEL_API gsel_status gsel_state_numbers(const gsel_state *state, gsel_training_numbers *out, gsel_error **err);
/* Every rank sets the same. GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_state_set_numbers(gsel_state *state, const gsel_training_numbers *numbers, gsel_error **err);

/* A state of the program's own that is saved and loaded with the trainer's: the position in a data set, a schedule.
 *   name   of letters, digits, '_', '-', '.' and '/'; one of this trainer's at most
 *   data   `bytes` bytes of host memory, borrowed until gsel_trainer_free: read by a save, written by a load
 *   scope  GSEL_STATE_SHARED: the same on every rank; the first rank's is saved, and a load gives it to all.
 *          GSEL_STATE_OF_RANK: each rank's own; loads with as many ranks as there were
 * After gsel_trainer_join a shared state is written to `data` in this call, as the ranks that were there have it;
 * GSEL_ERR_MISMATCH if they have another size.
 * Every rank adds the same entries. A load fails with GSEL_ERR_MISMATCH, and changes nothing, if the checkpoint has no
 * such entry or one of another size; what nobody has added is left alone. Not a collective. GSEL_ERR_ARG. Since 0.1. */
#define GSEL_STATE_SHARED 0
#define GSEL_STATE_OF_RANK 1
GSEL_API gsel_status gsel_trainer_add_state(gsel_trainer *trainer, gsel_str name, void *data, size_t bytes,
                                            int32_t scope, gsel_error **err);

/* States of the program's own that were added before gsel_state_open; 0 for NULL. Since 0.1. */
GSEL_API int32_t gsel_state_own_count(const gsel_state *state);

/* A state of the program's own, as gsel_trainer_add_state has it.
 *   scope  GSEL_STATE_SHARED or GSEL_STATE_OF_RANK
 *   name   lives as long as the gsel_state
 *   data   memory of the program, `bytes` bytes, of this rank also where it is shared */
typedef struct gsel_state_own {
  uint32_t struct_size;
  int32_t scope;
  gsel_str name;
  void *data;
  uint64_t bytes;
} gsel_state_own;
#define GSEL_STATE_OWN_INIT GSEL_STRUCT_INIT(gsel_state_own)
GSEL_API void gsel_state_own_init(gsel_state_own *own, size_t struct_size);
/* i: from 0 to gsel_state_own_count - 1, in the order in which they were added. Errors: GSEL_ERR_ARG; GSEL_ERR_STATE as
 * of gsel_state_open. Since 0.1. */
GSEL_API gsel_status gsel_state_own_at(const gsel_state *state, int32_t i, gsel_state_own *out, gsel_error **err);

/* ---- a change of ranks ---- */

/* Where a rebind took the state from. */
#define GSEL_REBIND_FROM_RANKS 1      /* what ranks hold, or keep for each other (train.redundancy) */
#define GSEL_REBIND_FROM_CHECKPOINT 2

/* config  for the new ranks; NULL: as before, with which `auto` sizes of the mesh become others
 * folder  of checkpoints, in case the ranks do not have the state, or an older one than the last that they have saved
 *         there; a gsel_str of no bytes: none, or that of the first rank that gives one */
typedef struct gsel_rebind_options {
  uint32_t struct_size;
  uint32_t reserved;
  const gsel_config *config;
  gsel_str folder;
} gsel_rebind_options;
#define GSEL_REBIND_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_rebind_options)
GSEL_API void gsel_rebind_options_init(gsel_rebind_options *options, size_t struct_size);

/* What a rebind did. */
typedef struct gsel_rebind_report {
  uint32_t struct_size;
  int32_t source;        /* GSEL_REBIND_FROM_* */
  int64_t step;          /* that comes next */
  int64_t lost_steps;    /* that some rank had completed, and that are trained again */
  uint64_t bytes_moved;  /* from other ranks, or from disk, to this one */
  double seconds;
  double move_seconds;   /* of these, for the state alone; the rest made the trainer */
} gsel_rebind_report;
#define GSEL_REBIND_REPORT_INIT GSEL_STRUCT_INIT(gsel_rebind_report)
GSEL_API void gsel_rebind_report_init(gsel_rebind_report *report, size_t struct_size);

/* Moves the trainer to another communicator, such as what gsel_comm_shrink or gsel_comm_grow has made after a rank was
 * lost or before one joins: the trainer is made anew for it, and takes the newest state that its ranks have whole
 * together. Training goes on with the step whose state that is, on the samples of that step, to the bits of a run that
 * had planned the change. A collective over comm, also after the trainer's communicator broke. Ranks that are new call
 * gsel_trainer_join.
 *   trainer  stays what it was after an error
 *   comm     borrowed until gsel_trainer_free; the one from before may be freed afterwards
 *   options, report  may be NULL
 * A save in the background is waited for, or ended if the trainer's communicator is broken; its outcome is dropped.
 * While the state moves, memory for both trainers is needed. States of the program's own are left to the program, but a
 * checkpoint brings its shared ones, and shared ones are sent to ranks that join.
 * A rank may die in here: then GSEL_ERR_PEER, here or in the next step; shrink comm, and rebind to what that gives.
 * Errors: those of gsel_trainer_create; GSEL_ERR_NOT_FOUND (a part of the state is on no rank: names it, and what to
 * set); with a folder those of gsel_trainer_load; GSEL_ERR_MISMATCH (another optimizer); GSEL_ERR_UNSUPPORTED (8-bit
 * states, low-rank compression). Since 0.1. */
GSEL_API gsel_status gsel_trainer_rebind(gsel_trainer *trainer, gsel_comm *comm, const gsel_rebind_options *options,
                                         gsel_rebind_report *report, gsel_error **err);

/* The part of a rank that had no trainer in gsel_trainer_rebind of the others: makes one, as gsel_trainer_create does,
 * which takes the state that they have.
 *   rebind  its config is not used: trainer_options has one
 *   out     given to the caller, free with gsel_trainer_free
 * Errors: those of gsel_trainer_create and gsel_trainer_rebind. Since 0.1. */
GSEL_API gsel_status gsel_trainer_join(gsel_comm *comm, gsel_model *model, const gsel_trainer_options *trainer_options,
                                       const gsel_rebind_options *rebind, gsel_trainer **out,
                                       gsel_rebind_report *report, gsel_error **err);

/* One thread at a time per trainer. */

GSEL_EXTERN_C_END

#endif
