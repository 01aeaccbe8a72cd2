/* See equality_model.h. */
#include "support/equality_model.h"

#include <math.h>

enum { EQ_TOKENS, EQ_LABELS, EQ_H0, EQ_H1, EQ_H2, EQ_H3, EQ_Y, EQ_LOSS, EQ_WEIGHT, EQ_VALUES };

const int64_t kEqElems[EQ_PARAMS] = {EQ_TABLE_ELEMS, EQ_MATRIX_ELEMS, EQ_MATRIX_ELEMS};

/* ---- data and initial values, by sample and element alone ---- */

static float eq_number(int64_t i) {
  return (float)((double)((i * 2654435761 + 12345) % 1000003) / 1000003.0 - 0.5);
}
int32_t eq_token(int64_t id) {
  return (int32_t)((id * 7 + id * id) % EQ_WORDS);
}
static int32_t eq_label(int64_t id) {
  return (int32_t)((id * 3 + 1) % EQ_WORDS);
}
static double eq_weight(int64_t id) {
  return 0.3 + 0.1 * (double)(id % 7);
}
gsel_status eq_initial(float* dst, int64_t first, int64_t count, uint64_t seed, void* param) {
  (void)seed;
  for (int64_t i = 0; i < count; ++i) dst[i] = eq_number(first + i + 1000 * (1 + *(const int*)param));
  return GSEL_OK;
}

/* ---- kernels: n samples; matrices [a][b] by rows; with `add` a kernel adds to its output, else it overwrites ---- */

void eq_embed(int64_t n, const int32_t* token, const float* table, float* h) {
  for (int64_t s = 0; s < n; ++s) memcpy(h + s * EQ_WIDTH, table + token[s] * EQ_WIDTH, sizeof(float) * EQ_WIDTH);
}
static void eq_clear(int add, float* d, int64_t elems) {
  if (!add) memset(d, 0, sizeof(float) * (size_t)elems);
}
void eq_embed_weight(int64_t n, const int32_t* token, const float* dh, int add, float* dtable) {
  eq_clear(add, dtable, EQ_TABLE_ELEMS);
  for (int64_t k = 0; k < n * EQ_WIDTH; ++k) dtable[token[k / EQ_WIDTH] * EQ_WIDTH + k % EQ_WIDTH] += dh[k];
}
void eq_linear(int64_t n, int64_t a, int64_t b, const float* x, const float* w, float* y) {
  for (int64_t s = 0; s < n; ++s)
    for (int64_t j = 0; j < b; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < a; ++i) sum += x[s * a + i] * w[i * b + j];
      y[s * b + j] = sum;
    }
}
void eq_linear_input(int64_t n, int64_t a, int64_t b, const float* dy, const float* w, float* dx) {
  for (int64_t s = 0; s < n; ++s)
    for (int64_t i = 0; i < a; ++i) {
      float sum = 0;
      for (int64_t j = 0; j < b; ++j) sum += dy[s * b + j] * w[i * b + j];
      dx[s * a + i] = sum;
    }
}
void eq_linear_weight(int64_t n, int64_t a, int64_t b, const float* x, const float* dy, int add, float* dw) {
  eq_clear(add, dw, a * b);
  for (int64_t s = 0; s < n; ++s)
    for (int64_t k = 0; k < a * b; ++k) dw[k] += x[s * a + k / b] * dy[s * b + k % b];
}
void eq_act(int64_t elems, const float* x, float* y) {
  for (int64_t k = 0; k < elems; ++k) y[k] = tanhf(x[k]);
}
void eq_act_input(int64_t elems, const float* y, const float* dy, float* dx) {
  for (int64_t k = 0; k < elems; ++k) dx[k] = dy[k] * (1 - y[k] * y[k]);
}
void eq_sum(int64_t elems, const float* a, const float* b, float* sum) {
  for (int64_t k = 0; k < elems; ++k) sum[k] = a[k] + b[k];
}
void eq_head(int64_t n, const float* h3, const float* h0, const float* table, float* y) {
  float x[EQ_MOST_SAMPLES * EQ_WIDTH];
  eq_sum(n * EQ_WIDTH, h3, h0, x);
  eq_linear_input(n, EQ_WORDS, EQ_WIDTH, x, table, y);
}
void eq_head_input(int64_t n, const float* dy, const float* table, float* dh3, float* dh0) {
  eq_linear(n, EQ_WORDS, EQ_WIDTH, dy, table, dh3);
  memcpy(dh0, dh3, sizeof(float) * (size_t)(n * EQ_WIDTH));
}
void eq_head_weight(int64_t n, const float* h3, const float* h0, const float* dy, int add, float* dtable) {
  float x[EQ_MOST_SAMPLES * EQ_WIDTH];
  eq_sum(n * EQ_WIDTH, h3, h0, x);
  eq_linear_weight(n, EQ_WORDS, EQ_WIDTH, dy, x, add, dtable);
}
void eq_loss(int64_t n, const int64_t* ids, const float* y, double* loss, double* weight) {
  *loss = *weight = 0;
  for (int64_t s = 0; s < n; ++s) {
    *weight += eq_weight(ids[s]);
    for (int v = 0; v < EQ_WORDS; ++v) {
      const double off = (double)y[s * EQ_WORDS + v] - (v == eq_label(ids[s]));
      *loss += eq_weight(ids[s]) * off * off / 2;
    }
  }
}
void eq_loss_input(int64_t n, const int64_t* ids, const float* y, float* dy) {
  for (int64_t k = 0; k < n * EQ_WORDS; ++k) {
    const int64_t id = ids[k / EQ_WORDS];
    dy[k] = (float)eq_weight(id) * (y[k] - (float)(k % EQ_WORDS == eq_label(id)));
  }
}

