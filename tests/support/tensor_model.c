/* See tensor_model.h. */
#include "support/tensor_model.h"

#include <math.h>

const tensor_param kTensorParams[TP_PARAMS] = {
    {"table", {T_VOCAB, T_WIDTH}, 2, 1, 0, 0, 0},
    {"scale", {T_WIDTH, 1}, 1, 0, 0, 0, 0},
    {"position", {T_POSITIONS, T_WIDTH}, 2, 0, 0, 0, 0},
    {"w1", {T_WIDTH, 2 * T_HIDDEN}, 2, 1, 1, 2, T_UNIT},
    {"b1", {2 * T_HIDDEN, 1}, 1, 1, 0, 2, T_UNIT},
    {"w2", {T_HIDDEN, T_WIDTH}, 2, 1, 0, 0, T_UNIT},
    {"b2", {T_WIDTH, 1}, 1, 0, 0, 0, 0},
};

static const float* tin(const gsel_call* c, int i) {
  return (const float*)c->inputs[i].data;
}
static float* tout(const gsel_call* c, int i) {
  return (float*)c->outputs[i].data;
}
static const float* tparam(const gsel_call* c, int i) {
  return (const float*)c->params[i].data;
}
static const float* tdout(const gsel_call* c, int i) {
  return (const float*)c->d_outputs[i].data;
}
static float* tdin(const gsel_call* c, int i) {
  return (float*)c->d_inputs[i].data;
}
/* Of a parameter's gradient, cleared where nothing is to be added to. */
static float* tdparam(const gsel_call* c, int i) {
  if (!c->accumulate) memset(c->d_params[i].data, 0, sizeof(float) * (size_t)c->d_params[i].n_elems);
  return (float*)c->d_params[i].data;
}
static int64_t rows_of_value(const gsel_tensor* t) {
  return t->dims[0] * t->dims[1];
}
static int64_t t_first(const gsel_shard* shard) {
  return shard->dim < 0 ? 0 : shard->begin;
}

/* Index in the whole of element i of the shard. */
static int64_t t_whole(const gsel_shard* shard, const gsel_tensor* t, int64_t i) {
  if (shard->dim < 0) return i;
  int64_t inner = 1;
  for (int d = shard->dim + 1; d < t->n_dims; ++d) inner *= t->dims[d];
  const int64_t size = shard->end - shard->begin, at = i / inner % t->dims[shard->dim],
                outer = i / inner / t->dims[shard->dim];
  return ((outer * shard->blocks + at / size) * shard->whole + shard->begin + at % size) * inner + i % inner;
}
static void t_see(const gsel_call* c, tensor_model* m, int slot, int p) {
  for (int64_t i = 0; i < c->params[slot].n_elems; ++i) {
    const int64_t at = t_whole(&c->param_shards[slot], &c->params[slot], i);
    m->seen[p][at] = tparam(c, slot)[i];
    m->has_seen[p][at] = 1;
  }
}

static int t_fails(const gsel_call* c, const tensor_model* m, const char* layer) {
  if (!m->fails_in || strcmp(m->fails_in, layer) != 0) return 0;
  snprintf(c->message, c->message_capacity, "%s was told to fail", layer);
  return 1;
}

static float t_clip(float x) {
  return x > 3 ? 3 : x < -3 ? -3 : x;
}
static float t_slope(float x) {
  return x > -3 && x < 3 ? 1.0f : 0.0f;
}

/* ---- embed: x = table[token], each rank for its own ids ---- */
static gsel_status t_embed_forward(const gsel_call* c, void* user) {
  const int32_t* tokens = (const int32_t*)c->inputs[0].data;
  const int64_t first = t_first(&c->param_shards[0]), n = c->params[0].dims[0];
  t_see(c, (tensor_model*)user, 0, TP_TABLE);
  for (int64_t t = 0; t < rows_of_value(&c->outputs[0]); ++t)
    for (int d = 0; d < T_WIDTH; ++d) {
      const int64_t row = tokens[t] - first;
      tout(c, 0)[t * T_WIDTH + d] = row >= 0 && row < n ? tparam(c, 0)[row * T_WIDTH + d] : 0;
    }
  return GSEL_OK;
}
static gsel_status t_embed_weight(const gsel_call* c, void* user) {
  const int32_t* tokens = (const int32_t*)c->inputs[0].data;
  const int64_t first = t_first(&c->param_shards[0]), n = c->params[0].dims[0];
  float* d_table = tdparam(c, 0);
  (void)user;
  for (int64_t t = 0; t < rows_of_value(&c->d_outputs[0]); ++t)
    for (int d = 0; d < T_WIDTH; ++d) {
      const int64_t row = tokens[t] - first;
      if (row >= 0 && row < n) d_table[row * T_WIDTH + d] += tdout(c, 0)[t * T_WIDTH + d];
    }
  return GSEL_OK;
}

