/* See equality_reference.h. */
#include "support/equality_reference.h"

#include <math.h>

enum { EQ_MOST_MICROBATCHES = 8, EQ_MOST_RANKS = 4 };

/* ---- the rules of optimizers: each product and each sum is rounded to f32 by itself, whatever the compiler fuses ----
 */

static float eq_product(float a, float b) {
  volatile float product = a * b;
  return product;
}
static float eq_sum_of(float a, float b) {
  volatile float sum = a + b;
  return sum;
}
static float eq_sign(float x) {
  return (float)((x > 0) - (x < 0));
}

/* beta m + rest x */
static float eq_mean(float beta, float m, float rest, float x) {
  return eq_sum_of(eq_product(beta, m), eq_product(rest, x));
}

/* Step t, from 1, of one element; h is its gradient times factor. */
static void eq_optimize(const eq_optimizer* o, int64_t t, float h, float* p, float* m, float* v) {
  const double r = t <= o->warmup_steps ? o->learning_rate * (double)t / (double)o->warmup_steps : o->learning_rate;
  const float rate = (float)r, decay = (float)o->weight_decay, kept = (float)(1 - r * o->weight_decay);
  const float b1 = (float)o->beta1, b2 = (float)o->beta2, rest1 = (float)(1 - o->beta1), rest2 = (float)(1 - o->beta2);
  if (!strcmp(o->name, "sgd")) {
    const float x = eq_sum_of(h, eq_product(decay, *p));
    if (o->momentum != 0) *m = eq_sum_of(eq_product((float)o->momentum, *m), x);
    *p = eq_sum_of(*p, -eq_product(rate, o->momentum != 0 ? *m : x));
  } else if (!strcmp(o->name, "sign_sgd")) {
    *p = eq_sum_of(eq_product(*p, kept), -eq_product(rate, eq_sign(h)));
  } else if (!strcmp(o->name, "lion")) {
    *p = eq_sum_of(eq_product(*p, kept), -eq_product(rate, eq_sign(eq_mean(b1, *m, rest1, h))));
    *m = eq_mean(b2, *m, rest2, h);
  } else {
    const int decoupled = !strcmp(o->name, "adamw");
    const float step = (float)(r / (1 - pow(o->beta1, (double)t)));
    const float root = (float)(1 / sqrt(1 - pow(o->beta2, (double)t)));
    const float x = decoupled ? h : eq_sum_of(h, eq_product(decay, *p));
    *m = eq_mean(b1, *m, rest1, x);
    *v = eq_mean(b2, *v, rest2, eq_product(x, x));
    const float below = eq_sum_of(eq_product(sqrtf(*v), root), (float)o->epsilon);
    volatile float quotient = *m / below;
    *p = eq_sum_of(decoupled ? eq_product(*p, kept) : *p, -eq_product(step, quotient));
  }
}

/* ---- one micro-batch of one rank of the data axis ---- */

typedef struct eq_micro {
  int64_t n, ids[EQ_MOST_SAMPLES];
  int32_t tokens[EQ_MOST_SAMPLES];
  /* Of each rank of the tensor axis, which has columns of wu and rows of wd. */
  float h0[EQ_MOST_SAMPLES * EQ_WIDTH], h3[EQ_MOST_SAMPLES * EQ_WIDTH], y[EQ_MOST_SAMPLES * EQ_WORDS];
  float h2[EQ_MOST_RANKS][EQ_MOST_SAMPLES * EQ_HIDDEN];
  float dy[EQ_MOST_SAMPLES * EQ_WORDS], dh3[EQ_MOST_SAMPLES * EQ_WIDTH], dh0[EQ_MOST_SAMPLES * EQ_WIDTH];
  float dh1[EQ_MOST_RANKS][EQ_MOST_SAMPLES * EQ_HIDDEN];
  double loss, weight;
} eq_micro;

/* Larger parts first. */
static int64_t eq_begin(int64_t n, int64_t parts, int64_t i) {
  return i * (n / parts) + (i < n % parts ? i : n % parts);
}