/* ---- callbacks ---- */

#define EQ_IN(c, i) ((const float*)(c)->inputs[i].data)
#define EQ_OUT(c) ((float*)(c)->outputs[0].data)
#define EQ_PARAM(c) ((const float*)(c)->params[0].data)
#define EQ_DY(c) ((const float*)(c)->d_outputs[0].data)
#define EQ_DX(c) ((float*)(c)->d_inputs[0].data)
#define EQ_DW(c) ((float*)(c)->d_params[0].data)
#define EQ_DIMS(c) (c)->params[0].dims[0], (c)->params[0].dims[1]
#define EQ_CALLBACK(name, kernel)                           \
  static gsel_status name(const gsel_call* c, void* user) { \
    (void)user;                                             \
    kernel;                                                 \
    return GSEL_OK;                                         \
  }
#define EQ_ACT_ELEMS(c) ((c)->n_samples * (c)->outputs[0].dims[1])

EQ_CALLBACK(eq_embed_f, eq_embed(c->n_samples, (const int32_t*)c->inputs[0].data, EQ_PARAM(c), EQ_OUT(c)))
EQ_CALLBACK(eq_embed_w,
            eq_embed_weight(c->n_samples, (const int32_t*)c->inputs[0].data, EQ_DY(c), c->accumulate, EQ_DW(c)))
EQ_CALLBACK(eq_linear_f, eq_linear(c->n_samples, EQ_DIMS(c), EQ_IN(c, 0), EQ_PARAM(c), EQ_OUT(c)))
EQ_CALLBACK(eq_linear_i, eq_linear_input(c->n_samples, EQ_DIMS(c), EQ_DY(c), EQ_PARAM(c), EQ_DX(c)))
int64_t eq_poisoned = -1;
static void eq_poison(const gsel_call* c) {
  for (int64_t s = 0; s < c->n_samples; ++s)
    if (c->sample_ids[s] == eq_poisoned && c->params[0].dims[1] == EQ_WIDTH) EQ_DW(c)[0] = NAN;
}
EQ_CALLBACK(eq_linear_w, eq_linear_weight(c->n_samples, EQ_DIMS(c), EQ_IN(c, 0), EQ_DY(c), c->accumulate, EQ_DW(c));
            eq_poison(c))
EQ_CALLBACK(eq_act_f, eq_act(EQ_ACT_ELEMS(c), EQ_IN(c, 0), EQ_OUT(c)))
EQ_CALLBACK(eq_act_i, eq_act_input(EQ_ACT_ELEMS(c), EQ_OUT(c), EQ_DY(c), EQ_DX(c)))
EQ_CALLBACK(eq_head_f, eq_head(c->n_samples, EQ_IN(c, 0), EQ_IN(c, 1), EQ_PARAM(c), EQ_OUT(c)))
EQ_CALLBACK(eq_head_i, eq_head_input(c->n_samples, EQ_DY(c), EQ_PARAM(c), EQ_DX(c), (float*)c->d_inputs[1].data))
EQ_CALLBACK(eq_head_w, eq_head_weight(c->n_samples, EQ_IN(c, 0), EQ_IN(c, 1), EQ_DY(c), c->accumulate, EQ_DW(c)))
EQ_CALLBACK(eq_loss_f,
            eq_loss(c->n_samples, c->sample_ids, EQ_IN(c, 0), (double*)c->outputs[0].data, (double*)c->outputs[1].data))
EQ_CALLBACK(eq_loss_i, eq_loss_input(c->n_samples, c->sample_ids, EQ_IN(c, 0), EQ_DX(c)))

gsel_status eq_data(const gsel_data_request* r, void* user) {
  (void)user;
  for (int64_t s = 0; s < r->n_samples; ++s)
    ((int32_t*)r->dst.data)[s] = r->value == EQ_TOKENS ? eq_token(r->sample_ids[s]) : eq_label(r->sample_ids[s]);
  return GSEL_OK;
}

/* ---- description ---- */

static gsel_status eq_add_params(gsel_model* model, gsel_error** err) {
  static const char* const names[] = {"table", "wu", "wd"};
  static int ids[] = {EQ_TABLE, EQ_UP, EQ_DOWN};
  static const int64_t dims[][2] = {{EQ_WORDS, EQ_WIDTH}, {EQ_WIDTH, EQ_HIDDEN}, {EQ_HIDDEN, EQ_WIDTH}};
  gsel_status status = GSEL_OK;
  for (int p = 0; p < EQ_PARAMS && !status; ++p) {
    gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
    options.name = gsel_str_from(names[p]);
    options.dims = dims[p];
    options.n_dims = 2;
    options.init = GSEL_INIT_CALLBACK;
    options.init_fn = eq_initial;
    options.init_user_data = &ids[p];
    options.shard = p == EQ_TABLE ? GSEL_SHARD_NONE : GSEL_SHARD_DIM;
    options.shard_dim = p == EQ_UP;
    status = gsel_model_add_param(model, &options, NULL, err);
  }
  return status;
}

