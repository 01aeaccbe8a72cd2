/* gsel/checkpoint.h: what a trainer holds, on disk: parameters, states of the optimizer, and where training stands.
 * Saved under one strategy and number of ranks it loads under any other, and training goes on to the same bits
 * (docs/checkpoints.md). A checkpoint can be looked into, verified, compared and written anew without a trainer. */
#ifndef GSEL_CHECKPOINT_H
#define GSEL_CHECKPOINT_H

#include <gsel/error.h>
#include <gsel/train.h>

GSEL_EXTERN_C_BEGIN

/* What a save or a load did. */
typedef struct gsel_checkpoint_report {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t step;                 /* that comes next */
  uint64_t bytes;               /* of tensors, that this rank wrote or read */
  uint64_t needed_bytes;        /* of tensors, that this rank's placement needs; of a save, bytes */
  double seconds;               /* of a save in the background: until all was on the disk */
  double blocked_seconds;       /* that training waited */
  double copy_seconds;          /* of a save in the background: the copy of the state, in blocked_seconds */
  uint64_t compared_bytes;      /* of a load: what this rank read besides, of blocks of 16 MiB of which no rank needs each
                                   byte, for their sums */
} gsel_checkpoint_report;
#define GSEL_CHECKPOINT_REPORT_INIT GSEL_STRUCT_INIT(gsel_checkpoint_report)
GSEL_API void gsel_checkpoint_report_init(gsel_checkpoint_report *report, size_t struct_size);

/* How a trainer is saved. All zero: nothing but the save.
 *   keep  0, or a number of checkpoints: when the new one is on the disk, older whole ones of the folder are removed,
 *         so that so many are left. The new one and the one of the largest step stay in any case, and so does what is no
 *         whole checkpoint. What cannot be removed is logged and is no error. The same on all ranks */
typedef struct gsel_checkpoint_options {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t keep;
  uint32_t reserved2;
} gsel_checkpoint_options;
#define GSEL_CHECKPOINT_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_checkpoint_options)
GSEL_API void gsel_checkpoint_options_init(gsel_checkpoint_options *options, size_t struct_size);

/* Saves the trainer between steps as FOLDER/step-NNNNNNNNNNNN. A collective. Each rank writes what it holds to a
 * safetensors file of its own, and of what several hold a part; no tensor is gathered. The folder is made if there is
 * none. The checkpoint has a temporary name until everything is on the disk, so that a save that fails, or whose
 * process ends, leaves the earlier ones as they are.
 *   folder   on a disk that all ranks share; borrowed for the call
 *   options  may be NULL
 *   report   may be NULL
 * Errors: GSEL_ERR_ARG; GSEL_ERR_STATE (a step is in progress or has failed, a save is under way in the background on
 * some rank, or there is a whole checkpoint of this step); GSEL_ERR_UNSUPPORTED (low-rank compression beside other axes
 * than data); GSEL_ERR_IO with the file, on other ranks GSEL_ERR_PEER with the same text: the trainer can go on;
 * GSEL_ERR_MISMATCH if another rank makes another call, keeps another number or has other states of the program's own;
 * those of the collectives. Since 0.1. */
GSEL_API gsel_status gsel_trainer_save(gsel_trainer *trainer, gsel_str folder, const gsel_checkpoint_options *options,
                                       gsel_checkpoint_report *report, gsel_error **err);

/* The same in two parts: begin returns when the state of this rank is copied to host memory, and a thread of each rank
 * writes the copy while training goes on, over a communicator that the first such save makes. One at a time. The memory
 * of the copy, 4 bytes for each element that this rank writes, is kept for the next save until gsel_trainer_free.
 * Begin is a collective, and folder as above.
 *   report  may be NULL; bytes is 0, seconds and blocked_seconds are those of begin
 * Errors: those of gsel_trainer_save that are known before the copy; GSEL_ERR_STATE while a save is under way on some
 * rank; the error of an earlier save that was not waited for; GSEL_ERR_NOMEM. Nothing has begun then. Since 0.1. */
