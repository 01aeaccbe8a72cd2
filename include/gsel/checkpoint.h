/* gsel/checkpoint.h: what a trainer holds, on disk: parameters, states of the optimizer, and where training stands.
 * Saved under one strategy and number of ranks it loads under any other, and training goes on to the same bits
 * (docs/checkpoints.md). */
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
  double seconds;
} gsel_checkpoint_report;
#define GSEL_CHECKPOINT_REPORT_INIT GSEL_STRUCT_INIT(gsel_checkpoint_report)
GSEL_API void gsel_checkpoint_report_init(gsel_checkpoint_report *report, size_t struct_size);

/* Saves the trainer between steps as FOLDER/step-NNNNNNNNNNNN. A collective. Each rank writes what it holds to a
 * safetensors file of its own, and of what several hold a part; no tensor is gathered. The folder is made if there is
 * none. The checkpoint has a temporary name until everything is on the disk, so that a save that fails, or whose
 * process ends, leaves the earlier ones as they are.
 *   folder  on a disk that all ranks share; borrowed for the call
 *   report  may be NULL
 * Errors: GSEL_ERR_ARG; GSEL_ERR_STATE (a step is in progress or has failed, or there is a checkpoint of this step);
 * GSEL_ERR_UNSUPPORTED (8-bit states, compressed gradients); GSEL_ERR_IO with the file, on the other ranks
 * GSEL_ERR_PEER with the same text: the trainer can go on; GSEL_ERR_MISMATCH if another rank makes another call; those
 * of the collectives. Since 0.1. */
GSEL_API gsel_status gsel_trainer_save(gsel_trainer *trainer, gsel_str folder, gsel_checkpoint_report *report,
                                       gsel_error **err);

/* Loads a checkpoint between steps; the next step is the one that followed the save. A collective. Model and optimizer
 * are those that were saved; strategy, mesh, number of ranks, precision and device may be others. Each rank reads the
 * bytes that it holds.
 *   path    a checkpoint, or a folder with several: the newest whole one is taken; borrowed for the call
 *   report  may be NULL
 * Errors: GSEL_ERR_ARG; GSEL_ERR_STATE; GSEL_ERR_UNSUPPORTED, as of gsel_trainer_save; GSEL_ERR_NOT_FOUND;
 * GSEL_ERR_PARSE with file and place; GSEL_ERR_MISMATCH (another model, with the differences; or another rank makes
 * another call); GSEL_ERR_IO. On the other ranks GSEL_ERR_PEER with the same text. Nothing is changed by these, except
 * that after an error while the tensors themselves are read, trainer and communicator are broken on every rank. Since
 * 0.1. */
GSEL_API gsel_status gsel_trainer_load(gsel_trainer *trainer, gsel_str path, gsel_checkpoint_report *report,
                                       gsel_error **err);

/* One thread at a time per trainer. */

GSEL_EXTERN_C_END

#endif
