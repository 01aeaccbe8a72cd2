/* See pipe_model.h. */
#include "support/pipe_model.h"

#include <math.h>

static float pipe_w(int i) {
  static const float w[] = {2, 1, -1, 2, 1, -1};
  return w[i % 6];
}
static int pipe_token(int64_t id) {
  return (int)((id * 7 + 3 + id * id) % 5) - 2;
}
static int pipe_label(int64_t id) {
  return (int)(id * 3 % 7) - 3;
}
static int pipe_reads_kind(int i) {
  return i == 2 || i % 3 == 1;
}
static int pipe_reads_skip(int i) {
  return i >= 4;
}

/* ---- by hand ---- */

static void pipe_one(int layers, int64_t id, int d, pipe_result* r) {
  const int n = layers - 1, kind = pipe_token(id) & 1;
  float h[PIPE_MOST_LAYERS] = {0}, g[PIPE_MOST_LAYERS] = {0};
  h[0] = (float)pipe_token(id) + pipe_w(0) * (float)(d + 1);
  for (int i = 1; i < n; ++i)
    h[i] = pipe_w(i) * (h[i - 1] + (float)(pipe_reads_kind(i) ? kind : 0)) + (pipe_reads_skip(i) ? h[i - 3] : 0);
  const float off = h[n - 1] - (float)pipe_label(id);
  r->loss += fabs(off);
  r->out[id][d] = h[n - 1] + (float)pipe_label(id);
  g[n - 1] = (float)((off > 0) - (off < 0));
  for (int i = n - 1; i > 0; --i) {
    r->dw[i] += (double)(g[i] * (h[i - 1] + (float)(pipe_reads_kind(i) ? kind : 0)));
    g[i - 1] += pipe_w(i) * g[i];
    if (pipe_reads_skip(i)) g[i - 3] += g[i];
  }
  r->dw[0] += (double)(g[0] * (float)(d + 1));
}

pipe_result pipe_by_hand(int layers, int64_t first, int64_t end) {
  pipe_result r;
  memset(&r, 0, sizeof r);
  for (int64_t id = first; id < end; ++id)
    for (int d = 0; d < PIPE_WIDTH; ++d) pipe_one(layers, id, d, &r);
  return r;
}

/* ---- callbacks ---- */

static const float* pipe_in(const gsel_call* c, int i) {
  return (const float*)c->inputs[i].data;
}

static gsel_status pipe_count(const gsel_call* c, const pipe_layer* l, int backward, int by) {
  pipe_model* m = l->m;
  int* calls = backward ? m->backwards : m->forwards;
  calls[l->i] += by;
  if (m->watch) m->watch(m, l->i);
  if (!m->fail_at_call || l->i != m->fail_layer || backward != m->fail_backward || calls[l->i] / 2 != m->fail_at_call)
    return GSEL_OK;
  if (m->at_failure) m->at_failure();
  snprintf(c->message, c->message_capacity, "the numbers were not right");
  return GSEL_ERR_CALLBACK;
}

static gsel_status pipe_embed(const gsel_call* c, void* user) {
  float* h = (float*)c->outputs[0].data;
  const int32_t* token = (const int32_t*)c->inputs[0].data;
  for (int64_t s = 0; s < c->n_samples; ++s) {
    ((int32_t*)c->outputs[1].data)[s] = token[s] & 1;
    for (int d = 0; d < PIPE_WIDTH; ++d) h[s * PIPE_WIDTH + d] = (float)token[s] + pipe_w(0) * (float)(d + 1);
  }
  return pipe_count(c, (pipe_layer*)user, 0, 2);
}
static gsel_status pipe_embed_weight(const gsel_call* c, void* user) {
  pipe_layer* l = (pipe_layer*)user;
  const float* g = (const float*)c->d_outputs[0].data;
  for (int64_t k = 0; k < c->n_samples * PIPE_WIDTH; ++k) l->m->dw[0] += (double)(g[k] * (float)(k % PIPE_WIDTH + 1));
  return pipe_count(c, l, 1, 2);
}

