/* hand.c: see hand.h. */
#include "hand.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WTE, WPE, BLOCKS };
enum { LN1_G, LN1_B, QKV_W, QKV_B, PROJ_W, ADD1_B, LN2_G, LN2_B, FC1_W, FC1_B, FC2_W, ADD2_B, PER_BLOCK };
enum { FINAL_G, FINAL_B, HEAD_W, BEHIND_BLOCKS };

/* What a block keeps from forward to backward. */
struct block {
  void *ln1, *stats1, *qkv, *probs, *mixed, *middle, *ln2, *stats2, *fc1, *gelu, *out;
};

struct hand {
  struct hand_settings set;
  const struct text* text;
  struct device_text copied;
  const gsel_device_v1* d;
  void *plugin, *ctx, *native;
  gsel_stream* stream;
  char message[512];
  int64_t elems, step, *sample_ids;
  int32_t n_params;
  float *params, *gradients, *first, *second, **g;
  void *rounded, **w; /* what the layers read: params, or in bf16 a copy of them */
  int64_t* param_elems;
  struct block* blocks;
  void *tokens, *targets, *embedded, *x, *final, *final_stats, *logits, *d_logits, *tops, *sums, *log_sums;
  void *branch, *wide, *wider, *dx; /* scratch */
  double *loss, *numbers;           /* of the device; page-locked: loss, tokens, squares of the gradient */
};

/* Numbers of parameters. */
static int32_t behind_blocks(const struct hand* h) {
  return BLOCKS + (int32_t)h->set.sizes.layers * PER_BLOCK;
}

