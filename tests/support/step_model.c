/* See step_model.h. */
#include "support/step_model.h"

#include <math.h>

gsel_status step_forward(const gsel_call* c, void* user) {
  const float *x = (const float*)c->inputs[0].data, *a = (const float*)c->params[STEP_A].data,
              *b = (const float*)c->params[STEP_B].data;
  float* y = (float*)c->outputs[0].data;
  (void)user;
  for (int64_t i = 0; i < c->n_samples * STEP_WIDTH; ++i) y[i] = a[i % STEP_WIDTH] * x[i] + b[i % STEP_WIDTH];
  return GSEL_OK;
}

gsel_status step_forward_bf16(const gsel_call* c, void* user) {
  gsel_call wide = *c;
  float values[STEP_PARAMS][STEP_WIDTH];
  gsel_tensor params[STEP_PARAMS];
  for (int p = 0; p < STEP_PARAMS; ++p) {
    if (c->params[p].dtype != GSEL_BF16) return GSEL_ERR_INTERNAL;
    for (int i = 0; i < STEP_WIDTH; ++i) {
      const uint32_t bits = (uint32_t)((const uint16_t*)c->params[p].data)[i] << 16;
      memcpy(&values[p][i], &bits, sizeof bits);
    }
    params[p] = c->params[p];
    params[p].data = values[p];
  }
  wide.params = params;
  return step_forward(&wide, user);
}

void step_clear(const gsel_call* c, int p) {
  if (!c->accumulate) memset(c->d_params[p].data, 0, sizeof(float) * STEP_WIDTH);
}

gsel_status step_backward(const gsel_call* c, void* user) {
  const float *x = (const float*)c->inputs[0].data, *dy = (const float*)c->d_outputs[0].data;
  float *da = (float*)c->d_params[STEP_A].data, *db = (float*)c->d_params[STEP_B].data;
  (void)user;
  step_clear(c, STEP_A);
  step_clear(c, STEP_B);
  for (int64_t i = 0; i < c->n_samples * STEP_WIDTH; ++i) {
    da[i % STEP_WIDTH] += dy[i] * x[i];
    db[i % STEP_WIDTH] += dy[i];
  }
  return GSEL_OK;
}

gsel_status step_loss_forward(const gsel_call* c, void* user) {
  const float* y = (const float*)c->inputs[0].data;
  double sum = 0;
  (void)user;
  for (int64_t i = 0; i < c->n_samples * STEP_WIDTH; ++i) sum += (double)y[i] * y[i] / 2;
  *(double*)c->outputs[0].data = sum;
  *(double*)c->outputs[1].data = (double)c->n_samples;
  return GSEL_OK;
}
gsel_status step_loss_backward(const gsel_call* c, void* user) {
  (void)user;
  memcpy(c->d_inputs[0].data, c->inputs[0].data, sizeof(float) * STEP_WIDTH * (size_t)c->n_samples);
  return GSEL_OK;
}

float step_sample(int64_t id, int i) {
  return (float)((id * 7 + i * 3 + id * id) % 5 - 2);
}
gsel_status step_data(const gsel_data_request* r, void* user) {
  (void)user;
  for (int64_t s = 0; s < r->n_samples; ++s)
    for (int i = 0; i < STEP_WIDTH; ++i) ((float*)r->dst.data)[s * STEP_WIDTH + i] = step_sample(r->sample_ids[s], i);
  return GSEL_OK;
}

gsel_status step_initial(float* dst, int64_t first, int64_t count, uint64_t seed, void* user) {
  (void)seed, (void)user;
  for (int64_t i = 0; i < count; ++i) dst[i] = (float)((first + i) % 3 + 1);
  return GSEL_OK;
}

