/* See exact_model.h. */
#include "support/exact_model.h"

#include <math.h>

const int64_t kExactElems[N_PARAMS] = {VOCAB * WIDTH, TOKENS* WIDTH, WIDTH* WIDTH, WIDTH, WIDTH* WIDTH};

static void exact_add(exact_model* m, int param, const gsel_call* call, int slot, int64_t i, float term) {
  float* d = (float*)call->d_params[slot].data;
  d[i] += term;
  if (m->magnitude_step != call->step) memset(m->magnitude, 0, sizeof m->magnitude);
  m->magnitude_step = call->step;
  m->magnitude[param][i] += fabs(term);
  if (m->magnitude[param][i] > m->largest) m->largest = m->magnitude[param][i];
}
void exact_clear(const gsel_call* call, int slot) {
  if (!call->accumulate) memset(call->d_params[slot].data, 0, sizeof(float) * (size_t)call->d_params[slot].n_elems);
}
const float* exact_in(const gsel_call* c, int i) {
  return (const float*)c->inputs[i].data;
}
float* exact_out(const gsel_call* c, int i) {
  return (float*)c->outputs[i].data;
}
const float* exact_dout(const gsel_call* c, int i) {
  return (const float*)c->d_outputs[i].data;
}
float* exact_din(const gsel_call* c, int i) {
  return (float*)c->d_inputs[i].data;
}
float exact_clip(float x) {
  return x > 3 ? 3 : x < -3 ? -3 : x;
}
float exact_clip_slope(float x) {
  return x > -3 && x < 3 ? 1.0f : 0.0f;
}

/* ---- embed: x = table[token] + position ---- */
gsel_status exact_embed_forward(const gsel_call* c, void* user) {
  (void)user;
  const int32_t* tokens = (const int32_t*)c->inputs[0].data;
  const float *table = (const float*)c->params[0].data, *position = (const float*)c->params[1].data;
  for (int64_t t = 0; t < c->n_samples * TOKENS; ++t)
    for (int d = 0; d < WIDTH; ++d)
      exact_out(c, 0)[t * WIDTH + d] = table[tokens[t] * WIDTH + d] + position[t % TOKENS * WIDTH + d];
  return GSEL_OK;
}
static gsel_status exact_embed_backward_weight(const gsel_call* c, void* user) {
  exact_model* m = (exact_model*)user;
  if (m->in_last_backward) m->in_last_backward(m->last_backward_user_data);
  const int32_t* tokens = (const int32_t*)c->inputs[0].data;
  exact_clear(c, 0);
  exact_clear(c, 1);
  for (int64_t t = 0; t < c->n_samples * TOKENS; ++t)
    for (int d = 0; d < WIDTH; ++d) {
      const float g = exact_dout(c, 0)[t * WIDTH + d];
      exact_add(m, P_TABLE, c, 0, tokens[t] * WIDTH + d, g);
      exact_add(m, P_POSITION, c, 1, t % TOKENS * WIDTH + d, g);
    }
  return GSEL_OK;
}

/* ---- out[n] = in[k] . w[k][n] (+ b): used by fc1 (fused backward, with bias) and fc2 (split, without) ---- */
gsel_status exact_linear_forward(const gsel_call* c, void* user) {
  (void)user;
  const float *w = (const float*)c->params[0].data, *b = c->n_params > 1 ? (const float*)c->params[1].data : NULL;
  for (int64_t t = 0; t < c->n_samples * TOKENS; ++t)
    for (int n = 0; n < WIDTH; ++n) {
      float sum = b ? b[n] : 0;
      for (int k = 0; k < WIDTH; ++k) sum += exact_in(c, 0)[t * WIDTH + k] * w[k * WIDTH + n];
      exact_out(c, 0)[t * WIDTH + n] = sum;
    }
  return GSEL_OK;
}
gsel_status exact_linear_backward_input(const gsel_call* c, void* user) {
  (void)user;
  const float* w = (const float*)c->params[0].data;
  for (int64_t t = 0; t < c->n_samples * TOKENS; ++t)
    for (int k = 0; k < WIDTH; ++k) {
      float sum = 0;
      for (int n = 0; n < WIDTH; ++n) sum += exact_dout(c, 0)[t * WIDTH + n] * w[k * WIDTH + n];
      exact_din(c, 0)[t * WIDTH + k] = sum;
    }
  return GSEL_OK;
}
static gsel_status exact_linear_backward_weight(const gsel_call* c, void* user) {
  exact_model* m = (exact_model*)user;
  const int w = c->n_params > 1 ? P_W1 : P_W2;
  for (int p = 0; p < c->n_params; ++p) exact_clear(c, p);
  for (int64_t t = 0; t < c->n_samples * TOKENS; ++t)
    for (int n = 0; n < WIDTH; ++n) {
      const float g = exact_dout(c, 0)[t * WIDTH + n];
      for (int k = 0; k < WIDTH; ++k) exact_add(m, w, c, 0, k * WIDTH + n, exact_in(c, 0)[t * WIDTH + k] * g);
      if (c->n_params > 1) exact_add(m, P_B1, c, 1, n, g);
    }
  return GSEL_OK;
}
gsel_status exact_linear_backward(const gsel_call* c, void* user) {
  exact_linear_backward_input(c, user);
  return exact_linear_backward_weight(c, user);
}