/* ---- positions: y = scale * x + position ---- */
gsel_status t_positions_forward(const gsel_call* c, void* user) {
  const int64_t positions = c->outputs[0].dims[1], first = t_first(&c->output_shards[0]);
  t_see(c, (tensor_model*)user, 0, TP_SCALE);
  t_see(c, (tensor_model*)user, 1, TP_POSITION);
  ((tensor_model*)user)->y = c->outputs[0].data;
  for (int64_t t = 0; t < rows_of_value(&c->outputs[0]); ++t)
    for (int d = 0; d < T_WIDTH; ++d)
      tout(c, 0)[t * T_WIDTH + d] =
          tparam(c, 0)[d] * tin(c, 0)[t * T_WIDTH + d] + tparam(c, 1)[(first + t % positions) * T_WIDTH + d];
  return GSEL_OK;
}
static gsel_status t_positions_backward(const gsel_call* c, void* user) {
  const int64_t positions = c->d_outputs[0].dims[1], first = t_first(&c->output_shards[0]);
  float *d_scale = tdparam(c, 0), *d_position = tdparam(c, 1);
  (void)user;
  for (int64_t t = 0; t < rows_of_value(&c->d_outputs[0]); ++t)
    for (int d = 0; d < T_WIDTH; ++d) {
      const float g = tdout(c, 0)[t * T_WIDTH + d];
      d_scale[d] += g * tin(c, 0)[t * T_WIDTH + d];
      d_position[(first + t % positions) * T_WIDTH + d] += g;
      tdin(c, 0)[t * T_WIDTH + d] = g * tparam(c, 0)[d];
    }
  return GSEL_OK;
}

/* ---- out[n] = in[k] . w[k][n] (+ b) ---- */
static gsel_status t_linear_forward(const gsel_call* c, void* user) {
  const int64_t k_size = c->inputs[0].dims[2], n_size = c->outputs[0].dims[2];
  tensor_model* m = (tensor_model*)user;
  t_see(c, m, 0, c->n_params > 1 ? TP_W1 : TP_W2);
  if (c->n_params > 1)
    m->y_read = c->inputs[0].data;
  else
    m->o = c->outputs[0].data;
  if (c->n_params > 1) t_see(c, m, 1, TP_B1), m->widest_h = n_size;
  for (int64_t t = 0; t < rows_of_value(&c->outputs[0]); ++t)
    for (int64_t n = 0; n < n_size; ++n) {
      float sum = c->n_params > 1 ? tparam(c, 1)[n] : 0;
      for (int64_t k = 0; k < k_size; ++k) sum += tin(c, 0)[t * k_size + k] * tparam(c, 0)[k * n_size + n];
      tout(c, 0)[t * n_size + n] = sum;
    }
  return GSEL_OK;
}
static gsel_status t_linear_input(const gsel_call* c, void* user) {
  const int64_t k_size = c->inputs[0].dims[2], n_size = c->outputs[0].dims[2];
  (void)user;
  for (int64_t t = 0; t < rows_of_value(&c->d_outputs[0]); ++t)
    for (int64_t k = 0; k < k_size; ++k) {
      float sum = 0;
      for (int64_t n = 0; n < n_size; ++n) sum += tdout(c, 0)[t * n_size + n] * tparam(c, 0)[k * n_size + n];
      tdin(c, 0)[t * k_size + k] = sum;
    }
  return GSEL_OK;
}
static gsel_status t_linear_weight(const gsel_call* c, void* user) {
  const int64_t k_size = c->inputs[0].dims[2], n_size = c->outputs[0].dims[2];
  float *d_w = tdparam(c, 0), *d_b = c->n_params > 1 ? tdparam(c, 1) : NULL;
  if (!d_b) ((tensor_model*)user)->d_o_read = c->d_outputs[0].data;
  for (int64_t t = 0; t < rows_of_value(&c->d_outputs[0]); ++t)
    for (int64_t n = 0; n < n_size; ++n) {
      const float g = tdout(c, 0)[t * n_size + n];
      for (int64_t k = 0; k < k_size; ++k) d_w[k * n_size + n] += tin(c, 0)[t * k_size + k] * g;
      if (d_b) d_b[n] += g;
    }
  return GSEL_OK;
}
static gsel_status t_linear_backward(const gsel_call* c, void* user) {
  t_linear_input(c, user);
  return t_linear_weight(c, user);
}

