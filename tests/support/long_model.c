/* See long_model.h. */
#include "support/long_model.h"

#include <math.h>

int64_t long_elems(int p) {
  return p == LP_TABLE ? VOCAB * WIDTH : p == LP_POSITION ? TOKENS * WIDTH : WIDTH * WIDTH;
}

/* Adds terms to gradients and keeps the largest sum of their magnitudes so far. */
static void long_add(long_model* m, const gsel_call* c, int slot, int64_t i, float term) {
  float* d = (float*)c->d_params[slot].data;
  d[i] += term;
  if (fabsf(d[i]) > m->largest) m->largest = fabsf(d[i]);
}

static gsel_status long_failure(const gsel_call* c, const long_model* m, const char* layer) {
  if (!m->fail_in || strcmp(m->fail_in, layer) || m->rank != m->fail_on_rank || c->step != m->fail_at_step)
    return GSEL_OK;
  snprintf(c->message, c->message_capacity, "the numbers were not right");
  return GSEL_ERR_INTERNAL;
}

static gsel_status long_embed_backward(const gsel_call* c, void* user) {
  const int32_t* tokens = (const int32_t*)c->inputs[0].data;
  exact_clear(c, 0);
  exact_clear(c, 1);
  for (int64_t i = 0; i < c->n_samples * TOKENS * WIDTH; ++i) {
    const float g = exact_dout(c, 0)[i];
    long_add((long_model*)user, c, 0, tokens[i / WIDTH] * WIDTH + i % WIDTH, g);
    long_add((long_model*)user, c, 1, i % (TOKENS * WIDTH), g);
  }
  return GSEL_OK;
}

static gsel_status long_marks_forward(const gsel_call* c, void* user) {
  (void)user;
  memcpy(c->outputs[0].data, c->inputs[0].data, sizeof(int32_t) * (size_t)c->inputs[0].n_elems);
  return GSEL_OK;
}

static gsel_status long_linear_forward(const gsel_call* c, void* user) {
  const gsel_status status = long_failure(c, (const long_model*)user, "linear1");
  return status ? status : exact_linear_forward(c, user);
}
static gsel_status long_linear_weight(const gsel_call* c, void* user) {
  exact_clear(c, 0);
  for (int64_t t = 0; t < c->n_samples * TOKENS; ++t)
    for (int n = 0; n < WIDTH; ++n)
      for (int k = 0; k < WIDTH; ++k)
        long_add((long_model*)user, c, 0, k * WIDTH + n,
                 exact_in(c, 0)[t * WIDTH + k] * exact_dout(c, 0)[t * WIDTH + n]);
  return GSEL_OK;
}
static gsel_status long_linear_backward(const gsel_call* c, void* user) {
  exact_linear_backward_input(c, user);
  return long_linear_weight(c, user);
}

/* r: clip(h), s: its sign; the gradient of s is taken as that of clip. */
static gsel_status long_split_forward(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i) {
    const float h = exact_in(c, 0)[i];
    exact_out(c, 0)[i] = exact_clip(h);
    exact_out(c, 1)[i] = h > 0 ? 1.0f : -1.0f;
    ((char*)c->saved)[i] = (char)exact_clip_slope(h);
  }
  return GSEL_OK;
}
static gsel_status long_split_backward(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->d_outputs[0].n_elems; ++i)
    exact_din(c, 0)[i] = (float)((const char*)c->saved)[i] * (exact_dout(c, 0)[i] - exact_dout(c, 1)[i]);
  return GSEL_OK;
}

static float long_sum(const gsel_call* c, int64_t i) {
  return exact_in(c, 0)[i] + exact_in(c, 1)[i] + exact_in(c, 2)[i];
}
static gsel_status long_add_forward(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i) exact_out(c, 0)[i] = exact_clip(long_sum(c, i));
  return GSEL_OK;
}
static gsel_status long_add_backward(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->d_outputs[0].n_elems; ++i)
    for (int k = 0; k < c->n_inputs; ++k) exact_din(c, k)[i] = exact_clip_slope(long_sum(c, i)) * exact_dout(c, 0)[i];
  return GSEL_OK;
}

