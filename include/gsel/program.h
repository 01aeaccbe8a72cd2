/* gsel/program.h: programs. A strategy compiles a model to one program per rank, a flat list of instructions. A program
 * is data: it can be printed, read back, and checked together with the programs of the other ranks before anything
 * runs. docs/program.md gives the text form and the meaning of each instruction. */
#ifndef GSEL_PROGRAM_H
#define GSEL_PROGRAM_H

#include <gsel/comm.h>
#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_program gsel_program;

/* Kinds of instruction, each with its operands. An asynchronous instruction starts a collective, and WAIT waits for its
 * end. Numbers never change. The first kinds are those of gsel/types.h:
 *   GSEL_INPUT                       value, microbatch: the embedder fills an input
 *   GSEL_FORWARD, GSEL_BACKWARD_INPUT, GSEL_BACKWARD_WEIGHT, GSEL_BACKWARD  layer, microbatch */
typedef int32_t gsel_instr_kind;
#define GSEL_INSTR_SEND 6               /* value, microbatch, peer (rank) */
#define GSEL_INSTR_RECV 7               /* value, microbatch, peer */
#define GSEL_INSTR_BROADCAST 8          /* bucket, axis, peer (root: coordinate on the axis): parameters of a bucket */
#define GSEL_INSTR_ALLREDUCE 9          /* bucket, axis: all-reduce of the bucket's gradients; asynchronous */
#define GSEL_INSTR_WAIT 10              /* bucket: waits until its collective has finished */
#define GSEL_INSTR_LOSS_ALLREDUCE 11    /* axis: all-reduce of loss sum and weight sum */
#define GSEL_INSTR_NORM 12              /* global gradient norm, for clipping */
#define GSEL_INSTR_STEP 13              /* bucket: optimizer step on its parameters, or on this rank's shard of them */
#define GSEL_INSTR_ALLGATHER 14         /* bucket, axis: whole parameters from the ranks' shards; asynchronous */
#define GSEL_INSTR_RELEASE 15           /* bucket: frees the memory of gathered or broadcast parameters */
#define GSEL_INSTR_REDUCE_SCATTER 16    /* bucket, axis: sums gradients, each rank keeps its shard; asynchronous */
#define GSEL_INSTR_REDUCE 17            /* bucket, axis, peer (root): sums gradients on the root; asynchronous */
#define GSEL_INSTR_RECOMPUTE 18         /* layer, microbatch: repeats forward before the backward that needs it */
#define GSEL_INSTR_SCATTER 19           /* value, microbatch (a part), axis, peer (root): parts from the root's whole */
#define GSEL_INSTR_GATHER 20            /* value, microbatch (a part), axis, peer (root): the root's whole from parts */
#define GSEL_INSTR_OVERFLOW 21          /* axis: whether any rank's gradient is not finite; if so, STEP does nothing */
#define GSEL_INSTR_ALLREDUCE_TIED 22    /* bucket: sums its gradients, or this rank's shard of them, over the pipeline
                                         * ranks that hold its parameters */
#define GSEL_INSTR_ALLREDUCE_PARTIAL 23 /* bucket, axis: sums its gradients, or this rank's shard of them, over the
                                         * axis, each rank of which has a term of every gradient */
#define GSEL_INSTR_POST_VALIDATE 24     /* waits for the result of the optimistic NORM or OVERFLOW of the previous step;
                                         * undoes and repeats that step if it should have clipped or changed nothing */
/* Flags of an instruction. */
#define GSEL_INSTR_GRADIENT 1u   /* of SEND, RECV and SCATTER: the gradient of the value */
#define GSEL_INSTR_OPTIMISTIC 2u /* of NORM and OVERFLOW: STEP does not wait for the result, POST_VALIDATE in the next
                                  * step does */

/* How a bucket is kept; flags of gsel_bucket_options. A bucket has as many shards as the axis has ranks, with
 * ceil(elements / ranks) elements each, the last ones padded. */