/* ---- gate: r = clip(g + u), h being g and u side by side ---- */
static gsel_status t_gate_forward(const gsel_call* c, void* user) {
  const int64_t n = c->outputs[0].dims[2];
  if (t_fails(c, (const tensor_model*)user, "gate")) return GSEL_ERR_IO;
  for (int64_t t = 0; t < rows_of_value(&c->outputs[0]); ++t)
    for (int64_t i = 0; i < n; ++i)
      tout(c, 0)[t * n + i] = t_clip(tin(c, 0)[t * 2 * n + i] + tin(c, 0)[t * 2 * n + n + i]);
  return GSEL_OK;
}
static gsel_status t_gate_input(const gsel_call* c, void* user) {
  const int64_t n = c->d_outputs[0].dims[2];
  (void)user;
  for (int64_t t = 0; t < rows_of_value(&c->d_outputs[0]); ++t)
    for (int64_t i = 0; i < n; ++i)
      tdin(c, 0)[t * 2 * n + i] = tdin(c, 0)[t * 2 * n + n + i] =
          t_slope(tin(c, 0)[t * 2 * n + i] + tin(c, 0)[t * 2 * n + n + i]) * tdout(c, 0)[t * n + i];
  return GSEL_OK;
}

/* ---- mix: a = clip of the sum over positions so far, by channels ---- */
static gsel_status t_mix_forward(const gsel_call* c, void* user) {
  const int64_t positions = c->outputs[0].dims[1], n = c->outputs[0].dims[2];
  (void)user;
  if (positions != T_POSITIONS) return GSEL_ERR_INTERNAL;
  for (int64_t s = 0; s < c->n_samples; ++s)
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0;
      for (int64_t t = 0; t < positions; ++t) {
        sum += tin(c, 0)[(s * positions + t) * n + i];
        tout(c, 0)[(s * positions + t) * n + i] = t_clip(sum);
      }
    }
  return GSEL_OK;
}
static gsel_status t_mix_input(const gsel_call* c, void* user) {
  const int64_t positions = c->d_outputs[0].dims[1], n = c->d_outputs[0].dims[2];
  (void)user;
  for (int64_t s = 0; s < c->n_samples; ++s)
    for (int64_t i = 0; i < n; ++i) {
      float sums[T_POSITIONS], sum = 0, d = 0;
      for (int64_t t = 0; t < positions; ++t) sums[t] = sum += tin(c, 0)[(s * positions + t) * n + i];
      for (int64_t t = positions; t-- > 0;) {
        d += t_slope(sums[t]) * tdout(c, 0)[(s * positions + t) * n + i];
        tdin(c, 0)[(s * positions + t) * n + i] = d;
      }
    }
  return GSEL_OK;
}

/* ---- ring: the same by positions: blocks of them go round, each with its first position and how many there are. In
 * backward what goes round are sums for a block's positions, which come home ---- */