static void die(const char* what, const char* why) {
  fprintf(stderr, "by hand: %s: %s\n", what, why);
  exit(1);
}
#define TRY(call)                                                               \
  do {                                                                          \
    gsel_error* err = NULL;                                                     \
    if (call) die(#call, err ? gsel_error_message(err).data : "it has failed"); \
  } while (0)

/* ---- the device ---- */

static void log_line(int32_t level, const char* component, const char* line) {
  if (level >= 3) fprintf(stderr, "%s: %s\n", component, line);
}
static gsel_error* no_error(gsel_status code, const char* message) {
  fprintf(stderr, "by hand: error %d: %s\n", code, message);
  return NULL;
}
static const gsel_host_v1 host = {.struct_size = sizeof(gsel_host_v1), .log = log_line, .error_new = no_error};

static void open_device(struct hand* h, const char* path) {
  char reason[512] = "";
  const gsel_device_options options = {.struct_size = sizeof options};
  h->plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const struct gsel_plugin_v1* plugin = h->plugin ? dlsym(h->plugin, "gsel_plugin_v1") : NULL;
  if (!plugin || plugin->kind != GSEL_PLUGIN_DEVICE) die(path, h->plugin ? "it is no device plugin" : dlerror());
  if (plugin->probe && plugin->probe(&host, reason, sizeof reason) == 0) {
    fprintf(stderr, "by hand: %s cannot run here: %s\n", plugin->name, reason);
    exit(77);
  }
  h->d = plugin->table;
  TRY(h->d->open(&host, &options, &h->ctx, &err));
  TRY(h->d->stream_create(h->ctx, 0, &h->stream, &err));
  h->native = h->d->stream_native(h->ctx, h->stream);
}

static void* memory(struct hand* h, int64_t bytes, int32_t kind) {
  void* made = NULL;
  TRY(h->d->alloc(h->ctx, kind, (uint64_t)bytes, &made, &err));
  if (kind == GSEL_MEMORY_DEVICE) TRY(h->d->zero(h->ctx, made, (uint64_t)bytes, h->stream, &err));
  return made;
}
static float* floats(struct hand* h, int64_t n) {
  return memory(h, n * (int64_t)sizeof(float), GSEL_MEMORY_DEVICE);
}

static gsel_dtype dtype_of(const struct hand* h) {
  return h->set.sizes.dtype == GSEL_BF16 ? GSEL_BF16 : GSEL_F32;
}
static int64_t dtype_bytes(const struct hand* h) {
  return (int64_t)gsel_dtype_bytes(dtype_of(h));
}
static void* values(struct hand* h, int64_t n) {
  return memory(h, n * dtype_bytes(h), GSEL_MEMORY_DEVICE);
}

static void open_params(struct hand* h, const float* from, const int64_t* param_elems) {
  h->w = calloc((size_t)h->n_params, sizeof *h->w);
  h->g = calloc((size_t)h->n_params, sizeof *h->g);
  h->param_elems = calloc((size_t)h->n_params, sizeof *h->param_elems);
  for (int32_t p = 0; p < h->n_params; ++p) h->elems += h->param_elems[p] = param_elems[p];
  h->params = floats(h, h->elems);
  h->gradients = floats(h, h->elems);
  h->first = floats(h, h->elems);
  h->second = floats(h, h->elems);
  h->rounded = dtype_of(h) == GSEL_BF16 ? values(h, h->elems) : h->params;
  int64_t at = 0;
  for (int32_t p = 0; p < h->n_params; at += param_elems[p++])
    h->w[p] = (char*)h->rounded + at * dtype_bytes(h), h->g[p] = h->gradients + at;
  TRY(h->d->copy(h->ctx, h->params, from, (uint64_t)h->elems * sizeof(float), GSEL_COPY_TO_DEVICE, h->stream, &err));
  if (h->rounded != h->params)
    TRY(h->d->cast(h->ctx, h->rounded, GSEL_BF16, h->params, GSEL_F32, (uint64_t)h->elems, h->stream, &err));
  TRY(h->d->stream_wait(h->ctx, h->stream, &err));
}

static void open_activations(struct hand* h) {
  const struct gpt_sizes* s = &h->set.sizes;
  const int64_t rows = h->set.batch * s->context, stream = rows * s->width;
  h->blocks = calloc((size_t)s->layers, sizeof *h->blocks);
  for (int64_t i = 0; i < s->layers; ++i)
    h->blocks[i] = (struct block){.ln1 = values(h, stream),
                                  .stats1 = floats(h, 2 * rows),
                                  .qkv = values(h, 3 * stream),
                                  .probs = floats(h, rows * s->heads * s->context),
                                  .mixed = values(h, stream),
                                  .middle = values(h, stream),
                                  .ln2 = values(h, stream),
                                  .stats2 = floats(h, 2 * rows),
                                  .fc1 = values(h, 4 * stream),
                                  .gelu = values(h, 4 * stream),
                                  .out = values(h, stream)};
  h->tokens = memory(h, rows, GSEL_MEMORY_DEVICE);
  h->targets = memory(h, rows, GSEL_MEMORY_DEVICE);
  h->embedded = values(h, stream);
  h->final = values(h, stream);
  h->final_stats = floats(h, 2 * rows);
  h->logits = values(h, rows * GPT_VOCAB);
  h->d_logits = values(h, rows * GPT_VOCAB);
  h->tops = floats(h, rows);
  h->sums = floats(h, 2 * rows);
  h->log_sums = floats(h, rows);
  h->branch = values(h, stream);
  h->wide = values(h, 4 * stream);
  h->wider = values(h, 4 * stream);
  h->dx = values(h, stream);
  h->x = values(h, stream);
  h->loss = memory(h, 2 * sizeof(double), GSEL_MEMORY_DEVICE);
  h->numbers = memory(h, 3 * sizeof(double), GSEL_MEMORY_PINNED);
  h->sample_ids = calloc((size_t)h->set.batch, sizeof *h->sample_ids);
}

struct hand* hand_open(const char* plugin, const struct hand_settings* settings, const struct text* text,
                       const float* params, const int64_t* param_elems, int32_t n_params) {
  struct hand* h = calloc(1, sizeof *h);
  h->set = *settings;
  h->text = text;
  h->n_params = n_params;
  if (n_params != behind_blocks(h) + BEHIND_BLOCKS) die("parameters", "the model of examples/gpt has others by now");
  open_device(h, plugin);
  open_params(h, params, param_elems);
  open_activations(h);
  return h;
}

void hand_close(struct hand* h) {
  const struct gpt_sizes* s = &h->set.sizes;
  void* all[] = {h->params,   h->gradients, h->first,       h->second, h->tokens,   h->targets, h->embedded,
                 h->x,        h->final,     h->final_stats, h->logits, h->d_logits, h->tops,    h->sums,
                 h->log_sums, h->branch,    h->wide,        h->wider,  h->dx,       h->loss,    h->numbers};
  device_text_free(&h->copied);
  if (h->rounded != h->params) h->d->free(h->ctx, h->rounded);
  for (int64_t i = 0; i < s->layers; ++i)
    for (size_t k = 0; k < sizeof(struct block) / sizeof(void*); ++k) h->d->free(h->ctx, ((void**)&h->blocks[i])[k]);
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) h->d->free(h->ctx, all[i]);
  h->d->stream_free(h->ctx, h->stream);
  h->d->close(h->ctx);
  free(h->blocks);
  free(h->w);
  free(h->g);
  free(h->param_elems);
  free(h->sample_ids);
  free(h);
}

