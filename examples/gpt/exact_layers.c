/* exact_layers.c: see exact_layers.h. Each layer has the shape of the GPT's: the same sums over columns, rows, words,
 * positions and samples, the same phases. What is not a sum is a fold: the remainder of division by 17, from -8 to 8.
 * Nothing saturates, so one wrong number anywhere reaches all parameters in a step or two. Backward is no derivative;
 * it need only be the same computation wherever it runs. Whoever reads a sum folds it. */
#include "exact_layers.h"

#include <math.h>
#include <string.h>

#include "model.h"
#include "tensors.h"

static float fold(float x) {
  return x - 17 * rintf(x / 17);
}
/* A parameter as an integer: it counts in units of 1/64. */
static float whole(float w) {
  return fold(rintf(w * 64));
}

static const float* in(const gsel_call* c, int i) {
  return c->inputs[i].data;
}
static const float* param(const gsel_call* c, int i) {
  return c->params[i].data;
}
static const float* dout(const gsel_call* c) {
  return c->d_outputs[0].data;
}
/* A parameter's gradient, ready to be added to. */
static float* gradient(const gsel_call* c, int i) {
  if (!c->accumulate) memset(c->d_params[i].data, 0, (size_t)c->d_params[i].n_elems * sizeof(float));
  return c->d_params[i].data;
}

/* ---- embeddings --------------------------------------------------------------------------------------- */

static gsel_status token_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor *x = &c->outputs[0], *table = &c->params[0];
  const uint8_t* tokens = c->inputs[0].data;
  const int64_t width = width_of(x), first = begin_of(&c->param_shards[0], 0);
  for (int64_t r = 0; r < rows_of(x); ++r) {
    const int64_t at = tokens[r] - first, here = at >= 0 && at < table->dims[0];
    for (int64_t i = 0; i < width; ++i)
      ((float*)x->data)[r * width + i] = here ? whole(param(c, 0)[at * width + i]) : 0;
  }
  return GSEL_OK;
}

static gsel_status token_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor *dx = &c->d_outputs[0], *table = &c->d_params[0];
  const uint8_t* tokens = c->inputs[0].data;
  const int64_t width = width_of(dx), first = begin_of(&c->param_shards[0], 0);
  float* d = gradient(c, 0);
  for (int64_t r = 0; r < rows_of(dx); ++r) {
    const int64_t at = tokens[r] - first;
    for (int64_t i = 0; i < width && at >= 0 && at < table->dims[0]; ++i)
      d[at * width + i] += fold(dout(c)[r * width + i]);
  }
  return GSEL_OK;
}

static gsel_status position_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* y = &c->outputs[0];
  const int64_t elems = y->dims[1] * width_of(y), first = begin_of(&c->output_shards[0], 1) * width_of(y);
  for (int64_t i = 0; i < y->n_elems; ++i)
    ((float*)y->data)[i] = fold(in(c, 0)[i] + whole(param(c, 0)[first + i % elems]));
  return GSEL_OK;
}

static gsel_status position_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* dy = &c->d_outputs[0];
  const int64_t elems = dy->dims[1] * width_of(dy), first = begin_of(&c->output_shards[0], 1) * width_of(dy);
  float* d = gradient(c, 0);
  for (int64_t i = 0; i < dy->n_elems; ++i) d[first + i % elems] += fold(dout(c)[i]);
  return GSEL_OK;
}

/* Of position and residual. */
static gsel_status sum_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  for (int32_t k = 0; k < c->n_inputs; ++k)
    for (int64_t i = 0; i < c->d_outputs[0].n_elems && c->d_inputs[k].data; ++i)
      ((float*)c->d_inputs[k].data)[i] = fold(dout(c)[i]);
  return GSEL_OK;
}

static gsel_status residual_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t width = width_of(&c->outputs[0]);
  for (int64_t i = 0; i < c->outputs[0].n_elems; ++i)
    ((float*)c->outputs[0].data)[i] = fold(in(c, 0)[i] + in(c, 1)[i] + whole(param(c, 0)[i % width]));
  return GSEL_OK;
}

static gsel_status residual_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t width = width_of(&c->d_outputs[0]);
  float* d = gradient(c, 0);
  for (int64_t i = 0; i < c->d_outputs[0].n_elems; ++i) d[i % width] += fold(dout(c)[i]);
  return GSEL_OK;
}

/* ---- norm: y = (x + sum of the row) * g + b ------------------------------------------------------------- */