static float long_counts(const gsel_call* c, int64_t i) {
  return ((const int32_t*)c->inputs[1].data)[i / WIDTH] == 3 ? 0.0f : 1.0f;
}
static gsel_status long_mask_forward(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i) exact_out(c, 0)[i] = long_counts(c, i) * exact_in(c, 0)[i];
  return GSEL_OK;
}
static gsel_status long_mask_backward(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->d_outputs[0].n_elems; ++i) exact_din(c, 0)[i] = long_counts(c, i) * exact_dout(c, 0)[i];
  return GSEL_OK;
}

static gsel_status long_head_forward(const gsel_call* c, void* user) {
  exact_model none;
  memset(&none, 0, sizeof none);
  none.fail_at_step = -1;
  const gsel_status status = long_failure(c, (const long_model*)user, "head");
  return status ? status : exact_head_forward(c, &none);
}
static gsel_status long_head_backward_input(const gsel_call* c, void* user) {
  (void)user;
  const float* table = (const float*)c->params[0].data;
  for (int64_t t = 0; t < c->n_samples * TOKENS; ++t)
    for (int d = 0; d < WIDTH; ++d) {
      float sum = 0;
      for (int v = 0; v < VOCAB; ++v) sum += exact_dout(c, 0)[t * VOCAB + v] * table[v * WIDTH + d];
      exact_din(c, 0)[t * WIDTH + d] = sum;
    }
  return GSEL_OK;
}
static gsel_status long_head_backward_weight(const gsel_call* c, void* user) {
  exact_clear(c, 0);
  for (int64_t t = 0; t < c->n_samples * TOKENS; ++t)
    for (int d = 0; d < WIDTH; ++d)
      for (int v = 0; v < VOCAB; ++v)
        long_add((long_model*)user, c, 0, v * WIDTH + d,
                 exact_dout(c, 0)[t * VOCAB + v] * exact_in(c, 0)[t * WIDTH + d]);
  return GSEL_OK;
}

static gsel_status long_loss_forward(const gsel_call* c, void* user) {
  exact_model plain;
  (void)user;
  memset(&plain, 0, sizeof plain);
  return exact_loss_forward(c, &plain);
}
static gsel_status long_loss_backward(const gsel_call* c, void* user) {
  exact_model plain;
  (void)user;
  memset(&plain, 0, sizeof plain);
  return exact_loss_backward_input(c, &plain);
}

/* ---- description ---- */

typedef struct long_layer {
  const char* name;
  int32_t in[3], out[2], param[2]; /* -1: none */
  gsel_layer_fn forward, backward_input, backward_weight, backward;
  uint32_t flags;
  double flop;
} long_layer;

/* Values of a block are its linear's h, its split's r and s, and z. */
#define LONG_VALUE(block, i) (LV_BLOCK + (block)*BLOCK_VALUES + (i))
#define LONG_LINEAR(block, from, input_half, weight_half, whole)                                                      \
  {                                                                                                                   \
    "linear" #block, {from, -1, -1}, {LONG_VALUE(block, 0), -1}, {LP_W + block, -1}, long_linear_forward, input_half, \
        weight_half, whole, GSEL_LAYER_RECOMPUTABLE, 96                                                               \
  }
#define LONG_SPLIT(block)                                                                                   \
  {                                                                                                         \
    "split" #block, {LONG_VALUE(block, 0), -1, -1}, {LONG_VALUE(block, 1), LONG_VALUE(block, 2)}, {-1, -1}, \
        long_split_forward, long_split_backward, NULL, NULL, GSEL_LAYER_RECOMPUTABLE, 24                    \
  }
#define LONG_ADD(block)                                                                                     \
  {                                                                                                         \
    "add" #block, {LONG_VALUE(block, 1), LONG_VALUE(block, 2), LV_X}, {LONG_VALUE(block, 3), -1}, {-1, -1}, \
        long_add_forward, long_add_backward, NULL, NULL, 0, 36                                              \
  }
