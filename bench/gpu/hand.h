/* hand.h: the training of examples/gpt on a GPU as a loop written by hand: the functions of its layers and the kernels
 * of gsel's device plugin, one after the other on one stream; no model description, program or trainer. All memory is
 * taken before the first step. The host waits once in a step, for the loss and the norm of the gradient. In bf16,
 * values and what layers read of parameters are bf16, and the optimizer steps f32 parameters, as the trainer does. */
#ifndef BENCH_HAND_H
#define BENCH_HAND_H

#include <gsel/device.h>
#include <gsel/gsel.h>

#include "device_layers.h"

struct hand_settings {
  struct gpt_sizes sizes;
  int64_t batch; /* samples */
  double learning_rate, weight_decay, beta1, beta2, epsilon, clip_norm;
};

struct hand;

/* plugin: path of cuda.so. params: what all parameters begin with, one after the other, in the order of model.c. Ends
 * the program with the reason where something fails; exits with 77 where the plugin cannot run. */
struct hand* hand_open(const char* plugin, const struct hand_settings* settings, const struct text* text,
                       const float* params, const int64_t* param_elems, int32_t n_params);

/* One step; returns its loss per token. Its last kernels may still run; finish waits for them. */
double hand_step(struct hand* hand);
void hand_finish(struct hand* hand);

void hand_close(struct hand* hand);

#endif