#define GSEL_BUCKET_SHARD_STATE 1u    /* this rank keeps only its shard of optimizer state and master copy */
#define GSEL_BUCKET_SHARD_GRADIENT 2u /* gradients too: whole only until REDUCE_SCATTER, which adds to the shard */
#define GSEL_BUCKET_SHARD_PARAM 4u    /* parameters too: whole only from ALLGATHER to RELEASE */
#define GSEL_BUCKET_OFFLOAD_STATE 8u  /* optimizer state and master copy live in offload memory */
#define GSEL_BUCKET_OFFLOAD_PARAM 16u /* the shard of parameters lives in offload memory */
#define GSEL_BUCKET_WHOLE_PARAMS 32u  /* shards end between parameters, for an optimizer that needs whole ones */

/* The form in which ALLREDUCE sends gradients instead of f32. */
#define GSEL_COMPRESS_NONE 0
#define GSEL_COMPRESS_F16 1
#define GSEL_COMPRESS_BF16 2
#define GSEL_COMPRESS_LOW_RANK 3 /* two thin factors of each matrix, with error feedback (PowerSGD) */

/* One instruction; fields that its kind does not use are -1. Layout is frozen: arrays of it are passed. */
typedef struct gsel_instr {
  gsel_instr_kind kind;
  int32_t layer;
  int32_t value;
  int32_t microbatch;
  int32_t bucket;
  int32_t axis;
  int32_t peer;
  uint32_t flags;
} gsel_instr;

/* Parses a program's text. Messages use `name` in place of the file.
 *   out  given to the caller, free with gsel_program_free
 * Errors: GSEL_ERR_PARSE with line and token. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_program_parse(gsel_str text, gsel_str name, gsel_program **out, gsel_error **err);

/* The text form; gsel_program_parse reads it back to an equal program. Borrowed until the program is freed. Any thread.
 * Since 0.1. */
GSEL_API gsel_str gsel_program_text(const gsel_program *program);

/* Number of instructions of the step, and instruction i. GSEL_ERR_ARG. Any thread. Since 0.1. */
GSEL_API int32_t gsel_program_length(const gsel_program *program);
GSEL_API gsel_status gsel_program_instr(const gsel_program *program, int32_t i, gsel_instr *out, gsel_error **err);

/* Placements of parameters and values on the tensor or context axis, as a text table: which shard of each this rank
 * has, and which collectives redistribute it, forward and backward, with the bytes that this rank sends in its first
 * micro-batch. docs/program.md. Borrowed until the program is freed. Any thread. Since 0.1. */
GSEL_API gsel_str gsel_program_placements(const gsel_program *program);

/* Checks the programs of all ranks together: sends and receives pair up and cannot deadlock, collectives agree,
 * nothing is read before it is written, parameters are read while they are whole and fresh, each gradient is reduced
 * exactly once and stepped exactly once, each layer sees each sample once. docs/program.md lists the rules.
 *   programs  [n] in rank order, borrowed for the call
 * Errors: GSEL_ERR_PROGRAM naming rank, instruction and line. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_program_verify(const gsel_program *const *programs, int32_t n, gsel_error **err);

/* Bytes that the program's rank sends and calls that it makes for one kind of instruction on one axis, as counted by
 * gsel_trainer_counts; computed by closed form, without running anything. GSEL_FORWARD and GSEL_BACKWARD_INPUT count
 * the phases of layers and the redistribution of values. SEND and RECV count on the pipeline axis. The sums in STEP of
 * an optimizer that needs norms of parameters are not included.
 *   step  step of training, from 0, which matters for compressed reductions; -1: setup
 *   out   zeros for a kind or axis that does not occur
 * GSEL_ERR_ARG. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_program_traffic(const gsel_program *program, int64_t step, gsel_instr_kind kind,
                                          gsel_axis axis, gsel_comm_count *out, gsel_error **err);

/* Releases a parsed program; NULL is fine. Programs borrowed from a trainer are not freed. Since 0.1. */
GSEL_API void gsel_program_free(gsel_program *program);

GSEL_EXTERN_C_END

#endif