typedef struct t_block {
  float *head, *rows; /* head: first, count; rows [n_samples][count][T_HIDDEN] */
} t_block;
static t_block t_block_of(const gsel_call* c) {
  float* data = (float*)c->reductions[0].data;
  return (t_block){data, data + 2};
}
static int t_by_position(const gsel_call* c) {
  return c->input_shards[0].dim == 1;
}
static int32_t t_last_phase(const gsel_call* c, int comes_home) {
  const int goes_round = c->input_shards[0].dim >= 0; /* also where heads are divided, to no purpose */
  return (goes_round ? c->shard_count - 1 : 0) + comes_home;
}
static gsel_status t_ring_forward(const gsel_call* c, void* user) {
  const int64_t own = c->inputs[0].dims[1], n = c->inputs[0].dims[2],
                first = t_by_position(c) * t_first(&c->input_shards[0]);
  float* sums = (float*)c->saved;
  const t_block block = t_block_of(c);
  (void)user;
  if (c->n_reductions != 1 || c->reductions[0].n_elems > 2 + c->n_samples * T_POSITIONS * T_HIDDEN)
    return GSEL_ERR_INTERNAL;
  if (c->phase == 0) {
    memset(sums, 0, sizeof(float) * (size_t)(c->n_samples * own * n));
    block.head[0] = (float)first;
    block.head[1] = (float)own;
    if (2 + c->n_samples * own * n > c->reductions[0].n_elems) return GSEL_ERR_INTERNAL;
    memcpy(block.rows, tin(c, 0), sizeof(float) * (size_t)(c->n_samples * own * n));
  }
  const int64_t theirs = (int64_t)block.head[0], count = (int64_t)block.head[1];
  for (int64_t s = 0; s < c->n_samples && (c->phase == 0 || t_by_position(c)); ++s)
    for (int64_t t = 0; t < own; ++t)
      for (int64_t u = 0; u < count && theirs + u <= first + t; ++u)
        for (int64_t i = 0; i < n; ++i) sums[(s * own + t) * n + i] += block.rows[(s * count + u) * n + i];
  if (c->phase < t_last_phase(c, 0)) return GSEL_OK;
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i) tout(c, 0)[i] = t_clip(sums[i]);
  return GSEL_OK;
}
static gsel_status t_ring_input(const gsel_call* c, void* user) {
  const int64_t own = c->inputs[0].dims[1], n = c->inputs[0].dims[2],
                first = t_by_position(c) * t_first(&c->input_shards[0]);
  const float* sums = (const float*)c->saved;
  const t_block block = t_block_of(c);
  (void)user;
  if (c->phase == 0) {
    block.head[0] = (float)first;
    block.head[1] = (float)own;
    memset(block.rows, 0, sizeof(float) * (size_t)(c->n_samples * own * n));
  }
  const int64_t theirs = (int64_t)block.head[0], count = (int64_t)block.head[1];
  const int last = c->phase == t_last_phase(c, 1);
  for (int64_t s = 0; s < c->n_samples && !last && (c->phase == 0 || t_by_position(c)); ++s)
    for (int64_t t = 0; t < own; ++t)
      for (int64_t u = 0; u < count && theirs + u <= first + t; ++u)
        for (int64_t i = 0; i < n; ++i)
          block.rows[(s * count + u) * n + i] +=
              t_slope(sums[(s * own + t) * n + i]) * tdout(c, 0)[(s * own + t) * n + i];
  if (!last) return GSEL_OK;
  if (theirs != first || count != own) return GSEL_ERR_INTERNAL; /* it is not home */
  memcpy(tdin(c, 0), block.rows, sizeof(float) * (size_t)(c->n_samples * own * n));
  return GSEL_OK;
}

/* ---- add: u = clip(y + o + b2) ---- */
static gsel_status t_add_forward(const gsel_call* c, void* user) {
  t_see(c, (tensor_model*)user, 0, TP_B2);
  ((tensor_model*)user)->o_read = c->inputs[1].data;
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i)
    tout(c, 0)[i] = t_clip(tin(c, 0)[i] + tin(c, 1)[i] + tparam(c, 0)[i % T_WIDTH]);
  return GSEL_OK;
}
static gsel_status t_add_backward(const gsel_call* c, void* user) {
  float* d_b = tdparam(c, 0);
  ((tensor_model*)user)->d_o = c->d_inputs[1].data;
  for (int64_t i = 0; i < c->d_outputs[0].n_elems; ++i) {
    const float g = t_slope(tin(c, 0)[i] + tin(c, 1)[i] + tparam(c, 0)[i % T_WIDTH]) * tdout(c, 0)[i];
    tdin(c, 0)[i] = tdin(c, 1)[i] = g;
    d_b[i % T_WIDTH] += g;
  }
  return GSEL_OK;
}

