/* See checked_model.h. */
#include "support/checked_model.h"

float* ck_data(const gsel_tensor* t) {
  return (float*)t->data;
}
void ck_clear(const gsel_call* c) {
  for (int p = 0; p < c->n_params && !c->accumulate; ++p)
    memset(c->d_params[p].data, 0, sizeof(float) * (size_t)c->d_params[p].n_elems);
}

/* ---- embed ---- */
float* ck_row(const gsel_call* c, const gsel_tensor* table, int64_t sample) {
  const gsel_shard* shard = &c->param_shards[0];
  const int64_t row = ((const int32_t*)c->inputs[0].data)[sample] - (shard->dim < 0 ? 0 : shard->begin);
  return row < 0 || row >= table->dims[0] ? NULL : ck_data(table) + row * CK_WIDTH;
}
gsel_status ck_embed(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t s = 0; s < c->n_samples; ++s)
    for (int i = 0; i < CK_WIDTH; ++i) {
      const float* row = ck_row(c, &c->params[0], s);
      ck_data(&c->outputs[0])[s * CK_WIDTH + i] = row ? row[i] : 0;
    }
  return GSEL_OK;
}
gsel_status ck_embed_weight(const gsel_call* c, void* user) {
  (void)user;
  ck_clear(c);
  for (int64_t s = 0; s < c->n_samples; ++s)
    for (int i = 0; i < CK_WIDTH; ++i) {
      float* row = ck_row(c, &c->d_params[0], s);
      if (row) row[i] += ck_data(&c->d_outputs[0])[s * CK_WIDTH + i];
    }
  return GSEL_OK;
}

/* ---- line ---- */
gsel_status ck_line(const gsel_call* c, void* user) {
  (void)user;
  const float *a = ck_data(&c->params[0]), *b = ck_data(&c->params[1]), *x = ck_data(&c->inputs[0]);
  for (int64_t i = 0; i < c->n_samples * CK_WIDTH; ++i) {
    ck_data(&c->outputs[0])[i] = a[i % CK_WIDTH] * x[i] + b[i % CK_WIDTH];
    ((float*)c->saved)[i] = x[i];
  }
  return GSEL_OK;
}
gsel_status ck_line_input(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->n_samples * CK_WIDTH; ++i)
    ck_data(&c->d_inputs[0])[i] = ck_data(&c->params[0])[i % CK_WIDTH] * ck_data(&c->d_outputs[0])[i];
  return GSEL_OK;
}
gsel_status ck_line_weight(const gsel_call* c, void* user) {
  (void)user;
  ck_clear(c);
  for (int64_t i = 0; i < c->n_samples * CK_WIDTH; ++i) {
    ck_data(&c->d_params[0])[i % CK_WIDTH] += ck_data(&c->d_outputs[0])[i] * ((const float*)c->saved)[i];
    ck_data(&c->d_params[1])[i % CK_WIDTH] += ck_data(&c->d_outputs[0])[i];
  }
  return GSEL_OK;
}
static gsel_status ck_line_both(const gsel_call* c, void* user) {
  ck_line_input(c, user);
  return ck_line_weight(c, user);
}

/* ---- line in another form: y = a x + b - the mean of x over the samples of all ranks ---- */
static void ck_sum_samples(const gsel_call* c, const gsel_tensor* of) {
  double* sums = (double*)c->reductions[0].data;
  memset(sums, 0, sizeof(double) * (CK_WIDTH + 1));
  sums[CK_WIDTH] = (double)c->n_samples;
  for (int64_t i = 0; i < c->n_samples * CK_WIDTH; ++i) sums[i % CK_WIDTH] += ck_data(of)[i];
}
static float ck_mean(const gsel_call* c, int64_t i) {
  const double* sums = (const double*)c->reductions[0].data;
  return (float)(sums[i % CK_WIDTH] / sums[CK_WIDTH]);
}
static gsel_status ck_centred(const gsel_call* c, void* user) {
  if (c->phase == 0) {
    ck_sum_samples(c, &c->inputs[0]);
    return GSEL_OK;
  }
  ck_line(c, user);
  for (int64_t i = 0; i < c->n_samples * CK_WIDTH; ++i) ck_data(&c->outputs[0])[i] -= ck_mean(c, i);
  return GSEL_OK;
}
static gsel_status ck_centred_both(const gsel_call* c, void* user) {
  if (c->phase == 0) {
    ck_sum_samples(c, &c->d_outputs[0]);
    return GSEL_OK;
  }
  ck_line_both(c, user);
  for (int64_t i = 0; i < c->n_samples * CK_WIDTH; ++i) ck_data(&c->d_inputs[0])[i] -= ck_mean(c, i);
  return GSEL_OK;
}

/* ---- loss ---- */
gsel_status ck_loss(const gsel_call* c, void* user) {
  double sum = 0;
  (void)user;
  for (int64_t i = 0; i < c->n_samples * CK_WIDTH; ++i)
    sum += (double)ck_data(&c->inputs[0])[i] * ck_data(&c->inputs[0])[i] / 2;
  *(double*)c->outputs[0].data = sum;
  *(double*)c->outputs[1].data = (double)c->n_samples;
  return GSEL_OK;
}
gsel_status ck_loss_input(const gsel_call* c, void* user) {
  (void)user;
  memcpy(c->d_inputs[0].data, c->inputs[0].data, sizeof(float) * CK_WIDTH * (size_t)c->n_samples);
  return GSEL_OK;
}

