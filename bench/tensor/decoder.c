/* decoder.c: see decoder.h. Attention and MLP are a layer each: columns first, then rows, which leaves partial sums;
 * norms and residual sums stand between and run alike on every rank. Sizes are those that a call comes with. */
#include "decoder.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

static const float* in(const gsel_call* c, int i) {
  return (const float*)c->inputs[i].data;
}
static float* out(const gsel_call* c, int i) {
  return (float*)c->outputs[i].data;
}
static const float* weights(const gsel_call* c, int i) {
  return (const float*)c->params[i].data;
}

/* y = w x for a matrix as it is here. */
static void apply(const gsel_call* c, int param, const float* x, float* y) {
  matrix_vector(weights(c, param), x, y, c->params[param].dims[0], c->params[param].dims[1]);
}

/* ---- layers ---- */

static gsel_status embed(const gsel_call* c, void* user) {
  struct decoder* d = user;
  const int64_t width = d->sizes.width;
  memcpy(out(c, 0), weights(c, 0) + *(const int32_t*)c->inputs[0].data * width, sizeof(float) * (size_t)width);
  for (int i = 0; i < d->sizes.head / 2; ++i) {
    const double angle = d->position * pow(10000, -2.0 * i / d->sizes.head);
    d->angles[2 * i] = (float)cos(angle);
    d->angles[2 * i + 1] = (float)sin(angle);
  }
  return GSEL_OK;
}

static void normalise(const float* x, const float* gain, float* y, int n) {
  float squares = 0;
  for (int i = 0; i < n; ++i) squares += x[i] * x[i];
  const float scale = 1 / sqrtf(squares / (float)n + 1e-5f);
  for (int i = 0; i < n; ++i) y[i] = x[i] * scale * gain[i];
}

static gsel_status norm(const gsel_call* c, void* user) {
  const struct decoder* d = user;
  normalise(in(c, 0), weights(c, 0), out(c, 0), d->sizes.width);
  return GSEL_OK;
}

/* x + added, and its norm. */
static gsel_status add_norm(const gsel_call* c, void* user) {
  const struct decoder* d = user;
  for (int i = 0; i < d->sizes.width; ++i) out(c, 0)[i] = in(c, 0)[i] + in(c, 1)[i];
  normalise(out(c, 0), weights(c, 0), out(c, 1), d->sizes.width);
  return GSEL_OK;
}

static void turn(const struct decoder* d, float* heads, int64_t n) {
  for (int64_t h = 0; h < n; ++h)
    for (int i = 0; i < d->sizes.head; i += 2) {
      float *x = heads + h * d->sizes.head + i, a = x[0], b = x[1];
      x[0] = a * d->angles[i] - b * d->angles[i + 1];
      x[1] = a * d->angles[i + 1] + b * d->angles[i];
    }
}

/* One head over all positions so far. */
static void attend(const struct decoder* d, const float* q, const float* keys, const float* values, float* y,
                   float* scores) {
  const int head = d->sizes.head, n = d->position + 1;
  float most = -FLT_MAX, sum = 0;
  matrix_vector(keys, q, scores, n, head);
  for (int t = 0; t < n; ++t) {
    scores[t] /= sqrtf((float)head);
    if (scores[t] > most) most = scores[t];
  }
  for (int t = 0; t < n; ++t) sum += scores[t] = expf(scores[t] - most);
  memset(y, 0, sizeof(float) * (size_t)head);
  for (int t = 0; t < n; ++t)
    for (int i = 0; i < head; ++i) y[i] += scores[t] / sum * values[(int64_t)t * head + i];
}

static int has_cache(struct decoder_layer* l, int64_t kv_heads) {
  const struct decoder_sizes* s = &l->decoder->sizes;
  const size_t elems = (size_t)(kv_heads * s->context * s->head);
  if (!l->keys) l->keys = calloc(elems, sizeof *l->keys);
  if (!l->values) l->values = calloc(elems, sizeof *l->values);
  return l->keys && l->values;
}

/* params: q, k, v by rows of heads, o by columns of heads. */
static gsel_status attention(const gsel_call* c, void* user) {
  struct decoder_layer* l = user;
  const struct decoder* d = l->decoder;
  const int head = d->sizes.head;
  const int64_t heads = c->params[0].dims[0] / head, kv_heads = c->params[1].dims[0] / head;
  float *q = d->scratch, *k = q + heads * head, *v = k + kv_heads * head, *y = v + kv_heads * head,
        *scores = y + heads * head;
  if (!has_cache(l, kv_heads)) return GSEL_ERR_NOMEM;
  apply(c, 0, in(c, 0), q);
  apply(c, 1, in(c, 0), k);
  apply(c, 2, in(c, 0), v);
  turn(d, q, heads);
  turn(d, k, kv_heads);
  for (int64_t h = 0; h < kv_heads; ++h) {
    const int64_t at = (h * d->sizes.context + d->position) * head;
    memcpy(l->keys + at, k + h * head, sizeof(float) * (size_t)head);
    memcpy(l->values + at, v + h * head, sizeof(float) * (size_t)head);
  }
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t cache = h * kv_heads / heads * d->sizes.context * head;
    attend(d, q + h * head, l->keys + cache, l->values + cache, y + h * head, scores);
  }
  apply(c, 3, y, out(c, 0));
  return GSEL_OK;
}