/* Part t of wu, columns, and of wd, rows. */
static int64_t eq_part(const float* params, int tensor, int t, float* wu, float* wd) {
  const int64_t begin = eq_begin(EQ_HIDDEN, tensor, t), n = eq_begin(EQ_HIDDEN, tensor, t + 1) - begin;
  for (int64_t i = 0; i < EQ_WIDTH; ++i)
    for (int64_t j = 0; j < n; ++j) wu[i * n + j] = params[EQ_TABLE_ELEMS + i * EQ_HIDDEN + begin + j];
  memcpy(wd, params + EQ_TABLE_ELEMS + EQ_MATRIX_ELEMS + begin * EQ_WIDTH, sizeof(float) * (size_t)(n * EQ_WIDTH));
  return n;
}

/* sum = ((x0 + x1) + x2) + ...: the first is stored, the others are added in order. */
static void eq_fold(float* sum, const float* x, int64_t elems, int i) {
  for (int64_t k = 0; k < elems; ++k) sum[k] = i == 0 ? x[k] : sum[k] + x[k];
}

static void eq_forward_backward(const eq_setting* e, const float* params, eq_micro* m) {
  float wu[EQ_MATRIX_ELEMS], wd[EQ_MATRIX_ELEMS], h1[EQ_MOST_SAMPLES * EQ_HIDDEN], of_up[EQ_MOST_SAMPLES * EQ_WIDTH],
      term[EQ_MOST_SAMPLES * EQ_WIDTH];
  for (int64_t s = 0; s < m->n; ++s) m->tokens[s] = eq_token(m->ids[s]);
  eq_embed(m->n, m->tokens, params, m->h0);
  for (int t = 0; t < e->tensor; ++t) {
    const int64_t width = eq_part(params, e->tensor, t, wu, wd);
    eq_linear(m->n, EQ_WIDTH, width, m->h0, wu, h1);
    eq_act(m->n * width, h1, m->h2[t]);
    eq_linear(m->n, width, EQ_WIDTH, m->h2[t], wd, term);
    eq_fold(m->h3, term, m->n * EQ_WIDTH, t);
  }
  eq_head(m->n, m->h3, m->h0, params, m->y);
  eq_loss(m->n, m->ids, m->y, &m->loss, &m->weight);
  eq_loss_input(m->n, m->ids, m->y, m->dy);
  eq_head_input(m->n, m->dy, params, m->dh3, m->dh0);
  for (int t = 0; t < e->tensor; ++t) {
    const int64_t width = eq_part(params, e->tensor, t, wu, wd);
    float dh2[EQ_MOST_SAMPLES * EQ_HIDDEN];
    eq_linear_input(m->n, width, EQ_WIDTH, m->dh3, wd, dh2);
    eq_act_input(m->n * width, m->h2[t], dh2, m->dh1[t]);
    eq_linear_input(m->n, EQ_WIDTH, width, m->dh1[t], wu, term);
    eq_fold(of_up, term, m->n * EQ_WIDTH, t);
  }
  eq_sum(m->n * EQ_WIDTH, m->dh0, of_up, m->dh0); /* the later reader's gradient first */
}

/* The weights' halves: the first of a sum overwrites, the others add. */
static void eq_use_head(const eq_micro* m, int add, float* g) {
  eq_head_weight(m->n, m->h3, m->h0, m->dy, add, g);
}
static void eq_use_embed(const eq_micro* m, int add, float* g) {
  eq_embed_weight(m->n, m->tokens, m->dh0, add, g);
}
/* Of each shard by itself; a kernel that adds begins with the present value. */
static void eq_use_matrices(const eq_setting* e, const eq_micro* m, int add, float* g) {
  float *up = g + EQ_TABLE_ELEMS, *down = up + EQ_MATRIX_ELEMS, dw[EQ_MATRIX_ELEMS];
  for (int t = 0; t < e->tensor; ++t) {
    const int64_t begin = eq_begin(EQ_HIDDEN, e->tensor, t), n = eq_begin(EQ_HIDDEN, e->tensor, t + 1) - begin;
    eq_linear_weight(m->n, n, EQ_WIDTH, m->h2[t], m->dh3, add, down + begin * EQ_WIDTH);
    for (int64_t k = 0; k < EQ_WIDTH * n; ++k) dw[k] = up[k / n * EQ_HIDDEN + begin + k % n];
    eq_linear_weight(m->n, EQ_WIDTH, n, m->h0, m->dh1[t], add, dw);
    for (int64_t k = 0; k < EQ_WIDTH * n; ++k) up[k / n * EQ_HIDDEN + begin + k % n] = dw[k];
  }
}

