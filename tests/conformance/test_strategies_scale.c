/* What sign-SGD cannot see: that a step is the mean gradient's, of the right length. Plain SGD with powers of two is
 * exact and sees a factor; norms and clipping are compared with those of one rank; on random numbers every strategy is
 * close to one rank, and equal to itself run again. */
#include <math.h>

#include "support/plugin_folder.h"
#include "support/trainer_trial.h"

static const char* with_strategy(int s, const char* train_section) {
  static char text[1024];
  snprintf(text, sizeof text, "%s%s", s < 0 ? "" : kStrategies[s].section, train_section);
  return text;
}

/* ---- exact scale ------------------------------------------------------------------------------------------- */

/* 8 samples of weight 4: the weight is 32. A rate of 32 gives the summed gradient, one of 1/16 its 512th. Every process
 * of a launched job computes the same. */
static outcome* expected_step(void) {
  outcome *initial = shared_outcomes(), *summed = shared_outcomes(), *expected = shared_outcomes();
  trial t = plain(SGD("0.0", "8", ""), initial);
  t.steps = t.count_all = 1;
  as_threads(1, train, &t);
  t.config = SGD("32.0", "8", "");
  t.out = summed;
  as_threads(1, train, &t);
  assert_true(initial->weight[0] == 32.0);
  int moved = 0;
  memcpy(expected, summed, sizeof *expected);
  for (int i = 0; i < EXACT_ELEMS; ++i) {
    const float gradient = initial->params[i] - summed->params[i];
    expected->params[i] = initial->params[i] - gradient / 512;
    moved += gradient != 0;
  }
  assert_true(moved > EXACT_ELEMS / 2);
  free_outcomes(summed);
  free_outcomes(initial);
  return expected;
}

static void the_step_is_scaled_by_the_global_weight_exactly(void** state) {
  (void)state;
  outcome *expected = expected_step(), *out = shared_outcomes();
  for (int s = 0; s < N_STRATEGIES; ++s)
    for (int n = 1; n <= 4 && is_tried(s); n *= 2) {
      trial t = plain(with_strategy(s, SGD("0.0625", "8", "microbatch = 2\n")), out);
      t.steps = t.count_all = 1;
      t.expected = expected;
      print_message("  %s on %d ranks\n", kStrategies[s].name, n);
      as_threads(n, train, &t);
    }
  free_outcomes(expected);
  free_outcomes(out);
}

/* Its headers knew neither `rank_along` nor the macro that defines a strategy. */
static void a_plugin_built_before_abi_1_1_trains(void** state) {
  (void)state;
  outcome *expected = expected_step(), *out = shared_outcomes();
  trial t = plain("[strategy.data]\nplugin = \"flat_1_0\"\n" SGD("0.0625", "8", "microbatch = 2\n"), out);
  t.steps = t.count_all = 1;
  t.expected = expected;
  as_threads(2, train, &t);
  free_outcomes(expected);
  free_outcomes(out);
}

/* Gradients that were summed where a mean was meant are too large by a factor. The oracle above must see it, and
 * equality with sign-SGD must not, or this file would prove nothing. */
static void a_sum_instead_of_a_mean_is_seen(void** state) {
  (void)state;
  outcome *expected = expected_step(), *out = shared_outcomes();
  trial t = plain(SGD("0.0625", "8", ""), out);
  t.steps = t.count_all = 1;
  t.loss_factor = 2;
  as_threads(2, train, &t);
  int wrong = 0;
  for (int i = 0; i < EXACT_ELEMS; ++i) wrong += out->params[i] != expected->params[i];
  assert_true(wrong > EXACT_ELEMS / 2);
  free_outcomes(expected);

  const trial like = plain(NULL, NULL);
  expected = exact_reference(&like, TRAIN("8", ""));
  trial blind = plain(TRAIN("8", ""), out);
  blind.loss_factor = 2;
  as_threads(2, train, &blind);
  assert_memory_equal(out->params, expected->params, sizeof out->params);
  free_outcomes(expected);
  free_outcomes(out);
}

static void refuse_local_mean(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_fails(run, open_session(run, &s, &err), err, GSEL_ERR_PROGRAM, "the loss weight is not reduced yet", -1);
  close_session(&s);
}

/* A plugin that divides by its own rank's weight does not get as far as a step. */
static void a_plugin_that_divides_by_its_own_weight_is_refused(void** state) {
  (void)state;
  trial t = plain("[strategy.data]\nplugin = \"local_mean\"\n" TRAIN("8", ""), NULL);
  as_threads(2, refuse_local_mean, &t);
}