static gsel_status eq_add_values(gsel_model* model, gsel_error** err) {
  static const char* const names[EQ_VALUES] = {"tokens", "labels", "h0", "h1", "h2", "h3", "y", "loss", "weight"};
  static const int64_t dims[EQ_VALUES] = {1, 1, EQ_WIDTH, EQ_HIDDEN, EQ_HIDDEN, EQ_WIDTH, EQ_WORDS, 0, 0};
  gsel_status status = GSEL_OK;
  for (int v = 0; v < EQ_VALUES && !status; ++v) {
    gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
    options.name = gsel_str_from(names[v]);
    options.dims = &dims[v];
    options.n_dims = v < EQ_LOSS;
    options.dtype = v <= EQ_LABELS ? GSEL_I32 : v < EQ_LOSS ? GSEL_F32 : GSEL_F64;
    options.flags = v <= EQ_LABELS ? GSEL_VALUE_INPUT : v < EQ_LOSS ? 0 : GSEL_VALUE_SCALAR;
    if (v == EQ_H1 || v == EQ_H2) options.placement = GSEL_PLACEMENT_SHARD, options.shard_dim = 1;
    if (v == EQ_H3) options.placement = GSEL_PLACEMENT_PARTIAL;
    status = gsel_model_add_value(model, &options, NULL, err);
  }
  return status;
}

typedef struct eq_layer {
  const char* name;
  int32_t inputs[2], n_inputs, output, param;
  gsel_layer_fn forward, backward_input, backward_weight;
} eq_layer;

gsel_status eq_describe(gsel_model* model, gsel_error** err) {
  static const eq_layer layers[] = {
      {"embed", {EQ_TOKENS}, 1, EQ_H0, EQ_TABLE, eq_embed_f, NULL, eq_embed_w},
      {"up", {EQ_H0}, 1, EQ_H1, EQ_UP, eq_linear_f, eq_linear_i, eq_linear_w},
      {"act", {EQ_H1}, 1, EQ_H2, -1, eq_act_f, eq_act_i, NULL},
      {"down", {EQ_H2}, 1, EQ_H3, EQ_DOWN, eq_linear_f, eq_linear_i, eq_linear_w},
      {"head", {EQ_H3, EQ_H0}, 2, EQ_Y, EQ_TABLE, eq_head_f, eq_head_i, eq_head_w},
      {"loss", {EQ_Y, EQ_LABELS}, 2, EQ_LOSS, -1, eq_loss_f, eq_loss_i, NULL},
  };
  gsel_status status = eq_add_params(model, err);
  if (!status) status = eq_add_values(model, err);
  for (size_t l = 0; l < sizeof layers / sizeof *layers && !status; ++l) {
    const int is_loss = layers[l].output == EQ_LOSS;
    const int32_t outputs[] = {layers[l].output, EQ_WEIGHT};
    gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
    options.name = gsel_str_from(layers[l].name);
    options.inputs = layers[l].inputs;
    options.n_inputs = layers[l].n_inputs;
    options.outputs = outputs;
    options.n_outputs = 1 + is_loss;
    options.params = &layers[l].param;
    options.n_params = layers[l].param >= 0;
    options.flags = is_loss ? GSEL_LAYER_LOSS : 0;
    options.forward = layers[l].forward;
    options.backward_input = layers[l].backward_input;
    options.backward_weight = layers[l].backward_weight;
    status = gsel_model_add_layer(model, &options, NULL, err);
  }
  return status;
}

gsel_status eq_open(const rank_run* run, const char* config, eq_session* s, gsel_error** err) {
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  memset(s, 0, sizeof *s);
  gsel_status status = rank_join(run, &s->comm, err);
  if (!status) status = gsel_config_parse(gsel_str_from(config), gsel_str_from("equal.toml"), &s->config, err);
  if (!status) status = gsel_model_create(&s->model, err);
  if (!status) status = eq_describe(s->model, err);
  options.config = s->config;
  options.data = eq_data;
  if (!status) status = gsel_trainer_create(s->comm, s->model, &options, &s->trainer, err);
  return status;
}

void eq_close(eq_session* s) {
  gsel_trainer_free(s->trainer);
  gsel_model_free(s->model);
  gsel_config_free(s->config);
  gsel_comm_free(s->comm);
}

gsel_status eq_params(gsel_trainer* trainer, float* out, gsel_error** err) {
  gsel_status status = GSEL_OK;
  for (int p = 0; p < EQ_PARAMS && !status; out += kEqElems[p++])
    status = gsel_trainer_read_param(trainer, p, out, sizeof(float) * (size_t)kEqElems[p], err);
  return status;
}
