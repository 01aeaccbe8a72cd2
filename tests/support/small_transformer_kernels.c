/* See small_transformer_kernels.h. */
#include "support/small_transformer_kernels.h"

#include <math.h>

const struct tm_param kTmParams[TM_PARAMS] = {
    {"table", {TM_V, TM_W}, 0, 1, 1, 0},
    {"position", {TM_T, TM_W}, -1, 1, 1, 0},
    {"scale", {1, TM_W}, -1, 1, 1, 0},
    {"shift", {1, TM_W}, -1, 1, 1, 0},
    {"wq", {TM_W, TM_HEADS* TM_D}, 1, 1, TM_D, 0},
    {"wkv", {TM_W, 2 * TM_KV* TM_D}, 1, 2, TM_D, GSEL_PARAM_REPLICATE_IF_FEW},
    {"rel", {1, TM_T}, -1, 1, 1, 0},
    {"wo", {TM_HEADS * TM_D, TM_W}, 0, 1, TM_D, 0},
    {"bo", {1, TM_W}, -1, 1, 1, 0},
    {"wu", {TM_W, 2 * TM_F}, 1, 2, 1, 0},
    {"wd", {TM_F, TM_W}, 0, 1, 1, 0},
};
int64_t tm_elems(int p) {
  return kTmParams[p].dims[0] * kTmParams[p].dims[1];
}

/* ---- what kernels share ---- */

static const float* tm_in(const gsel_call* c, int i) {
  return (const float*)c->inputs[i].data;
}
static float* tm_out(const gsel_call* c, int i) {
  return (float*)c->outputs[i].data;
}
static const float* tm_dout(const gsel_call* c) {
  return (const float*)c->d_outputs[0].data;
}
static float* tm_din(const gsel_call* c, int i) {
  return (float*)c->d_inputs[i].data;
}
static float tm_clip(float x) {
  return x > 3 ? 3 : x < -3 ? -3 : x;
}
static float tm_slope(float x) {
  return x > -3 && x < 3 ? 1.0f : 0.0f;
}
static float tm_sign(float x) {
  return (float)((x > 0) - (x < 0));
}
/* Positions here, and the first of them. */
static int64_t tm_positions(const gsel_tensor* t) {
  return t->dims[1];
}
static int64_t tm_first(const gsel_shard* shard, int32_t dim) {
  return shard->dim == dim ? shard->begin : 0;
}
/* Columns of a row of a value or a parameter. */
static int64_t tm_columns(const gsel_tensor* t) {
  return t->dims[t->n_dims - 1];
}

/* Index in the whole parameter of an element of the shard. */
static int64_t tm_global(int p, const gsel_shard* shard, const gsel_tensor* t, int64_t i) {
  int64_t at[2] = {i / t->dims[1], i % t->dims[1]};
  if (shard->dim >= 0) {
    const int64_t size = shard->end - shard->begin, block = at[shard->dim] / size;
    at[shard->dim] = block * shard->whole + shard->begin + at[shard->dim] % size;
  }
  return at[0] * kTmParams[p].dims[1] + at[1];
}

static void tm_note(const gsel_call* c, small_transformer* m, const int* ids) {
  for (int k = 0; k < c->n_params && c->evaluating; ++k)
    for (int64_t i = 0; i < c->params[k].n_elems; ++i) {
      const int64_t at = tm_global(ids[k], &c->param_shards[k], &c->params[k], i);
      m->noted[ids[k]][at] = ((const float*)c->params[k].data)[i];
      m->is_noted[ids[k]][at] = 1;
    }
}
static void tm_clear(const gsel_call* c) {
  for (int k = 0; k < c->n_params && !c->accumulate; ++k)
    memset(c->d_params[k].data, 0, sizeof(float) * (size_t)c->d_params[k].n_elems);
}
static void tm_add(small_transformer* m, const gsel_call* c, int p, int slot, int64_t i, float term) {
  ((float*)c->d_params[slot].data)[i] += term;
  if (m->magnitude_step != c->step) memset(m->magnitude, 0, sizeof m->magnitude);
  m->magnitude_step = c->step;
  m->magnitude[p][i] += fabsf(term);
  if (m->magnitude[p][i] > m->largest) m->largest = m->magnitude[p][i];
}

/* ---- embed and positions ---- */

