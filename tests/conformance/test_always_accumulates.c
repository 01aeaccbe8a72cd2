/* Kernels that always add to gradients (GSEL_LAYER_ALWAYS_ACCUMULATES) train the parameters of kernels that clear
 * themselves, bit for bit, under every strategy: with micro-batches, recomputation, moved lending, pipelines, a tensor
 * axis. Without the flag they do not, which shows that the trial can tell. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "support/pipeline_trial.h"
#include "support/tensor_trial.h"
#include "support/trainer_trial.h"

/* ---- kernels of any model, made to add to gradients of parameters and of inputs whatever `accumulate` says ---- */

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

/* ---- trials ---- */

static void add_always(int flagged) {
  kernels_always_add = 1;
  layers_say_they_add = flagged;
}

static void every_data_strategy(void** state) {
  (void)state;
  static const char* const ways[] = {"", "recompute = \"all\"\n", "lending = \"moved\"\n"};
  const trial like = plain(NULL, NULL);
  kernels_always_add = 0;
  outcome *expected = exact_reference(&like, TRAIN("9", "")), *out = shared_outcomes();
  add_always(1);
  for (int s = 0; s < N_STRATEGIES; ++s)
    for (size_t w = 0; w < sizeof ways / sizeof *ways; ++w) {
      char config[1024];
      snprintf(config, sizeof config, "%s" TRAIN("9", "microbatch = 2\n%s"), kStrategies[s].section, ways[w]);
      trial t = plain(config, out);
      t.expected = expected;
      as_threads(w ? 2 : 3, train, &t);
    }
  free_outcomes(expected);
  free_outcomes(out);
}

static void without_the_flag_they_train_something_else(void** state) {
  (void)state;
  const trial like = plain(NULL, NULL);
  kernels_always_add = 0;
  outcome *expected = exact_reference(&like, TRAIN("9", "")), *out = shared_outcomes();
  add_always(0);
  trial t = plain(TRAIN("9", ""), out);
  as_threads(1, train, &t);
  assert_memory_not_equal(out->params, expected->params, sizeof out->params);
  free_outcomes(expected);
  free_outcomes(out);
}

static void every_schedule_of_a_pipeline(void** state) {
  (void)state;
  static const char* const schedules[] = {"gpipe", "1f1b", "zb-h1", "zb-v"};
  kernels_always_add = 0;
  pipeline_outcome *expected = pipeline_reference(8, ""), *out = pipeline_outcomes();
  add_always(1);
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; ++i) {
    char config[1024];
    snprintf(config, sizeof config,
             "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"%s\"\n" PIPELINE_TRAIN,
             schedules[i], 8, 4);
    pipeline_trial t = {.config = config, .fail_on_rank = -1, .evaluates = 1, .expected = expected, .out = out};
    as_threads(2, train_pipeline, &t);
  }
  free_pipeline_outcomes(expected);
  free_pipeline_outcomes(out);
}

#define ADDING_TRAIN                                                                                                 \
  "[train]\noptimizer = \"sign_sgd\"\nlearning_rate = 1.0\nweight_decay = 0.0\nseed = 5\nbatch = 8\nmicrobatches = " \
  "2\n"

static void every_strategy_of_a_tensor_axis(void** state) {
  (void)state;
  static const char* const sections[] = {
      "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n",
      "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\nsequence_parallel = true\n",
      "[mesh]\ncontext = 2\n[strategy.context]\nplugin = \"cp\"\n"};
  kernels_always_add = 0;
  tensor_outcome *expected = tensor_outcomes(), *out = tensor_outcomes();
  tensor_trial reference = tensor_trial_of(ADDING_TRAIN, expected);
  as_threads(1, train_tensor, &reference);
  add_always(1);
  for (size_t i = 0; i < sizeof sections / sizeof *sections; ++i) {
    char config[1024];
    snprintf(config, sizeof config, "%s" ADDING_TRAIN, sections[i]);
    tensor_trial t = tensor_trial_of(config, out);
    t.expected = expected;
    try_tensor(&t, 2);
  }
  free_tensor_outcomes(expected);
  free_tensor_outcomes(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_data_strategy),
      cmocka_unit_test(without_the_flag_they_train_something_else),
      cmocka_unit_test(every_schedule_of_a_pipeline),
      cmocka_unit_test(every_strategy_of_a_tensor_axis),
  };
  return cmocka_run_group_tests_name("always accumulates", tests, NULL, NULL);
}