/* params: gate, up by rows, down by columns. */
static gsel_status mlp(const gsel_call* c, void* user) {
  const struct decoder* d = ((struct decoder_layer*)user)->decoder;
  const int64_t inner = c->params[0].dims[0];
  float *gate = d->scratch, *up = gate + inner;
  apply(c, 0, in(c, 0), gate);
  apply(c, 1, in(c, 0), up);
  for (int64_t i = 0; i < inner; ++i) up[i] *= gate[i] / (1 + expf(-gate[i]));
  apply(c, 2, up, out(c, 0));
  return GSEL_OK;
}

/* The token of the largest logit, the first of equals: two small phases instead of all logits on every rank. */
static gsel_status choose(const gsel_call* c, void* user) {
  struct decoder* d = user;
  const int64_t n = c->params[0].dims[0], first = c->param_shards[0].dim < 0 ? 0 : c->param_shards[0].begin;
  float* largest = (float*)c->reductions[0].data;
  double* token = (double*)c->reductions[1].data;
  if (c->phase == 0) {
    apply(c, 0, in(c, 0), d->scratch);
    *largest = -FLT_MAX;
    for (int64_t i = 0; i < n; ++i)
      if (d->scratch[i] > *largest) *largest = d->scratch[i];
  } else if (c->phase == 1) {
    *token = DBL_MAX;
    for (int64_t i = n; i-- > 0;)
      if (d->scratch[i] == *largest) *token = (double)(first + i);
  } else {
    *(int32_t*)c->outputs[0].data = d->token = (int32_t)*token;
  }
  return GSEL_OK;
}

gsel_status decoder_data(const gsel_data_request* request, void* user) {
  *(int32_t*)request->dst.data = ((struct decoder*)user)->token;
  return GSEL_OK;
}

/* ---- memory ---- */

int decoder_make(struct decoder* d, const struct decoder_sizes* s) {
  const size_t scratch = (size_t)(4 * s->width + 2 * s->inner + s->vocab + s->context);
  *d = (struct decoder){.sizes = *s};
  d->layers = calloc((size_t)s->layers, sizeof *d->layers);
  d->scratch = calloc(scratch, sizeof *d->scratch);
  d->angles = calloc((size_t)s->head, sizeof *d->angles);
  for (int i = 0; i < s->layers && d->layers; ++i) d->layers[i].decoder = d;
  return d->layers && d->scratch && d->angles;
}

void decoder_free(struct decoder* d) {
  for (int i = 0; i < d->sizes.layers && d->layers; ++i) {
    free(d->layers[i].keys);
    free(d->layers[i].values);
  }
  free(d->layers);
  free(d->scratch);
  free(d->angles);
}

double decoder_bytes(const struct decoder_sizes* s) {
  const double attention = 2.0 * s->heads * s->head * s->width + 2.0 * s->kv_heads * s->head * s->width;
  return 4 * (s->layers * (attention + 3.0 * s->inner * s->width) + (double)s->vocab * s->width);
}

/* ---- description ---- */

struct writer {
  gsel_model* model;
  struct decoder* decoder;
  gsel_error** err;
  gsel_status status;
};

enum { WHOLE = -1, ROWS, COLUMNS };

static int32_t param(struct writer* w, const char* name, int layer, int64_t rows, int64_t columns, int shard,
                     int unit) {
  const int64_t dims[] = {rows, columns};
  gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
  char text[64];
  int32_t id = -1;
  snprintf(text, sizeof text, "%s.%d", name, layer);
  options.name = gsel_str_from(text);
  options.dims = dims;
  options.n_dims = columns ? 2 : 1;
  options.flags = GSEL_PARAM_FROZEN;
  options.init = columns ? GSEL_INIT_NORMAL : GSEL_INIT_ONES;
  options.init_scale = 1 / sqrt((double)(columns ? columns : 1));
  options.shard = shard == WHOLE ? GSEL_SHARD_NONE : GSEL_SHARD_DIM;
  options.shard_dim = shard == COLUMNS;
  options.shard_granularity = unit;
  if (!w->status) w->status = gsel_model_add_param(w->model, &options, &id, w->err);
  return id;
}

static int32_t value(struct writer* w, const char* name, int layer, int64_t elems, gsel_dtype dtype, uint32_t flags,
                     int32_t placement) {
  gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
  char text[64];
  int32_t id = -1;
  snprintf(text, sizeof text, "%s.%d", name, layer);
  options.name = gsel_str_from(text);
  options.dims = &elems;
  options.n_dims = 1;
  options.dtype = dtype;
  options.flags = flags;
  options.placement = placement;
  if (!w->status) w->status = gsel_model_add_value(w->model, &options, &id, w->err);
  return id;
}