static int64_t tm_row(const gsel_call* c, const small_transformer* m, int32_t token) {
  const int64_t row = token - (m->mistake == TM_IGNORES_PARTS ? 0 : tm_first(&c->param_shards[0], 0));
  return row >= 0 && row < c->params[0].dims[0] ? row : -1;
}
gsel_status tm_embed(const gsel_call* c, void* user) {
  small_transformer* m = (small_transformer*)user;
  const int32_t* tokens = (const int32_t*)c->inputs[0].data;
  for (int64_t t = 0; t < c->inputs[0].n_elems; ++t)
    for (int d = 0; d < TM_W; ++d) {
      const int64_t row = tm_row(c, m, tokens[t]);
      tm_out(c, 0)[t * TM_W + d] = row < 0 ? 0 : ((const float*)c->params[0].data)[row * TM_W + d];
    }
  tm_note(c, m, (const int[]){TM_TABLE});
  return GSEL_OK;
}
gsel_status tm_embed_weight(const gsel_call* c, void* user) {
  small_transformer* m = (small_transformer*)user;
  const int32_t* tokens = (const int32_t*)c->inputs[0].data;
  tm_clear(c);
  for (int64_t t = 0; t < c->inputs[0].n_elems; ++t) {
    const int64_t first = tm_first(&c->param_shards[0], 0), row = tokens[t] - first;
    if (row < 0 || row >= c->d_params[0].dims[0]) continue;
    for (int d = 0; d < TM_W; ++d) tm_add(m, c, TM_TABLE, 0, row * TM_W + d, tm_dout(c)[t * TM_W + d]);
  }
  return GSEL_OK;
}
gsel_status tm_add_positions(const gsel_call* c, void* user) {
  const int64_t n = tm_positions(&c->outputs[0]), first = tm_first(&c->output_shards[0], 1);
  for (int64_t t = 0; t < c->n_samples * n; ++t)
    for (int d = 0; d < TM_W; ++d)
      tm_out(c, 0)[t * TM_W + d] =
          tm_in(c, 0)[t * TM_W + d] + ((const float*)c->params[0].data)[(first + t % n) * TM_W + d];
  tm_note(c, (small_transformer*)user, (const int[]){TM_POSITION});
  return GSEL_OK;
}
gsel_status tm_add_positions_input(const gsel_call* c, void* user) {
  (void)user;
  memcpy(c->d_inputs[0].data, c->d_outputs[0].data, sizeof(float) * (size_t)c->d_outputs[0].n_elems);
  return GSEL_OK;
}
gsel_status tm_add_positions_weight(const gsel_call* c, void* user) {
  const int64_t n = tm_positions(&c->d_outputs[0]), first = tm_first(&c->output_shards[0], 1);
  tm_clear(c);
  for (int64_t t = 0; t < c->n_samples * n; ++t)
    for (int d = 0; d < TM_W; ++d)
      tm_add((small_transformer*)user, c, TM_POSITION, 0, (first + t % n) * TM_W + d, tm_dout(c)[t * TM_W + d]);
  return GSEL_OK;
}

/* ---- norm: all in one piece ---- */

gsel_status tm_norm(const gsel_call* c, void* user) {
  const float *scale = (const float*)c->params[0].data, *shift = (const float*)c->params[1].data;
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i)
    tm_out(c, 0)[i] = tm_clip(scale[i % TM_W] * tm_in(c, 0)[i] + shift[i % TM_W]);
  tm_note(c, (small_transformer*)user, (const int[]){TM_SCALE, TM_SHIFT});
  return GSEL_OK;
}
gsel_status tm_norm_backward(const gsel_call* c, void* user) {
  small_transformer* m = (small_transformer*)user;
  const float *scale = (const float*)c->params[0].data, *shift = (const float*)c->params[1].data;
  tm_clear(c);
  for (int64_t i = 0; i < c->inputs[0].n_elems; ++i) {
    const float x = tm_in(c, 0)[i], g = tm_slope(scale[i % TM_W] * x + shift[i % TM_W]) * tm_dout(c)[i];
    tm_din(c, 0)[i] = scale[i % TM_W] * g;
    tm_add(m, c, TM_SCALE, 0, i % TM_W, x * g);
    tm_add(m, c, TM_SHIFT, 1, i % TM_W, g);
  }
  return GSEL_OK;
}

/* ---- out[n] = in[k] . w[k][n]: queries, keys, project, up, down ---- */

