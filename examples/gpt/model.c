/* model.c: describes the GPT to gsel, once, with no word about ranks. Behind the embeddings of token and position each
 * block is
 *
 *     x ─ ln1 ─ attn.qkv ─ attn ─ attn.proj ─┬─ add1 ─ ln2 ─ mlp.fc1 ─ mlp.gelu ─ mlp.fc2 ─┬─ add2 ─
 *      └─────────────────────────────────────┘      └──────────────────────────────────────┘
 *
 * A layer, its output value and its parameters share a name: h0.attn.qkv writes h0.attn.qkv and owns h0.attn.qkv.w.
 * What a strategy may do with it is said here too: weights that a tensor axis may split, and how the values lie then;
 * which dimension counts positions, and which layers compute each position by itself. What is added to a partial sum,
 * the bias behind a weight split by rows and the embedding of positions, sits in a layer behind, which adds it once. */
#include "model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "layers.h"

/* Pieces are added one after another; after the first error nothing more is added. */
struct builder {
  const struct gpt_sizes* sizes;
  const struct layer_kinds* kinds;
  struct gpt_model* gpt;
  gsel_error** err;
  gsel_status status;
  char block[32];    /* in front of names: "h0." */
  int32_t of_tokens; /* the embedding of tokens, which a tied head reads as well */
  int forgettable;   /* what the layers to come write may be forgotten after forward and computed again for backward */
};

struct name {
  char text[64];
};

static struct name name_of(const struct builder* b, const char* stem, const char* suffix) {
  struct name name;
  snprintf(name.text, sizeof name.text, "%s%s%s", b->block, stem, suffix);
  return name;
}

/* ---- parameters --------------------------------------------------------------------------------------- */

static gsel_status keep_size(struct gpt_model* gpt, const gsel_param_options* options) {
  int64_t* longer = realloc(gpt->param_elems, (size_t)(gpt->n_params + 1) * sizeof *longer);
  if (!longer) return GSEL_ERR_NOMEM;
  gpt->param_elems = longer;
  longer[gpt->n_params] = 1;
  for (int32_t i = 0; i < options->n_dims; ++i) longer[gpt->n_params] *= options->dims[i];
  ++gpt->n_params;
  return GSEL_OK;
}

static int32_t add_param(struct builder* b, const char* stem, const char* suffix, gsel_param_options options) {
  const struct name name = name_of(b, stem, suffix);
  int32_t id = -1;
  options.name.data = name.text;
  options.name.len = GSEL_NUL;
  if (b->status == GSEL_OK) b->status = gsel_model_add_param(b->gpt->model, &options, &id, b->err);
  if (b->status == GSEL_OK) b->status = keep_size(b->gpt, &options);
  return id;
}

/* How a tensor axis may split a weight [out][in]: by its columns `out`, or by its rows `in`, with a granularity of so
 * many that stay together (a head). blocks: equal parts of `out` that are split each by itself; 3 for q, k, v in one
 * matrix.
 */
enum split_by { WHOLE, BY_COLUMNS, BY_ROWS };
struct split {
  enum split_by by;
  int32_t blocks, granularity;
};
static const struct split whole = {WHOLE, 1, 1}, columns = {BY_COLUMNS, 1, 1}, rows = {BY_ROWS, 1, 1};

static int32_t weight(struct builder* b, const char* stem, const char* suffix, int64_t out, int64_t in,
                      double deviation, struct split split) {
  gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
  const int64_t dims[] = {out, in};
  options.dims = dims;
  options.n_dims = 2;
  options.init = GSEL_INIT_NORMAL;
  options.init_scale = deviation;
  options.dtype = b->sizes->dtype;
  if (split.by != WHOLE) {
    options.shard = GSEL_SHARD_DIM;
    options.shard_dim = split.by == BY_COLUMNS ? 0 : 1;
    options.shard_blocks = split.blocks;
    options.shard_granularity = split.granularity;
  }
  return add_param(b, stem, suffix, options);
}

/* A bias or the gain of a norm: one number per column, not decayed. */
static int32_t vector(struct builder* b, const char* stem, const char* suffix, int64_t out, int32_t init,
                      struct split split) {
  gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
  options.dims = &out;
  options.n_dims = 1;
  options.flags = GSEL_PARAM_NO_DECAY;
  options.init = init;
  options.dtype = b->sizes->dtype;
  if (split.by == BY_COLUMNS) {
    options.shard = GSEL_SHARD_DIM;
    options.shard_blocks = split.blocks;
    options.shard_granularity = split.granularity;
  }
  return add_param(b, stem, suffix, options);
}

