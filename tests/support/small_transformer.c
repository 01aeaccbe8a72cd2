/* See small_transformer.h. */
#include "support/small_transformer.h"

#include <math.h>

static gsel_status tm_initial(float* dst, int64_t first, int64_t count, uint64_t seed, void* user) {
  const uint64_t key = *(const uint64_t*)user;
  for (int64_t i = 0; i < count; ++i) {
    const float u = gsel_random_uniform(seed + key, (uint64_t)(first + i));
    dst[i] = key < 100 ? floorf(u * 3) - 1 : u - 0.5f;
  }
  return GSEL_OK;
}
gsel_status tm_data(const gsel_data_request* r, void* user) {
  (void)user;
  for (int64_t s = 0; s < r->n_samples; ++s)
    for (int t = 0; t < TM_T; ++t)
      ((int32_t*)r->dst.data)[s * TM_T + t] =
          (int32_t)(gsel_random_uniform(99, (uint64_t)(r->sample_ids[s] * TM_T + t)) * (float)TM_V);
  return GSEL_OK;
}

struct tm_value {
  const char* name;
  int64_t columns; /* 0: one number per position */
  int32_t placement, shard_dim, unit, blocks;
  uint32_t flags;
};
/* A row per value, a row per layer. */
/* clang-format off */
static const struct tm_value kTmValues[TM_VALUES] = {
    {"tokens", 0, 0, 0, 0, 0, GSEL_VALUE_INPUT},
    {"e", TM_W, GSEL_PLACEMENT_PARTIAL, 0, 0, 0, 0},
    {"x", TM_W, 0, 0, 0, 0, 0},
    {"n", TM_W, 0, 0, 0, 0, 0},
    {"q", TM_HEADS* TM_D, GSEL_PLACEMENT_SHARD, 2, TM_D, 1, 0},
    {"kv", 2 * TM_KV* TM_D, GSEL_PLACEMENT_SHARD, 2, TM_D, 2, GSEL_VALUE_REPLICATE_IF_FEW},
    {"a", TM_HEADS* TM_D, GSEL_PLACEMENT_SHARD, 2, TM_D, 1, 0},
    {"o", TM_W, GSEL_PLACEMENT_PARTIAL, 0, 0, 0, 0},
    {"r", TM_W, 0, 0, 0, 0, 0},
    {"m", 2 * TM_F, GSEL_PLACEMENT_SHARD, 2, 1, 2, 0},
    {"g", TM_F, GSEL_PLACEMENT_SHARD, 2, 1, 1, 0},
    {"h", TM_F, GSEL_PLACEMENT_SHARD, 2, 1, 1, 0},
    {"y", TM_W, GSEL_PLACEMENT_PARTIAL, 0, 0, 0, 0},
    {"z", TM_W, 0, 0, 0, 0, 0},
    {"logits", TM_V, GSEL_PLACEMENT_SHARD, 2, 1, 1, 0},
    {"loss", 0, 0, 0, 0, 0, GSEL_VALUE_SCALAR},
    {"weight", 0, 0, 0, 0, 0, GSEL_VALUE_SCALAR},
};

static const gsel_phase kTmShareSum[] = {{sizeof(gsel_phase), 0, GSEL_AXIS_TENSOR, GSEL_SUM, GSEL_F32, 0, 0, TM_T}};
static const gsel_phase kTmLossPhases[] = {
    {sizeof(gsel_phase), 0, GSEL_AXIS_TENSOR, GSEL_MAX, GSEL_F32, 0, 0, TM_T},
    {sizeof(gsel_phase), 0, GSEL_AXIS_TENSOR, GSEL_SUM, GSEL_F32, 0, 0, 2 * TM_T}};