static gsel_status layernorm_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t width = width_of(&c->inputs[0]);
  float *y = c->outputs[0].data, *sums = c->saved;
  for (int64_t r = 0; r < rows_of(&c->inputs[0]); ++r) {
    const float* x = in(c, 0) + r * width;
    float sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += x[i];
    sums[2 * r] = fold(sum);
    for (int64_t i = 0; i < width; ++i)
      y[r * width + i] = fold(fold(x[i] + sums[2 * r]) * whole(param(c, 0)[i]) + whole(param(c, 1)[i]));
  }
  return GSEL_OK;
}

static gsel_status layernorm_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t width = width_of(&c->inputs[0]);
  float* dx = c->d_inputs[0].data;
  for (int64_t r = 0; r < rows_of(&c->inputs[0]) && dx; ++r) {
    const float* dy = dout(c) + r * width;
    float sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += fold(dy[i]);
    for (int64_t i = 0; i < width; ++i) dx[r * width + i] = fold(fold(dy[i]) * whole(param(c, 0)[i]) + fold(sum));
  }
  return GSEL_OK;
}

static gsel_status layernorm_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t width = width_of(&c->inputs[0]);
  const float* sums = c->saved;
  float *dg = gradient(c, 0), *db = gradient(c, 1);
  for (int64_t i = 0; i < c->inputs[0].n_elems; ++i) {
    const float dy = fold(dout(c)[i]);
    dg[i % width] += dy * fold(in(c, 0)[i] + sums[2 * (i / width)]);
    db[i % width] += dy;
  }
  return GSEL_OK;
}

/* ---- linear ------------------------------------------------------------------------------------------- */

static gsel_status linear_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t outs = c->params[0].dims[0], ins = c->params[0].dims[1];
  float* y = c->outputs[0].data;
  for (int64_t r = 0; r < rows_of(&c->inputs[0]); ++r)
    for (int64_t o = 0; o < outs; ++o) {
      float sum = c->n_params > 1 ? whole(param(c, 1)[o]) : 0;
      for (int64_t i = 0; i < ins; ++i) sum += fold(in(c, 0)[r * ins + i]) * whole(param(c, 0)[o * ins + i]);
      y[r * outs + o] = sum;
    }
  return GSEL_OK;
}

static gsel_status linear_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t outs = c->params[0].dims[0], ins = c->params[0].dims[1];
  float* dx = c->d_inputs[0].data;
  if (!dx) return GSEL_OK;
  memset(dx, 0, (size_t)c->d_inputs[0].n_elems * sizeof *dx);
  for (int64_t r = 0; r < rows_of(&c->d_inputs[0]); ++r)
    for (int64_t o = 0; o < outs; ++o) {
      const float dy = fold(dout(c)[r * outs + o]);
      for (int64_t i = 0; i < ins; ++i) dx[r * ins + i] += dy * whole(param(c, 0)[o * ins + i]);
    }
  return GSEL_OK;
}

static gsel_status linear_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t outs = c->d_params[0].dims[0], ins = c->d_params[0].dims[1];
  float *dw = gradient(c, 0), *db = c->n_params > 1 ? gradient(c, 1) : NULL;
  for (int64_t r = 0; r < rows_of(&c->inputs[0]); ++r)
    for (int64_t o = 0; o < outs; ++o) {
      const float dy = fold(dout(c)[r * outs + o]);
      for (int64_t i = 0; i < ins; ++i) dw[o * ins + i] += dy * fold(in(c, 0)[r * ins + i]);
      if (db) db[o] += dy;
    }
  return GSEL_OK;
}

/* ---- attention: position i sums fold(q_i k_j) v_j over the positions j up to its own, head by head -------- */

struct head {
  const float *q, *k, *v;
  int64_t row, size; /* from one position to the next; of the head */
};

static struct head head_of(const gsel_call* c, const struct gpt_sizes* sizes, int64_t sample, int64_t h) {
  const int64_t width = width_of(&c->inputs[0]), size = sizes->width / sizes->heads;
  const float* q = in(c, 0) + sample * c->inputs[0].dims[1] * 3 * width + h * size;
  return (struct head){q, q + width, q + 2 * width, 3 * width, size};
}

static float dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += fold(a[i]) * fold(b[i]);
  return fold(sum);
}
static void add(float* y, float factor, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * fold(x[i]);
}