/* ---- calls of the layers' functions ---- */

static gsel_tensor bytes_of(const struct hand* h, void* data) {
  const int64_t n = h->set.batch, context = h->set.sizes.context;
  return (gsel_tensor){.data = data, .n_elems = n * context, .dims = {n, context}, .n_dims = 2, .dtype = GSEL_U8};
}
/* [batch][context][width] */
static gsel_tensor act(const struct hand* h, void* data, int64_t width) {
  const int64_t n = h->set.batch, context = h->set.sizes.context;
  return (gsel_tensor){
      .data = data, .n_elems = n * context * width, .dims = {n, context, width}, .n_dims = 3, .dtype = dtype_of(h)};
}
/* What the loss layer reduces is f32 in any case. */
static gsel_tensor reduced(const struct hand* h, void* data, int64_t width) {
  gsel_tensor t = act(h, data, width);
  t.dtype = GSEL_F32;
  return t;
}
/* [batch][context][3][width]: queries, keys, values */
static gsel_tensor three(const struct hand* h, void* data) {
  const int64_t width = h->set.sizes.width;
  gsel_tensor t = act(h, data, 3 * width);
  t.n_dims = 4;
  t.dims[2] = 3;
  t.dims[3] = width;
  return t;
}
/* Parameter p and its gradient, which is f32 in any case. A vector has no columns. */
static gsel_tensor gradient(const struct hand* h, int32_t p, int64_t rows, int64_t columns) {
  return (gsel_tensor){.data = h->g[p],
                       .n_elems = rows * (columns ? columns : 1),
                       .dims = {rows, columns},
                       .n_dims = columns ? 2 : 1,
                       .dtype = GSEL_F32};
}
static gsel_tensor param(const struct hand* h, int32_t p, int64_t rows, int64_t columns) {
  gsel_tensor t = gradient(h, p, rows, columns);
  t.data = h->w[p];
  t.dtype = dtype_of(h);
  return t;
}

/* A layer with what it works on; backwards read and write the gradients besides. */
struct layer {
  const struct layer_kind* kind;
  gsel_tensor in[2], out[2], d_in[2], d_out[2], w[2], g[2], reductions[2];
  int32_t n_in, n_out, n_w;
  void* saved;
};

static void call(struct hand* h, const struct layer* l, gsel_layer_fn function, int32_t phase, const char* what) {
  static const gsel_shard whole[2] = {{.dim = -1}, {.dim = -1}};
  gsel_call c = {.struct_size = sizeof c,
                 .n_samples = h->set.batch,
                 .params = l->w,
                 .inputs = l->in,
                 .outputs = l->out,
                 .d_outputs = l->d_out,
                 .d_inputs = l->d_in,
                 .d_params = l->g,
                 .n_params = l->n_w,
                 .n_inputs = l->n_in,
                 .n_outputs = l->n_out,
                 .saved = l->saved,
                 .stream = h->native,
                 .message = h->message,
                 .message_capacity = sizeof h->message,
                 .phase = phase,
                 .reductions = l->reductions,
                 .n_reductions = 2,
                 .param_shards = whole,
                 .input_shards = whole,
                 .output_shards = whole,
                 .shard_count = 1};
  h->message[0] = 0;
  if (function(&c, &h->set.sizes)) die(what, h->message);
}
static void forward(struct hand* h, const struct layer* l) {
  call(h, l, l->kind->forward, 0, "forward");
}
static void backward(struct hand* h, const struct layer* l) {
  if (l->kind->backward_weight) call(h, l, l->kind->backward_weight, 0, "backward_weight");
  if (l->d_in[0].data) call(h, l, l->kind->backward_input, 0, "backward_input");
}

