/* gsel/model.h: the model, described once and run unchanged by every strategy.
 *
 * A model consists of parameters, named values (the tensors between layers) and an ordered list of layers; list order
 * is execution order. A layer has callbacks, which run the embedder's own kernels. The description holds no data and is
 * the same on every rank.
 *
 *     gsel_param_options   w   = GSEL_PARAM_OPTIONS_INIT;    name, dims, initialiser
 *     gsel_value_options   x   = GSEL_VALUE_OPTIONS_INIT;    name, dims of one sample
 *     gsel_layer_options   fc  = GSEL_LAYER_OPTIONS_INIT;    name, inputs, outputs, parameters, callbacks
 *
 * Rules: every value is written by exactly one layer, or is an input that the embedder supplies. A layer reads only
 * inputs and values that earlier layers have written. Exactly one layer is the loss. Layers that use the same parameter
 * are tied. Errors are reported by the call that adds the wrong element, or by gsel_model_finish. */
#ifndef GSEL_MODEL_H
#define GSEL_MODEL_H

#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_model gsel_model;

/* ---- callbacks ---------------------------------------------------------------------------------------- */

/* One call of a callback. The struct and everything that it points to are borrowed for the call. Parameters, gradients
 * and values belong to the library, which may gather, move and release them between calls; keeping a pointer is an
 * error. Shapes are local: they are those of this rank's shard of each tensor.
 *
 *   forward          reads params, inputs;                          writes outputs, saved
 *   backward_input   reads params, inputs, outputs, saved, d_outputs;        writes d_inputs
 *   backward_weight  reads inputs, outputs, saved, d_outputs;                writes d_params
 *                    (and params with GSEL_LAYER_WEIGHT_READS_PARAMS)
 *   backward         both halves in one call
 *
 * d_x is the gradient of x. d_params are f32 whatever the parameter's dtype. A callback gets NULL for each tensor that
 * the layer's description declares as unread (gsel_layer_options). d_inputs[i].data is NULL if input i needs no
 * gradient. d_inputs are overwritten; the library sums the gradients of a value that several layers read. d_params are
 * overwritten when accumulate is 0 and added to when it is 1. The loss layer gets no d_outputs: the derivative of its
 * loss sum is 1. */
typedef struct gsel_call {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t layer;
  int32_t microbatch;           /* from 0; parts under `dp` have the number of their whole micro-batch */
  int64_t n_samples;            /* samples of this micro-batch on this rank */
  const int64_t *sample_ids;    /* [n_samples] global sample ids, the same under every strategy */
  const gsel_tensor *params;    /* [n_params] in the order of the layer's description */
  const gsel_tensor *inputs;    /* [n_inputs] */
  const gsel_tensor *outputs;   /* [n_outputs] */
  const gsel_tensor *d_outputs; /* [n_outputs] */
  const gsel_tensor *d_inputs;  /* [n_inputs] */
  const gsel_tensor *d_params;  /* [n_params] */
  int32_t n_params;
  int32_t n_inputs;
  int32_t n_outputs;
  int32_t accumulate;
  void *saved;                  /* [saved_bytes] kept from forward to backward, 64-byte aligned; NULL when 0 */
  uint64_t saved_bytes;
  uint64_t rng_key;             /* of (seed, step, layer): with gsel_random_*, noise does not depend on layout */
  void *stream;                 /* of the device; NULL for host memory */
  char *message;                /* [message_capacity] a failing callback may write its reason here, NUL-terminated */
  size_t message_capacity;
  void *user_data;              /* the layer's, for pull mode */
  int64_t step;                 /* from 0; in an evaluation, the number of the next step */
  int32_t evaluating;           /* 1: only forward, without training */
  int32_t phase;                /* see gsel_phase; 0 for a layer without phases */
  const gsel_tensor *reductions; /* [n_reductions] the buffers of the phases of this direction, see gsel_phase */
  int32_t n_reductions;
  int32_t reserved2;
  uint8_t *produced;            /* [n_params] 1 on entry; set [i] to 0 to leave d_params[i] unwritten: it counts as 0 */
  const gsel_shard *param_shards; /* [n_params] the shard of parameter i in params[i]: its rows, columns or blocks, as a
                                 * range of a dimension; the whole (dim is -1) unless ranks share the layer on a
                                 * tensor or context axis */
  const gsel_shard *input_shards; /* [n_inputs] the same of inputs */
  const gsel_shard *output_shards; /* [n_outputs] the same of outputs */
  int32_t shard_index;          /* coordinate of this rank on the tensor or context axis, whose ranks share the layer */
  int32_t shard_count;          /* number of these ranks */
  const uint64_t *device_rng_key; /* memory of the device with the rng_key of the step whose work reads it: for layers
                                * with noise whose steps are launched as graphs ([train] graph), where numbers of a
                                * call are those of the step that was recorded. NULL: steps are not */
} gsel_call;