static gsel_layer_options layer(const char* name, gsel_layer_fn forward, void* user_data) {
  gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
  options.name = gsel_str_from(name);
  options.forward = forward;
  options.user_data = user_data;
  return options;
}

static void add(struct writer* w, gsel_layer_options* options, int i, const int32_t* inputs, int n_inputs,
                const int32_t* outputs, int n_outputs, const int32_t* params, int n_params) {
  char text[64];
  snprintf(text, sizeof text, "%s.%d", options->name.data, i);
  options->name = gsel_str_from(text);
  options->inputs = inputs;
  options->outputs = outputs;
  options->params = params;
  options->n_inputs = n_inputs;
  options->n_outputs = n_outputs;
  options->n_params = n_params;
  if (!w->status) w->status = gsel_model_add_layer(w->model, options, NULL, w->err);
}

static int32_t plain(struct writer* w, const char* name, int i) {
  return value(w, name, i, w->decoder->sizes.width, GSEL_F32, 0, GSEL_PLACEMENT_REPLICATE);
}
static int32_t partial(struct writer* w, const char* name, int i) {
  return value(w, name, i, w->decoder->sizes.width, GSEL_F32, 0, GSEL_PLACEMENT_PARTIAL);
}

/* x[0] = x[0] + added, x[1] its norm; without `added` the norm alone. */
static void add_norm_layer(struct writer* w, int i, int32_t x[2], int32_t added) {
  gsel_layer_options options = layer(added < 0 ? "norm" : "add_norm", added < 0 ? norm : add_norm, w->decoder);
  const int32_t inputs[] = {x[0], added}, gain = param(w, "gain", i, w->decoder->sizes.width, 0, WHOLE, 0);
  if (added >= 0) x[0] = plain(w, "x", i);
  x[1] = plain(w, "normed", i);
  const int32_t* outputs = added < 0 ? x + 1 : x;
  add(w, &options, i, inputs, added < 0 ? 1 : 2, outputs, added < 0 ? 1 : 2, &gain, 1);
}

static void block(struct writer* w, int i, int32_t x[2], int32_t* added) {
  const struct decoder_sizes* s = &w->decoder->sizes;
  const int64_t all = (int64_t)s->heads * s->head, kv = (int64_t)s->kv_heads * s->head;
  gsel_layer_options attends = layer("attention", attention, &w->decoder->layers[i]);
  gsel_layer_options gated = layer("mlp", mlp, &w->decoder->layers[i]);
  add_norm_layer(w, 2 * i, x, *added);
  const int32_t of_attention[] = {
      param(w, "q", i, all, s->width, ROWS, s->head), param(w, "k", i, kv, s->width, ROWS, s->head),
      param(w, "v", i, kv, s->width, ROWS, s->head), param(w, "o", i, s->width, all, COLUMNS, s->head)};
  *added = partial(w, "attended", i);
  add(w, &attends, i, x + 1, 1, added, 1, of_attention, 4);
  add_norm_layer(w, 2 * i + 1, x, *added);
  const int32_t of_mlp[] = {param(w, "gate", i, s->inner, s->width, ROWS, 1),
                            param(w, "up", i, s->inner, s->width, ROWS, 1),
                            param(w, "down", i, s->width, s->inner, COLUMNS, 1)};
  *added = partial(w, "fed", i);
  add(w, &gated, i, x + 1, 1, added, 1, of_mlp, 3);
}

gsel_status decoder_describe(gsel_model* model, struct decoder* d, gsel_error** err) {
  static const gsel_phase phases[] = {{sizeof(gsel_phase), 0, GSEL_AXIS_TENSOR, GSEL_MAX, GSEL_F32, 0, 1, 0},
                                      {sizeof(gsel_phase), 0, GSEL_AXIS_TENSOR, GSEL_MIN, GSEL_F64, 0, 1, 0}};
  struct writer w = {model, d, err, GSEL_OK};
  const struct decoder_sizes* s = &d->sizes;
  gsel_layer_options embeds = layer("embed", embed, d), chooses = layer("choose", choose, d);
  const int32_t token = value(&w, "token", 0, 1, GSEL_I32, GSEL_VALUE_INPUT, GSEL_PLACEMENT_REPLICATE);
  const int32_t table = param(&w, "table", 0, s->vocab, s->width, WHOLE, 0);
  int32_t x[2] = {plain(&w, "x", -1), -1}, added = -1;
  add(&w, &embeds, 0, &token, 1, x, 1, &table, 1);
  for (int i = 0; i < s->layers; ++i) block(&w, i, x, &added);
  add_norm_layer(&w, 2 * s->layers, x, added);
  const int32_t head = param(&w, "head", 0, s->vocab, s->width, ROWS, 1);
  const int32_t next = value(&w, "next", 0, 1, GSEL_I32, GSEL_VALUE_NOT_DIFFERENTIABLE, GSEL_PLACEMENT_REPLICATE);
  chooses.forward_phases = phases;
  chooses.n_forward_phases = 2;
  add(&w, &chooses, 0, x + 1, 1, &next, 1, &head, 1);
  return w.status;
}