static gsel_status tm_multiply(const gsel_call* c) {
  const int64_t K = c->params[0].dims[0], N = c->params[0].dims[1], rows = c->outputs[0].n_elems / N;
  const float* w = (const float*)c->params[0].data;
  if (tm_columns(&c->inputs[0]) != K || tm_columns(&c->outputs[0]) != N) {
    snprintf(c->message, c->message_capacity, "%d rows and %d columns do not fit values of %d and %d", (int)K, (int)N,
             (int)tm_columns(&c->inputs[0]), (int)tm_columns(&c->outputs[0]));
    return GSEL_ERR_INTERNAL;
  }
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t n = 0; n < N; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += tm_in(c, 0)[t * K + k] * w[k * N + n];
      tm_out(c, 0)[t * N + n] = sum;
    }
  return GSEL_OK;
}
gsel_status tm_linear_input(const gsel_call* c, void* user) {
  (void)user;
  const int64_t K = c->params[0].dims[0], N = c->params[0].dims[1], rows = c->d_outputs[0].n_elems / N;
  const float* w = (const float*)c->params[0].data;
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t k = 0; k < K; ++k) {
      float sum = 0;
      for (int64_t n = 0; n < N; ++n) sum += tm_dout(c)[t * N + n] * w[k * N + n];
      tm_din(c, 0)[t * K + k] = sum;
    }
  return GSEL_OK;
}
static gsel_status tm_linear_weight(const gsel_call* c, small_transformer* m, int p) {
  const int64_t K = c->d_params[0].dims[0], N = c->d_params[0].dims[1], rows = c->d_outputs[0].n_elems / N;
  tm_clear(c);
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t k = 0; k < K; ++k) tm_add(m, c, p, 0, k * N + n, tm_in(c, 0)[t * K + k] * tm_dout(c)[t * N + n]);
      if (c->n_params > 1) tm_add(m, c, TM_BO, 1, n, tm_dout(c)[t * N + n]);
    }
  return GSEL_OK;
}
#define TM_LINEAR(name, p)                                         \
  gsel_status tm_##name(const gsel_call* c, void* user) {          \
    tm_note(c, (small_transformer*)user, (const int[]){p, TM_BO}); \
    return tm_multiply(c);                                         \
  }                                                                \
  gsel_status tm_##name##_w(const gsel_call* c, void* user) {      \
    return tm_linear_weight(c, (small_transformer*)user, p);       \
  }
TM_LINEAR(queries, TM_WQ)
TM_LINEAR(keys, TM_WKV)
TM_LINEAR(down, TM_WD)

gsel_status tm_project(const gsel_call* c, void* user) {
  small_transformer* m = (small_transformer*)user;
  tm_note(c, m, (const int[]){TM_WO, TM_BO});
  const gsel_status status = tm_multiply(c);
  for (int64_t i = 0; i < c->outputs[0].n_elems && c->n_params > 1; ++i) /* a mistake */
    tm_out(c, 0)[i] += ((const float*)c->params[1].data)[i % TM_W];
  return status;
}
gsel_status tm_project_w(const gsel_call* c, void* user) {
  return tm_linear_weight(c, (small_transformer*)user, TM_WO);
}
gsel_status tm_up(const gsel_call* c, void* user) {
  small_transformer* m = (small_transformer*)user;
  tm_note(c, m, (const int[]){TM_WU});
  if (c->step == m->fail_at_step && m->rank == m->fail_on_rank) {
    snprintf(c->message, c->message_capacity, "the numbers were not right");
    return GSEL_ERR_INTERNAL;
  }
  return tm_multiply(c);
}
gsel_status tm_up_backward(const gsel_call* c, void* user) {
  tm_linear_input(c, user);
  return tm_linear_weight(c, (small_transformer*)user, TM_WU);
}

/* ---- attend ---- */