/* ---- head: logits = u . table^T ---- */
static gsel_status t_head_forward(const gsel_call* c, void* user) {
  const int64_t n = c->outputs[0].dims[2];
  t_see(c, (tensor_model*)user, 0, TP_TABLE);
  for (int64_t t = 0; t < rows_of_value(&c->outputs[0]); ++t)
    for (int64_t v = 0; v < n; ++v) {
      float sum = 0;
      for (int d = 0; d < T_WIDTH; ++d) sum += tin(c, 0)[t * T_WIDTH + d] * tparam(c, 0)[v * T_WIDTH + d];
      tout(c, 0)[t * n + v] = sum;
    }
  return GSEL_OK;
}
static gsel_status t_head_backward(const gsel_call* c, void* user) {
  const tensor_model* m = (const tensor_model*)user;
  const int64_t n = c->outputs[0].dims[2];
  float* d_table = tdparam(c, 0);
  for (int64_t t = 0; t < rows_of_value(&c->d_outputs[0]); ++t)
    for (int d = 0; d < T_WIDTH; ++d) {
      float sum = 0;
      for (int64_t v = 0; v < n; ++v) {
        const float g = tdout(c, 0)[t * n + v];
        sum += g * tparam(c, 0)[v * T_WIDTH + d];
        d_table[v * T_WIDTH + d] += g * tin(c, 0)[t * T_WIDTH + d];
      }
      tdin(c, 0)[t * T_WIDTH + d] = sum;
    }
  if (c->step + 1 == m->overflow_at_step && c->shard_index == c->shard_count - 1) d_table[0] = HUGE_VALF;
  return GSEL_OK;
}

/* ---- loss: half the squared distance of the logits to 2 at the next id; positions of id 0 weigh nothing ---- */
static float t_distance(const gsel_call* c, const int32_t* tokens, int64_t t, int64_t v) {
  const int64_t n = c->inputs[0].dims[2], id = t_first(&c->input_shards[0]) * (c->input_shards[0].dim == 2) + v;
  return tin(c, 0)[t * n + v] - (id == (tokens[t] + 1) % T_VOCAB ? 2.0f : 0.0f);
}
static gsel_status t_loss_forward(const gsel_call* c, void* user) {
  const int32_t* tokens = (const int32_t*)c->inputs[1].data;
  const int64_t n = c->inputs[0].dims[2];
  double *sums = (double*)c->reductions[0].data, weight = 0;
  if (t_fails(c, (const tensor_model*)user, "loss")) return GSEL_ERR_IO;
  if (c->n_reductions != 1) return GSEL_ERR_INTERNAL;
  if (c->phase == 0) {
    *sums = 0;
    for (int64_t t = 0; t < rows_of_value(&c->inputs[0]); ++t)
      for (int64_t v = 0; v < n; ++v) {
        const double d = t_distance(c, tokens, t, v);
        *sums += tokens[t] ? d * d / 2 : 0;
      }
    return GSEL_OK;
  }
  for (int64_t t = 0; t < rows_of_value(&c->inputs[0]); ++t) weight += tokens[t] != 0;
  *(double*)c->outputs[0].data = *sums;
  *(double*)c->outputs[1].data = weight;
  return GSEL_OK;
}
static gsel_status t_loss_input(const gsel_call* c, void* user) {
  const int32_t* tokens = (const int32_t*)c->inputs[1].data;
  const int64_t n = c->inputs[0].dims[2];
  (void)user;
  for (int64_t t = 0; t < rows_of_value(&c->inputs[0]); ++t)
    for (int64_t v = 0; v < n; ++v) tdin(c, 0)[t * n + v] = tokens[t] ? t_distance(c, tokens, t, v) : 0;
  return GSEL_OK;
}

/* ---- description ---- */

gsel_status tensor_data(const gsel_data_request* r, void* user) {
  (void)user;
  for (int64_t s = 0; s < r->n_samples; ++s)
    for (int t = 0; t < T_POSITIONS; ++t)
      ((int32_t*)r->dst.data)[s * T_POSITIONS + t] =
          (int32_t)(gsel_random_uniform(99, (uint64_t)(r->sample_ids[s] * T_POSITIONS + t)) * (float)T_VOCAB);
  return GSEL_OK;
}