/* ---- norms ------------------------------------------------------------------------------------------------- */

/* The norm is that of the mean gradient, known from one step of rate 32 on a weight of 32; a clip at half of it halves
 * the step. */
static void clipping_scales_by_the_norm_of_the_mean_gradient(void** state) {
  (void)state;
  outcome *still = shared_outcomes(), *whole = shared_outcomes(), *half = shared_outcomes();
  char config[256];
  trial t = plain(SGD("0.0", "8", "clip_norm = 1e9\n"), still);
  t.steps = t.count_all = 1;
  as_threads(1, train, &t);
  t.config = SGD("32.0", "8", "clip_norm = 1e9\n");
  t.out = whole;
  as_threads(1, train, &t);
  double squares = 0;
  for (int i = 0; i < EXACT_ELEMS; ++i) {
    const double gradient = (still->params[i] - whole->params[i]) / 32.0;
    squares += gradient * gradient;
  }
  const double norm = sqrt(squares);
  assert_true(norm > 1 && fabs(whole->norm[0] - norm) < 1e-5 * norm);
  snprintf(config, sizeof config, SGD("32.0", "8", "microbatch = 2\nclip_norm = %.17g\n"), norm / 2);
  for (int s = 0; s < N_STRATEGIES; ++s)
    for (int n = 1; n <= 3 && is_tried(s); ++n) {
      t = plain(with_strategy(s, config), half);
      t.steps = t.count_all = 1;
      print_message("  %s on %d ranks\n", kStrategies[s].name, n);
      as_threads(n, train, &t);
      for (int r = 0; r < n; ++r) assert_true(fabs(half[r].norm[0] - norm) < 1e-5 * norm);
      for (int i = 0; i < EXACT_ELEMS; ++i) {
        const double step = still->params[i] - half->params[i], wanted = (still->params[i] - whole->params[i]) / 2.0;
        assert_true(fabs(step - wanted) <= 1e-5 * (1 + fabs(wanted)));
      }
    }
  free_outcomes(still);
  free_outcomes(whole);
  free_outcomes(half);
}

/* ---- random numbers ----------------------------------------------------------------------------------------- */

/* Four steps; an element's gradient is a sum of at most 9 samples * 3 tokens * 8 terms, so that two orders of summation
 * differ by as many roundings. */
static void random_numbers_come_close_and_come_again(void** state) {
  (void)state;
  static const char section[] = SGD("0.125", "9", "momentum = 0.5\nmicrobatch = 2\n");
  const float tolerance = STEPS * 9 * TOKENS * VOCAB * 1.2e-7f;
  outcome *expected = shared_outcomes(), *out = shared_outcomes(), *again = shared_outcomes();
  trial t = plain(section, expected);
  t.random = 1;
  as_threads(1, train, &t);
  for (int s = 0; s < N_STRATEGIES; ++s)
    for (int n = 2; n <= 3 && is_tried(s); ++n) {
      print_message("  %s on %d ranks\n", kStrategies[s].name, n);
      t = plain(with_strategy(s, section), out);
      t.random = 1;
      as_threads(n, train, &t);
      for (int i = 0; i < EXACT_ELEMS; ++i)
        if (!(fabsf(out->params[i] - expected->params[i]) <= tolerance))
          fail_msg("element %d is %.9g, expected %.9g within %.3g", i, out->params[i], expected->params[i], tolerance);
      t.out = again;
      t.expected = out;
      as_threads(n, train, &t);
    }
  free_outcomes(expected);
  free_outcomes(out);
  free_outcomes(again);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_step_is_scaled_by_the_global_weight_exactly),
      cmocka_unit_test(a_plugin_built_before_abi_1_1_trains),
      cmocka_unit_test(a_sum_instead_of_a_mean_is_seen),
      cmocka_unit_test(a_plugin_that_divides_by_its_own_weight_is_refused),
      cmocka_unit_test(clipping_scales_by_the_norm_of_the_mean_gradient),
      cmocka_unit_test(random_numbers_come_close_and_come_again),
  };
  const Folder folder = fresh_folder_before_others(); /* these are found here, ours beside the library */
  copy_fixture(&folder, "local_mean");
  copy_fixture(&folder, "flat_1_0");
  const int failures = cmocka_run_group_tests_name("strategies_scale", tests, NULL, NULL);
  remove_folder(&folder);
  return failures;
}
