/* gsel/check.h: runs the callbacks of a model, the data and an optimizer against the contracts of gsel/model.h and
 * gsel/train.h, before a rank trains with them.
 *
 *     gsel_model_check_options options = GSEL_MODEL_CHECK_OPTIONS_INIT;
 *     options.data = fill;                                  the callback that the trainer is given
 *     options.optimizer = &rule;                            the embedder's, if it has one
 *     status = gsel_model_check(model, &options, NULL, &err);   err names layer, callback, buffer, element, and why
 *
 * gsel_trainer_create runs the same checks under [train] check = "kernels". docs/kernels.md lists the checks and
 * explains each breach. */
#ifndef GSEL_CHECK_H
#define GSEL_CHECK_H

#include <gsel/error.h>
#include <gsel/model.h>
#include <gsel/train.h>

GSEL_EXTERN_C_BEGIN

/* What a callback did that the contract does not allow. */
typedef int32_t gsel_breach_kind;
#define GSEL_BREACH_OUTSIDE 1         /* wrote past the end of a buffer, or before its start */
#define GSEL_BREACH_READ_ONLY 2       /* wrote to a buffer that it may only read */
#define GSEL_BREACH_UNWRITTEN 3       /* did not write an element that it has to write */
#define GSEL_BREACH_STRAY_READ 4      /* its result depends on uninitialised memory */
#define GSEL_BREACH_UNREAD 5          /* its result depends on a buffer that the description says is unread */
#define GSEL_BREACH_KEPT_POINTER 6    /* used a pointer of an earlier call */
#define GSEL_BREACH_NOT_REPEATABLE 7  /* a second call with the same input bytes gave other output bytes */
#define GSEL_BREACH_NOT_ACCUMULATED 8 /* overwrote a gradient though accumulate was 1 */
#define GSEL_BREACH_ALWAYS_ADDED 9    /* added to a gradient though accumulate was 0 */
#define GSEL_BREACH_WRONG_SUM 10      /* with accumulate 1: neither overwrote the gradient nor added to it correctly */
#define GSEL_BREACH_PRODUCED 11       /* wrote a gradient that it reported as not produced */
#define GSEL_BREACH_BATCH 12          /* a batch cut in two gave a different result */
#define GSEL_BREACH_HALVES 13         /* backward_input and backward_weight gave a different result than backward */
#define GSEL_BREACH_EVALUATION 14     /* evaluating gave a different result than training, in a layer without noise */
#define GSEL_BREACH_GRADIENT 15       /* not the derivative of what forward computes */
#define GSEL_BREACH_PARTS 16          /* the shards of several ranks, put together, are not the whole */
#define GSEL_BREACH_PIECES 17         /* the optimizer gave other bits for a parameter in pieces than for the whole */
#define GSEL_BREACH_KINDS 18

/* The list of gsel_call that a buffer is in. */
#define GSEL_BUFFER_PARAM 1
#define GSEL_BUFFER_INPUT 2
#define GSEL_BUFFER_OUTPUT 3
#define GSEL_BUFFER_D_OUTPUT 4
#define GSEL_BUFFER_D_INPUT 5
#define GSEL_BUFFER_D_PARAM 6
#define GSEL_BUFFER_SAVED 7
#define GSEL_BUFFER_REDUCTION 8
/* Buffers of other structs: dst of gsel_data_request (index: the value's id); values and gradient (index: the
 * parameter's id), and states, of gsel_optimizer_call. */
#define GSEL_BUFFER_DATA 9
#define GSEL_BUFFER_VALUES 10
#define GSEL_BUFFER_GRADIENT 11
#define GSEL_BUFFER_STATES 12

/* One breach.
 *   layer        id; -1: the data or the optimizer
 *   callback     GSEL_FORWARD to GSEL_BACKWARD; GSEL_INPUT: the data; 0: the optimizer
 *   buffer       GSEL_BUFFER_*; the buffer is number `index` of this list
 *   element      flat index in the buffer, in bytes for saved bytes; below 0 or past the end if it is outside the
 *                buffer
 *   coordinates  [n_dims] the element's coordinates in the tensor; n_dims is 0 if it is outside
 *   found, expected  the two numbers that were compared, else 0
 *   text         all of this in one line; lives as long as the report */