GSEL_API gsel_status gsel_trainer_save_begin(gsel_trainer *trainer, gsel_str folder,
                                             const gsel_checkpoint_options *options, gsel_checkpoint_report *report,
                                             gsel_error **err);

/* What became of gsel_trainer_save_begin: the same outcome on all ranks, though not at one moment. A failure is logged
 * as well. gsel_step_report has it after each step. 0 for NULL. Any thread, but not during gsel_trainer_rebind. Since
 * 0.1. */
#define GSEL_SAVE_NONE 0        /* none was begun, or its outcome was taken by gsel_trainer_save_wait */
#define GSEL_SAVE_UNDER_WAY 1
#define GSEL_SAVE_DONE 2        /* all is on the disk */
#define GSEL_SAVE_FAILED 3      /* there is no checkpoint of that step; gsel_trainer_save_wait says why */
GSEL_API int32_t gsel_trainer_save_state(const gsel_trainer *trainer);

/* Waits until the save has ended, if one was begun, and takes its outcome. Not a collective. gsel_trainer_free waits,
 * too.
 *   report  may be NULL; of no save all fields are 0
 * Errors: GSEL_ERR_IO with the file, on the other ranks GSEL_ERR_PEER with the same text; those of the collectives.
 * The trainer goes on. Since 0.1. */
GSEL_API gsel_status gsel_trainer_save_wait(gsel_trainer *trainer, gsel_checkpoint_report *report, gsel_error **err);

/* Loads a checkpoint between steps; the next step is the one that followed the save. A collective. Model and optimizer
 * are those that were saved; strategy, mesh, number of ranks, precision and device may be others. Each rank reads the
 * bytes that it holds. The sums of all blocks of 16 MiB of which ranks read a byte are compared, and blocks of which no
 * rank needs each byte are read by one rank for that, before the trainer is changed.
 *   path    a checkpoint, or a folder with several: the newest whole one is taken, and where a sum of it is wrong the
 *           next older one; borrowed for the call
 *   report  may be NULL
 * Errors: GSEL_ERR_NOT_FOUND on every rank (there is no such folder, or no checkpoint in it: training begins with its
 * first step); GSEL_ERR_ARG; GSEL_ERR_STATE; GSEL_ERR_UNSUPPORTED, as of gsel_trainer_save; GSEL_ERR_PARSE with file and
 * place (also where a folder has checkpoints of which none is whole); GSEL_ERR_MISMATCH (another model, with the
 * differences; states that this layout cannot hold; or another rank makes another call); GSEL_ERR_IO. Of these, on other
 * ranks GSEL_ERR_PEER with the same text. Nothing is changed by them, except that an error while the tensors themselves
 * are read, also a wrong sum, leaves no whole state on any rank: calls are GSEL_ERR_STATE then, until another load has
 * succeeded. Since 0.1. */
GSEL_API gsel_status gsel_trainer_load(gsel_trainer *trainer, gsel_str path, gsel_checkpoint_report *report,
                                       gsel_error **err);

/* One thread at a time per trainer, but for gsel_trainer_save_state. */

/* ---- without a trainer ---------------------------------------------------------------------------------------------- */

typedef struct gsel_checkpoint gsel_checkpoint;

/* Called now and then, on the calling thread, with the bytes that are done, of all. Returns 0 to continue; any other
 * value ends the call with GSEL_ERR_ABORTED, which leaves no file behind. */
typedef int32_t (*gsel_checkpoint_progress_fn)(uint64_t done_bytes, uint64_t total_bytes, void *user_data);

/* Of the calls below; all zero where NULL is given.
 *   flags     GSEL_CHECKPOINT_*
 *   progress  may be NULL */
typedef struct gsel_checkpoint_tool_options {
  uint32_t struct_size;
  uint32_t flags;
  gsel_checkpoint_progress_fn progress;
  void *user_data;
} gsel_checkpoint_tool_options;
#define GSEL_CHECKPOINT_TOOL_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_checkpoint_tool_options)
GSEL_API void gsel_checkpoint_tool_options_init(gsel_checkpoint_tool_options *options, size_t struct_size);