/* ---- clip, which keeps its slope and needs nothing else for backward ---- */
static gsel_status exact_clip_forward(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i) {
    exact_out(c, 0)[i] = exact_clip(exact_in(c, 0)[i]);
    ((char*)c->saved)[i] = (char)exact_clip_slope(exact_in(c, 0)[i]);
  }
  return GSEL_OK;
}
static gsel_status exact_clip_backward_input(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->d_outputs[0].n_elems; ++i)
    exact_din(c, 0)[i] = (float)((const char*)c->saved)[i] * exact_dout(c, 0)[i];
  return GSEL_OK;
}

/* ---- add: clip of a sum ---- */
static gsel_status exact_add_forward(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i)
    exact_out(c, 0)[i] = exact_clip(exact_in(c, 0)[i] + exact_in(c, 1)[i]);
  return GSEL_OK;
}
static gsel_status exact_add_backward_input(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->d_outputs[0].n_elems; ++i) {
    const float slope = exact_clip_slope(exact_in(c, 0)[i] + exact_in(c, 1)[i]);
    for (int k = 0; k < c->n_inputs; ++k) exact_din(c, k)[i] = slope * exact_dout(c, 0)[i];
  }
  return GSEL_OK;
}

/* ---- head: logits = z . table^T, tied to embed ---- */
gsel_status exact_head_forward(const gsel_call* c, void* user) {
  exact_model* m = (exact_model*)user;
  if (c->step == m->fail_at_step && m->rank == m->fail_on_rank) {
    if (m->at_failure) m->at_failure();
    snprintf(c->message, c->message_capacity, "the numbers\nwere not right");
    return GSEL_ERR_INTERNAL;
  }
  const float* table = (const float*)c->params[0].data;
  for (int64_t t = 0; t < c->n_samples * TOKENS; ++t)
    for (int v = 0; v < VOCAB; ++v) {
      float sum = 0;
      for (int d = 0; d < WIDTH; ++d) sum += exact_in(c, 0)[t * WIDTH + d] * table[v * WIDTH + d];
      exact_out(c, 0)[t * VOCAB + v] = sum;
    }
  return GSEL_OK;
}
gsel_status exact_head_backward(const gsel_call* c, void* user) {
  exact_model* m = (exact_model*)user;
  const float* table = (const float*)c->params[0].data;
  exact_clear(c, 0);
  for (int64_t t = 0; t < c->n_samples * TOKENS; ++t)
    for (int d = 0; d < WIDTH; ++d) {
      float sum = 0;
      for (int v = 0; v < VOCAB; ++v) {
        const float g = exact_dout(c, 0)[t * VOCAB + v];
        sum += g * table[v * WIDTH + d];
        exact_add(m, P_TABLE, c, 0, v * WIDTH + d, g * exact_in(c, 0)[t * WIDTH + d]);
      }
      exact_din(c, 0)[t * WIDTH + d] = sum;
    }
  if (c->step == m->overflow_at_step)
    for (int64_t s = 0; s < c->n_samples; ++s)
      if (c->sample_ids[s] % m->batch == m->batch - 1) ((float*)c->d_params[0].data)[0] = HUGE_VALF;
  return GSEL_OK;
}