/* Heads here, and which keys each reads. */
struct tm_heads {
  int64_t positions, heads, first, keys, first_keys, q_row, kv_row;
};
static struct tm_heads tm_heads_of(const gsel_call* c) {
  struct tm_heads h;
  h.positions = tm_positions(&c->inputs[0]);
  h.q_row = tm_columns(&c->inputs[0]);
  h.kv_row = tm_columns(&c->inputs[1]);
  h.heads = h.q_row / TM_D;
  h.keys = h.kv_row / 2 / TM_D;
  h.first = tm_first(&c->input_shards[0], 2) / TM_D;
  h.first_keys = tm_first(&c->input_shards[1], 2) / TM_D;
  return h;
}
static int64_t tm_keys_of(const struct tm_heads* h, int64_t head) {
  const int64_t keys = (h->first + head) / (TM_HEADS / TM_KV) - h->first_keys;
  return keys >= 0 && keys < h->keys ? keys : -1;
}
/* One head of one sample: pointers to its first position, with rows of q_row and kv_row. */
static float tm_score(const struct tm_heads* h, const float* q, const float* k, int64_t i, int64_t j,
                      const float* rel) {
  float sum = rel[i - j];
  for (int d = 0; d < TM_D; ++d) sum += q[i * h->q_row + d] * k[j * h->kv_row + d];
  return sum;
}
static float tm_mixed(const struct tm_heads* h, const float* q, const float* k, const float* v, int64_t i, int d,
                      const float* rel) {
  float sum = 0;
  for (int64_t j = 0; j <= i; ++j) sum += tm_clip(tm_score(h, q, k, i, j, rel)) * v[j * h->kv_row + d];
  return sum;
}
gsel_status tm_attend(const gsel_call* c, void* user) {
  const struct tm_heads h = tm_heads_of(c);
  const float* rel = (const float*)c->params[0].data;
  tm_note(c, (small_transformer*)user, (const int[]){TM_REL});
  for (int64_t s = 0; s < c->n_samples; ++s)
    for (int64_t head = 0; head < h.heads; ++head) {
      const int64_t keys = tm_keys_of(&h, head);
      if (keys < 0) {
        snprintf(c->message, c->message_capacity, "head %d is here, its keys are not", (int)(h.first + head));
        return GSEL_ERR_INTERNAL;
      }
      const float* q = tm_in(c, 0) + s * h.positions * h.q_row + head * TM_D;
      const float* k = tm_in(c, 1) + s * h.positions * h.kv_row + keys * TM_D;
      for (int64_t i = 0; i < h.positions; ++i)
        for (int d = 0; d < TM_D; ++d)
          tm_out(c, 0)[(s * h.positions + i) * h.q_row + head * TM_D + d] =
              tm_clip(tm_mixed(&h, q, k, k + h.keys * TM_D, i, d, rel));
    }
  return GSEL_OK;
}
gsel_status tm_attend_backward(const gsel_call* c, void* user) {
  const struct tm_heads h = tm_heads_of(c);
  const float* rel = (const float*)c->params[0].data;
  tm_clear(c);
  memset(c->d_inputs[0].data, 0, sizeof(float) * (size_t)c->d_inputs[0].n_elems);
  memset(c->d_inputs[1].data, 0, sizeof(float) * (size_t)c->d_inputs[1].n_elems);
  for (int64_t s = 0; s < c->n_samples; ++s)
    for (int64_t head = 0; head < h.heads; ++head) {
      const int64_t at_q = s * h.positions * h.q_row + head * TM_D;
      const int64_t at_k = s * h.positions * h.kv_row + tm_keys_of(&h, head) * TM_D, at_v = at_k + h.keys * TM_D;
      const float *q = tm_in(c, 0) + at_q, *k = tm_in(c, 1) + at_k, *v = tm_in(c, 1) + at_v;
      float *dq = tm_din(c, 0) + at_q, *dk = tm_din(c, 1) + at_k, *dv = tm_din(c, 1) + at_v;
      for (int64_t i = 0; i < h.positions; ++i)
        for (int d = 0; d < TM_D; ++d) {
          const float g = tm_slope(tm_mixed(&h, q, k, v, i, d, rel)) * tm_dout(c)[at_q + i * h.q_row + d];
          for (int64_t j = 0; j <= i; ++j) {
            const float score = tm_score(&h, q, k, i, j, rel);
            const float ds = g * v[j * h.kv_row + d] * tm_slope(score);
            dv[j * h.kv_row + d] += g * tm_clip(score);
            tm_add((small_transformer*)user, c, TM_REL, 0, i - j, ds);
            for (int e = 0; e < TM_D; ++e) {
              dq[i * h.q_row + e] += ds * k[j * h.kv_row + e];
              dk[j * h.kv_row + e] += ds * q[i * h.q_row + e];
            }
          }
        }
    }
  return GSEL_OK;
}

/* ---- add (with a bias) and last (without) ---- */

