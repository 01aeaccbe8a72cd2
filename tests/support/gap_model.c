/* See gap_model.h. */
#include "support/gap_model.h"

#include <math.h>

enum { V_LOSS = GAP_VALUES, V_WEIGHT, UNIT = 16 };

static const int kWidths[GAP_VALUES] = {2, 9, 2, 2, 3, 10, 1, 11, 9, 6, 8, 1, 11}; /* in units */
static const struct {
  int n, in[3];
} kLayers[GAP_VALUES] = {{0, {0}},       {1, {0}},    {1, {1}}, {2, {2, 0}}, {1, {3}},     {3, {4, 1, 2}}, {2, {5, 4}},
                         {3, {6, 5, 1}}, {2, {7, 5}}, {1, {8}}, {2, {9, 7}}, {2, {10, 6}}, {2, {11, 10}}};

static float sum_of_inputs(const gsel_call* c, int64_t i) {
  float sum = (float)(i % 5);
  for (int32_t k = 0; k < c->n_inputs; ++k) sum += ((const float*)c->inputs[k].data)[i % c->inputs[k].n_elems];
  return fmodf(sum, 17);
}
static gsel_status add_inputs(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i) ((float*)c->outputs[0].data)[i] = sum_of_inputs(c, i);
  return GSEL_OK;
}
static gsel_status weigh_inputs(const gsel_call* c, void* user) {
  const float w = *(const float*)c->params[0].data;
  (void)user;
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i) ((float*)c->outputs[0].data)[i] = w * sum_of_inputs(c, i);
  return GSEL_OK;
}
static gsel_status weigh_back(const gsel_call* c, void* user) {
  float* gradient = (float*)c->d_params[0].data;
  (void)user;
  if (!c->accumulate) *gradient = 0;
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i)
    *gradient += ((const float*)c->d_outputs[0].data)[i] * sum_of_inputs(c, i);
  return GSEL_OK;
}
static gsel_status sum_forward(const gsel_call* c, void* user) {
  double sum = 0;
  (void)user;
  for (int64_t i = 0; i < c->inputs[0].n_elems; ++i) sum += ((const float*)c->inputs[0].data)[i];
  *(double*)c->outputs[0].data = sum;
  *(double*)c->outputs[1].data = (double)c->n_samples;
  return GSEL_OK;
}
static gsel_status sum_back(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->d_inputs[0].n_elems; ++i) ((float*)c->d_inputs[0].data)[i] = 1;
  return GSEL_OK;
}
static gsel_status init_two(float* dst, int64_t first, int64_t count, uint64_t seed, void* user) {
  (void)first, (void)seed, (void)user;
  for (int64_t i = 0; i < count; ++i) dst[i] = 2;
  return GSEL_OK;
}

gsel_status gap_data(const gsel_data_request* r, void* user) {
  const int64_t each = r->n_samples ? r->dst.n_elems / r->n_samples : 0;
  (void)user;
  for (int64_t s = 0; s < r->n_samples; ++s)
    for (int64_t i = 0; i < each; ++i) ((float*)r->dst.data)[s * each + i] = (float)((r->sample_ids[s] * 3 + i) % 7);
  return GSEL_OK;
}

static gsel_status describe(gsel_model* model, gsel_error** err) {
  static const int64_t one[] = {1};
  static const int32_t w = 0;
  char name[16];
  gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
  param.name = gsel_str_from("w");
  param.dims = one;
  param.n_dims = 1;
  param.init_fn = init_two;
  gsel_status status = gsel_model_add_param(model, &param, NULL, err);
  for (int v = 0; v <= V_WEIGHT && !status; ++v) {
    const int64_t width = v < GAP_VALUES ? kWidths[v] * UNIT : 0;
    gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
    snprintf(name, sizeof name, "v%d", v);
    value.name = gsel_str_from(name);
    value.dtype = v < GAP_VALUES ? GSEL_F32 : GSEL_F64;
    value.dims = &width;
    value.n_dims = v < GAP_VALUES;
    value.flags = v == 0 ? GSEL_VALUE_INPUT : v >= GAP_VALUES ? GSEL_VALUE_SCALAR : 0;
    status = gsel_model_add_value(model, &value, NULL, err);
  }
  for (int32_t l = 1; l <= GAP_VALUES && !status; ++l) {
    static const int32_t last = GAP_LAST;
    const int32_t out[] = {l, l + 1};
    const int is_loss = l == GAP_VALUES;
    gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
    snprintf(name, sizeof name, "layer%d", (int)l);
    layer.name = gsel_str_from(name);
    layer.inputs = is_loss ? &last : kLayers[l].in;
    layer.n_inputs = is_loss ? 1 : kLayers[l].n;
    layer.outputs = out;
    layer.n_outputs = is_loss ? 2 : 1;
    layer.params = &w;
    layer.n_params = l == GAP_LAST;
    layer.flags = is_loss ? GSEL_LAYER_LOSS : 0;
    layer.forward = is_loss ? sum_forward : l == GAP_LAST ? weigh_inputs : add_inputs;
    layer.backward_input = is_loss ? sum_back : NULL;
    layer.backward_weight = l == GAP_LAST ? weigh_back : NULL;
    status = gsel_model_add_layer(model, &layer, NULL, err);
  }
  return status;
}

gsel_status gap_open(const rank_run* run, const char* more, gap_session* s, gsel_error** err) {
  char text[512];
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  memset(s, 0, sizeof *s);
  snprintf(text, sizeof text,
           "[train]\noptimizer = \"sgd\"\nlearning_rate = 0.0009765625\nweight_decay = 0.0\nbatch = %d\n%s",
           (int)run->world_size, more);
  gsel_status status = run->world_size > 1 ? rank_join(run, &s->comm, err) : GSEL_OK;
  if (!status) status = gsel_config_parse(gsel_str_from(text), gsel_str_from("gap.toml"), &s->config, err);
  if (!status) status = gsel_model_create(&s->model, err);
  if (!status) status = describe(s->model, err);
  options.config = s->config;
  options.data = gap_data;
  if (!status) status = gsel_trainer_create(s->comm, s->model, &options, &s->trainer, err);
  return status;
}

void gap_close(gap_session* s) {
  gsel_trainer_free(s->trainer);
  gsel_model_free(s->model);
  gsel_config_free(s->config);
  gsel_comm_free(s->comm);
}

gap_memory gap_memory_of(const gsel_trainer* trainer) {
  gap_memory memory = {0, 0, 0};
  for (int32_t i = 0; i < gsel_trainer_memory_count(trainer); ++i) {
    gsel_memory_part part = GSEL_MEMORY_PART_INIT;
    if (gsel_trainer_memory(trainer, i, &part, NULL) || part.offloaded) continue;
    memory.all += part.forecast_bytes;
    if (strcmp(part.name, "values and windows") != 0) continue;
    memory.arena = part.forecast_bytes;
    memory.peak_arena = part.peak_bytes;
  }
  return memory;
}