/* ---- values and layers -------------------------------------------------------------------------------- */

static int32_t add_value(struct builder* b, const char* stem, gsel_value_options options) {
  const struct name name = name_of(b, stem, "");
  int32_t id = -1;
  options.name.data = name.text;
  options.name.len = GSEL_NUL;
  if (b->status == GSEL_OK) b->status = gsel_model_add_value(b->gpt->model, &options, &id, b->err);
  return id;
}

/* [context] bytes that main supplies. */
static int32_t input(struct builder* b, const char* stem) {
  gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
  options.dims = &b->sizes->context;
  options.n_dims = 1;
  options.dtype = GSEL_U8;
  options.flags = GSEL_VALUE_INPUT;
  options.sequence_dim = 1; /* the batch dimension comes first and counts */
  return add_value(b, stem, options);
}

/* [context][blocks][width] numbers, or [context][width] of one block, split along the width where they lie in parts. */
static int32_t activation(struct builder* b, const char* stem, int64_t width, int32_t placement, struct split split) {
  gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
  const int64_t one[] = {b->sizes->context, width}, several[] = {b->sizes->context, split.blocks, width};
  options.dims = split.blocks == 1 ? one : several;
  options.n_dims = split.blocks == 1 ? 2 : 3;
  options.dtype = b->sizes->dtype;
  options.placement = placement;
  options.shard_dim = placement == GSEL_PLACEMENT_SHARD ? options.n_dims : 0;
  options.shard_granularity = split.granularity;
  options.sequence_dim = 1;
  return add_value(b, stem, options);
}
static int32_t stream(struct builder* b, const char* stem) {
  return activation(b, stem, b->sizes->width, GSEL_PLACEMENT_REPLICATE, whole);
}

static int32_t scalar(struct builder* b, const char* stem) {
  gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
  options.dtype = GSEL_F64;
  options.flags = GSEL_VALUE_SCALAR;
  return add_value(b, stem, options);
}

/* Ids of up to two values or parameters; -1 stands for none. */
struct ids {
  int32_t id[2];
};
static struct ids none(void) {
  return (struct ids){{-1, -1}};
}
static struct ids only(int32_t a) {
  return (struct ids){{a, -1}};
}
static struct ids both(int32_t a, int32_t b) {
  return (struct ids){{a, b}};
}
static int32_t count(const struct ids* ids) {
  return (ids->id[0] >= 0) + (ids->id[1] >= 0);
}

/* A collective in the middle of a layer; none where elems_per_sample is 0. */
struct phases {
  gsel_phase phase[2];
};
static struct phases no_phases(void) {
  return (struct phases){0};
}
static int32_t count_phases(const struct phases* p) {
  return (p->phase[0].elems_per_sample > 0) + (p->phase[1].elems_per_sample > 0);
}

/* saved_floats: kept from forward to backward, and flop: both per sample. */
static void add_layer_with_phases(struct builder* b, const char* stem, const struct layer_kind* kind, struct ids inputs,
                                  struct ids outputs, struct ids params, int64_t saved_floats, double flop,
                                  struct phases forward, struct phases backward) {
  const struct name name = name_of(b, stem, "");
  gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
  options.name.data = name.text;
  options.name.len = GSEL_NUL;
  options.inputs = inputs.id;
  options.n_inputs = count(&inputs);
  options.outputs = outputs.id;
  options.n_outputs = count(&outputs);
  options.params = params.id;
  options.n_params = count(&params);
  options.flags = kind->flags | (b->forgettable ? GSEL_LAYER_RECOMPUTABLE : 0u);
  options.saved_bytes_per_sample = (uint64_t)saved_floats * sizeof(float);
  options.flop_per_sample = flop;
  options.forward = kind->forward;
  options.backward_input = kind->backward_input;
  options.backward_weight = kind->backward_weight;
  options.backward_input_unread = kind->input_unread;
  options.backward_weight_unread = kind->weight_unread;
  options.backward_unread_params =
      kind->unread_params & ((UINT64_C(1) << options.n_params) - 1); /* a bias may be missing */
  options.forward_phases = forward.phase;
  options.n_forward_phases = count_phases(&forward);
  options.backward_phases = backward.phase;
  options.n_backward_phases = count_phases(&backward);
  options.user_data = (void*)b->sizes;
  int32_t id;
  if (b->status == GSEL_OK) b->status = gsel_model_add_layer(b->gpt->model, &options, &id, b->err);
}

