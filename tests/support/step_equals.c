/* See step_equals.h. */
#include "support/step_equals.h"

void run_steps(rank_run* run) {
  const trial* t = (const trial*)run->user;
  float* out = t->out + run->rank * N_ELEMS;
  step_session s;
  gsel_error* err = NULL;
  rank_ok(run, step_open(run, &t->m, &s, &err), err);
  for (int i = 0; i < t->steps; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, step_params(s.trainer, out, &err), err);
  step_close(&s);
  for (int i = 0; t->expected && i < N_ELEMS; ++i)
    if (out[i] != t->expected[i]) {
      snprintf(run->failure, sizeof run->failure, "rank %d of %d, element %d: expected %.9g, got %.9g", (int)run->rank,
               (int)run->world_size, i, t->expected[i], out[i]);
      return;
    }
}

void equals_after(int steps, const step_model* one, const char* one_config, const step_model* many,
                  const char* many_config) {
  float *expected = (float*)shared_memory(sizeof(float) * N_ELEMS),
        *out = (float*)shared_memory(sizeof(float) * N_ELEMS * RANKS_MAX);
  char config[640];
  trial t = {*one, steps, NULL, expected};
  t.m.config = one_config;
  as_threads(1, run_steps, &t);
  t.m = *many;
  t.m.config = config;
  t.out = out;
  t.expected = expected;
  for (size_t z = 0; z < N_STEP_STRATEGIES; ++z)
    for (int n = 1; n <= 3; ++n) {
      snprintf(config, sizeof config, "%s%s", kStepStrategies[z], many_config);
      print_message("  %d ranks %s", n, kStepStrategies[z]);
      as_threads(n, run_steps, &t);
    }
  munmap(expected, sizeof(float) * N_ELEMS);
  munmap(out, sizeof(float) * N_ELEMS * RANKS_MAX);
}

void equals(const step_model* one, const char* one_config, const step_model* many, const char* many_config) {
  equals_after(RUN_STEPS, one, one_config, many, many_config);
}

step_model nothing(void) {
  step_model m;
  memset(&m, 0, sizeof m);
  return m;
}
