/* Kernels that always add to gradients (GSEL_LAYER_ALWAYS_ACCUMULATES) train the parameters of kernels that clear
 * themselves, bit for bit, under every strategy: with micro-batches, recomputation, moved lending, pipelines, a tensor
 * axis. Without the flag they do not, which shows that the trial can tell. */
#include "support/always_adds.h"
#include "support/pipeline_trial.h"
#include "support/tensor_trial.h"
#include "support/trainer_trial.h"

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
