/* Pipelines owe what every strategy owes: the single rank's result, bit for bit, under every schedule, alone and with
 * the data axis's strategies. The model's cuts are crossed by several values, by one that skips stages and by one that
 * is integer, and its first and last layers share a table. */
#include "support/pipeline_trial.h"
#include "support/share.h"

static const char* const kSchedules[] = {"naive",          "gpipe", "1f1b", "interleaved-1f1b", "zb-h1",
                                         "interleaved-zb", "zb-h2", "zb-v", "dualpipe-v"};
enum { N_SCHEDULES = sizeof kSchedules / sizeof *kSchedules };
static const int kMicrobatches[] = {1, 2, 4, 7, 8};
enum { N_COUNTS = sizeof kMicrobatches / sizeof *kMicrobatches };

struct data_row {
  const char *name, *section;
  int ranks;
};
static const struct data_row kAlone = {"alone", "", 1}, kDdp = {"ddp", "[strategy.data]\nplugin = \"ddp\"\n", 2},
                             kZero1 = {"zero 1", "[strategy.data]\nplugin = \"zero\"\nstage = 1\n", 2};

static const char* pipeline_config(const char* schedule, int pipeline_ranks, int m, const struct data_row* data,
                                   int batch, const char* options, const char* more) {
  static char text[1024];
  snprintf(text, sizeof text,
           "[mesh]\npipeline = %d\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"%s\"\n%s%s" PIPELINE_TRAIN "%s",
           pipeline_ranks, schedule, options, data->section, batch, m, more);
  return text;
}

/* Whether gsel_schedule_create knows a way; what it says otherwise is test_schedule's. */
static int can_divide(const char* schedule, int pipeline_ranks, int m, int chunks) {
  gsel_schedule* made = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_schedule_create(gsel_str_from(schedule), pipeline_ranks, m, chunks, &made, &err);
  gsel_schedule_free(made);
  gsel_error_free(err);
  return !status;
}

static int is_tried(const char* name) {
  const char* only = getenv("GSEL_TEST_SCHEDULE");
  return !only || strstr(name, only);
}

static void try_one(const char* schedule, int pipeline_ranks, int m, const struct data_row* data, int batch,
                    const pipeline_outcome* expected, pipeline_outcome* out, const char* options, const char* more,
                    int processes) {
  if (!in_share()) return;
  pipeline_trial t = {
      pipeline_config(schedule, pipeline_ranks, m, data, batch, options, more), NULL, -1, 1, expected, out};
  print_message("  %s, %d pipeline ranks, %d micro-batches, %s %.*s %.*s\n", schedule, pipeline_ranks, m, data->name,
                (int)strcspn(options, "\n"), options, (int)strcspn(more, "\n"), more);
  (processes ? as_processes : as_threads)(pipeline_ranks * data->ranks, train_pipeline, &t);
}

/* All schedules at all sizes. A schedule that cannot divide m is refused before anything runs. */
static void equals_one_rank(const struct data_row* data) {
  pipeline_outcome* out = pipeline_outcomes();
  for (int c = 0; c < N_COUNTS; ++c) {
    const int m = kMicrobatches[c], batch = 2 * m;
    pipeline_outcome* expected = pipeline_reference(batch, "");
    for (int s = 0; s < N_SCHEDULES; ++s)
      for (int pipeline_ranks = 2; pipeline_ranks <= 4 && is_tried(kSchedules[s]); ++pipeline_ranks)
        if (can_divide(kSchedules[s], pipeline_ranks, m, 0))
          try_one(kSchedules[s], pipeline_ranks, m, data, batch, expected, out, "", "", 0);
    free_pipeline_outcomes(expected);
  }
  free_pipeline_outcomes(out);
}

static void alone_it_equals_one_rank(void** state) {
  (void)state, equals_one_rank(&kAlone);
}
static void with_ddp_it_equals_one_rank(void** state) {
  (void)state, equals_one_rank(&kDdp);
}
static void with_zero_1_it_equals_one_rank(void** state) {
  (void)state, equals_one_rank(&kZero1);
}