static float tm_sum(const gsel_call* c, int64_t i) {
  const float bias = c->n_params ? ((const float*)c->params[0].data)[i % TM_W] : 0;
  return tm_in(c, 0)[i] + tm_in(c, 1)[i] + bias;
}
gsel_status tm_add_up(const gsel_call* c, void* user) {
  tm_note(c, (small_transformer*)user, (const int[]){TM_BO});
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i) tm_out(c, 0)[i] = tm_clip(tm_sum(c, i));
  return GSEL_OK;
}
gsel_status tm_last(const gsel_call* c, void* user) {
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i) ((char*)c->saved)[i] = (char)tm_slope(tm_sum(c, i));
  return tm_add_up(c, user);
}
gsel_status tm_add_backward(const gsel_call* c, void* user) {
  tm_clear(c);
  for (int64_t i = 0; i < c->inputs[0].n_elems; ++i) {
    const float g = tm_slope(tm_sum(c, i)) * tm_dout(c)[i];
    tm_din(c, 0)[i] = tm_din(c, 1)[i] = g;
    tm_add((small_transformer*)user, c, TM_BO, 0, i % TM_W, g);
  }
  return GSEL_OK;
}
gsel_status tm_last_backward(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->d_outputs[0].n_elems; ++i)
    tm_din(c, 0)[i] = tm_din(c, 1)[i] = (float)((const char*)c->saved)[i] * tm_dout(c)[i];
  return GSEL_OK;
}

/* ---- gate: of each row the first half gates the second; share: the sum of a row is in every one of its columns ----
 */

gsel_status tm_gate(const gsel_call* c, void* user) {
  (void)user;
  const int64_t n = tm_columns(&c->outputs[0]);
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i) {
    const float* row = tm_in(c, 0) + i / n * 2 * n + i % n;
    tm_out(c, 0)[i] = tm_clip(tm_clip(row[0]) * tm_clip(row[n]));
  }
  return GSEL_OK;
}
gsel_status tm_gate_backward(const gsel_call* c, void* user) {
  (void)user;
  const int64_t n = tm_columns(&c->d_outputs[0]);
  for (int64_t i = 0; i < c->d_outputs[0].n_elems; ++i) {
    const int64_t at = i / n * 2 * n + i % n;
    const float a = tm_in(c, 0)[at], b = tm_in(c, 0)[at + n];
    const float g = tm_slope(tm_clip(a) * tm_clip(b)) * tm_dout(c)[i];
    tm_din(c, 0)[at] = tm_slope(a) * tm_clip(b) * g;
    tm_din(c, 0)[at + n] = tm_slope(b) * tm_clip(a) * g;
  }
  return GSEL_OK;
}

static void tm_sum_rows(const float* x, int64_t elems, int64_t n, float* sums) {
  memset(sums, 0, sizeof(float) * (size_t)(elems / n));
  for (int64_t i = 0; i < elems; ++i) sums[i / n] += x[i];
}
gsel_status tm_share(const gsel_call* c, void* user) {
  (void)user;
  const int64_t n = tm_columns(&c->outputs[0]), elems = c->outputs[0].n_elems;
  float* sums = c->n_reductions ? (float*)c->reductions[0].data : (float*)c->saved;
  if (c->phase == 0) tm_sum_rows(tm_in(c, 0), elems, n, sums);
  if (c->phase < c->n_reductions) return GSEL_OK;
  for (int64_t i = 0; i < elems; ++i) tm_out(c, 0)[i] = tm_clip(tm_in(c, 0)[i] + tm_clip(sums[i / n]));
  memcpy(c->saved, sums, sizeof(float) * (size_t)(elems / n));
  return GSEL_OK;
}
gsel_status tm_share_backward(const gsel_call* c, void* user) {
  (void)user;
  const int64_t n = tm_columns(&c->d_outputs[0]), elems = c->d_outputs[0].n_elems;
  const float* sums = (const float*)c->saved;
  float nothing[TM_T * 64], *d_sums = c->n_reductions ? (float*)c->reductions[0].data : nothing;
  if (c->phase == 0) {
    memset(d_sums, 0, sizeof(float) * (size_t)(elems / n));
    for (int64_t i = 0; i < elems; ++i) {
      const float sum = sums[i / n];
      d_sums[i / n] += tm_slope(tm_in(c, 0)[i] + tm_clip(sum)) * tm_slope(sum) * tm_dout(c)[i];
    }
  }
  if (c->phase < c->n_reductions) return GSEL_OK;
  for (int64_t i = 0; i < elems; ++i)
    tm_din(c, 0)[i] = tm_slope(tm_in(c, 0)[i] + tm_clip(sums[i / n])) * tm_dout(c)[i] + d_sums[i / n];
  return GSEL_OK;
}

/* ---- head, tied to embed ---- */

