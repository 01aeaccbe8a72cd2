/* gsel/program.h: what a strategy compiles a model to: a flat list of instructions for one rank. It is data: it can
 * be printed, read back, and checked against the programs of the other ranks before anything runs.
 * docs/program.md gives the text form and the meaning of each instruction. */
#ifndef GSEL_PROGRAM_H
#define GSEL_PROGRAM_H

#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_program gsel_program;

/* Kinds of instruction. Numbers never change. */
typedef int32_t gsel_instr_kind;
#define GSEL_INSTR_INPUT 1           /* value, microbatch: the embedder fills an input */
#define GSEL_INSTR_FORWARD 2         /* layer, microbatch */
#define GSEL_INSTR_BACKWARD_INPUT 3  /* layer, microbatch */
#define GSEL_INSTR_BACKWARD_WEIGHT 4 /* layer, microbatch */
#define GSEL_INSTR_BACKWARD 5        /* layer, microbatch: both halves */
#define GSEL_INSTR_SEND 6            /* value, microbatch, peer (rank): the value, or its gradient with GSEL_INSTR_GRADIENT */
#define GSEL_INSTR_RECV 7            /* value, microbatch, peer */
#define GSEL_INSTR_BROADCAST 8       /* bucket, axis, peer (root: place on the axis): parameters of a bucket */
#define GSEL_INSTR_REDUCE 9          /* bucket, axis: all-reduce of the bucket's gradients, begun, not awaited */
#define GSEL_INSTR_WAIT 10           /* bucket: until its collective has finished */
#define GSEL_INSTR_LOSS_REDUCE 11    /* axis: all-reduce of loss sum and weight */
#define GSEL_INSTR_NORM 12           /* global gradient norm, for clipping */
#define GSEL_INSTR_STEP 13           /* bucket: optimizer step on its parameters */

#define GSEL_INSTR_GRADIENT 1u

/* One instruction; fields a kind does not use are -1. Layout is frozen: arrays of it are passed. */
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

/* Reads a program's text. `name` stands for the file in messages.
 *   out  given to the caller, free with gsel_program_free
 * Errors: GSEL_ERR_PARSE with line and token. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_program_parse(gsel_str text, gsel_str name, gsel_program **out, gsel_error **err);

/* The text form; gsel_program_parse reads it back to an equal program. Borrowed until the program is freed.
 * Any thread. Since 0.1. */
GSEL_API gsel_str gsel_program_text(const gsel_program *program);

/* Number of instructions of the step, and instruction i. GSEL_ERR_ARG. Any thread. Since 0.1. */
GSEL_API int32_t gsel_program_length(const gsel_program *program);
GSEL_API gsel_status gsel_program_instr(const gsel_program *program, int32_t i, gsel_instr *out, gsel_error **err);

/* Checks the programs of all ranks together: sends and receives pair up and cannot deadlock, collectives agree,
 * nothing is read before it is written, each gradient is reduced exactly once and stepped exactly once.
 *   programs  [n] in rank order, borrowed for the call
 * Errors: GSEL_ERR_PROGRAM naming rank, instruction and line. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_program_verify(const gsel_program *const *programs, int32_t n, gsel_error **err);

/* Releases a parsed program; NULL is fine. Programs borrowed from a trainer are not freed. Since 0.1. */
GSEL_API void gsel_program_free(gsel_program *program);

GSEL_EXTERN_C_END

#endif