static gsel_status t_initial(float* dst, int64_t first, int64_t count, uint64_t seed, void* user) {
  const tensor_init* init = (const tensor_init*)user;
  const uint64_t key = init->key + (init->whole ? (uint64_t)init->m->differs_on_init * 1000 : 0);
  for (int64_t i = 0; i < count; ++i) dst[i] = floorf(gsel_random_uniform(seed + key, (uint64_t)(first + i)) * 3) - 1;
  return GSEL_OK;
}

#define T_EACH GSEL_LAYER_POSITIONWISE
#define T_AGAIN GSEL_LAYER_RECOMPUTABLE
typedef struct tensor_layer {
  const char* name;
  int32_t in[2], out[2], param[2]; /* -1: none */
  gsel_layer_fn forward, backward_input, backward_weight, backward;
  uint32_t flags;
  int saves_outputs; /* backward reads them */
} tensor_layer;

/* A row per layer. */
/* clang-format off */
static const tensor_layer kTensorLayers[T_LAYERS] = {
    {"embed", {TV_TOKENS, -1}, {TV_X, -1}, {TP_TABLE, -1}, t_embed_forward, NULL, t_embed_weight, NULL,
     T_EACH | T_AGAIN, 0},
    {"positions", {TV_X, -1}, {TV_Y, -1}, {TP_SCALE, TP_POSITION}, t_positions_forward, NULL, NULL,
     t_positions_backward, T_EACH | T_AGAIN, 0},
    {"fc1", {TV_Y, -1}, {TV_H, -1}, {TP_W1, TP_B1}, t_linear_forward, NULL, NULL, t_linear_backward, T_EACH | T_AGAIN,
     0},
    {"gate", {TV_H, -1}, {TV_R, -1}, {-1, -1}, t_gate_forward, t_gate_input, NULL, NULL, T_EACH | T_AGAIN, 1},
    {"mix", {TV_R, -1}, {TV_A, -1}, {-1, -1}, t_mix_forward, t_mix_input, NULL, NULL, T_AGAIN, 0},
    {"fc2", {TV_A, -1}, {TV_O, -1}, {TP_W2, -1}, t_linear_forward, t_linear_input, t_linear_weight, NULL,
     T_EACH | T_AGAIN, 0},
    {"add", {TV_Y, TV_O}, {TV_U, -1}, {TP_B2, -1}, t_add_forward, NULL, NULL, t_add_backward, T_EACH, 1},
    {"head", {TV_U, -1}, {TV_LOGITS, -1}, {TP_TABLE, -1}, t_head_forward, NULL, NULL, t_head_backward,
     T_EACH | T_AGAIN, 0},
    {"loss", {TV_LOGITS, TV_TOKENS}, {TV_LOSS, TV_WEIGHT}, {-1, -1}, t_loss_forward, t_loss_input, NULL, NULL,
     T_EACH | GSEL_LAYER_LOSS, 0},
};
/* clang-format on */

const tensor_value kTensorValues[TV_VALUES] = {
    {"tokens", 0, 0, 0, 0, 0},
    {"x", T_WIDTH, GSEL_PLACEMENT_PARTIAL, 0, 0, 0},
    {"y", T_WIDTH, 0, 0, 0, 0},
    {"h", 2 * T_HIDDEN, GSEL_PLACEMENT_SHARD, 2, T_UNIT, 2},
    {"r", T_HIDDEN, GSEL_PLACEMENT_SHARD, 2, T_UNIT, 0},
    {"a", T_HIDDEN, GSEL_PLACEMENT_SHARD, 2, T_UNIT, 0},
    {"o", T_WIDTH, GSEL_PLACEMENT_PARTIAL, 0, 0, 0},
    {"u", T_WIDTH, 0, 0, 0, 0},
    {"logits", T_VOCAB, GSEL_PLACEMENT_SHARD, 2, 0, 0},
    {"loss", 0, 0, 0, 0, 0},
    {"weight", 0, 0, 0, 0, 0},
};

