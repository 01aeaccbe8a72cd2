/* adamw.c: Loshchilov and Hutter 2019, algorithm 2, with both bias corrections taken out of the loop. Compiled without
 * -ffast-math, so that each result is the correctly rounded one, whatever the instruction set. */
#include "adamw.h"

#include <math.h>

#include "each_cpu.h"

FOR_EACH_CPU
void adamw_step(const struct adamw* a, float* restrict params, const float* restrict gradient, float* restrict first,
                float* restrict second, int64_t count) {
  const float scale = (float)a->gradient_scale, beta1 = (float)a->beta1, beta2 = (float)a->beta2;
  const float rest1 = (float)(1 - a->beta1), rest2 = (float)(1 - a->beta2), epsilon = (float)a->epsilon;
  const float kept = (float)(1 - a->learning_rate * a->weight_decay);
  const float step = (float)(a->learning_rate / (1 - pow(a->beta1, (double)a->t)));
  const float root = (float)(1 / sqrt(1 - pow(a->beta2, (double)a->t)));
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale;
    first[i] = beta1 * first[i] + rest1 * g;
    second[i] = beta2 * second[i] + rest2 * (g * g);
    params[i] = params[i] * kept - step * (first[i] / (sqrtf(second[i]) * root + epsilon));
  }
}

FOR_EACH_CPU
double sum_of_squares(const float* x, int64_t count) {
  double lanes[32] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + 32 <= count; i += 32)
    for (int lane = 0; lane < 32; ++lane) lanes[lane] += (double)x[i + lane] * (double)x[i + lane];
  for (; i < count; ++i) lanes[i % 32] += (double)x[i] * (double)x[i];
  for (int lane = 0; lane < 32; ++lane) sum += lanes[lane];
  return sum;
}