/* ---- loss: half the squared distance of the logits to 2 at the next id, 0 elsewhere ---- */
static float exact_loss_weight(const exact_model* m, int32_t token, int64_t t) {
  if (m->count_all) return t % TOKENS == 0 ? 2 : 1;
  return token != 0;
}
static float exact_loss_distance(const float* logits, int32_t token, int v) {
  return logits[v] - (v == (token + 1) % VOCAB ? 2.0f : 0.0f);
}
gsel_status exact_loss_forward(const gsel_call* c, void* user) {
  exact_model* m = (exact_model*)user;
  const int32_t* tokens = (const int32_t*)c->inputs[1].data;
  double sum = 0, weight = 0;
  for (int64_t t = 0; t < c->n_samples * TOKENS; ++t) {
    const double w = exact_loss_weight(m, tokens[t], t);
    for (int v = 0; v < VOCAB; ++v) {
      const double d = exact_loss_distance(exact_in(c, 0) + t * VOCAB, tokens[t], v);
      sum += w * d * d / 2;
    }
    weight += w;
  }
  *(double*)c->outputs[0].data = sum;
  *(double*)c->outputs[1].data = weight;
  return GSEL_OK;
}
gsel_status exact_loss_backward_input(const gsel_call* c, void* user) {
  const exact_model* m = (const exact_model*)user;
  const float factor = m->loss_factor ? (float)m->loss_factor : 1;
  const int32_t* tokens = (const int32_t*)c->inputs[1].data;
  if (c->d_inputs[1].data) return GSEL_ERR_INTERNAL; /* tokens have no gradient */
  for (int64_t t = 0; t < c->n_samples * TOKENS; ++t)
    for (int v = 0; v < VOCAB; ++v)
      exact_din(c, 0)[t * VOCAB + v] =
          factor * exact_loss_weight(m, tokens[t], t) * exact_loss_distance(exact_in(c, 0) + t * VOCAB, tokens[t], v);
  return GSEL_OK;
}

/* ---- description ---- */
gsel_status exact_initial(float* dst, int64_t first, int64_t count, uint64_t seed, void* user) {
  const uint64_t key = *(const uint64_t*)user;
  for (int64_t i = 0; i < count; ++i) {
    const float u = gsel_random_uniform(seed + key, (uint64_t)(first + i));
    dst[i] = key < 100 ? floorf(u * 3) - 1 : u - 0.5f;
  }
  return GSEL_OK;
}

gsel_status exact_data(const gsel_data_request* r, void* user) {
  (void)user;
  for (int64_t s = 0; s < r->n_samples; ++s)
    for (int t = 0; t < TOKENS; ++t)
      ((int32_t*)r->dst.data)[s * TOKENS + t] =
          (int32_t)(gsel_random_uniform(99, (uint64_t)(r->sample_ids[s] * TOKENS + t)) * (float)VOCAB);
  return GSEL_OK;
}

