/* support/equality_optimizers.h: the rules of the built-in optimizers as docs/equality.md writes them, in plain C: each
 * product and each sum is rounded to f32 by itself, which eq_product and eq_sum_of enforce whatever the compiler fuses.
 */
#ifndef GSEL_TESTS_EQUALITY_OPTIMIZERS_H
#define GSEL_TESTS_EQUALITY_OPTIMIZERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct eq_optimizer {
  const char* name;
  double learning_rate, weight_decay, momentum, beta1, beta2, epsilon;
  int warmup_steps;
} eq_optimizer;

static inline float eq_product(float a, float b) {
  volatile float product = a * b;
  return product;
}
static inline float eq_sum_of(float a, float b) {
  volatile float sum = a + b;
  return sum;
}
static inline float eq_sign(float x) {
  return (float)((x > 0) - (x < 0));
}

/* beta m + rest x */
static inline float eq_mean(float beta, float m, float rest, float x) {
  return eq_sum_of(eq_product(beta, m), eq_product(rest, x));
}

/* Step t, from 1, of one element; h is its gradient times factor. */
static inline void eq_optimize(const eq_optimizer* o, int64_t t, float h, float* p, float* m, float* v) {
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

#endif
