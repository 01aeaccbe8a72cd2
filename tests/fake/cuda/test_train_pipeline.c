/* Pipelines on devices: the parameters, losses and norms of one rank on the host, bit for bit, under every schedule,
 * alone and with the strategies of the data axis, over NCCL and through host memory. The double runs the calls of a
 * device one at a time, in the order in which they were launched: ranks whose orders differ wait without an end. */
#include "fake/cuda/on_device.h"
#include "support/pipeline_trial.h"

static const char* const kSchedules[] = {"naive",          "gpipe", "1f1b", "interleaved-1f1b", "zb-h1",
                                         "interleaved-zb", "zb-h2", "zb-v", "dualpipe-v"};
enum { N_SCHEDULES = sizeof kSchedules / sizeof *kSchedules };

#define DDP "[strategy.data]\nplugin = \"ddp\"\n"
#define SMALL_BUCKETS DDP "bucket_bytes = 1\nfirst_bucket_bytes = 1\n"
#define ZERO(stage, more) "[strategy.data]\nplugin = \"zero\"\nstage = " stage "\n" more

static int can_divide(const char* schedule, int pipeline_ranks, int m) {
  gsel_schedule* made = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_schedule_create(gsel_str_from(schedule), pipeline_ranks, m, 0, &made, &err);
  gsel_schedule_free(made);
  gsel_error_free(err);
  return !status;
}

static void try_one(const char* schedule, int pipeline_ranks, int m, const char* data, const char* more,
                    const pipeline_outcome* expected, pipeline_outcome* out) {
  if (!can_divide(schedule, pipeline_ranks, m)) return;
  char config[1024];
  snprintf(config, sizeof config,
           "[mesh]\npipeline = %d\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"%s\"\n%s" PIPELINE_TRAIN "%s",
           pipeline_ranks, schedule, data, 2 * m, m, more);
  pipeline_trial t = {config, NULL, -1, 1, expected, out};
  print_message("  %s over %s, %d pipeline ranks, %d micro-batches, %s%s\n", schedule, on_transport, pipeline_ranks, m,
                data, more);
  as_threads(pipeline_ranks * (*data ? 2 : 1), train_pipeline, &t);
  no_violations();
}

struct trials {
  const char *transport, *data, *more;
  int microbatches, least_ranks, most_ranks;
};
static void equal_one_rank(const struct trials* t) {
  on_transport = NULL;
  pipeline_outcome *out = pipeline_outcomes(), *expected = pipeline_reference(2 * t->microbatches, t->more);
  on_transport = t->transport;
  for (int s = 0; s < N_SCHEDULES; ++s)
    for (int ranks = t->least_ranks; ranks <= t->most_ranks; ++ranks)
      try_one(kSchedules[s], ranks, t->microbatches, t->data, t->more, expected, out);
  free_pipeline_outcomes(expected);
  free_pipeline_outcomes(out);
  on_transport = NULL;
}

static void alone(void** state) {
  (void)state;
  static const int microbatches[] = {1, 2, 4, 7};
  for (int i = 0; i < 4; ++i) equal_one_rank(&(struct trials){"nccl", "", "", microbatches[i], 2, 4});
}
static void through_host_memory(void** state) {
  (void)state, equal_one_rank(&(struct trials){"host", "", "", 4, 2, 3});
}
static void with_a_data_axis(void** state) {
  (void)state;
  static const char* const rows[] = {DDP, SMALL_BUCKETS, ZERO("1", ""), ZERO("2", ""), ZERO("3", "persist_elems = 0\n"),
                                     ZERO("3", "persist_elems = 0\nkeep = \"step\"\n")};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
    equal_one_rank(&(struct trials){"nccl", rows[i], "", 4, 2, 2});
  equal_one_rank(&(struct trials){"host", SMALL_BUCKETS, "", 4, 2, 2});
}
static void with_what_a_step_may_have(void** state) {
  (void)state;
  static const char* const mores[] = {"clip_norm = 1e9\n", "recompute = \"all\"\n", "lending = \"moved\"\n",
                                      "precision = \"bf16\"\n", "precision = \"fp16\"\nclip_norm = 1e9\n"};
  for (size_t i = 0; i < sizeof mores / sizeof *mores; ++i)
    equal_one_rank(&(struct trials){"nccl", "", mores[i], 4, 3, 3});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(alone),
      cmocka_unit_test(through_host_memory),
      cmocka_unit_test(with_a_data_axis),
      cmocka_unit_test(with_what_a_step_may_have),
  };
  return cmocka_run_group_tests_name("train_pipeline", tests, NULL, NULL);
}