/* Inputs of mix.i: h(i-1), then h(i-3) and kind, if it reads them. */
static float pipe_term(const gsel_call* c, int i, int64_t k) {
  const int slot = 1 + pipe_reads_skip(i);
  const float kind = pipe_reads_kind(i) ? (float)((const int32_t*)c->inputs[slot].data)[k / PIPE_WIDTH] : 0;
  return pipe_in(c, 0)[k] + kind;
}
gsel_status pipe_mix(const gsel_call* c, void* user) {
  pipe_layer* l = (pipe_layer*)user;
  float *h = (float*)c->outputs[0].data, *saved = (float*)c->saved;
  for (int64_t k = 0; k < c->n_samples * PIPE_WIDTH; ++k) {
    h[k] = pipe_w(l->i) * pipe_term(c, l->i, k) + (pipe_reads_skip(l->i) ? pipe_in(c, 1)[k] : 0);
    if (saved) saved[k] = pipe_term(c, l->i, k);
  }
  return pipe_count(c, l, 0, 2);
}
static void pipe_mix_inputs(const gsel_call* c, const pipe_layer* l) {
  const float* g = (const float*)c->d_outputs[0].data;
  for (int64_t k = 0; k < c->n_samples * PIPE_WIDTH; ++k) {
    ((float*)c->d_inputs[0].data)[k] = pipe_w(l->i) * g[k];
    if (pipe_reads_skip(l->i)) ((float*)c->d_inputs[1].data)[k] = g[k];
  }
}
static void pipe_mix_weights(const gsel_call* c, const pipe_layer* l) {
  const float *g = (const float*)c->d_outputs[0].data, *saved = (const float*)c->saved;
  for (int64_t k = 0; k < c->n_samples * PIPE_WIDTH; ++k)
    l->m->dw[l->i] += (double)(g[k] * (saved ? saved[k] : pipe_term(c, l->i, k)));
}
static gsel_status pipe_mix_backward(const gsel_call* c, void* user) {
  pipe_mix_inputs(c, (pipe_layer*)user);
  pipe_mix_weights(c, (pipe_layer*)user);
  return pipe_count(c, (pipe_layer*)user, 1, 2);
}
static gsel_status pipe_mix_input(const gsel_call* c, void* user) {
  pipe_mix_inputs(c, (pipe_layer*)user);
  return pipe_count(c, (pipe_layer*)user, 1, 1);
}
static gsel_status pipe_mix_weight(const gsel_call* c, void* user) {
  pipe_mix_weights(c, (pipe_layer*)user);
  return pipe_count(c, (pipe_layer*)user, 1, 1);
}

static gsel_status pipe_loss(const gsel_call* c, void* user) {
  const int32_t* label = (const int32_t*)c->inputs[1].data;
  double sum = 0;
  for (int64_t k = 0; k < c->n_samples * PIPE_WIDTH; ++k) sum += fabsf(pipe_in(c, 0)[k] - (float)label[k / PIPE_WIDTH]);
  *(double*)c->outputs[0].data = sum;
  *(double*)c->outputs[1].data = (double)c->n_samples;
  return pipe_count(c, (pipe_layer*)user, 0, 2);
}
static gsel_status pipe_loss_backward(const gsel_call* c, void* user) {
  const int32_t* label = (const int32_t*)c->inputs[1].data;
  for (int64_t k = 0; k < c->n_samples * PIPE_WIDTH; ++k) {
    const float off = pipe_in(c, 0)[k] - (float)label[k / PIPE_WIDTH];
    ((float*)c->d_inputs[0].data)[k] = (float)((off > 0) - (off < 0));
  }
  return pipe_count(c, (pipe_layer*)user, 1, 2);
}
static gsel_status pipe_sink(const gsel_call* c, void* user) {
  pipe_layer* l = (pipe_layer*)user;
  const int32_t* label = (const int32_t*)c->inputs[1].data;
  for (int64_t k = 0; k < c->n_samples * PIPE_WIDTH; ++k)
    l->m->out[c->sample_ids[k / PIPE_WIDTH] % PIPE_MOST_SAMPLES][k % PIPE_WIDTH] =
        pipe_in(c, 0)[k] + (float)label[k / PIPE_WIDTH];
  return pipe_count(c, l, 0, 2);
}

gsel_status pipe_data(const gsel_data_request* r, void* user) {
  pipe_model* m = (pipe_model*)user;
  if (m->ends_at && r->sample_ids[0] >= m->ends_at) return GSEL_NO_SAMPLES;
  ++m->inputs[r->value];
  for (int64_t s = 0; s < r->n_samples; ++s)
    ((int32_t*)r->dst.data)[s] = r->value ? pipe_label(r->sample_ids[s]) : pipe_token(r->sample_ids[s]);
  return GSEL_OK;
}

/* ---- description ---- */

gsel_status pipe_add_value(gsel_model* model, const char* name, int64_t elems, gsel_dtype dtype, uint32_t flags,
                           gsel_error** err) {
  gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
  options.name = gsel_str_from(name);
  options.dims = &elems;
  options.n_dims = elems > 0;
  options.dtype = dtype;
  options.flags = flags;
  return gsel_model_add_value(model, &options, NULL, err);
}

static gsel_status pipe_add_values(gsel_model* model, const pipe_model* m, gsel_error** err) {
  char name[16];
  gsel_status status = pipe_add_value(model, "tokens", 1, GSEL_I32, GSEL_VALUE_INPUT, err);
  if (!status) status = pipe_add_value(model, "labels", 1, GSEL_I32, GSEL_VALUE_INPUT, err);
  if (!status) status = pipe_add_value(model, "kind", 1, GSEL_I32, 0, err);
  for (int i = 0; i < m->layers - 1 && !status; ++i) {
    snprintf(name, sizeof name, "h%d", i);
    status = pipe_add_value(model, name, PIPE_WIDTH + (m->wide_layer && i == m->wide_layer), GSEL_F32, 0, err);
  }
  if (!status && !m->without_loss) status = pipe_add_value(model, "loss", 0, GSEL_F64, GSEL_VALUE_SCALAR, err);
  if (!status && !m->without_loss) status = pipe_add_value(model, "weight", 0, GSEL_F64, GSEL_VALUE_SCALAR, err);
  return status;
}