/* ---- which samples ---- */

static void eq_deal(const eq_setting* e, int64_t step, int rank, int mb, eq_micro* m) {
  int64_t first, end;
  if (e->way == EQ_MASTER) {
    const int64_t largest = eq_begin(eq_begin(e->batch, e->ranks, 1), e->microbatches, 1) * e->ranks;
    const int64_t begin = mb * largest, whole = begin < e->batch ? begin : e->batch,
                  n = whole + largest < e->batch ? largest : e->batch - whole;
    first = whole + eq_begin(n, e->ranks, rank);
    end = whole + eq_begin(n, e->ranks, rank + 1);
  } else {
    const int64_t begin = eq_begin(e->batch, e->ranks, rank), shard = eq_begin(e->batch, e->ranks, rank + 1) - begin;
    first = begin + eq_begin(shard, e->microbatches, mb);
    end = begin + eq_begin(shard, e->microbatches, mb + 1);
  }
  m->n = end - first;
  for (int64_t s = 0; s < m->n; ++s) m->ids[s] = step * e->batch + first + s;
}

/* ---- a pipeline's ranks ---- */

/* Both uses of the table on pipeline rank 0 of a V: in the order of the weights' halves in its row. */
static void eq_add_by_row(const eq_setting* e, const eq_micro* micros, float* table) {
  gsel_schedule* schedule = NULL;
  gsel_action action;
  int added = 0;
  assert_int_equal(
      gsel_schedule_create(gsel_str_from(e->schedule), e->pipeline, e->microbatches, e->chunks, &schedule, NULL),
      GSEL_OK);
  const int32_t last = gsel_schedule_stages(schedule) - 1;
  for (int32_t i = 0; i < gsel_schedule_length(schedule, 0); ++i) {
    assert_int_equal(gsel_schedule_action(schedule, 0, i, &action, NULL), GSEL_OK);
    if (action.kind != GSEL_BACKWARD && action.kind != GSEL_BACKWARD_WEIGHT) continue;
    if (action.stage == last) eq_use_head(&micros[action.microbatch], added++, table);
    if (action.stage == 0) eq_use_embed(&micros[action.microbatch], added++, table);
  }
  gsel_schedule_free(schedule);
}

/* ---- the gradient of a step ---- */

/* Pipeline ranks 0 and 1 have a use of the table each. In a V pipeline rank 0 has both. */
static int eq_is_v(const eq_setting* e) {
  return e->pipeline > 1 && (!strcmp(e->schedule, "zb-v") || !strcmp(e->schedule, "dualpipe-v"));
}
static int eq_is_tied(const eq_setting* e) {
  return e->pipeline > 1 && !eq_is_v(e);
}

/* What one backward of a micro-batch contributes; to `second` what the other pipeline rank has of the table. */
static void eq_use_all(const eq_setting* e, const eq_micro* m, int add, float* g, float* second) {
  eq_use_matrices(e, m, add, g);
  if (eq_is_v(e)) return; /* by its row */
  eq_use_head(m, add, eq_is_tied(e) ? second : g);
  eq_use_embed(m, eq_is_tied(e) ? add : 1, g);
}

/* Ranks' sums over their micro-batches, then ranks. */
static void eq_sum_per_step(const eq_setting* e, eq_micro micros[][EQ_MOST_MICROBATCHES], float* sum,
                            float* second_sum) {
  float g[EQ_ELEMS], second[EQ_TABLE_ELEMS];
  for (int r = 0; r < e->ranks; ++r) {
    for (int mb = 0; mb < e->microbatches; ++mb) eq_use_all(e, &micros[r][mb], mb > 0, g, second);
    if (eq_is_v(e)) eq_add_by_row(e, micros[r], g);
    eq_fold(sum, g, EQ_ELEMS, r);
    if (eq_is_tied(e)) eq_fold(second_sum, second, EQ_TABLE_ELEMS, r);
  }
}