/* A row per layer. */
/* clang-format off */
static const long_layer kLongLayers[LL_N] = {
    {"embed", {LV_TOKENS, -1, -1}, {LV_X, -1}, {LP_TABLE, LP_POSITION}, exact_embed_forward, NULL, long_embed_backward, NULL,
     GSEL_LAYER_RECOMPUTABLE, 12},
    {"marks", {LV_TOKENS, -1, -1}, {LV_LABELS, -1}, {-1, -1}, long_marks_forward, NULL, NULL, NULL, 0, 0},
    LONG_LINEAR(0, LV_X, exact_linear_backward_input, long_linear_weight, NULL),
    LONG_SPLIT(0),
    LONG_ADD(0),
    LONG_LINEAR(1, LONG_VALUE(0, 3), NULL, NULL, long_linear_backward),
    LONG_SPLIT(1),
    LONG_ADD(1),
    LONG_LINEAR(2, LONG_VALUE(1, 3), exact_linear_backward_input, long_linear_weight, long_linear_backward),
    LONG_SPLIT(2),
    LONG_ADD(2),
    {"mask", {LONG_VALUE(2, 3), LV_TOKENS, -1}, {LV_Y, -1}, {-1, -1}, long_mask_forward, long_mask_backward, NULL,
     NULL, GSEL_LAYER_RECOMPUTABLE, 12},
    {"head", {LV_Y, -1, -1}, {LV_LOGITS, -1}, {LP_TABLE, -1}, long_head_forward, long_head_backward_input,
     long_head_backward_weight, NULL, GSEL_LAYER_RECOMPUTABLE, 192},
    {"loss", {LV_LOGITS, LV_LABELS, -1}, {LV_LOSS, LV_WEIGHT}, {-1, -1}, long_loss_forward, long_loss_backward, NULL,
     NULL, GSEL_LAYER_LOSS, 24},
};
/* clang-format on */

static int32_t long_count(const int32_t* ids, int most) {
  int32_t n = 0;
  while (n < most && ids[n] >= 0) ++n;
  return n;
}

static gsel_status long_add_layer(gsel_model* model, long_model* m, int l, gsel_error** err) {
  const long_layer* layer = &kLongLayers[l];
  gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
  options.name = gsel_str_from(layer->name);
  options.inputs = layer->in;
  options.outputs = layer->out;
  options.params = layer->param;
  options.n_inputs = long_count(layer->in, 3);
  options.n_outputs = long_count(layer->out, 2);
  options.n_params = long_count(layer->param, 2);
  options.flags = layer->flags;
  options.saved_bytes_per_sample = layer->forward == long_split_forward ? TOKENS * WIDTH : 0;
  options.flop_per_sample = layer->flop;
  options.forward = layer->forward;
  options.backward_input = layer->backward_input;
  options.backward_weight = layer->backward_weight;
  options.backward = layer->backward;
  options.user_data = m;
  return gsel_model_add_layer(model, &options, NULL, err);
}

gsel_status long_describe(gsel_model* model, long_model* m, gsel_error** err) {
  static const uint64_t keys[LP_N] = {11, 22, 33, 44, 55};
  gsel_status status = GSEL_OK;
  char name[16];
  for (int p = 0; p < LP_N && !status; ++p) {
    const int64_t n = long_elems(p);
    gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
    snprintf(name, sizeof name, p == LP_TABLE ? "table" : p == LP_POSITION ? "position" : "w%d", p - LP_W);
    options.name = gsel_str_from(name);
    options.dims = &n;
    options.n_dims = 1;
    options.init = GSEL_INIT_CALLBACK;
    options.init_fn = exact_initial;
    options.init_user_data = (void*)(uintptr_t)&keys[p];
    status = gsel_model_add_param(model, &options, NULL, err);
  }
  for (int v = 0; v < LV_N && !status; ++v) {
    const int scalar = v >= LV_LOSS, integer = v == LV_TOKENS || v == LV_LABELS;
    const int64_t dims[] = {TOKENS, v == LV_LOGITS ? VOCAB : WIDTH};
    gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
    snprintf(name, sizeof name, "v%d", v);
    options.name = gsel_str_from(name);
    options.dims = dims;
    options.n_dims = scalar ? 0 : integer ? 1 : 2;
    options.dtype = scalar ? GSEL_F64 : integer ? GSEL_I32 : GSEL_F32;
    options.flags = scalar ? GSEL_VALUE_SCALAR : v == LV_TOKENS ? GSEL_VALUE_INPUT : 0;
    status = gsel_model_add_value(model, &options, NULL, err);
  }
  for (int l = 0; l < LL_N && !status; ++l) status = long_add_layer(model, m, l, err);
  return status;
}