/* A callback of a layer; `user_data` is the layer's. Returns GSEL_OK, or any other code to end the step on every rank
 * with layer, rank and message. The error of the step is GSEL_ERR_CALLBACK; its text shows a code of GSEL_ERROR_LIST by
 * name, and any other code, which is the embedder's own, as a number.
 * Threads: called on the thread that drives the trainer. It may only call gsel_random_*, gsel_shard_range and
 * gsel_dtype_*. */
typedef gsel_status (*gsel_layer_fn)(const gsel_call *call, void *user_data);

/* Writes elements [first, first + count) of a parameter's initial value, f32, into dst[count]. Results and threads as
 * for gsel_layer_fn. */
typedef gsel_status (*gsel_init_fn)(float *dst, int64_t first, int64_t count, uint64_t seed, void *user_data);

/* Random numbers that depend only on (key, counter), so that any rank can recompute them: Philox 4x32-10 (Salmon et
 * al., SC 2011). Uniform in [0, 1) with 24 bits; normal with mean 0, deviation 1 (Box-Muller on one block). Any thread.
 * Since 0.1. */
GSEL_API float gsel_random_uniform(uint64_t key, uint64_t counter);
GSEL_API float gsel_random_normal(uint64_t key, uint64_t counter);

/* ---- description -------------------------------------------------------------------------------------- */

/* Initialisers of a parameter. */
#define GSEL_INIT_ZEROS 0
#define GSEL_INIT_ONES 1
#define GSEL_INIT_NORMAL 2   /* mean 0, deviation init_scale, keyed by (seed, name, element) */
#define GSEL_INIT_CALLBACK 3

/* Flags of a parameter. */
#define GSEL_PARAM_NO_DECAY 1u /* no weight decay (norms, biases). Other parameters have it, also with the default
                                * of train.weight_decay */
#define GSEL_PARAM_FROZEN 2u   /* no gradient, never updated */
#define GSEL_PARAM_NO_CLIP 4u  /* not counted in the gradient norm, not scaled by clipping */
#define GSEL_PARAM_REPLICATE_IF_FEW 8u /* replicated if it cannot be split into as many shards as the axis has ranks */

/* Shard rule: how a parameter is split over the ranks that share layers (tensor or context axis). docs/tensor.md. */
#define GSEL_SHARD_NONE 0
#define GSEL_SHARD_DIM 1    /* along shard_dim. The dimension has shard_blocks equal blocks (fused QKV: 3), each split
                             * by itself at multiples of shard_granularity elements (those of a head, for example) */

/* A parameter. Text and dims are copied.
 *   dims       [n_dims] global shape in elements, each >= 1
 *   dtype      the type for the callbacks: GSEL_F32, GSEL_BF16 or GSEL_F16. A 16-bit parameter has an f32 master copy.
 *              An f32 parameter is kept in 16 bits if train.precision says so, and cast to f32 for callbacks
 *   lr_factor  multiplies the learning rate; 0 means 1 */
typedef struct gsel_param_options {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str name;
  const int64_t *dims;
  int32_t n_dims;
  gsel_dtype dtype;       /* 0 means GSEL_F32 */
  uint32_t flags;
  int32_t init;           /* GSEL_INIT_* */
  double init_scale;
  gsel_init_fn init_fn;
  void *init_user_data;   /* kept until the model and its trainers are freed */
  int32_t shard;
  int32_t shard_dim;
  int32_t shard_blocks;   /* 0 means 1 */
  int32_t shard_granularity;     /* elements along shard_dim; divides a block; 0 means 1 */
  double lr_factor;
  gsel_free_fn init_free_user_data; /* see gsel/types.h */
} gsel_param_options;
#define GSEL_PARAM_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_param_options)
GSEL_API void gsel_param_options_init(gsel_param_options *options, size_t struct_size);

/* Flags of a value. */
#define GSEL_VALUE_INPUT 1u             /* supplied by the embedder per micro-batch; never differentiable */
#define GSEL_VALUE_NOT_DIFFERENTIABLE 2u
#define GSEL_VALUE_SCALAR 4u            /* one number per micro-batch, no batch dimension: loss sum and weight sum */
#define GSEL_VALUE_REPLICATE_IF_FEW 8u      /* as GSEL_PARAM_REPLICATE_IF_FEW */