/* ---- description ---- */

static const gsel_layer_fn kRight[CK_LAYERS][GSEL_BACKWARD + 1] = {
    {NULL, NULL, ck_embed, NULL, ck_embed_weight, NULL},
    {NULL, NULL, ck_line, ck_line_input, ck_line_weight, ck_line_both},
    {NULL, NULL, ck_loss, ck_loss_input, NULL, NULL},
};

static gsel_status ck_add_pieces(gsel_model* model, gsel_error** err) {
  static const char *const params[] = {"table", "a", "b"}, *const values[] = {"tokens", "x", "y", "loss", "weight"};
  static const int64_t table[] = {CK_VOCAB, CK_WIDTH}, width = CK_WIDTH;
  gsel_status status = GSEL_OK;
  for (int p = 0; p < CK_PARAMS && !status; ++p) {
    gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
    options.name = gsel_str_from(params[p]);
    options.dims = p == CK_TABLE ? table : &width;
    options.n_dims = p == CK_TABLE ? 2 : 1;
    options.init = p == CK_A ? GSEL_INIT_ONES : p == CK_B ? GSEL_INIT_ZEROS : GSEL_INIT_NORMAL;
    options.init_scale = 1;
    options.shard = p == CK_TABLE ? GSEL_SHARD_DIM : GSEL_SHARD_NONE;
    status = gsel_model_add_param(model, &options, NULL, err);
  }
  for (int v = 0; v < CK_VALUES && !status; ++v) {
    gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
    options.name = gsel_str_from(values[v]);
    options.dims = &width;
    options.n_dims = v == CK_X || v == CK_Y;
    options.dtype = v == CK_TOKENS ? GSEL_I32 : v >= CK_LOSS ? GSEL_F64 : GSEL_F32;
    options.flags = v == CK_TOKENS ? GSEL_VALUE_INPUT : v >= CK_LOSS ? GSEL_VALUE_SCALAR : 0;
    options.placement = v == CK_X ? GSEL_PLACEMENT_PARTIAL : GSEL_PLACEMENT_REPLICATE;
    status = gsel_model_add_value(model, &options, NULL, err);
  }
  return status;
}

gsel_status ck_describe(gsel_model* model, const checked_model* m, gsel_error** err) {
  static const char* const names[] = {"embed", "line", "loss"};
  static const int32_t tokens = CK_TOKENS, x = CK_X, y = CK_Y, losses[] = {CK_LOSS, CK_WEIGHT}, table = CK_TABLE,
                       line[] = {CK_A, CK_B};
  static const int32_t *const inputs[] = {&tokens, &x, &y}, *const outputs[] = {&x, &y, losses},
                              *const params[] = {&table, line, NULL};
  gsel_status status = ck_add_pieces(model, err);
  for (int l = 0; l < CK_LAYERS && !status; ++l) {
    gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
    gsel_layer_fn fn[GSEL_BACKWARD + 1];
    for (int k = 0; k <= GSEL_BACKWARD; ++k) fn[k] = m->callbacks[l][k] ? m->callbacks[l][k] : kRight[l][k];
    options.name = gsel_str_from(names[l]);
    options.inputs = inputs[l];
    options.outputs = outputs[l];
    options.params = params[l];
    options.n_inputs = 1;
    options.n_outputs = l == CK_LOSS_LAYER ? 2 : 1;
    options.n_params = l == CK_EMBED ? 1 : l == CK_LINE ? 2 : 0;
    options.flags = m->flags[l] | (l == CK_LOSS_LAYER ? GSEL_LAYER_LOSS : 0);
    options.forward = fn[GSEL_FORWARD];
    options.backward_input = fn[GSEL_BACKWARD_INPUT];
    options.backward_weight = fn[GSEL_BACKWARD_WEIGHT];
    options.backward = fn[GSEL_BACKWARD];
    if (l == CK_LINE) {
      options.saved_bytes_per_sample = CK_WIDTH * sizeof(float);
      options.backward_input_unread = GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_OUTPUT(0) | GSEL_UNREAD_SAVED;
      options.backward_weight_unread = GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_OUTPUT(0);
      options.backward_unread_params = 2;
    }
    if (l == CK_LINE && m->is_centred) {
      static const gsel_phase sums = {.struct_size = sizeof(gsel_phase),
                                      .axis = GSEL_AXIS_DATA,
                                      .op = GSEL_SUM,
                                      .dtype = GSEL_F64,
                                      .elems = CK_WIDTH + 1};
      options.forward = ck_centred;
      options.backward = ck_centred_both;
      options.backward_input = options.backward_weight = NULL;
      options.forward_phases = options.backward_phases = &sums;
      options.n_forward_phases = options.n_backward_phases = 1;
    }
    status = gsel_model_add_layer(model, &options, NULL, err);
  }
  return status;
}
