/* Layers that ranks share, on devices: the parameters of one rank on the host, bit for bit, for the tensor and the
 * context axis, alone and under a strategy of the data axis. */
#include "fake/cuda/on_device.h"
#include "support/tensor_trial.h"

#define TP "[mesh]\ntensor = %d\n[strategy.tensor]\nplugin = \"tp\"\n"
#define TP_SP TP "sequence_parallel = true\n"
#define CP "[mesh]\ncontext = %d\n[strategy.context]\nplugin = \"cp\"\n"
#define ZERO3 "[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 0\n"

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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensor_axis),
      cmocka_unit_test(sequence_parallel),
      cmocka_unit_test(context_axis),
      cmocka_unit_test(with_a_data_axis),
  };
  return cmocka_run_group_tests_name("train_tensor", tests, NULL, NULL);
}