static void add_layer(struct builder* b, const char* stem, const struct layer_kind* kind, struct ids inputs,
                      struct ids outputs, struct ids params, int64_t saved_floats, double flop) {
  add_layer_with_phases(b, stem, kind, inputs, outputs, params, saved_floats, flop, no_phases(), no_phases());
}

/* ---- the parts of a GPT: each adds parameters, an output value and a layer, and returns the output -------- */

/* A vocabulary in parts gives partial sums: of a token's row each rank but one has nothing to add. */
static int32_t embedding(struct builder* b, int32_t tokens) {
  const int64_t context = b->sizes->context, width = b->sizes->width;
  b->of_tokens = weight(b, "embed", ".token", GPT_VOCAB, width, 0.02, columns);
  const int32_t of_positions = weight(b, "embed", ".position", context, width, 0.02, whole);
  const int32_t x = activation(b, "embed.token", width, GSEL_PLACEMENT_PARTIAL, whole);
  add_layer(b, "embed.token", b->kinds->token, only(tokens), only(x), only(b->of_tokens), 0, 0);
  const int32_t y = stream(b, "embed.position");
  add_layer(b, "embed.position", b->kinds->position, only(x), only(y), only(of_positions), 0,
            (double)(context * width));
  return y;
}

static int32_t layernorm(struct builder* b, const char* stem, int32_t x) {
  const int64_t context = b->sizes->context, width = b->sizes->width;
  const int32_t gain = vector(b, stem, ".g", width, GSEL_INIT_ONES, whole);
  const int32_t bias = vector(b, stem, ".b", width, GSEL_INIT_ZEROS, whole);
  const int32_t y = stream(b, stem);
  add_layer(b, stem, b->kinds->layernorm, only(x), only(y), both(gain, bias), 2 * context,
            8.0 * (double)(context * width));
  return y;
}

/* With blocks, see struct split, the output is [context][blocks][out / blocks]. */
static int32_t product(struct builder* b, const char* stem, int32_t x, int32_t w, int32_t bias, int64_t in, int64_t out,
                       struct split split) {
  const int32_t placement = split.by == BY_COLUMNS ? GSEL_PLACEMENT_SHARD : GSEL_PLACEMENT_PARTIAL;
  const int32_t y = activation(b, stem, out / split.blocks, placement, split);
  add_layer(b, stem, b->kinds->linear, only(x), only(y), both(w, bias), 0,
            2.0 * (double)(b->sizes->context * in * out));
  return y;
}

static int32_t linear(struct builder* b, const char* stem, int32_t x, int64_t in, int64_t out, double deviation,
                      struct split split, int with_bias) {
  const int32_t w = weight(b, stem, ".w", out, in, deviation, split);
  const int32_t bias = with_bias ? vector(b, stem, ".b", out, GSEL_INIT_ZEROS, split) : -1;
  return product(b, stem, x, w, bias, in, out, split);
}

static struct phases ring_shift(int64_t width_per_position, const struct gpt_sizes* sizes, uint32_t flags) {
  const gsel_phase phase = {.struct_size = sizeof(gsel_phase),
                            .axis = GSEL_AXIS_TENSOR,
                            .dtype = GSEL_F32,
                            .flags = GSEL_PHASE_RING_SHIFT | flags,
                            .elems = RING_HEAD,
                            .elems_per_sample = width_per_position * sizes->context};
  return (struct phases){{phase}};
}

static int32_t attention(struct builder* b, const char* stem, int32_t qkv) {
  const struct gpt_sizes* sizes = b->sizes;
  const int64_t context = sizes->context, width = sizes->width;
  const double flop = 4.0 * (double)(context * context * width);
  const struct split by_head = {BY_COLUMNS, 1, (int32_t)(width / sizes->heads)};
  const int32_t y = activation(b, stem, width, GSEL_PLACEMENT_SHARD, by_head);
  if (sizes->attention == GPT_RING)
    add_layer_with_phases(b, stem, b->kinds->ring, only(qkv), only(y), none(), sizes->heads * context, flop,
                          ring_shift(2 * width, sizes, 0), ring_shift(4 * width, sizes, GSEL_PHASE_HOME));
  else if (sizes->attention == GPT_FUSED)
    add_layer(b, stem, b->kinds->ring, only(qkv), only(y), none(), sizes->heads * context, flop);
  else
    add_layer(b, stem, b->kinds->attention, only(qkv), only(y), none(), sizes->heads * context * context, flop);
  return y;
}