static struct layer norm(const struct hand* h, void* y, void* x, void* stats, int32_t p) {
  const int64_t width = h->set.sizes.width;
  return (struct layer){.kind = device_layers.layernorm,
                        .in = {act(h, x, width)},
                        .out = {act(h, y, width)},
                        .w = {param(h, p, width, 0), param(h, p + 1, width, 0)},
                        .g = {gradient(h, p, width, 0), gradient(h, p + 1, width, 0)},
                        .n_in = 1,
                        .n_out = 1,
                        .n_w = 2,
                        .saved = stats};
}
static struct layer linear(const struct hand* h, void* y, void* x, int32_t p, int with_bias, int64_t in, int64_t out) {
  struct layer l = {.kind = device_layers.linear,
                    .in = {act(h, x, in)},
                    .out = {act(h, y, out)},
                    .w = {param(h, p, out, in)},
                    .g = {gradient(h, p, out, in)},
                    .n_in = 1,
                    .n_out = 1,
                    .n_w = 1 + with_bias};
  if (with_bias) l.w[1] = param(h, p + 1, out, 0), l.g[1] = gradient(h, p + 1, out, 0);
  return l;
}
static struct layer attention(const struct hand* h, const struct block* b) {
  const int64_t width = h->set.sizes.width;
  return (struct layer){.kind = device_layers.attention,
                        .in = {three(h, b->qkv)},
                        .out = {act(h, b->mixed, width)},
                        .n_in = 1,
                        .n_out = 1,
                        .saved = b->probs};
}
static struct layer gelu(const struct hand* h, const struct block* b) {
  const int64_t width = 4 * h->set.sizes.width;
  return (struct layer){.kind = device_layers.gelu,
                        .in = {act(h, b->fc1, width)},
                        .out = {act(h, b->gelu, width)},
                        .n_in = 1,
                        .n_out = 1};
}
static struct layer residual(const struct hand* h, void* y, void* x, int32_t p) {
  const int64_t width = h->set.sizes.width;
  return (struct layer){.kind = device_layers.residual,
                        .in = {act(h, x, width), act(h, h->branch, width)},
                        .out = {act(h, y, width)},
                        .w = {param(h, p, width, 0)},
                        .g = {gradient(h, p, width, 0)},
                        .n_in = 2,
                        .n_out = 1,
                        .n_w = 1};
}
static struct layer token(const struct hand* h) {
  const int64_t width = h->set.sizes.width;
  return (struct layer){.kind = device_layers.token,
                        .in = {bytes_of(h, h->tokens)},
                        .out = {act(h, h->embedded, width)},
                        .w = {param(h, WTE, GPT_VOCAB, width)},
                        .g = {gradient(h, WTE, GPT_VOCAB, width)},
                        .n_in = 1,
                        .n_out = 1,
                        .n_w = 1};
}
static struct layer position(const struct hand* h) {
  const int64_t width = h->set.sizes.width, context = h->set.sizes.context;
  return (struct layer){.kind = device_layers.position,
                        .in = {act(h, h->embedded, width)},
                        .out = {act(h, h->x, width)},
                        .w = {param(h, WPE, context, width)},
                        .g = {gradient(h, WPE, context, width)},
                        .n_in = 1,
                        .n_out = 1,
                        .n_w = 1};
}
static struct layer the_loss(const struct hand* h) {
  const gsel_tensor one = {.n_elems = 1, .dtype = GSEL_F64};
  struct layer l = {.kind = device_layers.loss,
                    .in = {act(h, h->logits, GPT_VOCAB), bytes_of(h, h->targets)},
                    .out = {one, one},
                    .reductions = {reduced(h, h->tops, 1), reduced(h, h->sums, 2)},
                    .n_in = 2,
                    .n_out = 2,
                    .saved = h->log_sums};
  l.out[0].data = h->loss;
  l.out[1].data = h->loss + 1;
  return l;
}

