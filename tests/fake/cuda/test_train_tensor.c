/* Layers that ranks share, on devices: the parameters of one rank on the host, bit for bit, for the tensor and the
 * context axis, alone and under a strategy of the data axis. */
#include "fake/cuda/on_device.h"
#include "support/tensor_trial.h"

#define TP "[mesh]\ntensor = %d\n[strategy.tensor]\nplugin = \"tp\"\n"
#define TP_SP TP "sequence_parallel = true\n"
#define CP "[mesh]\ncontext = %d\n[strategy.context]\nplugin = \"cp\"\n"
#define ZERO3 "[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 0\n"

static atomic_int most_waits; /* of a step but the first, by any rank, without those of callbacks */
static __thread int n_steps;

gsel_status gsel_trainer_step(gsel_trainer* trainer, gsel_step_report* report, gsel_error** err) {
  typedef gsel_status (*step_fn)(gsel_trainer*, gsel_step_report*, gsel_error**);
  const step_fn step = (step_fn)dlsym(RTLD_NEXT, "gsel_trainer_step");
  if (!on_transport || is_on_card()) return step(trainer, report, err);
  const int before = cuda.waits() - n_mirror_waits;
  const gsel_status status = step(trainer, report, err);
  const int waits = n_steps++ ? cuda.waits() - n_mirror_waits - before : 0;
  for (int most = most_waits; most < waits && !atomic_compare_exchange_weak(&most_waits, &most, waits);) {
  }
  return status;
}

static void equals_one_rank(const char* shared, int ranks, const char* data, int data_ranks, const char* more) {
  char train[512], config[1536];
  on_transport = NULL;
  tensor_outcome* out = tensor_outcomes();
  tensor_trial trial = tensor_trial_of(NULL, out);
  snprintf(train, sizeof train, TENSOR_TRAIN, 8, 1);
  trial.expected = tensor_reference(&trial, train);
  on_transport = "nccl";
  const int head = snprintf(config, sizeof config, shared, ranks);
  snprintf(config + head, sizeof config - (size_t)head, "%s" TENSOR_TRAIN "%s", data, 8, 2, more);
  trial.config = config;
  trial.reads_whole = 1;
  print_message("%s\n", config);
  try_tensor(&trial, ranks * data_ranks);
  no_violations();
  free_tensor_outcomes((tensor_outcome*)trial.expected);
  free_tensor_outcomes(out);
  on_transport = NULL;
}

static void tensor_axis(void** state) {
  (void)state;
  equals_one_rank(TP, 2, "", 1, "");
  equals_one_rank(TP, 3, "", 1, "");
  equals_one_rank(TP, 4, "", 1, "");
  equals_one_rank(TP, 2, "", 1, "lending = \"moved\"\n");
}
static void sequence_parallel(void** state) {
  (void)state;
  equals_one_rank(TP_SP, 2, "", 1, "");
  equals_one_rank(TP_SP, 3, "", 1, "");
}
static void context_axis(void** state) {
  (void)state;
  equals_one_rank(CP, 2, "", 1, "");
  equals_one_rank(CP, 3, "", 1, "");
}
static void with_a_data_axis(void** state) {
  (void)state;
  equals_one_rank(TP_SP, 2, "[strategy.data]\nplugin = \"ddp\"\n", 2, "");
  equals_one_rank(TP, 2, ZERO3, 2, "");
  equals_one_rank(CP, 2, ZERO3, 2, "");
}

/* For its stream, and on several ranks of the data axis for that of the axis: loss, norm and overflow stay there. */
static void a_step_waits_at_its_end_alone(void** state) {
  (void)state;
  if (is_on_card()) skip(); /* a driver does not tell */
  static const char* const mores[] = {"clip_norm = 1e9\n", "non_finite = \"skip\"\n", ""};
  for (size_t i = 0; i < sizeof mores / sizeof *mores; ++i)
    for (int shared = 0; shared < 3; ++shared)
      for (int data = 1; data <= 2; ++data) {
        most_waits = 0;
        equals_one_rank(shared == 0   ? TP
                        : shared == 1 ? TP_SP
                                      : CP,
                        2, data > 1 ? "[strategy.data]\nplugin = \"ddp\"\n" : "", data, mores[i]);
        print_message("  %d waits\n", most_waits);
        assert_int_equal(most_waits, data);
      }
}

/* Ranks of two axes have two communicators, whose calls a device without an order begins in opposite orders on two
 * ranks. NCCL is asked for the order where it has one; where it has none, or was told not to, events keep it. */
static void whether_nccl_keeps_the_order_of_launches_or_not(void** state) {
  (void)state;
  static const struct {
    const char *order, *implicit, *version;
  } kRows[] = {{"asked", "1", "22809"}, {"asked", "0", "22809"}, {"asked", NULL, "22809"}, {"none", "1", "22506"}};
  for (size_t i = 0; i < sizeof kRows / sizeof *kRows; ++i) {
    print_message("  order %s, NCCL_LAUNCH_ORDER_IMPLICIT=%s, NCCL %s\n", kRows[i].order,
                  kRows[i].implicit ? kRows[i].implicit : "", kRows[i].version);
    setenv("GSEL_FAKE_NCCL_ORDER", kRows[i].order, 1);
    setenv("GSEL_FAKE_NCCL_VERSION", kRows[i].version, 1);
    kRows[i].implicit ? setenv("NCCL_LAUNCH_ORDER_IMPLICIT", kRows[i].implicit, 1)
                      : unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    equals_one_rank(TP_SP, 2, "[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 1\nfirst_bucket_bytes = 1\n", 2, "");
    equals_one_rank(TP, 2, ZERO3, 2, "");
    equals_one_rank(CP, 2, ZERO3, 2, "");
  }
  unsetenv("GSEL_FAKE_NCCL_ORDER");
  unsetenv("GSEL_FAKE_NCCL_VERSION");
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensor_axis),
      cmocka_unit_test(sequence_parallel),
      cmocka_unit_test(context_axis),
      cmocka_unit_test(with_a_data_axis),
      cmocka_unit_test(a_step_waits_at_its_end_alone),
      cmocka_unit_test(whether_nccl_keeps_the_order_of_launches_or_not),
  };
  return cmocka_run_group_tests_name("train_tensor", tests, NULL, NULL);
}