static uint32_t pipe_flags(const pipe_model* m, int i) {
  return m->unflagged >> i & 1 ? 0 : GSEL_LAYER_OWN_PARAMS;
}

static gsel_status pipe_add_mix(gsel_model* model, pipe_model* m, int i, gsel_error** err) {
  char name[16];
  int32_t in[3] = {PIPE_H0 + i - 1}, n_in = 1, out = PIPE_H0 + i;
  if (pipe_reads_skip(i)) in[n_in++] = PIPE_H0 + i - 3;
  if (pipe_reads_kind(i)) in[n_in++] = PIPE_KIND;
  gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
  snprintf(name, sizeof name, "mix.%d", i);
  options.name = gsel_str_from(name);
  options.inputs = in;
  options.n_inputs = n_in;
  options.outputs = &out;
  options.n_outputs = 1;
  options.flags = pipe_flags(m, i);
  options.forward = pipe_mix;
  if (i == 2) {
    options.backward = pipe_mix_backward;
    options.saved_bytes_per_sample = PIPE_WIDTH * sizeof(float);
    options.backward_input_unread = options.backward_weight_unread = GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_INPUT(1);
  } else {
    options.backward_input = pipe_mix_input;
    options.backward_weight = pipe_mix_weight;
    if (i == 5) options.backward = pipe_mix_backward;
  }
  options.user_data = &m->layer[i];
  return gsel_model_add_layer(model, &options, NULL, err);
}

gsel_status pipe_describe(gsel_model* model, pipe_model* m, gsel_error** err) {
  static const int32_t tokens = PIPE_TOKENS, embedded[] = {PIPE_H0, PIPE_KIND};
  const int last = m->layers - 1;
  const int32_t read[] = {PIPE_H0 + last - 1, PIPE_LABELS}, losses[] = {PIPE_H0 + last, PIPE_H0 + last + 1};
  for (int i = 0; i < m->layers; ++i) m->layer[i] = (pipe_layer){m, i};
  gsel_status status = pipe_add_values(model, m, err);
  if (m->declares && !status) {
    const int64_t dim = 4;
    gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
    param.name = gsel_str_from("w");
    param.dims = &dim;
    param.n_dims = 1;
    status = gsel_model_add_param(model, &param, NULL, err);
  }
  static const int32_t w = 0;
  gsel_layer_options embed = GSEL_LAYER_OPTIONS_INIT, end = GSEL_LAYER_OPTIONS_INIT;
  embed.name = gsel_str_from("embed");
  embed.inputs = &tokens;
  embed.n_inputs = 1;
  embed.outputs = embedded;
  embed.n_outputs = 2;
  embed.params = &w;
  embed.n_params = m->declares != 0;
  embed.flags = pipe_flags(m, 0);
  embed.forward = pipe_embed;
  embed.backward_weight = pipe_embed_weight;
  embed.user_data = &m->layer[0];
  if (!status) status = gsel_model_add_layer(model, &embed, NULL, err);
  for (int i = 1; i < last && !status; ++i) status = pipe_add_mix(model, m, i, err);
  end.name = gsel_str_from("end");
  end.inputs = read;
  end.n_inputs = 2;
  end.outputs = losses;
  end.n_outputs = m->without_loss ? 0 : 2;
  end.flags = m->without_loss ? 0 : GSEL_LAYER_LOSS;
  end.forward = m->without_loss ? pipe_sink : pipe_loss;
  end.backward_input = m->without_loss ? NULL : pipe_loss_backward;
  end.user_data = &m->layer[last];
  if (!status) status = gsel_model_add_layer(model, &end, NULL, err);
  return status;
}

/* ---- everything one rank holds ---- */

gsel_status pipe_open(const rank_run* run, const pipe_model* m, const gsel_pipeline_options* options, pipe_session* s,
                      gsel_error** err) {
  memset(s, 0, sizeof *s);
  s->m = *m;
  s->m.rank = run->rank;
  gsel_pipeline_options given = *options;
  given.data = pipe_data;
  given.data_user_data = &s->m;
  gsel_status status = rank_join(run, &s->comm, err);
  if (!status) status = gsel_model_create(&s->model, err);
  if (!status) status = pipe_describe(s->model, &s->m, err);
  if (!status) status = gsel_pipeline_create(s->comm, s->model, &given, &s->pipeline, err);
  return status;
}

void pipe_close(pipe_session* s) {
  gsel_pipeline_free(s->pipeline);
  gsel_model_free(s->model);
  gsel_comm_free(s->comm);
}
