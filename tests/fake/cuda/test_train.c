/* Training on devices: the parameters of one rank on the host, bit for bit, under every strategy of the data axis, over
 * NCCL and through host memory; the double tells of work that its streams and events do not order. */
#include "fake/cuda/on_device.h"
#include "support/trainer_trial.h"

/* Of the strategies those that differ most in what they do to memory. */
static int is_one_of_few(const struct strategy_row* row) {
  static const char* const few[] = {"dp", "ddp, a bucket per parameter", "zero 2, a bucket per parameter", "zero 3",
                                    "zero 3, keep step"};
  for (size_t i = 0; i < sizeof few / sizeof *few; ++i)
    if (!strcmp(few[i], row->name)) return 1;
  return 0;
}

static void equals_one_rank(const char* transport, int from_ranks, int to_ranks, const char* more) {
  const trial like = plain(NULL, NULL);
  on_transport = NULL;
  outcome *expected = exact_reference(&like, TRAIN("9", "")), *out = shared_outcomes();
  on_transport = transport;
  for (int s = 0; s < N_STRATEGIES; ++s)
    for (int n = from_ranks; n <= to_ranks && is_tried(s); ++n) {
      if (from_ranks == to_ranks && !is_one_of_few(&kStrategies[s])) continue;
      char config[1024];
      snprintf(config, sizeof config, "%s" TRAIN("9", "microbatch = 2\n%s"), kStrategies[s].section, more);
      trial t = plain(config, out);
      t.expected = expected;
      print_message("  %s on %d over %s %s\n", kStrategies[s].name, n, transport, more);
      as_threads(n, train, &t);
      no_violations();
    }
  free_outcomes(expected);
  free_outcomes(out);
  on_transport = NULL;
}

static void over_nccl(void** state) {
  (void)state, equals_one_rank("nccl", 1, 4, "");
}
static void through_host_memory(void** state) {
  (void)state, equals_one_rank("host", 2, 2, "");
}
static void recomputed(void** state) {
  (void)state, equals_one_rank("nccl", 2, 2, "recompute = \"all\"\n");
}
static void moved(void** state) {
  (void)state, equals_one_rank("nccl", 2, 2, "lending = \"moved\"\n");
}
static void clipped(void** state) {
  (void)state, equals_one_rank("nccl", 2, 2, "clip_norm = 1e9\n");
}
static void in_16_bits(void** state) {
  (void)state;
  equals_one_rank("nccl", 2, 2, "precision = \"bf16\"\n");
  equals_one_rank("nccl", 2, 2, "precision = \"fp16\"\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(over_nccl),  cmocka_unit_test(through_host_memory),
      cmocka_unit_test(recomputed), cmocka_unit_test(moved),
      cmocka_unit_test(clipped),    cmocka_unit_test(in_16_bits),
  };
  return cmocka_run_group_tests_name("train", tests, NULL, NULL);
}
