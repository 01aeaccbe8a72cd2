/* model.c: describes the GPT to gsel, once, with no word about ranks. Each block is
 *
 *     x ─ ln1 ─ attn.qkv ─ attn ─ attn.proj ─┬─ add1 ─ ln2 ─ mlp.fc1 ─ mlp.gelu ─ mlp.fc2 ─┬─ add2 ─
 *      └─────────────────────────────────────┘      └──────────────────────────────────────┘
 *
 * A layer, its output value and its parameters share a name: h0.attn.qkv writes h0.attn.qkv and owns h0.attn.qkv.w.
 * What a strategy may do with it is said here too: weights that a tensor axis may split, and how the values look then.
 * The bias behind a weight split by rows sits in the residual layer, so that it is added once, to the whole sum. */
#include "model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "layers.h"

/* Pieces are added one after another; after the first error nothing more is added. */
struct builder {
  const struct gpt_sizes* sizes;
  struct gpt_model* gpt;
  gsel_error** err;
  gsel_status status;
  char block[32];  /* in front of names: "h0." */
  int forgettable; /* what the layers to come write may be forgotten after forward and computed again for backward */
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

static gsel_status keep_size(struct gpt_model* gpt, const gsel_param_desc* desc) {
  int64_t* longer = realloc(gpt->param_elems, (size_t)(gpt->n_params + 1) * sizeof *longer);
  if (!longer) return GSEL_ERR_NOMEM;
  gpt->param_elems = longer;
  longer[gpt->n_params] = 1;
  for (int32_t i = 0; i < desc->n_dims; ++i) longer[gpt->n_params] *= desc->dims[i];
  ++gpt->n_params;
  return GSEL_OK;
}

static int32_t add_param(struct builder* b, const char* stem, const char* suffix, gsel_param_desc desc) {
  const struct name name = name_of(b, stem, suffix);
  int32_t id = -1;
  desc.name.data = name.text;
  desc.name.len = GSEL_NUL;
  if (b->status == GSEL_OK) b->status = gsel_model_add_param(b->gpt->model, &desc, &id, b->err);
  if (b->status == GSEL_OK) b->status = keep_size(b->gpt, &desc);
  return id;
}

/* How a tensor axis may split a weight [out][in]. */
enum split { WHOLE, BY_COLUMNS, BY_ROWS };

/* blocks: equal parts of `out` that are split each by itself; 3 for q, k, v in one matrix. */
static int32_t weight(struct builder* b, const char* stem, const char* suffix, int64_t out, int64_t in,
                      double deviation, enum split split, int32_t blocks) {
  gsel_param_desc desc = GSEL_PARAM_DESC_INIT;
  const int64_t dims[] = {out, in};
  desc.dims = dims;
  desc.n_dims = 2;
  desc.init = GSEL_INIT_NORMAL;
  desc.init_scale = deviation;
  if (split != WHOLE) {
    desc.shard = GSEL_SHARD_DIM;
    desc.shard_dim = split == BY_COLUMNS ? 0 : 1;
    desc.shard_blocks = blocks;
  }
  return add_param(b, stem, suffix, desc);
}

/* A bias or the gain of a norm: one number per column, not decayed. */
static int32_t vector(struct builder* b, const char* stem, const char* suffix, int64_t out, int32_t init,
                      enum split split, int32_t blocks) {
  gsel_param_desc desc = GSEL_PARAM_DESC_INIT;
  desc.dims = &out;
  desc.n_dims = 1;
  desc.flags = GSEL_PARAM_NO_DECAY;
  desc.init = init;
  if (split == BY_COLUMNS) {
    desc.shard = GSEL_SHARD_DIM;
    desc.shard_blocks = blocks;
  }
  return add_param(b, stem, suffix, desc);
}

/* ---- values and layers -------------------------------------------------------------------------------- */

static int32_t add_value(struct builder* b, const char* stem, gsel_value_desc desc) {
  const struct name name = name_of(b, stem, "");
  int32_t id = -1;
  desc.name.data = name.text;
  desc.name.len = GSEL_NUL;
  if (b->status == GSEL_OK) b->status = gsel_model_add_value(b->gpt->model, &desc, &id, b->err);
  return id;
}

/* [context] bytes that main supplies. */
static int32_t input(struct builder* b, const char* stem) {
  gsel_value_desc desc = GSEL_VALUE_DESC_INIT;
  desc.dims = &b->sizes->context;
  desc.n_dims = 1;
  desc.dtype = GSEL_U8;
  desc.flags = GSEL_VALUE_INPUT;
  return add_value(b, stem, desc);
}

/* [context][parts][width] floats, or [context][width] when parts is 1. place: GSEL_PLACE_*, split along the width. */
static int32_t activation(struct builder* b, const char* stem, int64_t parts, int64_t width, int32_t place) {
  gsel_value_desc desc = GSEL_VALUE_DESC_INIT;
  const int64_t whole[] = {b->sizes->context, width}, in_parts[] = {b->sizes->context, parts, width};
  desc.dims = parts == 1 ? whole : in_parts;
  desc.n_dims = parts == 1 ? 2 : 3;
  desc.place = place;
  desc.place_dim = place == GSEL_PLACE_SHARDED ? desc.n_dims : 0; /* the batch dimension comes first and counts */
  return add_value(b, stem, desc);
}

static int32_t scalar(struct builder* b, const char* stem) {
  gsel_value_desc desc = GSEL_VALUE_DESC_INIT;
  desc.dtype = GSEL_F64;
  desc.flags = GSEL_VALUE_SCALAR;
  return add_value(b, stem, desc);
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

/* saved_floats: kept from forward to backward, and flop: both per sample. */
static void add_layer(struct builder* b, const char* stem, const struct layer_kind* kind, struct ids inputs,
                      struct ids outputs, struct ids params, int64_t saved_floats, double flop) {
  const struct name name = name_of(b, stem, "");
  gsel_layer_desc desc = GSEL_LAYER_DESC_INIT;
  desc.name.data = name.text;
  desc.name.len = GSEL_NUL;
  desc.inputs = inputs.id;
  desc.n_inputs = count(&inputs);
  desc.outputs = outputs.id;
  desc.n_outputs = count(&outputs);
  desc.params = params.id;
  desc.n_params = count(&params);
  desc.flags = kind == &loss_layer ? GSEL_LAYER_LOSS : b->forgettable ? GSEL_LAYER_RECOMPUTABLE : 0;
  desc.saved_bytes_per_sample = (uint64_t)saved_floats * sizeof(float);
  desc.flop_per_sample = flop;
  desc.forward = kind->forward;
  desc.backward_input = kind->backward_input;
  desc.backward_weight = kind->backward_weight;
  desc.backward_input_unread = kind->input_unread;
  desc.backward_weight_unread = kind->weight_unread;
  desc.backward_unread_params = kind->unread_params & ((UINT64_C(1) << desc.n_params) - 1); /* a bias may be missing */
  desc.user_data = (void*)b->sizes;
  int32_t id;
  if (b->status == GSEL_OK) b->status = gsel_model_add_layer(b->gpt->model, &desc, &id, b->err);
}

/* ---- the parts of a GPT: each adds parameters, an output value and a layer, and returns the output -------- */

static int32_t embedding(struct builder* b, int32_t tokens) {
  const int64_t context = b->sizes->context, width = b->sizes->width;
  const int32_t wte = weight(b, "embed", ".token", GPT_VOCAB, width, 0.02, WHOLE, 1);
  const int32_t wpe = weight(b, "embed", ".position", context, width, 0.02, WHOLE, 1);
  const int32_t x = activation(b, "embed", 1, width, GSEL_PLACE_REPLICATED);
  add_layer(b, "embed", &embedding_layer, only(tokens), only(x), both(wte, wpe), 0, (double)(context * width));
  return x;
}

static int32_t layernorm(struct builder* b, const char* stem, int32_t x) {
  const int64_t context = b->sizes->context, width = b->sizes->width;
  const int32_t gain = vector(b, stem, ".g", width, GSEL_INIT_ONES, WHOLE, 1);
  const int32_t bias = vector(b, stem, ".b", width, GSEL_INIT_ZEROS, WHOLE, 1);
  const int32_t y = activation(b, stem, 1, width, GSEL_PLACE_REPLICATED);
  add_layer(b, stem, &layernorm_layer, only(x), only(y), both(gain, bias), 2 * context,
            8.0 * (double)(context * width));
  return y;
}

/* blocks: see weight(); the output then is [context][blocks][out / blocks]. Only columns carry their own bias. */
static int32_t linear(struct builder* b, const char* stem, int32_t x, int64_t in, int64_t out, double deviation,
                      enum split split, int32_t blocks) {
  const int32_t place = split == BY_COLUMNS ? GSEL_PLACE_SHARDED
                        : split == BY_ROWS  ? GSEL_PLACE_PARTIAL
                                            : GSEL_PLACE_REPLICATED;
  const int32_t w = weight(b, stem, ".w", out, in, deviation, split, blocks);
  const int32_t bias = split == BY_COLUMNS ? vector(b, stem, ".b", out, GSEL_INIT_ZEROS, split, blocks) : -1;
  const int32_t y = activation(b, stem, blocks, out / blocks, place);
  add_layer(b, stem, &linear_layer, only(x), only(y), both(w, bias), 0, 2.0 * (double)(b->sizes->context * in * out));
  return y;
}

static int32_t attention(struct builder* b, const char* stem, int32_t qkv) {
  const int64_t context = b->sizes->context, width = b->sizes->width;
  const int32_t y = activation(b, stem, 1, width, GSEL_PLACE_SHARDED);
  add_layer(b, stem, &attention_layer, only(qkv), only(y), none(), b->sizes->heads * context * context,
            4.0 * (double)(context * context * width));
  return y;
}

static int32_t gelu(struct builder* b, const char* stem, int32_t x, int64_t width) {
  const int32_t y = activation(b, stem, 1, width, GSEL_PLACE_SHARDED);
  add_layer(b, stem, &gelu_layer, only(x), only(y), none(), 0, 12.0 * (double)(b->sizes->context * width));
  return y;
}

static int32_t residual(struct builder* b, const char* stem, int32_t x, int32_t branch) {
  const int64_t context = b->sizes->context, width = b->sizes->width;
  const int32_t bias = vector(b, stem, ".b", width, GSEL_INIT_ZEROS, WHOLE, 1);
  const int32_t y = activation(b, stem, 1, width, GSEL_PLACE_REPLICATED);
  add_layer(b, stem, &residual_layer, both(x, branch), only(y), only(bias), 0, 2.0 * (double)(context * width));
  return y;
}

static int32_t block(struct builder* b, int64_t i, int32_t x) {
  const int64_t width = b->sizes->width;
  const double into_stream = 0.02 / sqrt(2.0 * (double)b->sizes->layers); /* as GPT-2: the stream sums 2 per block */
  snprintf(b->block, sizeof b->block, "h%lld.", (long long)i);
  b->forgettable = 1;
  int32_t f = layernorm(b, "ln1", x);
  f = linear(b, "attn.qkv", f, width, 3 * width, 0.02, BY_COLUMNS, 3);
  f = attention(b, "attn", f);
  f = linear(b, "attn.proj", f, width, width, into_stream, BY_ROWS, 1);
  x = residual(b, "add1", x, f);
  f = layernorm(b, "ln2", x);
  f = linear(b, "mlp.fc1", f, width, 4 * width, 0.02, BY_COLUMNS, 1);
  f = gelu(b, "mlp.gelu", f, 4 * width);
  f = linear(b, "mlp.fc2", f, 4 * width, width, into_stream, BY_ROWS, 1);
  b->forgettable = 0; /* a block is computed again from where it begins: what the one before it has written */
  x = residual(b, "add2", x, f);
  b->block[0] = 0;
  return x;
}

static void loss(struct builder* b, int32_t logits, int32_t targets) {
  const int64_t context = b->sizes->context;
  const int32_t sum = scalar(b, "loss_sum"), tokens = scalar(b, "loss_tokens");
  add_layer(b, "loss", &loss_layer, both(logits, targets), both(sum, tokens), none(), context,
            4.0 * (double)(context * GPT_VOCAB));
}

gsel_status gpt_model_create(const struct gpt_sizes* sizes, struct gpt_model* out, gsel_error** err) {
  struct builder b = {.sizes = sizes, .gpt = out, .err = err};
  *out = (struct gpt_model){0};
  b.status = gsel_model_create(&out->model, err);
  out->tokens = input(&b, "tokens");
  out->targets = input(&b, "targets");
  int32_t x = embedding(&b, out->tokens);
  for (int64_t i = 0; i < sizes->layers; ++i) x = block(&b, i, x);
  x = layernorm(&b, "final", x);
  out->logits = linear(&b, "head", x, sizes->width, GPT_VOCAB, 0.02, WHOLE, 1);
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
