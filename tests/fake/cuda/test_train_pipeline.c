/* Pipelines on devices: the parameters, losses and norms of one rank on the host, bit for bit, under every schedule,
 * alone and with the strategies of the data axis, over NCCL and through host memory. The double runs the calls of a
 * device one at a time, in the order in which they were launched: ranks whose orders differ wait without an end. */
#include "fake/cuda/on_device.h"
#include "support/pipe_trial.h"
#include "support/post_validation_trial.h"

#define DDP "[strategy.data]\nplugin = \"ddp\"\n"
#define SMALL_BUCKETS DDP "bucket_bytes = 1\nfirst_bucket_bytes = 1\n"
#define ZERO(stage, more) "[strategy.data]\nplugin = \"zero\"\nstage = " stage "\n" more

static void try_one(const char* schedule, int pipeline_ranks, int m, const char* data, const char* more,
                    const pipeline_outcome* expected, pipeline_outcome* out) {
  if (!schedule_exists(schedule, pipeline_ranks, m)) return;
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
  const char* norms; /* of the one rank; "": they are not compared */
  int few;           /* of the schedules those that differ most */
};

static int is_one_of_few(const char* schedule) {
  return !strcmp(schedule, "1f1b") || !strcmp(schedule, "zb-v");
}
static void equal_one_rank(const struct trials* t) {
  on_transport = NULL;
  pipeline_outcome *out = pipeline_outcomes(), *expected = pipeline_reference(2 * t->microbatches, t->norms);
  on_transport = t->transport;
  for (int s = 0; s < N_SCHEDULES; ++s)
    for (int ranks = t->least_ranks; ranks <= t->most_ranks; ++ranks)
      if (!t->few || is_one_of_few(kSchedules[s]))
        try_one(kSchedules[s], ranks, t->microbatches, t->data, t->more, expected, out);
  free_pipeline_outcomes(expected);
  free_pipeline_outcomes(out);
  on_transport = NULL;
}

static void alone(void** state) {
  (void)state;
  equal_one_rank(&(struct trials){"nccl", "", "", 2, 4, 4, "", 0});
  equal_one_rank(&(struct trials){"nccl", "", "", 4, 3, 3, "", 0});
  equal_one_rank(&(struct trials){"nccl", "", "", 7, 2, 2, "", 1});
}
/* Receives and sends that are launched one after the other are one launch of NCCL. */
static void messages_are_launched_together(void** state) {
  (void)state;
  if (is_on_card()) skip(); /* NCCL does not tell */
  if (is_on_one_card()) skip(); /* and is not there */
  void* nccl = module("fake_libnccl.so");
  assert_true(((int (*)(void))dlsym(nccl, "fake_nccl_most_messages"))() > 1);
}
static void through_host_memory(void** state) {
  (void)state, equal_one_rank(&(struct trials){"host", "", "", 4, 3, 3, "", 1});
}
static void with_a_data_axis(void** state) {
  (void)state;
  static const char* const rows[] = {DDP,
                                     SMALL_BUCKETS,
                                     ZERO("1", ""),
                                     ZERO("2", ""),
                                     ZERO("3", "persist_elems = 0\n"),
                                     ZERO("3", "persist_elems = 0\nkeep = \"step\"\n"),
                                     ZERO("1", "offload = \"state\"\n")};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
    equal_one_rank(&(struct trials){"nccl", rows[i], "", 4, 2, 2, "", 1});
  equal_one_rank(&(struct trials){"host", SMALL_BUCKETS, "", 4, 2, 2, "", 1});
}
static void with_what_a_step_may_have(void** state) {
  (void)state;
  static const char* const mores[] = {"clip_norm = 1e9\n", "recompute = \"all\"\n", "lending = \"moved\"\n",
                                      "precision = \"bf16\"\n", "precision = \"fp16\"\nclip_norm = 1e9\n"};
  for (size_t i = 0; i < sizeof mores / sizeof *mores; ++i)
    equal_one_rank(&(struct trials){"nccl", "", mores[i], 4, 3, 3, i ? "" : mores[i], 1});
}

/* ---- steps that are undone ---- */

static void validate(const char* schedule, const char* data, int ranks, const char* validation, double clip_norm,
                     post_validation_outcome* out) {
  post_validation_trial t = {.dies = -1, .out = out};
  snprintf(t.config, sizeof t.config,
           "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"%s\"\npost_validate = \"%s\"\n"
           "%s[train]\nseed = 5\nbatch = 8\nmicrobatches = 4\noptimizer = \"adamw\"\nlearning_rate = 0.01\n"
           "clip_norm = %.9g\n",
           schedule, validation, data, clip_norm);
  as_threads(ranks, train_and_validate, &t);
}

/* Steps that were made before their norm was known, and undone, on devices; those that waited, on the host. */
static void undone_steps(void** state) {
  (void)state;
  static const struct {
    const char *schedule, *data;
    int ranks;
  } kRows[] = {
      {"zb-h2", "", 2}, {"1f1b", DDP, 4}, {"zb-v", ZERO("1", "offload = \"state\"\n"), 4}, {"zb-h2", ZERO("3", ""), 4}};
  post_validation_outcome *on = post_validation_outcomes(), *off = post_validation_outcomes();
  for (size_t i = 0; i < sizeof kRows / sizeof *kRows; ++i) {
    print_message("  %s %s\n", kRows[i].schedule, kRows[i].data);
    validate(kRows[i].schedule, kRows[i].data, kRows[i].ranks, "off", 1e9, off);
    const double clip_norm = (off->norm[0] + off->norm[1]) / 2; /* one is clipped, or the other */
    validate(kRows[i].schedule, kRows[i].data, kRows[i].ranks, "off", clip_norm, off);
    on_transport = "nccl";
    validate(kRows[i].schedule, kRows[i].data, kRows[i].ranks, "on", clip_norm, on);
    on_transport = NULL;
    no_violations();
    for (int r = 0; r < kRows[i].ranks; ++r) {
      assert_true(on[r].restarts > 0);
      assert_memory_equal(on[r].params, off[r].params, sizeof on->params);
      assert_memory_equal(on[r].loss, off[r].loss, sizeof on->loss);
      assert_memory_equal(on[r].norm, off[r].norm, sizeof on->norm);
      assert_true(on[r].evaluated == off[r].evaluated);
    }
  }
  free_validation_outcomes(on);
  free_validation_outcomes(off);
}

/* ---- without a trainer ---- */

static void pipelines_without_a_trainer(void** state) {
  (void)state;
  for (int forward = 0; forward < 2; ++forward)
    for (int s = 0; s < N_SCHEDULES; ++s) {
      if (!schedule_exists(kSchedules[s], 3, 4)) continue;
      pipe_trial t = trial_of(9, kSchedules[s], 4, 2);
      t.runs = 2;
      t.m.without_loss = forward;
      t.what = forward ? GSEL_FORWARD : GSEL_FORWARD_BACKWARD;
      print_message("  %s%s\n", kSchedules[s], forward ? ", forward alone" : "");
      on_transport = "nccl";
      as_threads(3, expect_equal_to_by_hand, &t);
      on_transport = NULL;
      no_violations();
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(alone),
      cmocka_unit_test(messages_are_launched_together),
      cmocka_unit_test(through_host_memory),
      cmocka_unit_test(with_a_data_axis),
      cmocka_unit_test(with_what_a_step_may_have),
      cmocka_unit_test(undone_steps),
      cmocka_unit_test(pipelines_without_a_trainer),
  };
  return cmocka_run_group_tests_name("train_pipeline", tests, NULL, NULL);
}