gsel_status tm_head(const gsel_call* c, void* user) {
  const int64_t V = c->params[0].dims[0], rows = c->inputs[0].n_elems / TM_W;
  const float* table = (const float*)c->params[0].data;
  tm_note(c, (small_transformer*)user, (const int[]){TM_TABLE});
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t v = 0; v < V; ++v) {
      float sum = 0;
      for (int d = 0; d < TM_W; ++d) sum += tm_in(c, 0)[t * TM_W + d] * table[v * TM_W + d];
      tm_out(c, 0)[t * V + v] = sum;
    }
  return GSEL_OK;
}
gsel_status tm_head_backward(const gsel_call* c, void* user) {
  small_transformer* m = (small_transformer*)user;
  const int64_t V = c->params[0].dims[0], rows = c->inputs[0].n_elems / TM_W;
  const float* table = (const float*)c->params[0].data;
  tm_clear(c);
  for (int64_t t = 0; t < rows; ++t)
    for (int d = 0; d < TM_W; ++d) {
      float sum = 0;
      for (int64_t v = 0; v < V; ++v) {
        const float g = tm_dout(c)[t * V + v];
        sum += g * table[v * TM_W + d];
        tm_add(m, c, TM_TABLE, 0, v * TM_W + d, g * tm_in(c, 0)[t * TM_W + d]);
      }
      tm_din(c, 0)[t * TM_W + d] = sum;
    }
  for (int64_t s = 0; c->step == m->overflow_at_step && s < c->n_samples; ++s)
    if (c->sample_ids[s] % m->batch == m->batch - 1 && c->shard_index == c->shard_count - 1)
      ((float*)c->d_params[0].data)[0] = HUGE_VALF;
  return GSEL_OK;
}

/* ---- loss: phases give the largest logit of each token, then the sum of its logits and of their distances ---- */

static float tm_weight(const small_transformer* m, int32_t token) {
  return m->count_all || token != 0 ? 1 : 0;
}
static float tm_distance(float logit, int32_t token, int64_t v) {
  return logit - (v == (token + 1) % TM_V ? 2.0f : 0.0f);
}
gsel_status tm_loss(const gsel_call* c, void* user) {
  const small_transformer* m = (const small_transformer*)user;
  const int32_t* tokens = (const int32_t*)c->inputs[1].data;
  const int64_t V = tm_columns(&c->inputs[0]), first = tm_first(&c->input_shards[0], 2), n = c->inputs[1].n_elems;
  float nothing[3 * TM_T * 64];
  float* most = c->n_reductions ? (float*)c->reductions[0].data : nothing;
  float* sums = c->n_reductions ? (float*)c->reductions[1].data : nothing + TM_T * 64;
  for (int64_t t = 0; t < n; ++t)
    for (int64_t v = 0; v < V; ++v) {
      const float x = tm_in(c, 0)[t * V + v];
      if (c->phase == 0) most[t] = v == 0 || x > most[t] ? x : most[t];
      if (c->phase != (c->n_reductions ? 1 : 0)) continue;
      if (v == 0) sums[2 * t] = sums[2 * t + 1] = 0;
      sums[2 * t] += x;
      sums[2 * t + 1] += fabsf(tm_distance(x, tokens[t], first + v));
    }
  if (c->phase < c->n_reductions) return GSEL_OK;
  double loss = 0, weight = 0;
  for (int64_t t = 0; t < n; ++t) {
    const double w = tm_weight(m, tokens[t]);
    loss += w * ((double)most[t] + fabsf(sums[2 * t]) + sums[2 * t + 1]);
    weight += w;
    ((float*)c->saved)[2 * t] = most[t];
    ((float*)c->saved)[2 * t + 1] = sums[2 * t];
  }
  *(double*)c->outputs[0].data = loss;
  *(double*)c->outputs[1].data = weight;
  return GSEL_OK;
}
gsel_status tm_loss_backward(const gsel_call* c, void* user) {
  const small_transformer* m = (const small_transformer*)user;
  const int32_t* tokens = (const int32_t*)c->inputs[1].data;
  const int64_t V = tm_columns(&c->inputs[0]), first = tm_first(&c->input_shards[0], 2), n = c->inputs[1].n_elems;
  for (int64_t t = 0; t < n; ++t)
    for (int64_t v = 0; v < V; ++v) {
      const float x = tm_in(c, 0)[t * V + v], *saved = (const float*)c->saved + 2 * t;
      tm_din(c, 0)[t * V + v] = tm_weight(m, tokens[t]) * (tm_sign(tm_distance(x, tokens[t], first + v)) +
                                                           (x == saved[0] ? 1.0f : 0.0f) + tm_sign(saved[1]));
    }
  return GSEL_OK;
}
