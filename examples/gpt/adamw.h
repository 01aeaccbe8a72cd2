/* adamw.h: the optimizer of gpt-by-hand. Its arithmetic is that of gsel's "adamw", operation by operation. */
#ifndef GPT_ADAMW_H
#define GPT_ADAMW_H

#include <stdint.h>

struct adamw {
  double learning_rate, weight_decay, beta1, beta2, epsilon;
  double gradient_scale; /* makes a sum of gradients the clipped mean */
  int64_t t;             /* step, from 1 */
};

/* One step; params, gradient and both moments are [count]. */
void adamw_step(const struct adamw* a, float* params, const float* gradient, float* first, float* second,
                int64_t count);

double sum_of_squares(const float* x, int64_t count);

#endif
