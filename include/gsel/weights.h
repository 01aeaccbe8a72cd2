/* gsel/weights.h: parameters from safetensors files of other programs, and to such files. [[weights.map]] of a
 * configuration says which tensor is which parameter, and how it lies there (docs/weights.md). */
#ifndef GSEL_WEIGHTS_H
#define GSEL_WEIGHTS_H

#include <gsel/config.h>
#include <gsel/error.h>
#include <gsel/train.h>

GSEL_EXTERN_C_BEGIN

/* What a load or an export of weights did. */
typedef struct gsel_weights_report {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t n_tensors;            /* of the file, that parameters were read from or written to */
  int32_t n_kept;               /* optional parameters that the file has no tensor for; of an export 0 */
  int32_t n_ignored;            /* tensors of the file that a rule ignores, or that are equal copies; of an export 0 */
  int32_t n_widened;            /* tensors of 16 bits, that became f32 */
  uint64_t bytes;               /* of tensors, that this rank read or wrote; without those compared */
  uint64_t needed_bytes;        /* of tensors, that this rank's placement needs, in the types of the file; bytes is more
                                 * where transposed or divided tensors are read with what lies between; of an export,
                                 * bytes */
  uint64_t compared_bytes;      /* read by this rank to compare copies of one tensor */
  uint64_t reads;               /* of tensors from the file; of an export, writes */
  double seconds;
} gsel_weights_report;
#define GSEL_WEIGHTS_REPORT_INIT GSEL_STRUCT_INIT(gsel_weights_report)
GSEL_API void gsel_weights_report_init(gsel_weights_report *report, size_t struct_size);

/* Loads parameters between steps, their master copies included. A collective. States of the optimizer, step and
 * schedule stay as they are: a new trainer begins with this call. Each rank reads what it holds of the file, and where
 * it needs less than 4 KiB in a row, the rows with what is between.
 *   path    a safetensors file of f32, bf16 and f16 tensors, or a folder with model.safetensors.index.json or
 *           model.safetensors; borrowed for the call
 *   map     [weights] of this configuration is used, and nothing else; NULL: that of the trainer's own. Without a
 *           [[weights.map]], each parameter is the tensor of its name. Borrowed for the call
 *   report  may be NULL
 * Errors: GSEL_ERR_ARG; GSEL_ERR_STATE (a step is in progress or has failed); GSEL_ERR_CONFIG (a rule does not fit the
 * model, with file and line); GSEL_ERR_PARSE with file and place; GSEL_ERR_MISMATCH (parameters without tensors,
 * tensors without parameters, other shapes or types, copies that differ: all in one error, the first ten of each; or
 * ranks have different maps or files, or another rank makes another call); GSEL_ERR_IO. On the other ranks the same, or
 * GSEL_ERR_PEER with the text. Nothing is changed by these, except that an error while the tensors themselves are
 * read leaves no whole state on any rank: calls are GSEL_ERR_STATE then, until a checkpoint is loaded. Since 0.1. */
GSEL_API gsel_status gsel_trainer_load_weights(gsel_trainer *trainer, gsel_str path, const gsel_config *map,
                                               gsel_weights_report *report, gsel_error **err);

/* Writes the parameters between steps as one safetensors file, with the names and the layout that the map gives them. A
 * collective. Rank 0 writes; parameters are gathered one after the other: a rank has room for one parameter, and rank
 * 0 for one tensor of the file. The file has a temporary name in the same folder until it is on the disk, and then replaces
 * one that is there. Copies are not written, nor is what the map ignores.
 *   path    of the file, in a folder that exists; borrowed for the call
 *   map     as of gsel_trainer_load_weights
 *   dtype   of the tensors: GSEL_F32, GSEL_BF16 or GSEL_F16, rounded to nearest even; cast of a rule goes before it
 *   report  may be NULL
 * Errors: GSEL_ERR_ARG; GSEL_ERR_STATE; GSEL_ERR_CONFIG, also where no rule names a parameter; GSEL_ERR_MISMATCH;
 * GSEL_ERR_IO, on the other ranks GSEL_ERR_PEER with the same text: the trainer can go on; those of the collectives.
 * Since 0.1. */
GSEL_API gsel_status gsel_trainer_export_weights(gsel_trainer *trainer, gsel_str path, const gsel_config *map,
                                                 gsel_dtype dtype, gsel_weights_report *report, gsel_error **err);

/* One thread at a time per trainer. */

GSEL_EXTERN_C_END

#endif