/* Placement of a value after its layer has written it, if several ranks share the layer. Layers that read a sharded
 * value get a shard, layers that read a partial value get the sum; the library redistributes the value in between.
 * docs/tensor.md. */
#define GSEL_PLACEMENT_REPLICATE 0 /* the whole value, the same on every rank */
#define GSEL_PLACEMENT_SHARD 1    /* each rank has a shard along shard_dim, counted with the batch dimension as 0 */
#define GSEL_PLACEMENT_PARTIAL 2    /* each rank has a term; the value is their sum */

/* A value: a tensor that flows between layers. Text and dims are copied.
 *   dims  [n_dims] shape of one sample in elements; the batch dimension comes first in every call */
typedef struct gsel_value_options {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str name;
  const int64_t *dims;
  int32_t n_dims;
  gsel_dtype dtype;       /* 0 means GSEL_F32 */
  uint32_t flags;
  int32_t placement;      /* GSEL_PLACEMENT_* */
  int32_t shard_dim;
  int32_t shard_granularity;     /* as for parameters; 0 means 1 */
  int32_t shard_blocks;   /* as for parameters; 0 means 1 */
  int32_t sequence_dim;   /* the dimension of positions, counted with the batch dimension as 0; 0: it has none */
} gsel_value_options;
#define GSEL_VALUE_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_value_options)
GSEL_API void gsel_value_options_init(gsel_value_options *options, size_t struct_size);

/* Flags of a layer. */
#define GSEL_LAYER_LOSS 1u        /* outputs are two f64 scalars: sum of losses, sum of weights. Never a mean */
#define GSEL_LAYER_NO_CUT_AFTER 2u /* a pipeline does not cut after this layer */
#define GSEL_LAYER_RECOMPUTABLE 4u /* forward may run again before backward (train.recompute) */
#define GSEL_LAYER_OWN_PARAMS 8u  /* the layer has undeclared parameters of its own; its backward_weight is called
                                   * although no parameters are declared. Only for gsel_pipeline_create */
#define GSEL_LAYER_POSITIONWISE 16u /* computes each position independently (norm, residual, linear): given a shard of the
                                     * positions (sequence_dim) of all values it computes just these */
#define GSEL_LAYER_SAVES_WHOLE 32u  /* the size of what it saves does not shrink when its values are split, unless they
                                     * are split by positions */
#define GSEL_LAYER_ALWAYS_ACCUMULATES 64u /* its backward always adds to d_params and d_inputs, or overwrites d_inputs:
                                           * the library clears d_params before the first call and d_inputs before each,
                                           * and accumulate is always 1 */
#define GSEL_LAYER_WEIGHT_READS_PARAMS 128u /* its backward_weight reads parameters like its backward_input, for
                                             * halves that share one fused kernel: params[i] is not NULL there. Costs
                                             * memory and, for sharded parameters, communication */

/* A collective in the middle of a callback (batch statistics, a softmax over split columns). A layer with n phases is
 * called n + 1 times, with call->phase from 0 to n: call k < n writes reductions[k], and before call k + 1 the library
 * reduces reductions[k] over the axis.
 *   axis   GSEL_AXIS_TENSOR and GSEL_AXIS_CONTEXT both mean the axis whose ranks share the layer
 *   op     GSEL_SUM, GSEL_MAX or GSEL_MIN; dtype GSEL_F32 or GSEL_F64
 *   flags  GSEL_PHASE_*: the buffer is not reduced, but shifted around the ranks of the axis (ring attention); op is 0
 *   elems  elements of the buffer, plus elems_per_sample per sample; over the data axis elems_per_sample is 0
 * If ranks share a layer by positions, phases without RING_SHIFT reduce nothing, and buffers of ring shifts have the
 * size of the largest rank's shard. */
#define GSEL_PHASE_RING_SHIFT 1u /* stands for (ranks of the axis - 1) phases. Each sends the buffer to the next
                              * coordinate of the axis (the last sends to the first) and receives the buffer of
                              * the previous coordinate */
#define GSEL_PHASE_HOME 2u   /* with RING_SHIFT: one more phase, which returns each rank's own buffer */
typedef struct gsel_phase {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_axis axis;
  gsel_op op;
  gsel_dtype dtype;
  uint32_t flags;
  int64_t elems;
  int64_t elems_per_sample;
} gsel_phase;
#define GSEL_PHASE_INIT GSEL_STRUCT_INIT(gsel_phase)
GSEL_API void gsel_phase_init(gsel_phase *phase, size_t struct_size);