/* With the gradients of output and input; NULL: nobody needs the latter. */
static struct layer with(struct layer l, void* d_out, void* d_in) {
  l.d_out[0] = l.out[0];
  l.d_in[0] = l.in[0];
  l.d_in[1] = l.in[1];
  l.d_out[0].data = d_out;
  l.d_in[0].data = d_in;
  l.d_in[1].data = NULL;
  return l;
}

/* ---- a step ---- */

static void fill(struct hand* h, void* to, int64_t shift) {
  gsel_data_request request = {.struct_size = sizeof request,
                               .n_samples = h->set.batch,
                               .sample_ids = h->sample_ids,
                               .dst = bytes_of(h, to),
                               .message = h->message,
                               .message_capacity = sizeof h->message,
                               .stream = h->native};
  if (device_fill(&h->copied, h->text, shift, &request)) die("samples", h->message);
}

static int32_t first_of(int64_t block) {
  return BLOCKS + (int32_t)block * PER_BLOCK;
}
static void* stream_before(const struct hand* h, int64_t block) {
  return block ? h->blocks[block - 1].out : h->x;
}

static void all_forward(struct hand* h) {
  const int64_t width = h->set.sizes.width, layers = h->set.sizes.layers;
  struct layer l = token(h);
  forward(h, &l);
  l = position(h);
  forward(h, &l);
  for (int64_t i = 0; i < layers; ++i) {
    const struct block* b = &h->blocks[i];
    const int32_t p = first_of(i);
    const struct layer all[] = {norm(h, b->ln1, stream_before(h, i), b->stats1, p + LN1_G),
                                linear(h, b->qkv, b->ln1, p + QKV_W, 1, width, 3 * width),
                                attention(h, b),
                                linear(h, h->branch, b->mixed, p + PROJ_W, 0, width, width),
                                residual(h, b->middle, stream_before(h, i), p + ADD1_B),
                                norm(h, b->ln2, b->middle, b->stats2, p + LN2_G),
                                linear(h, b->fc1, b->ln2, p + FC1_W, 1, width, 4 * width),
                                gelu(h, b),
                                linear(h, h->branch, b->gelu, p + FC2_W, 0, 4 * width, width),
                                residual(h, b->out, b->middle, p + ADD2_B)};
    for (size_t k = 0; k < sizeof all / sizeof *all; ++k) forward(h, &all[k]);
  }
  const int32_t p = behind_blocks(h);
  l = norm(h, h->final, stream_before(h, layers), h->final_stats, p + FINAL_G);
  forward(h, &l);
  l = linear(h, h->logits, h->final, p + HEAD_W, 0, width, GPT_VOCAB);
  forward(h, &l);
  l = the_loss(h);
  for (int32_t phase = 0; phase < 3; ++phase) call(h, &l, l.kind->forward, phase, "the loss");
}

/* dx += the gradient that came through a norm. */
static void norm_backward(struct hand* h, struct layer l, void* d_out) {
  l = with(l, d_out, h->branch);
  backward(h, &l);
  TRY(h->d->add(h->ctx, h->dx, h->branch, dtype_of(h), (uint64_t)l.in[0].n_elems, h->stream, &err));
}

static void block_backward(struct hand* h, int64_t i) {
  const int64_t width = h->set.sizes.width;
  const struct block* b = &h->blocks[i];
  const int32_t p = first_of(i);
  struct layer l = with(residual(h, b->out, b->middle, p + ADD2_B), h->dx, NULL);
  backward(h, &l);
  l = with(linear(h, h->branch, b->gelu, p + FC2_W, 0, 4 * width, width), h->dx, h->wide);
  backward(h, &l);
  l = with(gelu(h, b), h->wide, h->wider);
  backward(h, &l);
  l = with(linear(h, b->fc1, b->ln2, p + FC1_W, 1, width, 4 * width), h->wider, h->wide);
  backward(h, &l);
  norm_backward(h, norm(h, b->ln2, b->middle, b->stats2, p + LN2_G), h->wide);

  l = with(residual(h, b->middle, stream_before(h, i), p + ADD1_B), h->dx, NULL);
  backward(h, &l);
  l = with(linear(h, h->branch, b->mixed, p + PROJ_W, 0, width, width), h->dx, h->wider);
  backward(h, &l);
  l = with(attention(h, b), h->wider, h->wide);
  backward(h, &l);
  l = with(linear(h, b->qkv, b->ln1, p + QKV_W, 1, width, 3 * width), h->wide, h->wider);
  backward(h, &l);
  norm_backward(h, norm(h, b->ln1, stream_before(h, i), b->stats1, p + LN1_G), h->wider);
}