#define GSEL_CHECKPOINT_PARAMS_ONLY 1u /* gsel_checkpoint_consolidate: parameters by their own names, no states */

/* Opens a checkpoint: reads manifest and index, and checks that all files are there with their sizes and that each
 * element of each tensor is in one place. Reads no tensors.
 *   path  a checkpoint, or a folder with several: the newest whole one is taken; borrowed for the call
 *   out   given to the caller, free with gsel_checkpoint_free
 * Errors: GSEL_ERR_ARG; GSEL_ERR_NOT_FOUND; GSEL_ERR_PARSE with file and place; GSEL_ERR_IO. Any thread; an open
 * checkpoint is used by one thread at a time. Since 0.1. */
GSEL_API gsel_status gsel_checkpoint_open(gsel_str path, gsel_checkpoint **out, gsel_error **err);
/* Frees it; NULL is fine. The files stay. Since 0.1. */
GSEL_API void gsel_checkpoint_free(gsel_checkpoint *checkpoint);

/* What a checkpoint is of. Texts are borrowed from it.
 *   path           of the checkpoint, where a folder was opened as well
 *   optimizer      as configured; "the embedder's"
 *   step           that comes next
 *   updates        steps of the optimizer
 *   learning_rate  -1: as configured
 *   entry_bytes    of the tensors; file_bytes: of all files
 *   n_own          states of the program's own (gsel_trainer_add_state)
 *   n_ranks        that saved */
typedef struct gsel_checkpoint_info {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str path;
  gsel_str optimizer;
  int64_t step;
  int64_t updates;
  double learning_rate;
  double loss_scale;
  int32_t n_entries;
  int32_t n_files;
  uint64_t entry_bytes;
  uint64_t file_bytes;
  int32_t n_own;
  int32_t n_ranks;
} gsel_checkpoint_info;
#define GSEL_CHECKPOINT_INFO_INIT GSEL_STRUCT_INIT(gsel_checkpoint_info)
GSEL_API void gsel_checkpoint_info_init(gsel_checkpoint_info *info, size_t struct_size);
/* Errors: GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_checkpoint_inspect(const gsel_checkpoint *checkpoint, gsel_checkpoint_info *out,
                                             gsel_error **err);

/* A tensor of the state. Texts and shape are borrowed from the checkpoint.
 *   name      "param:w", "exp_avg:w"
 *   role      what is before the colon: "param", or the state's name
 *   shape     [n_dims] elements, in the model
 *   n_pieces  in which it is stored */
typedef struct gsel_checkpoint_entry {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str name;
  gsel_str role;
  const int64_t *shape;
  int32_t n_dims;
  gsel_dtype dtype;
  uint64_t bytes;
  int32_t n_pieces;
  uint32_t reserved2;
} gsel_checkpoint_entry;
#define GSEL_CHECKPOINT_ENTRY_INIT GSEL_STRUCT_INIT(gsel_checkpoint_entry)
GSEL_API void gsel_checkpoint_entry_init(gsel_checkpoint_entry *entry, size_t struct_size);
/* i: from 0 to n_entries - 1. Errors: GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_checkpoint_entry_get(const gsel_checkpoint *checkpoint, int32_t i,
                                               gsel_checkpoint_entry *out, gsel_error **err);

/* Elements of an entry in a file. Texts are borrowed from the checkpoint.
 *   key    of the tensor in the safetensors file
 *   first  element of the whole tensor, in row-major order
 *   count  elements, which are not consecutive in the whole tensor where ranks divided it by another dimension */