static gsel_status attention_run(const gsel_call* c, void* user_data) {
  const int64_t positions = c->inputs[0].dims[1], width = width_of(&c->outputs[0]);
  float* y = c->outputs[0].data;
  memset(y, 0, (size_t)c->outputs[0].n_elems * sizeof *y);
  for (int64_t s = 0; s < c->n_samples; ++s)
    for (int64_t at = 0; at < width; at += head_of(c, user_data, 0, 0).size) {
      const struct head h = head_of(c, user_data, s, at / head_of(c, user_data, 0, 0).size);
      for (int64_t i = 0; i < positions; ++i)
        for (int64_t j = 0; j <= i; ++j)
          add(y + (s * positions + i) * width + at, dot(h.q + i * h.row, h.k + j * h.row, h.size), h.v + j * h.row,
              h.size);
    }
  return GSEL_OK;
}

static gsel_status attention_back_input(const gsel_call* c, void* user_data) {
  const int64_t positions = c->inputs[0].dims[1], width = width_of(&c->d_outputs[0]);
  float* d = c->d_inputs[0].data;
  if (!d) return GSEL_OK;
  memset(d, 0, (size_t)c->d_inputs[0].n_elems * sizeof *d);
  for (int64_t s = 0; s < c->n_samples; ++s)
    for (int64_t at = 0; at < width; at += head_of(c, user_data, 0, 0).size) {
      const struct head h = head_of(c, user_data, s, at / head_of(c, user_data, 0, 0).size);
      float *dq = d + (h.q - in(c, 0)), *dk = d + (h.k - in(c, 0)), *dv = d + (h.v - in(c, 0));
      for (int64_t i = 0; i < positions; ++i)
        for (int64_t j = 0; j <= i; ++j) {
          const float *q = h.q + i * h.row, *k = h.k + j * h.row, *v = h.v + j * h.row;
          const float* dy = dout(c) + (s * positions + i) * width + at;
          const float d_score = dot(dy, v, h.size);
          add(dv + j * h.row, dot(q, k, h.size), dy, h.size);
          add(dq + i * h.row, d_score, k, h.size);
          add(dk + j * h.row, d_score, q, h.size);
        }
    }
  return GSEL_OK;
}

/* ---- gelu: something that is not linear ----------------------------------------------------------------- */

static gsel_status gelu_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  for (int64_t i = 0; i < c->inputs[0].n_elems; ++i)
    ((float*)c->outputs[0].data)[i] = fold(fold(in(c, 0)[i]) * fold(in(c, 0)[i]) + 3);
  return GSEL_OK;
}

static gsel_status gelu_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  for (int64_t i = 0; i < c->inputs[0].n_elems && c->d_inputs[0].data; ++i)
    ((float*)c->d_inputs[0].data)[i] = fold(fold(dout(c)[i]) * 2 * fold(in(c, 0)[i]));
  return GSEL_OK;
}

/* ---- loss: by row, of the largest logit, a sum over the words, and the target's logit --------------------- */

static gsel_status loss_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t rows = rows_of(&c->inputs[0]), words = width_of(&c->inputs[0]);
  const int64_t first = begin_of(&c->input_shards[0], 2);
  float *tops = c->reductions[0].data, *sums = c->reductions[1].data, *kept = c->saved;
  const uint8_t* targets = c->inputs[1].data;
  double sum = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* logits = in(c, 0) + r * words;
    const int64_t target = targets[r] - first;
    if (c->phase == 0) {
      tops[r] = logits[0];
      for (int64_t i = 1; i < words; ++i) tops[r] = fmaxf(tops[r], logits[i]);
    } else if (c->phase == 1) {
      sums[2 * r] = 0;
      for (int64_t i = 0; i < words; ++i) sums[2 * r] += fold(logits[i] - tops[r]);
      sums[2 * r + 1] = target >= 0 && target < words ? fold(logits[target]) : 0;
    } else {
      kept[r] = fold(tops[r] + sums[2 * r]);
      sum += (double)fold(kept[r] + sums[2 * r + 1]) + 9;
    }
  }
  if (c->phase < 2) return GSEL_OK;
  *(double*)c->outputs[0].data = sum;
  *(double*)c->outputs[1].data = (double)rows;
  return GSEL_OK;
}

static gsel_status loss_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t words = width_of(&c->inputs[0]), first = begin_of(&c->input_shards[0], 2);
  const float* kept = c->saved;
  const uint8_t* targets = c->inputs[1].data;
  for (int64_t i = 0; i < c->inputs[0].n_elems && c->d_inputs[0].data; ++i) {
    const int64_t row = i / words, is_target = targets[row] - first == i % words;
    ((float*)c->d_inputs[0].data)[i] = fold(fold(in(c, 0)[i]) + kept[row] - (float)is_target);
  }
  return GSEL_OK;
}

#include "layer_table.h"

const struct layer_kinds exact_layers = {&token,     &position, &layernorm, &linear, &attention,
                                         &attention, &gelu,     &residual,  &loss};