static void all_backward(struct hand* h) {
  const int64_t width = h->set.sizes.width, layers = h->set.sizes.layers;
  const int32_t p = behind_blocks(h);
  struct layer l = with(the_loss(h), NULL, h->d_logits);
  backward(h, &l);
  l = with(linear(h, h->logits, h->final, p + HEAD_W, 0, width, GPT_VOCAB), h->d_logits, h->wide);
  backward(h, &l);
  l = with(norm(h, h->final, stream_before(h, layers), h->final_stats, p + FINAL_G), h->wide, h->dx);
  backward(h, &l);
  for (int64_t i = layers - 1; i >= 0; --i) block_backward(h, i);
  l = with(position(h), h->dx, NULL);
  backward(h, &l);
  l = with(token(h), h->dx, NULL);
  backward(h, &l);
}

/* Matrices decay, vectors do not. */
static int decays(const struct hand* h, int32_t p) {
  const int32_t behind = behind_blocks(h), k = (p - BLOCKS) % PER_BLOCK;
  if (p < BLOCKS || p == behind + HEAD_W) return 1;
  return p < behind && (k == QKV_W || k == PROJ_W || k == FC1_W || k == FC2_W);
}

static void optimize(struct hand* h, double tokens, double squares) {
  const double norm = sqrt(squares) / tokens;
  double scale = 1 / tokens;
  if (h->set.clip_norm > 0) scale *= fmin(1, h->set.clip_norm / (norm + 1e-6));
  for (int32_t p = 0; p < h->n_params; ++p) {
    const int64_t at = h->g[p] - h->gradients;
    const gsel_optimizer_step step = {.struct_size = sizeof step,
                                      .kind = GSEL_OPTIMIZER_ADAMW,
                                      .param = h->params + at,
                                      .gradient = h->g[p],
                                      .state0 = h->first + at,
                                      .state1 = h->second + at,
                                      .count = (uint64_t)h->param_elems[p],
                                      .t = h->step + 1,
                                      .gradient_scale = scale,
                                      .learning_rate = h->set.learning_rate,
                                      .weight_decay = decays(h, p) ? h->set.weight_decay : 0,
                                      .beta1 = h->set.beta1,
                                      .beta2 = h->set.beta2,
                                      .epsilon = h->set.epsilon,
                                      .param16 = h->rounded != h->params ? h->w[p] : NULL,
                                      .param16_dtype = GSEL_BF16};
    TRY(h->d->optimizer_step(h->ctx, &step, h->stream, &err));
  }
}

double hand_step(struct hand* h) {
  for (int64_t i = 0; i < h->set.batch; ++i) h->sample_ids[i] = h->step * h->set.batch + i;
  fill(h, h->tokens, 0);
  fill(h, h->targets, 1);
  all_forward(h);
  all_backward(h);
  TRY(h->d->sum_squares(h->ctx, h->gradients, GSEL_F32, (uint64_t)h->elems, &h->numbers[2], h->stream, &err));
  TRY(h->d->copy(h->ctx, h->numbers, h->loss, 2 * sizeof(double), GSEL_COPY_TO_HOST, h->stream, &err));
  TRY(h->d->stream_wait(h->ctx, h->stream, &err));
  const double loss = h->numbers[0] / h->numbers[1];
  optimize(h, h->numbers[1], h->numbers[2]);
  ++h->step;
  return loss;
}

void hand_finish(struct hand* h) {
  TRY(h->d->stream_wait(h->ctx, h->stream, &err));
}