typedef struct gsel_checkpoint_piece {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str file;
  gsel_str key;
  int64_t first;
  int64_t count;
} gsel_checkpoint_piece;
#define GSEL_CHECKPOINT_PIECE_INIT GSEL_STRUCT_INIT(gsel_checkpoint_piece)
GSEL_API void gsel_checkpoint_piece_init(gsel_checkpoint_piece *piece, size_t struct_size);
/* i: from 0 to n_pieces - 1 of the entry. Errors: GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_checkpoint_piece_get(const gsel_checkpoint *checkpoint, int32_t entry, int32_t i,
                                               gsel_checkpoint_piece *out, gsel_error **err);

/* A state of the program's own (gsel_trainer_add_state), as a rank has it. Texts are borrowed from the checkpoint.
 *   scope  GSEL_STATE_SHARED or GSEL_STATE_OF_RANK, of gsel/state.h
 *   file   in which it is
 *   key    of the tensor in the safetensors file: "user:" and the name, of type U8
 *   bytes  of this rank's */
typedef struct gsel_checkpoint_own {
  uint32_t struct_size;
  int32_t scope;
  gsel_str name;
  gsel_str file;
  gsel_str key;
  uint64_t bytes;
} gsel_checkpoint_own;
#define GSEL_CHECKPOINT_OWN_INIT GSEL_STRUCT_INIT(gsel_checkpoint_own)
GSEL_API void gsel_checkpoint_own_init(gsel_checkpoint_own *own, size_t struct_size);
/* Reads the header of the file, if no earlier call did.
 *   i     from 0 to n_own - 1
 *   rank  whose, from 0 to n_ranks - 1; of a shared state all ranks have the same
 * Errors: GSEL_ERR_ARG; GSEL_ERR_PARSE with file and key, where the file is not as the index says; GSEL_ERR_IO. Since
 * 0.1. */
GSEL_API gsel_status gsel_checkpoint_own_get(gsel_checkpoint *checkpoint, int32_t i, int32_t rank,
                                             gsel_checkpoint_own *out, gsel_error **err);

/* A file that the manifest lists. Texts are borrowed from the checkpoint.
 *   sum  XXH3 of 128 bits, in hexadecimal digits, as xxhsum -H128 prints it */
typedef struct gsel_checkpoint_file {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str name;
  gsel_str sum;
  uint64_t bytes;
} gsel_checkpoint_file;
#define GSEL_CHECKPOINT_FILE_INIT GSEL_STRUCT_INIT(gsel_checkpoint_file)
GSEL_API void gsel_checkpoint_file_init(gsel_checkpoint_file *file, size_t struct_size);
/* i: from 0 to n_files - 1. Errors: GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_checkpoint_file_get(const gsel_checkpoint *checkpoint, int32_t i, gsel_checkpoint_file *out,
                                              gsel_error **err);

/* Reads all files: compares their sums with the manifest's, and looks for each piece of each entry, and each state of the
 * program's own, in its file.
 *   options  may be NULL
 * Errors: GSEL_ERR_PARSE for the first fault, with the file and the bytes; GSEL_ERR_IO; GSEL_ERR_ABORTED;
 * GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_checkpoint_verify(gsel_checkpoint *checkpoint, const gsel_checkpoint_tool_options *options,
                                            gsel_error **err);

/* What differs between two checkpoints. Texts are borrowed from the differences.
 *   kind           GSEL_CHECKPOINT_DIFFERS_*
 *   name           of the entry, or of the number; of a state of the program's own "user:NAME", and "user:NAME@RANK" where
 *                  it is about the bytes of one of the ranks that have their own
 *   first, second  what each has: the number, the shape, the scope, the size in bytes, or the value of the first element
 *                  or byte that differs
 *   element        the first that differs, in row-major order, or the first byte; -1: of another kind
 *   count          elements that differ, by their bits, or bytes
 *   largest        of elements the largest absolute difference; infinite where one of two elements is no number */
typedef struct gsel_checkpoint_difference {
  uint32_t struct_size;
  int32_t kind;
  gsel_str name;
  gsel_str first;
  gsel_str second;
  int64_t element;
  int64_t count;
  double largest;
} gsel_checkpoint_difference;
#define GSEL_CHECKPOINT_DIFFERENCE_INIT GSEL_STRUCT_INIT(gsel_checkpoint_difference)
GSEL_API void gsel_checkpoint_difference_init(gsel_checkpoint_difference *difference, size_t struct_size);