/* Ranks of each micro-batch, then micro-batches. */
static void eq_sum_per_microbatch(const eq_setting* e, eq_micro micros[][EQ_MOST_MICROBATCHES], float* sum,
                                  float* second_sum) {
  float g[EQ_ELEMS], second[EQ_TABLE_ELEMS], of_ranks[EQ_ELEMS], second_of_ranks[EQ_TABLE_ELEMS];
  for (int mb = 0; mb < e->microbatches; ++mb) {
    for (int r = 0; r < e->ranks; ++r) {
      eq_use_all(e, &micros[r][mb], 0, g, second);
      eq_fold(of_ranks, g, EQ_ELEMS, r);
      if (eq_is_tied(e)) eq_fold(second_of_ranks, second, EQ_TABLE_ELEMS, r);
    }
    eq_fold(sum, of_ranks, EQ_ELEMS, mb);
    if (eq_is_tied(e)) eq_fold(second_sum, second_of_ranks, EQ_TABLE_ELEMS, mb);
  }
}

static void eq_gradient(const eq_setting* e, eq_micro micros[][EQ_MOST_MICROBATCHES], float* sum) {
  float second_sum[EQ_TABLE_ELEMS];
  (e->way == EQ_PER_MICROBATCH ? eq_sum_per_microbatch : eq_sum_per_step)(e, micros, sum, second_sum);
  if (eq_is_tied(e)) eq_fold(sum, second_sum, EQ_TABLE_ELEMS, 1);
}

/* Sums in f64: micro-batches of a rank in order, then ranks in order. dp's master has all of a micro-batch at once. */
static void eq_losses(const eq_setting* e, eq_micro micros[][EQ_MOST_MICROBATCHES], double* loss, double* weight) {
  *loss = *weight = 0;
  if (e->way == EQ_MASTER) {
    for (int mb = 0; mb < e->microbatches; ++mb) {
      int64_t n = 0, ids[EQ_MOST_SAMPLES * EQ_MOST_RANKS];
      float y[EQ_MOST_SAMPLES * EQ_MOST_RANKS * EQ_WORDS];
      double sums[2];
      for (int r = 0; r < e->ranks; n += micros[r++][mb].n) {
        memcpy(ids + n, micros[r][mb].ids, sizeof *ids * (size_t)micros[r][mb].n);
        memcpy(y + n * EQ_WORDS, micros[r][mb].y, sizeof *y * (size_t)(micros[r][mb].n * EQ_WORDS));
      }
      eq_loss(n, ids, y, &sums[0], &sums[1]);
      *loss += sums[0];
      *weight += sums[1];
    }
    return;
  }
  for (int r = 0; r < e->ranks; ++r) {
    double sums[2] = {0, 0};
    for (int mb = 0; mb < e->microbatches; ++mb) {
      sums[0] += micros[r][mb].loss;
      sums[1] += micros[r][mb].weight;
    }
    *loss += sums[0];
    *weight += sums[1];
  }
}

/* The factor is 1 / weight, rounded from f64. */
void eq_reference(const eq_setting* e, int steps, float* params, double* losses) {
  static eq_micro micros[EQ_MOST_RANKS][EQ_MOST_MICROBATCHES];
  float sum[EQ_ELEMS], m[EQ_ELEMS], v[EQ_ELEMS];
  memset(m, 0, sizeof m);
  memset(v, 0, sizeof v);
  for (int p = 0, first = 0; p < EQ_PARAMS; first += (int)kEqElems[p++])
    eq_initial(params + first, 0, kEqElems[p], 0, &p);
  for (int step = 0; step < steps; ++step) {
    double loss, weight;
    for (int r = 0; r < e->ranks; ++r)
      for (int mb = 0; mb < e->microbatches; ++mb) {
        eq_deal(e, step, r, mb, &micros[r][mb]);
        eq_forward_backward(e, params, &micros[r][mb]);
      }
    eq_losses(e, micros, &loss, &weight);
    eq_gradient(e, micros, sum);
    const float factor = (float)(1 / weight);
    for (int k = 0; k < EQ_ELEMS; ++k)
      eq_optimize(&e->optimizer, step + 1, eq_product(sum[k], factor), &params[k], &m[k], &v[k]);
    losses[step] = loss / weight;
  }
}