static int32_t gelu(struct builder* b, const char* stem, int32_t x, int64_t width) {
  const int32_t y = activation(b, stem, width, GSEL_PLACEMENT_SHARD, columns);
  add_layer(b, stem, b->kinds->gelu, only(x), only(y), none(), 0, 12.0 * (double)(b->sizes->context * width));
  return y;
}

static int32_t residual(struct builder* b, const char* stem, int32_t x, int32_t branch) {
  const int64_t context = b->sizes->context, width = b->sizes->width;
  const int32_t bias = vector(b, stem, ".b", width, GSEL_INIT_ZEROS, whole);
  const int32_t y = stream(b, stem);
  add_layer(b, stem, b->kinds->residual, both(x, branch), only(y), only(bias), 0, 2.0 * (double)(context * width));
  return y;
}

static int32_t block(struct builder* b, int64_t i, int32_t x) {
  const int64_t width = b->sizes->width;
  const double into_stream = 0.02 / sqrt(2.0 * (double)b->sizes->layers); /* as GPT-2: the stream sums 2 per block */
  const int32_t head = (int32_t)(width / b->sizes->heads);
  snprintf(b->block, sizeof b->block, "h%lld.", (long long)i);
  b->forgettable = 1;
  int32_t f = layernorm(b, "ln1", x);
  f = linear(b, "attn.qkv", f, width, 3 * width, 0.02, (struct split){BY_COLUMNS, 3, head}, 1);
  f = attention(b, "attn", f);
  f = linear(b, "attn.proj", f, width, width, into_stream, (struct split){BY_ROWS, 1, head}, 0);
  x = residual(b, "add1", x, f);
  f = layernorm(b, "ln2", x);
  f = linear(b, "mlp.fc1", f, width, 4 * width, 0.02, columns, 1);
  f = gelu(b, "mlp.gelu", f, 4 * width);
  f = linear(b, "mlp.fc2", f, 4 * width, width, into_stream, rows, 0);
  b->forgettable = 0; /* a block is computed again from where it begins: what the one before it has written */
  x = residual(b, "add2", x, f);
  b->block[0] = 0;
  return x;
}

static void loss(struct builder* b, int32_t logits, int32_t targets) {
  const int64_t context = b->sizes->context;
  const int32_t sum = scalar(b, "loss_sum"), tokens = scalar(b, "loss_tokens");
  const gsel_phase top = {.struct_size = sizeof(gsel_phase),
                          .axis = GSEL_AXIS_TENSOR,
                          .op = GSEL_MAX,
                          .dtype = GSEL_F32,
                          .elems_per_sample = context};
  const gsel_phase sums = {.struct_size = sizeof(gsel_phase),
                           .axis = GSEL_AXIS_TENSOR,
                           .op = GSEL_SUM,
                           .dtype = GSEL_F32,
                           .elems_per_sample = 2 * context};
  add_layer_with_phases(b, "loss", b->kinds->loss, both(logits, targets), both(sum, tokens), none(), context,
                        4.0 * (double)(context * GPT_VOCAB), (struct phases){{top, sums}}, no_phases());
}

gsel_status gpt_model_create(const struct gpt_sizes* sizes, const struct layer_kinds* kinds, struct gpt_model* out,
                             gsel_error** err) {
  struct builder b = {.sizes = sizes, .kinds = kinds, .gpt = out, .err = err};
  *out = (struct gpt_model){.dtype = sizes->dtype ? sizes->dtype : GSEL_F32};
  b.status = gsel_model_create(&out->model, err);
  out->tokens = input(&b, "tokens");
  out->targets = input(&b, "targets");
  int32_t x = embedding(&b, out->tokens);
  for (int64_t i = 0; i < sizes->layers; ++i) x = block(&b, i, x);
  x = layernorm(&b, "final", x);
  const int32_t head = sizes->tied ? b.of_tokens : weight(&b, "head", ".w", GPT_VOCAB, sizes->width, 0.02, columns);
  out->logits = product(&b, "head", x, head, -1, sizes->width, GPT_VOCAB, columns);
  loss(&b, out->logits, out->targets);
  if (b.status == GSEL_OK) b.status = gsel_model_finish(out->model, err);
  if (b.status != GSEL_OK) gpt_model_free(out);
  return b.status;
}

void gpt_model_free(struct gpt_model* gpt) {
  gsel_model_free(gpt->model);
  free(gpt->param_elems);
  *gpt = (struct gpt_model){0};
}
