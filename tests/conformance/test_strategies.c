/* What every strategy owes first: the single rank's result, bit for bit. Strategies and options are rows of a table
 * (support/trainer_trial.h); a third party's plugin is tested by adding one. Numbers are integers and the optimizer is
 * sign-SGD, so that no order of summation can hide a difference; scale is checked in test_strategies_scale.c. */
#include "support/plugin_folder.h"
#include "support/share.h"
#include "support/trainer_trial.h"

static const char* config_text(const struct strategy_row* strategy, int batch, int microbatch, const char* more) {
  static char text[1024];
  snprintf(text, sizeof text, "%s" TRAIN("%d", "microbatch = %d\n%s"), strategy->section, batch, microbatch, more);
  return text;
}

/* Micro-batches of a size that gives each rank `accumulation` of them: 9 samples in 3 on 1 to 4 ranks. */
static int microbatch_for(int batch, int ranks, int accumulation) {
  const int shard = (batch + ranks - 1) / ranks;
  return (shard + accumulation - 1) / accumulation;
}

struct way {
  const char* name;
  int processes, pull, batch, accumulation, from_ranks, to_ranks;
  const char* more; /* in [train] */
};

static void equals_one_rank(const struct way* way) {
  const trial like = plain(NULL, NULL);
  char train_section[512];
  /* The reference is trained without the extras, which must change nothing, and in one micro-batch. */
  snprintf(train_section, sizeof train_section, TRAIN("%d", ""), way->batch);
  outcome *expected = exact_reference(&like, train_section), *out = shared_outcomes();
  for (int s = 0; s < N_STRATEGIES; ++s)
    for (int n = way->from_ranks; n <= way->to_ranks && is_tried(s); ++n) {
      if (!in_share()) continue;
      const int microbatch = microbatch_for(way->batch, n, way->accumulation);
      trial t = plain(config_text(&kStrategies[s], way->batch, microbatch, way->more), out);
      t.expected = expected;
      t.pull = way->pull;
      print_message("  %s on %d %s, %s\n", kStrategies[s].name, n, way->processes ? "processes" : "threads", way->name);
      (way->processes ? as_processes : as_threads)(n, train, &t);
    }
  free_outcomes(expected);
  free_outcomes(out);
}

static void threads_equal_one_rank_bit_for_bit(void** state) {
  (void)state;
  equals_one_rank(&(struct way){"1 micro-batch", 0, 0, 9, 1, 1, 4, ""});
  equals_one_rank(&(struct way){"3 micro-batches", 0, 0, 9, 3, 1, 4, ""});
}
static void processes_equal_one_rank_bit_for_bit(void** state) {
  (void)state;
  equals_one_rank(&(struct way){"1 micro-batch", 1, 0, 9, 1, 1, 4, ""});
  equals_one_rank(&(struct way){"3 micro-batches", 1, 0, 9, 3, 1, 4, ""});
}
static void pulling_equals_pushing_bit_for_bit(void** state) {
  (void)state;
  equals_one_rank(&(struct way){"1 micro-batch, pulled", 0, 1, 9, 1, 1, 4, ""});
  equals_one_rank(&(struct way){"3 micro-batches, pulled", 0, 1, 9, 3, 1, 4, ""});
  equals_one_rank(&(struct way){"1 micro-batch, pulled", 1, 1, 9, 1, 1, 4, ""});
  equals_one_rank(&(struct way){"3 micro-batches, pulled", 1, 1, 9, 3, 1, 4, ""});
}
static void ranks_without_samples_change_nothing(void** state) {
  (void)state, equals_one_rank(&(struct way){"2 samples", 0, 0, 2, 1, 3, 4, ""});
}
static void clipping_that_does_not_clip_changes_nothing(void** state) {
  (void)state, equals_one_rank(&(struct way){"3 micro-batches, norm", 0, 0, 9, 3, 1, 3, "clip_norm = 1e9\n"});
}
static void recomputing_changes_nothing(void** state) {
  (void)state;
  equals_one_rank(&(struct way){"1 micro-batch, recomputed", 0, 0, 9, 1, 1, 3, "recompute = \"all\"\n"});
  equals_one_rank(&(struct way){"3 micro-batches, recomputed", 0, 0, 9, 3, 2, 2, "recompute = \"fc1, head\"\n"});
  equals_one_rank(&(struct way){"3 micro-batches, recomputed, pulled", 0, 1, 9, 3, 2, 2, "recompute = \"all\"\n"});
}
/* A kernel that kept a pointer, or memory released too early, would read NaN. */
static void moving_what_is_lent_changes_nothing(void** state) {
  (void)state;
  equals_one_rank(&(struct way){"3 micro-batches, moved", 0, 0, 9, 3, 1, 3, "lending = \"moved\"\n"});
  equals_one_rank(&(struct way){"3 micro-batches, moved and recomputed", 0, 0, 9, 3, 2, 2,
                                "lending = \"moved\"\nrecompute = \"all\"\n"});
}
/* 16 bits hold these integers, and a scale that is a power of two divides out. */
static void sixteen_bits_with_a_master_copy_change_nothing(void** state) {
  (void)state;
  equals_one_rank(&(struct way){"3 micro-batches, bf16", 0, 0, 9, 3, 1, 3, "precision = \"bf16\"\n"});
  equals_one_rank(&(struct way){"3 micro-batches, fp16", 0, 0, 9, 3, 1, 3, "precision = \"fp16\"\n"});
}

/* The plugin that the documents show as an example. */
static void the_example_plugin_equals_one_rank(void** state) {
  (void)state;
  const trial like = plain(NULL, NULL);
  outcome *expected = exact_reference(&like, TRAIN("7", "")), *out = shared_outcomes();
  trial t = plain("[strategy.data]\nplugin = \"flat\"\n" TRAIN("7", "microbatch = 2\n"), out);
  t.expected = expected;
  for (int n = 1; n <= 3; ++n) as_threads(n, train, &t);
  free_outcomes(expected);
  free_outcomes(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(threads_equal_one_rank_bit_for_bit),
      cmocka_unit_test(processes_equal_one_rank_bit_for_bit),
      cmocka_unit_test(pulling_equals_pushing_bit_for_bit),
      cmocka_unit_test(ranks_without_samples_change_nothing),
      cmocka_unit_test(clipping_that_does_not_clip_changes_nothing),
      cmocka_unit_test(recomputing_changes_nothing),
      cmocka_unit_test(moving_what_is_lent_changes_nothing),
      cmocka_unit_test(sixteen_bits_with_a_master_copy_change_nothing),
      cmocka_unit_test(the_example_plugin_equals_one_rank),
  };
  const Folder folder = fresh_folder_before_others(); /* the example plugin is found here, ours beside the library */
  copy_fixture(&folder, "flat");
  const int failures = cmocka_run_group_tests_name("strategies", tests, NULL, NULL);
  remove_folder(&folder);
  return failures;
}
