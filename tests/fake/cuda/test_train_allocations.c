/* Once a trainer on devices has made its first step, steps allocate nothing on a device and no page-locked memory:
 * the double counts, over strategies of every axis. */
#include "fake/cuda/on_device.h"
#include "support/pipe_trial.h"
#include "support/tensor_trial.h"
#include "support/trainer_trial.h"

/* ---- what a step allocates ---- */

static __thread int n_steps;                /* of the trainer of this rank */
static atomic_int n_counted, n_allocations; /* in later steps than the first */

/* Of all ranks, which are threads of one process. */
static void meet_all(void) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static pthread_cond_t met = PTHREAD_COND_INITIALIZER;
  static int n_arrived, n_meetings;
  pthread_mutex_lock(&mutex);
  const int meeting = n_meetings;
  if (++n_arrived == own_world) {
    n_arrived = 0;
    ++n_meetings;
    pthread_cond_broadcast(&met);
  }
  while (n_meetings == meeting) pthread_cond_wait(&met, &mutex);
  pthread_mutex_unlock(&mutex);
}

/* Nothing else runs meanwhile: the ranks begin and end together. */
gsel_status gsel_trainer_step(gsel_trainer* trainer, gsel_step_report* report, gsel_error** err) {
  typedef gsel_status (*step_fn)(gsel_trainer*, gsel_step_report*, gsel_error**);
  const step_fn step = (step_fn)dlsym(RTLD_NEXT, "gsel_trainer_step");
  if (!on_transport) return step(trainer, report, err);
  meet_all();
  const int before = CUDA("fake_cuda_allocations", void)();
  meet_all();
  const gsel_status status = step(trainer, report, err);
  meet_all();
  const int after = CUDA("fake_cuda_allocations", void)();
  meet_all();
  if (n_steps++ == 0) return status;
  atomic_fetch_add(&n_allocations, after - before);
  atomic_fetch_add(&n_counted, 1);
  return status;
}

static void begin_count(void) {
  n_counted = n_allocations = 0;
}
static void expect_none(const char* what) {
  no_violations();
  assert_true(n_counted > 0);
  if (n_allocations)
    fail_msg("%d steps of ranks after the first saw %d allocations: %s", n_counted, n_allocations, what);
}

/* ---- the data axis ---- */

static void train_and_count(rank_run* run) {
  n_steps = 0;
  train(run);
}

static void expect_none_over(const char* transport, const char* section, const char* train_section, int ranks) {
  outcome* out = shared_outcomes();
  char config[1024];
  snprintf(config, sizeof config, "%s%s", section, train_section);
  trial t = plain(config, out);
  print_message("  %s", config);
  on_transport = transport;
  begin_count();
  as_threads(ranks, train_and_count, &t);
  on_transport = NULL;
  expect_none(config);
  free_outcomes(out);
}
static void expect_none_with(const char* section, const char* train_section, int ranks) {
  expect_none_over("nccl", section, train_section, ranks);
}

static void on_the_data_axis(void** state) {
  (void)state;
  for (int s = 0; s < N_STRATEGIES; ++s)
    if (is_tried(s)) expect_none_with(kStrategies[s].section, TRAIN("8", "microbatches = 2\n"), 2);
}

static void through_host_memory(void** state) {
  (void)state;
  static const char* const rows[] = {DP("bucket_bytes = 100\n"), DDP("bucket_bytes = 100\n"), ZERO("2", ""),
                                     ZERO("3", ALL_SHARDED)};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
    expect_none_over("host", rows[i], TRAIN("8", "microbatches = 2\n"), 2);
}

static void of_one_rank(void** state) {
  (void)state;
  expect_none_with("", TRAIN("8", "microbatches = 2\n"), 1);
}

static void with_what_a_step_may_have(void** state) {
  (void)state;
  static const char* const mores[] = {"recompute = \"all\"\n",  "lending = \"moved\"\n",
                                      "clip_norm = 1.0\n",      "precision = \"bf16\"\n",
                                      "precision = \"fp16\"\n", "non_finite = \"skip\"\ngradient_norm = \"always\"\n"};
  char config[512];
  for (size_t i = 0; i < sizeof mores / sizeof *mores; ++i) {
    snprintf(config, sizeof config, TRAIN("8", "microbatches = 2\n%s"), mores[i]);
    expect_none_with(DDP("bucket_bytes = 100\n"), config, 2);
    expect_none_with(ZERO("3", ALL_SHARDED), config, 2);
  }
}

static void with_compression(void** state) {
  (void)state;
  expect_none_with(DDP("compress = \"f16\"\n"), TRAIN("8", ""), 2);
  expect_none_with(DDP("compress = \"bf16\"\nbucket_bytes = 100\n"), TRAIN("8", ""), 2);
  expect_none_with(DDP("compress = \"low_rank\"\ncompress_rank = 1\ncompress_start = 2\n"), TRAIN("8", ""), 2);
}

/* ---- other axes ---- */

static void in_pipelines(void** state) {
  (void)state;
  static const char* const rows[] = {"1f1b", "gpipe", "zb-h1", "zb-h2", "zb-v", "interleaved-1f1b"};
  char section[512];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    if (!schedule_exists(rows[i], 2, 4)) continue;
    snprintf(section, sizeof section, "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"%s\"\n",
             rows[i]);
    expect_none_with(section, TRAIN("8", "microbatches = 4\nclip_norm = 1.0\n"), 2);
    strcat(section, ZERO("1", "offload = \"state\"\n"));
    expect_none_with(section, TRAIN("8", "microbatches = 4\n"), 4);
  }
}

static void train_tensor_and_count(rank_run* run) {
  n_steps = 0;
  train_tensor(run);
}

static void of_divided_layers(void** state) {
  (void)state;
  static const char* const rows[] = {
      "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n",
      "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\nsequence_parallel = true\n" ZERO("3", ALL_SHARDED),
      "[mesh]\ncontext = 2\n[strategy.context]\nplugin = \"cp\"\n",
      "[mesh]\ncontext = 2\n[strategy.context]\nplugin = \"cp\"\n" DDP(""),
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    char config[1024];
    const int head = snprintf(config, sizeof config, "%s", rows[i]);
    snprintf(config + head, sizeof config - (size_t)head, TENSOR_TRAIN, 8, 2);
    tensor_outcome* out = tensor_outcomes();
    tensor_trial t = tensor_trial_of(config, out);
    print_message("  %s", config);
    on_transport = "nccl";
    begin_count();
    as_threads(strstr(rows[i], "strategy.data") ? 4 : 2, train_tensor_and_count, &t);
    on_transport = NULL;
    expect_none(config);
    free_tensor_outcomes(out);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_one_rank),         cmocka_unit_test(on_the_data_axis),
      cmocka_unit_test(through_host_memory), cmocka_unit_test(with_what_a_step_may_have),
      cmocka_unit_test(with_compression),    cmocka_unit_test(in_pipelines),
      cmocka_unit_test(of_divided_layers),
  };
  return cmocka_run_group_tests_name("train_allocations", tests, NULL, NULL);
}
