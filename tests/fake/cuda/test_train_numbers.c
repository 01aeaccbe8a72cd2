/* The loss, the norm and the flags of overflow of a step stay on the device: they have the bits that the host gives
 * them, and a step waits for the device at its end and not before. Callbacks wait as well, since they work on copies;
 * their waits are counted apart. */
#include "fake/cuda/on_device.h"
#include "support/trainer_trial.h"

/* ---- waits ---- */

static atomic_int most_waits; /* of a step but the first, by any rank, without those of callbacks */
static __thread int n_steps;  /* of the trainer of this rank */

gsel_status gsel_trainer_step(gsel_trainer* trainer, gsel_step_report* report, gsel_error** err) {
  typedef gsel_status (*step_fn)(gsel_trainer*, gsel_step_report*, gsel_error**);
  const step_fn step = (step_fn)dlsym(RTLD_NEXT, "gsel_trainer_step");
  if (!on_transport) return step(trainer, report, err);
  const int before = cuda.waits() - n_mirror_waits;
  const gsel_status status = step(trainer, report, err);
  const int waits = n_steps++ ? cuda.waits() - n_mirror_waits - before : 0;
  for (int most = most_waits; most < waits && !atomic_compare_exchange_weak(&most_waits, &most, waits);) {
  }
  return status;
}

static void train_and_count(rank_run* run) {
  n_steps = 0;
  train(run);
}

static int waits_of(const char* strategy, const char* train_section, int ranks) {
  outcome* out = shared_outcomes();
  char config[1024];
  snprintf(config, sizeof config, "%s%s", strategy, train_section);
  trial t = plain(config, out);
  most_waits = 0;
  on_transport = "nccl";
  as_threads(ranks, train_and_count, &t);
  on_transport = NULL;
  no_violations();
  free_outcomes(out);
  print_message("  %d waits on %d: %s", most_waits, ranks, config);
  return most_waits;
}

#define CLIPPED SGD("0.125", "9", "microbatch = 2\nclip_norm = 0.5\n")
#define PLAIN SGD("0.125", "9", "microbatch = 2\nnon_finite = \"off\"\n")
#define HALVES SGD("0.125", "9", "microbatch = 2\nprecision = \"fp16\"\nclip_norm = 0.5\n")

#define IN_8_BITS \
  "[train]\noptimizer = \"adamw_8bit\"\nlearning_rate = 0.125\nbatch = 9\nseed = 5\nmicrobatch = 2\nclip_norm = 0.5\n"

static const char* const strategies[] = {DP(""),
                                         DDP("bucket_bytes = 100\n"),
                                         ZERO("1", ""),
                                         ZERO("2", ""),
                                         ZERO("3", ALL_SHARDED),
                                         ZERO("1", "offload = \"state\"\n"),
                                         ZERO("3", ALL_SHARDED "offload = \"all\"\n")};
enum { N_STRATEGIES_HERE = sizeof strategies / sizeof *strategies };

#define PIPELINE "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\n"
#define IN_TWO(more) SGD("0.125", "8", "microbatches = 2\n" more)
static const char* const in_pipelines[] = {IN_TWO("clip_norm = 0.5\n"), IN_TWO("non_finite = \"off\"\n"),
                                           IN_TWO("precision = \"fp16\"\nclip_norm = 0.5\n")};

/* For its stream, and on several ranks of the data axis for that of the axis. */
static void a_step_waits_at_its_end_alone(void** state) {
  (void)state;
  static const char* const sections[] = {CLIPPED, PLAIN, HALVES};
  for (int i = 0; i < 3; ++i) assert_int_equal(waits_of(DDP(""), sections[i], 1), 1);
  for (int s = 0; s < N_STRATEGIES_HERE; ++s)
    for (int i = 0; i < 3; ++i) assert_int_equal(waits_of(strategies[s], sections[i], 2), 2);
  for (int i = 0; i < 3; ++i) {
    assert_int_equal(waits_of(PIPELINE, in_pipelines[i], 2), 1);
    assert_int_equal(waits_of(PIPELINE ZERO("1", ""), in_pipelines[i], 4), 2);
  }
}

/* Where the host needs a number, or moves memory. */
static void other_steps_wait_more(void** state) {
  (void)state;
  assert_true(waits_of(DDP(""), SGD("0.125", "9", "clip_norm = 0.5\nelastic = \"on\"\n"), 2) > 2);
}

/* ---- bits ---- */

static int overflows_of = 9; /* samples of a batch */

static void has_the_bits_of_the_host(const char* strategy, const char* train_section, int ranks, int overflow_at) {
  outcome *expected = shared_outcomes(), *out = shared_outcomes();
  char config[1024];
  snprintf(config, sizeof config, "%s%s", strategy, train_section);
  print_message("  on %d: %s", ranks, config);
  trial t = plain(config, expected);
  t.random = 1;
  t.overflow_at_step = overflow_at;
  t.batch = overflows_of;
  as_threads(ranks, train, &t);
  t.expected = expected;
  t.out = out;
  on_transport = "nccl";
  as_threads(ranks, train, &t);
  on_transport = NULL;
  for (int r = 0; r < ranks; ++r) assert_memory_equal(out[r].norm, expected->norm, sizeof expected->norm);
  for (int i = 0; i < STEPS; ++i) assert_int_equal(expected->skipped[i], i == overflow_at);
  no_violations();
  free_outcomes(expected);
  free_outcomes(out);
}

static void numbers_have_the_bits_of_the_host(void** state) {
  (void)state;
  for (int s = 0; s < N_STRATEGIES_HERE; ++s)
    for (int ranks = 1; ranks <= 2; ++ranks) {
      has_the_bits_of_the_host(strategies[s], CLIPPED, ranks, -1);
      has_the_bits_of_the_host(strategies[s], PLAIN, ranks, -1);
      has_the_bits_of_the_host(strategies[s], IN_8_BITS, ranks, -1); /* shards begin inside blocks */
    }
  for (int i = 0; i < 2; ++i) {
    has_the_bits_of_the_host(PIPELINE, in_pipelines[i], 2, -1);
    has_the_bits_of_the_host(PIPELINE DDP(""), in_pipelines[i], 4, -1);
    has_the_bits_of_the_host(PIPELINE ZERO("1", "bucket_bytes = 100\n"), in_pipelines[i], 4, -1);
  }
}

static void a_step_that_overflows_is_skipped_on_all_ranks(void** state) {
  (void)state;
  for (int s = 0; s < N_STRATEGIES_HERE; ++s) {
    has_the_bits_of_the_host(strategies[s], CLIPPED "non_finite = \"skip\"\n", 2, 1);
    has_the_bits_of_the_host(strategies[s], SGD("0.125", "9", "microbatch = 2\nnon_finite = \"skip\"\n"), 2, 2);
    has_the_bits_of_the_host(strategies[s], HALVES, 2, 1);
  }
  overflows_of = 8;
  has_the_bits_of_the_host(PIPELINE, in_pipelines[2], 2, 1);
  has_the_bits_of_the_host(PIPELINE ZERO("2", ""), IN_TWO("clip_norm = 0.5\nnon_finite = \"skip\"\n"), 4, 2);
  overflows_of = 9;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_step_waits_at_its_end_alone),
      cmocka_unit_test(other_steps_wait_more),
      cmocka_unit_test(numbers_have_the_bits_of_the_host),
      cmocka_unit_test(a_step_that_overflows_is_skipped_on_all_ranks),
  };
  return cmocka_run_group_tests_name("train_numbers", tests, NULL, NULL);
}
