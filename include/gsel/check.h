/* gsel/check.h: runs the callbacks of a model against the contract of gsel/model.h, before a rank trains with them.
 *
 *     gsel_model_check_options options = GSEL_MODEL_CHECK_OPTIONS_INIT;
 *     options.data = fill;                                  the callback that the trainer is given
 *     status = gsel_model_check(model, &options, NULL, &err);   err names layer, callback, buffer, element, and why
 *
 * The same is done by gsel_trainer_create under [train] check = "kernels". What is checked, and what each breach means:
 * docs/kernels.md. */
#ifndef GSEL_CHECK_H
#define GSEL_CHECK_H

#include <gsel/error.h>
#include <gsel/model.h>
#include <gsel/train.h>

GSEL_EXTERN_C_BEGIN

/* What a callback did that the contract does not allow. */
typedef int32_t gsel_breach_kind;
#define GSEL_BREACH_OUTSIDE 1         /* wrote past the end of a buffer, or before its start */
#define GSEL_BREACH_READ_ONLY 2       /* wrote to what it is lent to read */
#define GSEL_BREACH_UNWRITTEN 3       /* left an element as it was that it has to write */
#define GSEL_BREACH_STRAY_READ 4      /* its result depends on memory that nobody has written */
#define GSEL_BREACH_UNREAD 5          /* its result depends on what its description says it leaves unread */
#define GSEL_BREACH_KEPT_POINTER 6    /* used a pointer of an earlier call */
#define GSEL_BREACH_NOT_REPEATABLE 7  /* a second call with the same bytes gave others */
#define GSEL_BREACH_NOT_ACCUMULATED 8 /* overwrote a gradient though accumulate was 1 */
#define GSEL_BREACH_ALWAYS_ADDED 9    /* added to a gradient though accumulate was 0 */
#define GSEL_BREACH_WRONG_SUM 10      /* with accumulate 1: neither */
#define GSEL_BREACH_PRODUCED 11       /* wrote a gradient that it says it did not produce */
#define GSEL_BREACH_BATCH 12          /* a batch cut in two gave something else */
#define GSEL_BREACH_HALVES 13         /* backward_input and backward_weight gave something else than backward */
#define GSEL_BREACH_EVALUATION 14     /* evaluating gave something else than training, without noise */
#define GSEL_BREACH_GRADIENT 15       /* not the derivative of what forward computes */
#define GSEL_BREACH_PARTS 16          /* the shards of several ranks, put together, are not the whole */
#define GSEL_BREACH_KINDS 17

/* Which list of gsel_call a buffer stands in. */
#define GSEL_BUFFER_PARAM 1
#define GSEL_BUFFER_INPUT 2
#define GSEL_BUFFER_OUTPUT 3
#define GSEL_BUFFER_D_OUTPUT 4
#define GSEL_BUFFER_D_INPUT 5
#define GSEL_BUFFER_D_PARAM 6
#define GSEL_BUFFER_SAVED 7
#define GSEL_BUFFER_REDUCTION 8

/* One breach.
 *   layer        id
 *   callback     GSEL_FORWARD to GSEL_BACKWARD
 *   buffer       GSEL_BUFFER_*, number `index` of its list
 *   element      flat index, of saved bytes the byte; below 0 or behind the last where it lies outside
 *   coordinates  [n_dims] the same in the tensor; n_dims is 0 outside
 *   found, expected  numbers where there are two to compare, else 0
 *   text         one line with all of this; lives as long as the report */
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

/* How a model is checked. Zeros are good.
 *   data            fills the inputs, as of a trainer, which asks for sample ids from first_sample on; NULL: random
 *                   numbers, of deviation 1, and whole numbers from 0 to index_limit - 1 where the type has no others
 *   n_samples       0 means 3; 4096 at most
 *   index_limit     0 means 2
 *   seed            of initial values, noise and random numbers; 0 means 1
 *   tensor_ranks    ranks that share layers, whose shards are compared with the whole; 0 means 2, 1: not done; 64 at
 *                   most
 *   skip            bits 1 << GSEL_BREACH_BATCH to _PARTS: what is not looked for, such as gradients that are meant
 *                   to be others than forward's
 *   differences     elements of each gradient that are compared with differences of forward; 0 means 8 of buffers with
 *                   more than 64, and all of smaller ones */
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
} gsel_model_check_options;
#define GSEL_MODEL_CHECK_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_model_check_options)
GSEL_API void gsel_model_check_options_init(gsel_model_check_options *options, size_t struct_size);

typedef struct gsel_model_check_report gsel_model_check_report;

/* Runs every layer's callbacks, in host memory, on this thread and without a communicator: some tens of calls each,
 * with values that the layers before have written, random gradients of outputs, and initial parameters (zeros and ones
 * with noise added). Where a layer is found at fault its other checks are left out and the next one is checked.
 *   model    finished here if it is not; layers without callbacks are passed over. Layers with GSEL_LAYER_OWN_PARAMS
 *            add to gradients of their own: clear these afterwards
 *   options  NULL: defaults
 *   out      given to the caller also when a breach was found, free with gsel_model_check_free; may be NULL
 * Errors: GSEL_ERR_MODEL with the text of the first breach; also for a description that cannot be finished, *out is
 * then NULL, as for all other errors. GSEL_ERR_CALLBACK (a callback, an initialiser or the data failed), GSEL_ERR_ARG,
 * GSEL_ERR_NOMEM. Since 0.1. */
GSEL_API gsel_status gsel_model_check(gsel_model *model, const gsel_model_check_options *options,
                                      gsel_model_check_report **out, gsel_error **err);

/* "kernels: 14 layers checked, no breach"; or how many breaches there are. Lives as long as the report; empty for NULL.
 * Any thread. Since 0.1. */
GSEL_API gsel_str gsel_model_check_summary(const gsel_model_check_report *report);

/* How many lines there are on what was found and is no breach, or could not be checked; line i, from 0. Any thread.
 * Since 0.1. */
GSEL_API int32_t gsel_model_check_note_count(const gsel_model_check_report *report);
GSEL_API gsel_str gsel_model_check_note(const gsel_model_check_report *report, int32_t i);

/* Breaches found, one for each layer, callback, buffer and kind. Any thread. Since 0.1. */
GSEL_API int32_t gsel_model_check_breach_count(const gsel_model_check_report *report);

/* Breach i, from 0, in the order found. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_model_check_breach(const gsel_model_check_report *report, int32_t i, gsel_breach *out,
                                             gsel_error **err);

/* Releases; NULL is fine. Since 0.1. */
GSEL_API void gsel_model_check_free(gsel_model_check_report *report);

GSEL_EXTERN_C_END

#endif