typedef struct gsel_breach {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_breach_kind kind;
  int32_t layer;
  int32_t callback;
  int32_t buffer;
  int32_t index;
  int32_t n_dims;
  int64_t element;
  int64_t coordinates[GSEL_MAX_DIMS];
  double found;
  double expected;
  gsel_str text;
} gsel_breach;
#define GSEL_BREACH_INIT GSEL_STRUCT_INIT(gsel_breach)
GSEL_API void gsel_breach_init(gsel_breach *breach, size_t struct_size);

/* How a model is checked. Zero fields take defaults.
 *   data            fills the inputs, as in gsel_trainer_options, for sample ids from first_sample on, and is checked
 *                   too: called three times for each input. NULL: random numbers of deviation 1, for integer types
 *                   whole numbers from 0 to index_limit - 1
 *   n_samples       0 means 3; at most 4096
 *   index_limit     0 means 2
 *   seed            of initial values, noise and random numbers; 0 means 1
 *   tensor_ranks    number of ranks that share layers when shards are checked against the whole; 0 means 2; 1 omits the
 *                   check; at most 64
 *   skip            bits 1 << GSEL_BREACH_BATCH to 1 << GSEL_BREACH_PIECES: checks to omit, such as that of gradients
 *                   that are intentionally not the derivative of forward
 *   differences     number of elements of each gradient that are compared with finite differences of forward; 0 means 8
 *                   for buffers with more than 64 elements, and all elements of smaller ones
 *   optimizer       borrowed for the call: the embedder's, as in gsel_trainer_options. It must give the same bits for
 *                   the same call, and for a parameter in pieces as for the whole; NULL: none */
typedef struct gsel_model_check_options {
  uint32_t struct_size;
  uint32_t skip;
  gsel_data_fn data;
  void *data_user_data;
  int64_t n_samples;
  int64_t first_sample;
  int64_t index_limit;
  uint64_t seed;
  int32_t tensor_ranks;
  int32_t differences;
  const gsel_optimizer_options *optimizer;
} gsel_model_check_options;
#define GSEL_MODEL_CHECK_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_model_check_options)
GSEL_API void gsel_model_check_options_init(gsel_model_check_options *options, size_t struct_size);

typedef struct gsel_model_check_report gsel_model_check_report;

/* Runs every layer's callbacks in host memory, on this thread and without a communicator. Each callback is called some
 * tens of times, with values that earlier layers have written, random gradients of outputs, and initial parameters
 * (zeros and ones with noise added). After the first breach of a layer its other checks are omitted, and the next layer
 * is checked.
 *   model    finished here if it is not; layers without callbacks are skipped. Layers with GSEL_LAYER_OWN_PARAMS add to
 *            their own gradients: clear these afterwards
 *   options  NULL: defaults
 *   out      given to the caller, free with gsel_model_check_free; may be NULL. Also set if a breach was found; NULL
 *            after any other error
 * Errors: GSEL_ERR_MODEL with the text of the first breach, or for a description that cannot be finished;
 * GSEL_ERR_CALLBACK (a callback, an initialiser, the data or the optimizer failed), GSEL_ERR_ARG, GSEL_ERR_NOMEM. Since
 * 0.1. */
GSEL_API gsel_status gsel_model_check(gsel_model *model, const gsel_model_check_options *options,
                                      gsel_model_check_report **out, gsel_error **err);

/* "kernels: 14 layers checked, no breach", or the number of breaches. Lives as long as the report; empty for NULL. Any
 * thread. Since 0.1. */
GSEL_API gsel_str gsel_model_check_summary(const gsel_model_check_report *report);

/* Number of notes, and note i, from 0: one-line texts about what is no breach but worth knowing, or could not be
 * checked. Any thread. Since 0.1. */
GSEL_API int32_t gsel_model_check_note_count(const gsel_model_check_report *report);
GSEL_API gsel_str gsel_model_check_note(const gsel_model_check_report *report, int32_t i);

/* Number of breaches found, one for each layer, callback, buffer and kind. Any thread. Since 0.1. */
GSEL_API int32_t gsel_model_check_breach_count(const gsel_model_check_report *report);

/* Breach i, from 0, in the order found. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_model_check_breach(const gsel_model_check_report *report, int32_t i, gsel_breach *out,
                                             gsel_error **err);

/* Releases; NULL is fine. Since 0.1. */
GSEL_API void gsel_model_check_free(gsel_model_check_report *report);

GSEL_EXTERN_C_END

#endif