#define TM_IN(i) GSEL_UNREAD_INPUT(i)
#define TM_OUTS (GSEL_UNREAD_OUTPUT(0) | GSEL_UNREAD_SAVED)
#define TM_ANY (GSEL_LAYER_POSITIONWISE | GSEL_LAYER_RECOMPUTABLE)
#define TM_ROW (GSEL_LAYER_RECOMPUTABLE)
const struct tm_layer kTmLayers[] = {
    {"embed", {TM_TOKENS, -1}, {TM_E, -1}, {TM_TABLE, -1}, tm_embed, NULL, tm_embed_weight, NULL, TM_ANY, 0, 0,
     TM_OUTS, 1, NULL, NULL, 0, 0},
    {"positions", {TM_E, -1}, {TM_X, -1}, {TM_POSITION, -1}, tm_add_positions, tm_add_positions_input,
     tm_add_positions_weight, NULL, TM_ANY, 0, TM_IN(0) | TM_OUTS, TM_IN(0) | TM_OUTS, 1, NULL, NULL, 0, 0},
    {"norm", {TM_X, -1}, {TM_N, -1}, {TM_SCALE, TM_SHIFT}, tm_norm, NULL, NULL, tm_norm_backward, TM_ANY, 0, TM_OUTS,
     TM_OUTS, 0, NULL, NULL, 0, 0},
    {"queries", {TM_N, -1}, {TM_Q, -1}, {TM_WQ, -1}, tm_queries, tm_linear_input, tm_queries_w, NULL, TM_ANY, 0,
     TM_IN(0) | TM_OUTS, TM_OUTS, 0, NULL, NULL, 0, 0},
    {"keys", {TM_N, -1}, {TM_KVS, -1}, {TM_WKV, -1}, tm_keys, tm_linear_input, tm_keys_w, NULL, TM_ANY, 0,
     TM_IN(0) | TM_OUTS, TM_OUTS, 0, NULL, NULL, 0, 0},
    {"attend", {TM_Q, TM_KVS}, {TM_A, -1}, {TM_REL, -1}, tm_attend, NULL, NULL, tm_attend_backward, TM_ROW, 0, TM_OUTS,
     TM_OUTS, 0, NULL, NULL, 0, 0},
    {"project", {TM_A, -1}, {TM_O, -1}, {TM_WO, -1}, tm_project, tm_linear_input, tm_project_w, NULL, TM_ANY, 0,
     TM_IN(0) | TM_OUTS, TM_OUTS, 0, NULL, NULL, 0, 0},
    {"add", {TM_X, TM_O}, {TM_R, -1}, {TM_BO, -1}, tm_add_up, NULL, NULL, tm_add_backward, GSEL_LAYER_POSITIONWISE, 0,
     TM_OUTS, TM_OUTS, 0, NULL, NULL, 0, 0},
    {"up", {TM_R, -1}, {TM_M, -1}, {TM_WU, -1}, tm_up, NULL, NULL, tm_up_backward, TM_ANY, 0, TM_OUTS, TM_OUTS, 0,
     NULL, NULL, 0, 0},
    {"gate", {TM_M, -1}, {TM_G, -1}, {-1, -1}, tm_gate, tm_gate_backward, NULL, NULL, TM_ANY, 0, TM_OUTS, 0, 0, NULL,
     NULL, 0, 0},
    {"share", {TM_G, -1}, {TM_H, -1}, {-1, -1}, tm_share, tm_share_backward, NULL, NULL,
     TM_ANY | GSEL_LAYER_SAVES_WHOLE, TM_T * sizeof(float), GSEL_UNREAD_OUTPUT(0), 0, 0, kTmShareSum, kTmShareSum, 1,
     1},
    {"down", {TM_H, -1}, {TM_Y, -1}, {TM_WD, -1}, tm_down, tm_linear_input, tm_down_w, NULL, TM_ANY, 0,
     TM_IN(0) | TM_OUTS, TM_OUTS, 0, NULL, NULL, 0, 0},
    {"last", {TM_R, TM_Y}, {TM_Z, -1}, {-1, -1}, tm_last, tm_last_backward, NULL, NULL, TM_ANY, TM_T* TM_W,
     TM_IN(0) | TM_IN(1) | GSEL_UNREAD_OUTPUT(0), 0, 0, NULL, NULL, 0, 0},
    {"head", {TM_Z, -1}, {TM_LOGITS, -1}, {TM_TABLE, -1}, tm_head, NULL, NULL, tm_head_backward, TM_ANY, 0, TM_OUTS,
     TM_OUTS, 0, NULL, NULL, 0, 0},
    {"loss", {TM_LOGITS, TM_TOKENS}, {TM_LOSS, TM_WEIGHT}, {-1, -1}, tm_loss, tm_loss_backward, NULL, NULL,
     GSEL_LAYER_LOSS | GSEL_LAYER_POSITIONWISE | GSEL_LAYER_SAVES_WHOLE, 2 * TM_T * sizeof(float),
     GSEL_UNREAD_OUTPUT(0) | GSEL_UNREAD_OUTPUT(1), 0, 0, kTmLossPhases, NULL, 2, 0},
};
/* clang-format on */
enum { TM_LAYERS = sizeof kTmLayers / sizeof *kTmLayers };

