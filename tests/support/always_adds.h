/* support/always_adds.h: makes the kernels of any model add to gradients, of parameters and of inputs, whatever
 * `accumulate` says, as common C kernels do, and says so of their layers. Of one file of a program. */
#ifndef GSEL_TESTS_ALWAYS_ADDS_H
#define GSEL_TESTS_ALWAYS_ADDS_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "support/check.h"

typedef struct adding_kernel {
  gsel_layer_fn forward, backward_input, backward_weight, backward;
  void* user_data;
} adding_kernel;

enum { MOST_ADDING_KERNELS = 1 << 15 };
static adding_kernel adding_kernels[MOST_ADDING_KERNELS];
static atomic_int n_adding_kernels;
static int kernels_always_add;  /* layers added from here on */
static int layers_say_they_add; /* ... and are flagged */

/* A kernel that is told to add does not clear. To gradients of inputs, which it overwrites, what was there is added
 * behind it, where the layer says that it adds and has no phases. */
static gsel_status run_adding(gsel_layer_fn kernel, const gsel_call* call, void* user_data) {
  gsel_call adding = *call;
  float* before[8] = {NULL};
  adding.accumulate = 1;
  const int n =
      layers_say_they_add && call->n_reductions == 0 && call->n_inputs <= 8 && call->d_inputs ? call->n_inputs : 0;
  for (int i = 0; i < n; ++i) {
    const gsel_tensor* d = &call->d_inputs[i];
    if (!d->data || d->dtype != GSEL_F32) continue;
    before[i] = (float*)malloc(sizeof(float) * (size_t)d->n_elems);
    if (!before[i]) return GSEL_ERR_NOMEM;
    memcpy(before[i], d->data, sizeof(float) * (size_t)d->n_elems);
  }
  const gsel_status status = kernel(&adding, user_data);
  for (int i = 0; i < n; ++i) {
    for (int64_t e = 0; before[i] && e < call->d_inputs[i].n_elems; ++e)
      ((float*)call->d_inputs[i].data)[e] += before[i][e];
    free(before[i]);
  }
  return status;
}
static gsel_status adding_forward(const gsel_call* call, void* user) {
  return ((adding_kernel*)user)->forward(call, ((adding_kernel*)user)->user_data);
}
static gsel_status adding_backward_input(const gsel_call* call, void* user) {
  return run_adding(((adding_kernel*)user)->backward_input, call, ((adding_kernel*)user)->user_data);
}
static gsel_status adding_backward_weight(const gsel_call* call, void* user) {
  return run_adding(((adding_kernel*)user)->backward_weight, call, ((adding_kernel*)user)->user_data);
}
static gsel_status adding_backward(const gsel_call* call, void* user) {
  return run_adding(((adding_kernel*)user)->backward, call, ((adding_kernel*)user)->user_data);
}

/* In place of the library's in this program. */
gsel_status gsel_model_add_layer(gsel_model* model, const gsel_layer_options* given, int32_t* out_id,
                                 gsel_error** err) {
  typedef gsel_status (*add_fn)(gsel_model*, const gsel_layer_options*, int32_t*, gsel_error**);
  const add_fn add = (add_fn)dlsym(RTLD_NEXT, "gsel_model_add_layer");
  gsel_layer_options options = *given;
  if (!kernels_always_add) return add(model, given, out_id, err);
  const int i = atomic_fetch_add(&n_adding_kernels, 1);
  if (i >= MOST_ADDING_KERNELS) return GSEL_ERR_NOMEM;
  adding_kernels[i] =
      (adding_kernel){given->forward, given->backward_input, given->backward_weight, given->backward, given->user_data};
  options.user_data = &adding_kernels[i];
  if (options.forward) options.forward = adding_forward;
  if (options.backward_input) options.backward_input = adding_backward_input;
  if (options.backward_weight) options.backward_weight = adding_backward_weight;
  if (options.backward) options.backward = adding_backward;
  if (layers_say_they_add) options.flags |= GSEL_LAYER_ALWAYS_ACCUMULATES;
  return add(model, &options, out_id, err);
}

#endif