#define EXACT_IN0 GSEL_UNREAD_INPUT(0)
#define EXACT_OUT0 (GSEL_UNREAD_OUTPUT(0) | GSEL_UNREAD_SAVED)
/* A row per layer. */
/* clang-format off */
const exact_layer kExactLayers[] = {
    {"embed", {V_TOKENS, -1}, {V_X, -1}, {P_TABLE, P_POSITION}, exact_embed_forward, NULL, exact_embed_backward_weight,
     NULL, GSEL_LAYER_RECOMPUTABLE, 0, EXACT_OUT0, 3},
    {"fc1", {V_X, -1}, {V_H, -1}, {P_W1, P_B1}, exact_linear_forward, NULL, NULL, exact_linear_backward,
     GSEL_LAYER_RECOMPUTABLE, EXACT_OUT0, EXACT_OUT0, 2},
    {"clip", {V_H, -1}, {V_R, -1}, {-1, -1}, exact_clip_forward, exact_clip_backward_input, NULL, NULL,
     GSEL_LAYER_RECOMPUTABLE, EXACT_IN0 | GSEL_UNREAD_OUTPUT(0), 0, 0},
    {"fc2", {V_R, -1}, {V_Y, -1}, {P_W2, -1}, exact_linear_forward, exact_linear_backward_input,
     exact_linear_backward_weight, NULL, GSEL_LAYER_RECOMPUTABLE, EXACT_IN0 | EXACT_OUT0, EXACT_OUT0, 0},
    {"add", {V_X, V_Y}, {V_Z, -1}, {-1, -1}, exact_add_forward, exact_add_backward_input, NULL, NULL, 0, EXACT_OUT0, 0,
     0},
    {"head", {V_Z, -1}, {V_LOGITS, -1}, {P_TABLE, -1}, exact_head_forward, NULL, NULL, exact_head_backward,
     GSEL_LAYER_RECOMPUTABLE, EXACT_OUT0, EXACT_OUT0, 0},
    {"loss", {V_LOGITS, V_TOKENS}, {V_LOSS, V_WEIGHT}, {-1, -1}, exact_loss_forward, exact_loss_backward_input, NULL,
     NULL, GSEL_LAYER_LOSS, EXACT_OUT0 | GSEL_UNREAD_OUTPUT(1), 0, 0},
};
/* clang-format on */

gsel_status exact_describe(gsel_model* model, exact_model* m, gsel_error** err) {
  static const uint64_t keys[2][N_PARAMS] = {{11, 22, 33, 44, 55}, {111, 122, 133, 144, 155}};
  static const char* const params[N_PARAMS] = {"table", "position", "w1", "b1", "w2"};
  static const char* const values[N_VALUES] = {"tokens", "x", "h", "r", "y", "z", "logits", "loss", "weight"};
  gsel_status status = GSEL_OK;
  for (int p = 0; p < N_PARAMS && !status; ++p) {
    const int64_t width = WIDTH + (m->wide_b1 && p == P_B1), dims[] = {kExactElems[p] / WIDTH, width};
    gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
    options.name = gsel_str_from(params[p]);
    options.dims = p == P_B1 ? &width : dims;
    options.n_dims = p == P_B1 ? 1 : 2;
    options.init = GSEL_INIT_CALLBACK;
    options.init_fn = exact_initial;
    options.init_user_data = (void*)(uintptr_t)&keys[m->random][p];
    status = gsel_model_add_param(model, &options, NULL, err);
  }
  for (int v = 0; v < N_VALUES && !status; ++v) {
    const int64_t dims[] = {TOKENS, v == V_LOGITS ? VOCAB : WIDTH};
    gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
    options.name = gsel_str_from(values[v]);
    options.dims = dims;
    options.n_dims = v == V_TOKENS ? 1 : v >= V_LOSS ? 0 : 2;
    options.dtype = v == V_TOKENS ? GSEL_I32 : v >= V_LOSS ? GSEL_F64 : GSEL_F32;
    options.flags = v == V_TOKENS ? GSEL_VALUE_INPUT : v >= V_LOSS ? GSEL_VALUE_SCALAR : 0;
    status = gsel_model_add_value(model, &options, NULL, err);
  }
  for (int l = 0; l < N_LAYERS && !status; ++l) {
    const exact_layer* layer = &kExactLayers[l];
    gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
    options.name = gsel_str_from(layer->name);
    options.inputs = layer->in;
    options.outputs = layer->out;
    options.params = layer->param;
    options.n_inputs = (layer->in[0] >= 0) + (layer->in[1] >= 0);
    options.n_outputs = (layer->out[0] >= 0) + (layer->out[1] >= 0);
    options.n_params = (layer->param[0] >= 0) + (layer->param[1] >= 0);
    options.flags = layer->flags;
    options.saved_bytes_per_sample = l == L_CLIP ? TOKENS * WIDTH : 0;
    options.backward_input_unread = layer->input_unread;
    options.backward_weight_unread = layer->weight_unread;
    options.backward_unread_params = layer->unread_params;
    options.forward = layer->forward;
    options.backward_input = layer->backward_input;
    options.backward_weight = layer->backward_weight;
    options.backward = layer->backward;
    options.user_data = m;
    if (m->vary) m->vary(&options);
    status = gsel_model_add_layer(model, &options, NULL, err);
  }
  return status;
}