gsel_status tensor_describe(gsel_model* model, tensor_model* m, tensor_init* inits, gsel_error** err) {
  static const gsel_phase phase = {sizeof(gsel_phase), 0, GSEL_AXIS_TENSOR, GSEL_SUM, GSEL_F64, 0, 1, 0};
  static const gsel_phase round = {sizeof(gsel_phase),    0, GSEL_AXIS_TENSOR,      0, GSEL_F32,
                                   GSEL_PHASE_RING_SHIFT, 2, T_POSITIONS * T_HIDDEN};
  static const gsel_phase home = {
      sizeof(gsel_phase),    0, GSEL_AXIS_TENSOR, 0, GSEL_F32, GSEL_PHASE_RING_SHIFT | GSEL_PHASE_HOME, 2,
      T_POSITIONS * T_HIDDEN};
  gsel_status status = GSEL_OK;
  for (int p = 0; p < TP_PARAMS && !status; ++p) {
    const tensor_param* param = &kTensorParams[p];
    gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
    inits[p] = (tensor_init){(uint64_t)(11 * (p + 1)), m, !param->shard};
    options.name = gsel_str_from(param->name);
    options.dims = param->dims;
    options.n_dims = param->n_dims;
    options.init = GSEL_INIT_CALLBACK;
    options.init_fn = t_initial;
    options.init_user_data = &inits[p];
    options.shard = param->shard;
    options.shard_dim = param->shard_dim;
    options.shard_blocks = param->blocks;
    options.shard_granularity = param->unit;
    options.flags = m->frozen ? GSEL_PARAM_FROZEN : 0;
    status = gsel_model_add_param(model, &options, NULL, err);
  }
  for (int v = 0; v < TV_VALUES && !status; ++v) {
    const tensor_value* value = &kTensorValues[v];
    const int64_t dims[] = {T_POSITIONS, value->channels};
    gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
    options.name = gsel_str_from(value->name);
    options.dims = dims;
    options.n_dims = v >= TV_LOSS ? 0 : value->channels ? 2 : 1;
    options.dtype = v == TV_TOKENS ? GSEL_I32 : v >= TV_LOSS ? GSEL_F64 : GSEL_F32;
    options.flags = v == TV_TOKENS ? GSEL_VALUE_INPUT : v >= TV_LOSS ? GSEL_VALUE_SCALAR : 0;
    options.placement = value->placement;
    options.shard_dim = value->shard_dim;
    options.shard_granularity = value->unit;
    options.shard_blocks = value->blocks;
    options.sequence_dim = v < TV_LOSS;
    status = gsel_model_add_value(model, &options, NULL, err);
  }
  for (int l = 0; l < T_LAYERS && !status; ++l) {
    const tensor_layer* layer = &kTensorLayers[l];
    const uint64_t outputs = layer->saves_outputs ? 0 : GSEL_UNREAD_OUTPUT(0);
    gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
    options.name = gsel_str_from(layer->name);
    options.inputs = layer->in;
    options.outputs = layer->out;
    options.params = layer->param;
    options.n_inputs = 1 + (layer->in[1] >= 0);
    options.n_outputs = 1 + (layer->out[1] >= 0);
    options.n_params = (layer->param[0] >= 0) + (layer->param[1] >= 0);
    options.flags = layer->flags;
    options.forward = layer->forward;
    options.backward_input = layer->backward_input;
    options.backward_weight = layer->backward_weight;
    options.backward = layer->backward;
    options.backward_input_unread = options.backward_weight_unread = outputs;
    options.forward_phases = &phase;
    options.n_forward_phases = (layer->flags & GSEL_LAYER_LOSS) != 0;
    options.user_data = m;
    if (m->ring && layer->forward == t_mix_forward) {
      options.forward = t_ring_forward;
      options.backward_input = t_ring_input;
      options.saved_bytes_per_sample = sizeof(float) * T_POSITIONS * T_HIDDEN;
      options.forward_phases = &round;
      options.backward_phases = &home;
      options.n_forward_phases = options.n_backward_phases = 1;
    }
    if (m->vary) m->vary(&options);
    status = gsel_model_add_layer(model, &options, NULL, err);
  }
  return status;
}