/* Bits of backward_*_unread: tensors that a backward does not read, so that the library can free them earlier. */
#define GSEL_UNREAD_INPUT(i) (UINT64_C(1) << (i))         /* i < 31 */
#define GSEL_UNREAD_OUTPUT(i) (UINT64_C(1) << (32 + (i))) /* i < 31 */
#define GSEL_UNREAD_SAVED (UINT64_C(1) << 63)

/* A layer. Text and id lists are copied. A layer without any callback can only be driven by pull (gsel/train.h); its
 * backward is then one piece of work. Other layers have forward, and either both halves of backward or the fused
 * backward, or all three. A half with nothing to compute may be omitted: backward_weight of a layer without parameters,
 * backward_input of a layer none of whose inputs needs a gradient.
 *   saved_bytes_per_sample  bytes per sample of the micro-batch that are kept from forward to backward
 *   flop_per_sample         cost hint for one forward, 0 when unknown
 *   backward_input_unread, backward_weight_unread
 *                           GSEL_UNREAD_*; the fused backward reads nothing that both name
 *   backward_unread_params  bit i: no backward reads params[i]
 *   forward_phases, backward_phases
 *                           [n] borrowed for the call; backward_phases are those of backward, or of backward_input  */
typedef struct gsel_layer_options {
  uint32_t struct_size;
  uint32_t reserved;
  gsel_str name;
  const int32_t *inputs;
  const int32_t *outputs;
  const int32_t *params;
  int32_t n_inputs;
  int32_t n_outputs;
  int32_t n_params;
  uint32_t flags;
  uint64_t saved_bytes_per_sample;
  double flop_per_sample;
  gsel_layer_fn forward;
  gsel_layer_fn backward_input;
  gsel_layer_fn backward_weight;
  gsel_layer_fn backward;
  void *user_data;          /* kept until the model and its trainers are freed */
  uint64_t backward_input_unread;
  uint64_t backward_weight_unread;
  uint64_t backward_unread_params;
  const gsel_phase *forward_phases;
  const gsel_phase *backward_phases;
  int32_t n_forward_phases;
  int32_t n_backward_phases;
  gsel_free_fn free_user_data; /* see gsel/types.h */
} gsel_layer_options;
#define GSEL_LAYER_OPTIONS_INIT GSEL_STRUCT_INIT(gsel_layer_options)
GSEL_API void gsel_layer_options_init(gsel_layer_options *options, size_t struct_size);

/* Creates an empty description.
 *   out  given to the caller, free with gsel_model_free. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_model_create(gsel_model **out, gsel_error **err);

/* Adds a parameter, value or layer. *out_id is its id, counted from 0 per kind; out_id may be NULL. Text and arrays are
 * borrowed for the call.
 * Errors: GSEL_ERR_MODEL names what was added and the fault, and leaves the model unchanged. Faults are a duplicate
 * name, an unknown id, a missing callback, a value that is written twice or read before it is written (which includes
 * cycles). GSEL_ERR_UNSUPPORTED (a parameter of another dtype than f32, bf16, f16); GSEL_ERR_STATE after
 * gsel_model_finish. One thread at a time per model. Since 0.1. */
GSEL_API gsel_status gsel_model_add_param(gsel_model *model, const gsel_param_options *options, int32_t *out_id,
                                          gsel_error **err);
GSEL_API gsel_status gsel_model_add_value(gsel_model *model, const gsel_value_options *options, int32_t *out_id,
                                          gsel_error **err);
GSEL_API gsel_status gsel_model_add_layer(gsel_model *model, const gsel_layer_options *options, int32_t *out_id,
                                          gsel_error **err);

/* Checks the whole model (one loss, every value written, every parameter used) and freezes it. gsel_trainer_create,
 * gsel_pipeline_create and gsel_model_check call it if the caller did not; the last two also accept a model without a
 * loss. GSEL_ERR_MODEL. One thread at a time per model. Since 0.1. */
GSEL_API gsel_status gsel_model_finish(gsel_model *model, gsel_error **err);

/* Numbers of parameters, values, layers, and of elements of all parameters. 0 for NULL. Any thread. Since 0.1. */
GSEL_API int32_t gsel_model_param_count(const gsel_model *model);
GSEL_API int32_t gsel_model_value_count(const gsel_model *model);
GSEL_API int32_t gsel_model_layer_count(const gsel_model *model);
GSEL_API int64_t gsel_model_element_count(const gsel_model *model);

/* Releases the caller's reference; trainers made from the model keep theirs. NULL is fine. Since 0.1. */
GSEL_API void gsel_model_free(gsel_model *model);

GSEL_EXTERN_C_END

#endif