#define GSEL_CHECKPOINT_DIFFERS_NUMBER 1      /* step, updates, optimizer, learning_rate, loss_scale, ... */
#define GSEL_CHECKPOINT_DIFFERS_ONLY_FIRST 2  /* an entry, or a state of the program's own, that the second has not */
#define GSEL_CHECKPOINT_DIFFERS_ONLY_SECOND 3 /* one that the first has not */
#define GSEL_CHECKPOINT_DIFFERS_SHAPE 4       /* of an entry */
#define GSEL_CHECKPOINT_DIFFERS_VALUES 5      /* elements of an entry */
/* Of a state of the program's own: */
#define GSEL_CHECKPOINT_DIFFERS_SCOPE 6       /* shared, or of each of a number of ranks */
#define GSEL_CHECKPOINT_DIFFERS_SIZE 7        /* its bytes are more, or fewer */
#define GSEL_CHECKPOINT_DIFFERS_BYTES 8       /* some of its bytes */

typedef struct gsel_checkpoint_differences gsel_checkpoint_differences;

/* Compares two checkpoints, whatever layouts they were saved under; of states that are each rank's own, those of the ranks
 * that both have. Does not compare sums; see gsel_checkpoint_verify.
 *   options  may be NULL
 *   out      given to the caller, free with gsel_checkpoint_differences_free
 * Errors: GSEL_ERR_PARSE with file and key; GSEL_ERR_IO; GSEL_ERR_ABORTED; GSEL_ERR_ARG. Since 0.1. */
GSEL_API gsel_status gsel_checkpoint_diff(gsel_checkpoint *first, gsel_checkpoint *second,
                                          const gsel_checkpoint_tool_options *options,
                                          gsel_checkpoint_differences **out, gsel_error **err);
/* 0: the two are equal; 0 for NULL too. Any thread. Since 0.1. */
GSEL_API int32_t gsel_checkpoint_difference_count(const gsel_checkpoint_differences *differences);
/* Errors: GSEL_ERR_ARG for an index out of range. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_checkpoint_difference_get(const gsel_checkpoint_differences *differences, int32_t i,
                                                    gsel_checkpoint_difference *out, gsel_error **err);
/* NULL is fine. Since 0.1. */
GSEL_API void gsel_checkpoint_differences_free(gsel_checkpoint_differences *differences);

/* The two calls below verify the checkpoint first, so that what is wrong in it does not get new sums. A file has a
 * temporary name until it is on the disk. They hold 16 MiB of tensors in memory.
 *   options  may be NULL
 * Errors: those of gsel_checkpoint_verify; GSEL_ERR_STATE if what they make is there already; GSEL_ERR_UNSUPPORTED if
 * there are too many tensors for a file; GSEL_ERR_IO, also where the disk has no room. */

/* Writes one safetensors file with whole tensors, for any reader of safetensors: "param:w", "exp_avg:w", and states of the
 * program's own as U8, "user:NAME", or of each rank "user:NAME@RANK"; with GSEL_CHECKPOINT_PARAMS_ONLY parameters alone,
 * as "w".
 *   path  of the file; borrowed for the call. Since 0.1. */
GSEL_API gsel_status gsel_checkpoint_consolidate(gsel_checkpoint *checkpoint, gsel_str path,
                                                 const gsel_checkpoint_tool_options *options, gsel_error **err);
/* Writes the checkpoint anew as FOLDER/step-NNNNNNNNNNNN, with its elements divided evenly among n files. States of the
 * program's own that are each rank's stay what they are: with them GSEL_ERR_UNSUPPORTED unless n is n_ranks.
 *   folder  made if there is none; borrowed for the call
 *   n       1 to 65536. Since 0.1. */
GSEL_API gsel_status gsel_checkpoint_reshard(gsel_checkpoint *checkpoint, gsel_str folder, int32_t n,
                                             const gsel_checkpoint_tool_options *options, gsel_error **err);

GSEL_EXTERN_C_END

#endif