/* One size of each schedule under what else there is. */
static void with_all_that_a_step_may_have_it_equals_one_rank(void** state) {
  (void)state;
  static const struct data_row rows[] = {
      {"ddp, a bucket per parameter", "[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 1\nfirst_bucket_bytes = 1\n",
       2},
      {"zero 1, a bucket per parameter", "[strategy.data]\nplugin = \"zero\"\nbucket_bytes = 1\n", 2},
      {"zero 2", "[strategy.data]\nplugin = \"zero\"\nstage = 2\n", 2},
      {"zero 3", "[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 0\n", 2},
      {"zero 3, keep forward", "[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 0\nkeep = \"forward\"\n",
       2},
      {"zero 3, keep step", "[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 0\nkeep = \"step\"\n", 2},
      {"zero 1, offload", "[strategy.data]\nplugin = \"zero\"\noffload = \"state\"\n", 2},
  };
  static const char* const mores[] = {"clip_norm = 1e9\n",
                                      "recompute = \"all\"\n",
                                      "lending = \"moved\"\n",
                                      "precision = \"bf16\"\n",
                                      "precision = \"fp16\"\nclip_norm = 1e9\n",
                                      "recompute = \"linear1, split1, head\"\nlending = \"moved\"\n"};
  pipeline_outcome *out = pipeline_outcomes(), *expected = pipeline_reference(8, "");
  for (int s = 0; s < N_SCHEDULES; ++s) {
    if (!is_tried(kSchedules[s])) continue;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
      try_one(kSchedules[s], 2, 4, &rows[i], 8, expected, out, "", "", 0);
    for (size_t i = 0; i < sizeof mores / sizeof *mores; ++i)
      try_one(kSchedules[s], 2, 4, &kDdp, 8, expected, out, "", mores[i], 0);
  }
  free_pipeline_outcomes(expected);
  free_pipeline_outcomes(out);
}

/* The norm of the mean gradient: a part that is counted twice, or divided twice, shows. */
static void norms_equal_those_of_one_rank(void** state) {
  (void)state;
  static const struct data_row zero3 = {"zero 3", "[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 20\n",
                                        2};
  static const char clip[] = "clip_norm = 1e9\n";
  const struct data_row* const rows[] = {&kAlone, &kDdp, &kZero1, &zero3};
  pipeline_outcome *out = pipeline_outcomes(), *expected = pipeline_reference(8, clip);
  assert_true(expected->norm[0] > 0);
  for (int s = 0; s < N_SCHEDULES; ++s)
    for (size_t i = 0; i < sizeof rows / sizeof *rows && is_tried(kSchedules[s]); ++i)
      for (int pipeline_ranks = 2; pipeline_ranks <= 4; pipeline_ranks += 2)
        if (can_divide(kSchedules[s], pipeline_ranks, 4, 0))
          try_one(kSchedules[s], pipeline_ranks, 4, rows[i], 8, expected, out, "", clip, 0);
  free_pipeline_outcomes(expected);
  free_pipeline_outcomes(out);
}

static void processes_equal_one_rank(void** state) {
  (void)state;
  pipeline_outcome *out = pipeline_outcomes(), *expected = pipeline_reference(8, "");
  for (int s = 0; s < N_SCHEDULES; ++s) {
    if (!is_tried(kSchedules[s])) continue;
    try_one(kSchedules[s], 2, 4, &kAlone, 8, expected, out, "", "", 1);
    try_one(kSchedules[s], 2, 4, &kZero1, 8, expected, out, "", "", 1);
  }
  free_pipeline_outcomes(expected);
  free_pipeline_outcomes(out);
}

/* Cuts by hand, even where they are bad; and more chunks than a schedule has by itself. */
static void any_cuts_equal_one_rank(void** state) {
  (void)state;
  static const char* const cuts[] = {"marks, linear0, head", "split0, linear1, split1", "add2, mask, loss",
                                     "linear0, linear1, linear2"};
  pipeline_outcome *out = pipeline_outcomes(), *expected = pipeline_reference(8, "");
  char options[128];
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; ++i) {
    snprintf(options, sizeof options, "cuts = \"%s\"\n", cuts[i]);
    try_one("1f1b", 4, 4, &kAlone, 8, expected, out, options, "recompute = \"all\"\n", 0);
    try_one("zb-v", 2, 4, &kDdp, 8, expected, out, options, "", 0);
  }
  try_one("interleaved-1f1b", 4, 4, &kAlone, 8, expected, out, "chunks = 3\n", "", 0);
  try_one("interleaved-zb", 2, 4, &kDdp, 8, expected, out, "chunks = 7\n", "", 0);
  free_pipeline_outcomes(expected);
  free_pipeline_outcomes(out);
}

/* ---- what ends a step, and what is refused before it ---- */

static void expect_failure(rank_run* run) {
  const pipeline_trial* t = (const pipeline_trial*)run->user;
  pipeline_session s;
  gsel_error* err = NULL;
  char text[128];
  rank_ok(run, open_pipeline(run, &s, &err), err);
  gsel_status status = GSEL_OK;
  for (int i = 0; i < PIPELINE_STEPS && !status; ++i) status = gsel_trainer_step(s.trainer, NULL, &err);
  snprintf(text, sizeof text, "failed in forward on rank %d, step %d, micro-batch 0: the numbers were not right",
           (int)t->fail_on_rank, PIPELINE_STEPS - 1);
  rank_fails(run, status, err, run->rank == t->fail_on_rank ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED, text, -1);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  close_pipeline(&s);
}