static gsel_status tm_add_params(gsel_model* model, const small_transformer* m, gsel_error** err) {
  static const uint64_t keys[2][TM_PARAMS] = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                                              {101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111}};
  gsel_status status = GSEL_OK;
  for (int p = 0; p < TM_PARAMS && !status; ++p) {
    const struct tm_param* param = &kTmParams[p];
    gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
    options.name = gsel_str_from(param->name);
    options.dims = param->dims;
    options.n_dims = 2;
    options.flags = param->flags;
    options.init = GSEL_INIT_CALLBACK;
    options.init_fn = tm_initial;
    options.init_user_data = (void*)(uintptr_t)&keys[m->random][p];
    options.shard = param->shard_dim < 0 ? GSEL_SHARD_NONE : GSEL_SHARD_DIM;
    options.shard_dim = param->shard_dim < 0 ? 0 : param->shard_dim;
    options.shard_blocks = param->blocks;
    options.shard_granularity = param->unit;
    if (m->group_units && (p == TM_WQ || p == TM_WO)) options.shard_granularity *= TM_HEADS / TM_KV;
    status = gsel_model_add_param(model, &options, NULL, err);
  }
  return status;
}
static gsel_status tm_add_values(gsel_model* model, const small_transformer* m, gsel_error** err) {
  gsel_status status = GSEL_OK;
  for (int v = 0; v < TM_VALUES && !status; ++v) {
    const struct tm_value* value = &kTmValues[v];
    const int64_t dims[] = {TM_T, value->columns};
    const int scalar = (value->flags & GSEL_VALUE_SCALAR) != 0;
    gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
    options.name = gsel_str_from(value->name);
    options.dims = dims;
    options.n_dims = scalar ? 0 : value->columns ? 2 : 1;
    options.dtype = scalar ? GSEL_F64 : v == TM_TOKENS ? GSEL_I32 : GSEL_F32;
    options.flags = value->flags;
    options.placement = value->placement;
    if (m->mistake == TM_PARTIAL_TAKEN_AS_REPLICATED && v == TM_Y) options.placement = GSEL_PLACEMENT_REPLICATE;
    if (m->mistake == TM_SHARD_TAKEN_AS_REPLICATED && v == TM_LOGITS) options.placement = GSEL_PLACEMENT_REPLICATE;
    options.shard_dim = options.placement == GSEL_PLACEMENT_SHARD ? value->shard_dim : 0;
    options.shard_granularity = value->unit;
    options.shard_blocks = value->blocks;
    if (m->group_units && (v == TM_Q || v == TM_A)) options.shard_granularity *= TM_HEADS / TM_KV;
    options.sequence_dim = !scalar && !(m->mistake == TM_NO_SEQUENCE_DIM && v == TM_O);
    status = gsel_model_add_value(model, &options, NULL, err);
  }
  return status;
}
static int tm_given(const int32_t* ids) {
  return (ids[0] >= 0) + (ids[1] >= 0);
}
gsel_status tm_describe(gsel_model* model, small_transformer* m, gsel_error** err) {
  static const int32_t project_and_bias[] = {TM_WO, TM_BO};
  gsel_status status = tm_add_params(model, m, err);
  if (!status) status = tm_add_values(model, m, err);
  for (int l = 0; l < TM_LAYERS && !status; ++l) {
    const struct tm_layer* layer = &kTmLayers[l];
    gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
    options.name = gsel_str_from(layer->name);
    options.inputs = layer->in;
    options.outputs = layer->out;
    options.params = layer->param;
    options.n_inputs = tm_given(layer->in);
    options.n_outputs = tm_given(layer->out);
    options.n_params = tm_given(layer->param);
    options.flags = layer->flags;
    options.saved_bytes_per_sample = layer->saved;
    options.backward_input_unread = layer->input_unread;
    options.backward_weight_unread = layer->weight_unread;
    options.backward_unread_params = layer->unread_params;
    options.forward = layer->forward;
    options.backward_input = layer->backward_input;
    options.backward_weight = layer->backward_weight;
    options.backward = layer->backward;
    options.forward_phases = layer->forward_phases;
    options.backward_phases = layer->backward_phases;
    options.n_forward_phases = layer->n_forward_phases;
    options.n_backward_phases = layer->n_backward_phases;
    options.user_data = m;
    if (m->mistake == TM_NOT_BY_POSITION && l == TM_L_ATTEND) options.flags |= GSEL_LAYER_POSITIONWISE;
    if (m->mistake == TM_LINEARS_NOT_BY_POSITION && (l == TM_L_PROJECT || l == TM_L_QUERIES))
      options.flags &= ~GSEL_LAYER_POSITIONWISE;
    if (m->mistake == TM_LOSS_NOT_REDUCED && l == TM_L_LOSS) options.n_forward_phases = 0;
    if (m->mistake == TM_SHARE_NOT_REDUCED && l == TM_L_SHARE) options.n_forward_phases = 0;
    if (m->mistake == TM_BACKWARD_NOT_REDUCED && l == TM_L_SHARE) options.n_backward_phases = 0;
    if (m->mistake == TM_BIAS_PER_RANK && l == TM_L_PROJECT) options.params = project_and_bias, options.n_params = 2;
    if (m->mistake == TM_BIAS_PER_RANK && l == TM_L_ADD) options.n_params = 0;
    status = gsel_model_add_layer(model, &options, NULL, err);
  }
  return status;
}