gsel_status step_describe(gsel_model* model, const step_model* m, gsel_error** err) {
  static const char* const values[STEP_VALUES] = {"x", "y", "loss", "weight"};
  static const int32_t x = STEP_X, y = STEP_Y, losses[] = {STEP_LOSS, STEP_WEIGHT}, params[] = {STEP_A, STEP_B};
  const int64_t width = STEP_WIDTH;
  gsel_status status = GSEL_OK;
  for (int p = 0; p < STEP_PARAMS && !status; ++p) {
    gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
    options.name = gsel_str_from(p == STEP_A ? "a" : "b");
    options.dims = &width;
    options.n_dims = 1;
    options.dtype = m->dtype;
    options.init = GSEL_INIT_CALLBACK;
    options.init_fn = m->init ? m->init : step_initial;
    options.init_user_data = (void*)(uintptr_t)m;
    if (m->vary) m->vary(&options, NULL, NULL, m);
    status = gsel_model_add_param(model, &options, NULL, err);
  }
  for (int v = 0; v < STEP_VALUES && !status; ++v) {
    gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
    options.name = gsel_str_from(values[v]);
    options.dims = &width;
    options.n_dims = v < STEP_LOSS;
    options.dtype = v >= STEP_LOSS ? GSEL_F64 : v == STEP_Y ? m->output : GSEL_F32;
    options.flags = v == STEP_X ? GSEL_VALUE_INPUT : v < STEP_LOSS ? 0 : GSEL_VALUE_SCALAR;
    if (m->vary) m->vary(NULL, &options, NULL, m);
    status = gsel_model_add_value(model, &options, NULL, err);
  }
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT, loss = GSEL_LAYER_OPTIONS_INIT;
  layer.name = gsel_str_from("line");
  layer.inputs = &x;
  layer.outputs = &y;
  layer.params = params;
  layer.n_inputs = layer.n_outputs = 1;
  layer.n_params = STEP_PARAMS;
  layer.saved_bytes_per_sample = m->saved_bytes_per_sample;
  layer.forward = m->forward ? m->forward : step_forward;
  layer.backward = m->backward ? m->backward : step_backward;
  layer.forward_phases = m->forward_phases;
  layer.backward_phases = m->backward_phases;
  layer.n_forward_phases = m->n_forward_phases;
  layer.n_backward_phases = m->n_backward_phases;
  layer.user_data = (void*)(uintptr_t)m;
  if (m->vary) m->vary(NULL, NULL, &layer, m);
  if (!status) status = gsel_model_add_layer(model, &layer, NULL, err);
  loss.name = gsel_str_from("loss");
  loss.inputs = &y;
  loss.outputs = losses;
  loss.n_inputs = 1;
  loss.n_outputs = 2;
  loss.flags = GSEL_LAYER_LOSS;
  loss.forward = m->loss_forward ? m->loss_forward : step_loss_forward;
  loss.backward_input = m->loss_backward ? m->loss_backward : step_loss_backward;
  loss.user_data = (void*)(uintptr_t)m;
  if (!status) status = gsel_model_add_layer(model, &loss, NULL, err);
  return status;
}

gsel_status step_open(const rank_run* run, const step_model* m, step_session* s, gsel_error** err) {
  memset(s, 0, sizeof *s);
  s->m = *m;
  s->m.rank = run->rank;
  s->m.world_size = run->world_size;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_status status = rank_join(run, &s->comm, err);
  if (!status) status = gsel_config_parse(gsel_str_from(m->config), gsel_str_from("step.toml"), &s->config, err);
  if (!status) status = gsel_model_create(&s->model, err);
  if (!status) status = step_describe(s->model, &s->m, err);
  options.config = s->config;
  options.data = m->data ? m->data : step_data;
  options.data_user_data = &s->m;
  options.optimizer = m->optimizer;
  if (!status) status = gsel_trainer_create(s->comm, s->model, &options, &s->trainer, err);
  return status;
}

void step_close(step_session* s) {
  gsel_trainer_free(s->trainer);
  gsel_model_free(s->model);
  gsel_config_free(s->config);
  gsel_comm_free(s->comm);
}

gsel_status step_params(gsel_trainer* trainer, float* out, gsel_error** err) {
  const gsel_status status = gsel_trainer_read_param(trainer, STEP_A, out, sizeof(float) * STEP_WIDTH, err);
  return status ? status : gsel_trainer_read_param(trainer, STEP_B, out + STEP_WIDTH, sizeof(float) * STEP_WIDTH, err);
}

const char* const kStepStrategies[] = {STEP_DDP, STEP_ZERO("1"), STEP_ZERO("2"), STEP_ZERO("3")};

const char* const kStepEachStrategy[] = {
    "",
    "[strategy.data]\nplugin = \"dp\"\n",
    STEP_DDP,
    STEP_ZERO("1"),
    STEP_ZERO("2"),
    STEP_ZERO("3"),
    "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\n",
    "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\npost_validate = \"on\"\n",
};