static void a_failing_stage_ends_the_step_everywhere(void** state) {
  (void)state;
  for (int s = 0; s < N_SCHEDULES; ++s)
    for (int processes = 0; processes < 2; ++processes) {
      /* The head is on the last pipeline rank, which in a V is the first; one of its ranks fails. */
      const int is_v = strstr(kSchedules[s], "-v") != NULL;
      pipeline_trial t = {pipeline_config(kSchedules[s], 2, 4, &kDdp, 8, "", ""), "head", is_v ? 1 : 3, 0, NULL, NULL};
      print_message("  %s\n", kSchedules[s]);
      (processes ? as_processes : as_threads)(4, expect_failure, &t);
    }
}

struct refusal {
  const char *schedule, *options;
  int pipeline_ranks, m, batch;
  const struct data_row* data;
  gsel_status code;
  const char* part;
};

static void expect_refusal(rank_run* run) {
  const struct refusal* r = (const struct refusal*)((const pipeline_trial*)run->user)->out;
  pipeline_session s;
  gsel_error* err = NULL;
  const gsel_status status = open_pipeline(run, &s, &err);
  close_pipeline(&s);
  rank_fails(run, status, err, r->code, r->part, -1);
}

static void what_cannot_be_cut_is_refused_with_what_would_do(void** state) {
  (void)state;
  static const struct data_row dp = {"dp", "[strategy.data]\nplugin = \"dp\"\n", 2};
  static const struct refusal refusals[] = {
      {"interleaved-1f1b", "chunks = 8\n", 2, 2, 4, &kAlone, GSEL_ERR_CONFIG,
       "pp: 16 stages were asked for (8 on each of 2 ranks), and the model's 14 layers can be cut into 14 at most; set "
       "mesh.pipeline = 1"},
      {"1f1b", "cuts = \"linear0, head\"\n", 2, 2, 4, &kAlone, GSEL_ERR_CONFIG,
       "pp: cuts = \"linear0, head\" names 2 layers, and 2 stages have 1 cuts between them"},
      {"1f1b", "cuts = \"lineal0\"\n", 2, 2, 4, &kAlone, GSEL_ERR_CONFIG,
       "pp: cuts: stage 1 is to begin with layer \"lineal0\", which there is not"},
      {"1f1b", "cuts = \"head, linear0\"\n", 3, 2, 4, &kAlone, GSEL_ERR_CONFIG,
       "stage 2 is to begin with layer \"linear0\", which does not come after the one before it"},
      {"1f2b", "", 2, 2, 4, &kAlone, GSEL_ERR_CONFIG, "1f2b"},
      {"1f1b", "balance = \"money\"\n", 2, 2, 4, &kAlone, GSEL_ERR_CONFIG, "expected \"time\" or \"memory\""},
      {"1f1b", "costs = \"/nowhere/at/all\"\n", 2, 2, 4, &kAlone, GSEL_ERR_IO, "/nowhere/at/all"},
      {"1f1b", "schedule_file = \"/nowhere/at/all.csv\"\n", 2, 2, 4, &kAlone, GSEL_ERR_IO, "/nowhere/at/all.csv"},
      {"1f1b", "", 2, 2, 4, &dp, GSEL_ERR_UNSUPPORTED, "expected \"ddp\" or \"zero\""},
      {"1f1b", "", 2, 3, 8, &kAlone, GSEL_ERR_CONFIG, "train.batch = 8"},
  };
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; ++i) {
    const struct refusal* r = &refusals[i];
    pipeline_trial t = {pipeline_config(r->schedule, r->pipeline_ranks, r->m, r->data, r->batch, r->options, ""),
                        NULL,
                        -1,
                        0,
                        NULL,
                        (pipeline_outcome*)(uintptr_t)r};
    print_message("  %s\n", r->part);
    as_threads(r->pipeline_ranks * r->data->ranks, expect_refusal, &t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(alone_it_equals_one_rank),
      cmocka_unit_test(with_ddp_it_equals_one_rank),
      cmocka_unit_test(with_zero_1_it_equals_one_rank),
      cmocka_unit_test(with_all_that_a_step_may_have_it_equals_one_rank),
      cmocka_unit_test(norms_equal_those_of_one_rank),
      cmocka_unit_test(processes_equal_one_rank),
      cmocka_unit_test(any_cuts_equal_one_rank),
      cmocka_unit_test(a_failing_stage_ends_the_step_everywhere),
      cmocka_unit_test(what_cannot_be_cut_is_refused_with_what_would_do),
  };
  return cmocka_run_group_tests_name("pipeline_strategies", tests, NULL, NULL);
}
