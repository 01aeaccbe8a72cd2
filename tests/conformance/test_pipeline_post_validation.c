/* Pipelines that step before the norm or the overflow of all ranks is known owe what those that wait owe: parameters,
 * losses, norms, loss scale and skipped steps, bit for bit, whether or not a step had to be undone; and no rank waits
 * for ever where one ends. */
#include "support/post_validation_trial.h"
#include "support/share.h"

/* Messages of a large batch do not fit the communicator's buffers, so that receives are posted ahead. */
enum { MICROBATCHES = 4, BATCH = 8, LARGE_BATCH = 128 * MICROBATCHES };

struct shape {
  const char *schedule, *data;
  int pipeline_ranks, ranks, is_large;
};
#define ZERO_AT(stage, more) "[strategy.data]\nplugin = \"zero\"\nstage = " stage "\n" more
#define SMALL_BUCKETS "[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 1\nfirst_bucket_bytes = 1\n"
static const struct shape kShapes[] = {
    {"zb-h2", "", 2, 1, 0},
    {"zb-h2", "", 3, 1, 0},
    {"zb-h2", "", 4, 1, 0},
    {"1f1b", "", 2, 1, 0},
    {"1f1b", "", 4, 1, 0},
    {"zb-h1", "", 3, 1, 0},
    {"zb-v", "", 2, 1, 0},
    {"zb-v", "", 4, 1, 0},
    {"gpipe", "", 3, 1, 0},
    {"naive", "", 2, 1, 0},
    {"interleaved-1f1b", "", 2, 1, 0},
    {"interleaved-zb", "", 2, 1, 0},
    {"dualpipe-v", "", 2, 1, 0},
    {"zb-h2", SMALL_BUCKETS, 2, 2, 0},
    {"zb-h2", ZERO_AT("1", ""), 2, 2, 0},
    {"zb-h2", ZERO_AT("1", "bucket_bytes = 1\n"), 3, 2, 0},
    {"zb-v", ZERO_AT("1", "offload = \"state\"\n"), 2, 2, 0},
    {"zb-h2", ZERO_AT("2", ""), 2, 2, 0},
    {"1f1b", ZERO_AT("3", "persist_elems = 0\n"), 2, 2, 0},
    {"zb-h2", ZERO_AT("3", "persist_elems = 20\nkeep = \"step\"\n"), 2, 2, 0},
    {"zb-h2", "", 2, 1, 1},
    {"zb-h2", "", 4, 1, 1},
    {"1f1b", "", 4, 1, 1},
    {"zb-v", "", 4, 1, 1},
    {"gpipe", "", 3, 1, 1},
    {"interleaved-1f1b", "", 2, 1, 1},
    {"zb-h2", ZERO_AT("1", ""), 3, 2, 1},
    {"zb-h1", ZERO_AT("3", "persist_elems = 0\n"), 2, 2, 1},
};
enum { N_SHAPES = sizeof kShapes / sizeof *kShapes };

static post_validation_trial trial_of(const struct shape* shape, const char* validation, const char* train,
                                      post_validation_outcome* out) {
  post_validation_trial t;
  memset(&t, 0, sizeof t);
  t.dies = -1;
  t.out = out;
  const int n = snprintf(t.config, sizeof t.config,
                         "[mesh]\npipeline = %d\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"%s\"\n"
                         "post_validate = \"%s\"\n%s[train]\nseed = 5\nbatch = %d\nmicrobatches = %d\n%s",
                         shape->pipeline_ranks, shape->schedule, validation, shape->data,
                         shape->is_large ? LARGE_BATCH * shape->ranks : BATCH, MICROBATCHES, train);
  assert_true(n > 0 && (size_t)n < sizeof t.config);
  return t;
}

static void run_trial(const struct shape* shape, post_validation_trial* t, int processes) {
  (processes ? as_processes : as_threads)(shape->pipeline_ranks * shape->ranks, train_and_validate, t);
}

/* What may not differ. */
static void expect_same(const post_validation_outcome* got, const post_validation_outcome* expected, int32_t world) {
  for (int32_t r = 0; r < world; ++r) {
    assert_memory_equal(got[r].params, expected[r].params, sizeof got->params);
    assert_memory_equal(got[r].loss, expected[r].loss, sizeof got->loss);
    assert_memory_equal(got[r].weight, expected[r].weight, sizeof got->weight);
    assert_memory_equal(got[r].norm, expected[r].norm, sizeof got->norm);
    assert_memory_equal(got[r].scale, expected[r].scale, sizeof got->scale);
    assert_memory_equal(got[r].rate, expected[r].rate, sizeof got->rate);
    assert_memory_equal(got[r].skipped, expected[r].skipped, sizeof got->skipped);
    assert_true(got[r].evaluated == expected[r].evaluated);
    for (int i = 0; i < VALIDATION_STEPS; ++i) assert_true(got[r].known[i] && expected[r].known[i]);
  }
}

/* Steps before the last whose number was not what had been assumed: each is a restart of the next. */
static int32_t undone(const post_validation_outcome* o, double clip_norm) {
  int32_t n = 0;
  for (int i = 0; i + 1 < VALIDATION_STEPS; ++i)
    n += o->skipped[i] || (clip_norm > 0 && clip_norm / (o->norm[i] + 1e-6) < 1);
  return n;
}

static double median_norm(const post_validation_outcome* o) {
  double sorted[VALIDATION_STEPS];
  memcpy(sorted, o->norm, sizeof sorted);
  for (int i = 0; i < VALIDATION_STEPS; ++i)
    for (int k = i + 1; k < VALIDATION_STEPS; ++k)
      if (sorted[k] < sorted[i]) {
        const double t = sorted[i];
        sorted[i] = sorted[k];
        sorted[k] = t;
      }
  return (sorted[VALIDATION_STEPS / 2 - 1] + sorted[VALIDATION_STEPS / 2]) / 2;
}

struct variant {
  const char *name, *train;
  int asks_between, own_optimizer, processes;
};

/* A norm between those of the steps: some are clipped and some are not. */
static void write_clipping(char* train, size_t capacity, const char* rest, const struct shape* shape, int own_optimizer,
                           post_validation_outcome* out, double* clip_norm) {
  snprintf(train, capacity, "%sclip_norm = 1e9\n", rest);
  post_validation_trial t = trial_of(shape, "off", train, out);
  t.own_optimizer = own_optimizer;
  run_trial(shape, &t, 0);
  *clip_norm = median_norm(&out[0]);
  assert_true(*clip_norm > 0);
  snprintf(train, capacity, "%sclip_norm = %.9g\n", rest, *clip_norm);
}

static void try_variant(const struct shape* shape, const struct variant* v, const char* train, double clip_norm,
                        post_validation_outcome* on, post_validation_outcome* off) {
  if (!in_share()) return;
  const int32_t world = shape->pipeline_ranks * shape->ranks;
  print_message("  %s, %d pipeline ranks, %.*s%s, %s\n", shape->schedule, shape->pipeline_ranks,
                shape->data[0] ? (int)strcspn(shape->data + 16, "\n") : 5, shape->data[0] ? shape->data + 16 : "alone",
                shape->is_large ? ", large" : "", v->name);
  post_validation_trial waits = trial_of(shape, "off", train, off), goes_on = trial_of(shape, "on", train, on);
  waits.own_optimizer = goes_on.own_optimizer = v->own_optimizer;
  goes_on.asks_between = v->asks_between;
  run_trial(shape, &waits, 0);
  run_trial(shape, &goes_on, v->processes);
  expect_same(on, off, world);
  const int32_t expected = undone(&off[0], clip_norm);
  assert_in_range(expected, 1, VALIDATION_STEPS - 2);
  for (int32_t r = 0; r < world; ++r) {
    assert_int_equal(off[r].restarts, 0);
    assert_int_equal(on[r].restarts, v->asks_between ? 0 : expected);
    assert_memory_equal(&on[r].norms, &off[r].norms, sizeof on->norms);
    assert_memory_equal(&on[r].overflows, &off[r].overflows, sizeof on->overflows);
    if (on[r].restarts && off[r].inputs) assert_true(on[r].inputs > off[r].inputs);
  }
}

#define ADAMW "optimizer = \"adamw\"\nlearning_rate = 0.01\n"
#define OVERFLOWING "precision = \"fp16\"\nloss_scale_initial = %s\nloss_scale_hysteresis = 1\nloss_scale_window = 2\n"

static void clipped_steps_are_those_of_ranks_that_wait(void** state) {
  (void)state;
  static const struct variant kVariants[] = {
      {"adamw", ADAMW, 0, 0, 0},
      {"adamw, asked between steps", ADAMW, 1, 0, 0},
  };
  post_validation_outcome *on = post_validation_outcomes(), *off = post_validation_outcomes();
  char train[256];
  for (size_t s = 0; s < N_SHAPES; ++s) {
    double clip_norm = 0;
    write_clipping(train, sizeof train, ADAMW, &kShapes[s], 0, off, &clip_norm);
    for (size_t v = 0; v < sizeof kVariants / sizeof *kVariants; ++v)
      try_variant(&kShapes[s], &kVariants[v], train, clip_norm, on, off);
  }
  free_validation_outcomes(on);
  free_validation_outcomes(off);
}

/* Whatever an optimizer keeps, and whatever parameters are kept in. */
static void every_kind_of_state_is_put_back(void** state) {
  (void)state;
  static const struct variant kVariants[] = {
      {"sgd with momentum", "optimizer = \"sgd\"\nlearning_rate = 0.001\nmomentum = 0.9\n", 0, 0, 0},
      {"lion", "optimizer = \"lion\"\nlearning_rate = 0.01\n", 0, 0, 0},
      {"adamw_8bit", "optimizer = \"adamw_8bit\"\nlearning_rate = 0.01\n", 0, 0, 0},
      {"bf16", ADAMW "precision = \"bf16\"\n", 0, 0, 0},
      {"warm-up", ADAMW "warmup_steps = 4\n", 0, 0, 0},
      {"the embedder's", "learning_rate = 0.001\n", 0, 1, 0},
      {"lending moved", ADAMW "lending = \"moved\"\n", 0, 0, 0},
      {"recomputing", ADAMW "recompute = \"all\"\n", 0, 0, 0},
      {"processes", ADAMW, 0, 0, 1},
  };
  static const struct shape kFew[] = {{"zb-h2", ZERO_AT("1", ""), 2, 2, 0}, {"zb-v", ZERO_AT("2", ""), 2, 2, 0}};
  post_validation_outcome *on = post_validation_outcomes(), *off = post_validation_outcomes();
  char train[256];
  for (size_t s = 0; s < 2; ++s)
    for (size_t v = 0; v < sizeof kVariants / sizeof *kVariants; ++v) {
      double clip_norm = 0;
      write_clipping(train, sizeof train, kVariants[v].train, &kFew[s], kVariants[v].own_optimizer, off, &clip_norm);
      try_variant(&kFew[s], &kVariants[v], train, clip_norm, on, off);
    }
  free_validation_outcomes(on);
  free_validation_outcomes(off);
}

/* The scale falls until no gradient overflows, and rises again; with and without a norm beside it. */
static void skipped_steps_are_those_of_ranks_that_wait(void** state) {
  (void)state;
  static const struct variant kVariants[] = {
      {"fp16", ADAMW OVERFLOWING, 0, 0, 0},
      {"fp16 and a norm", ADAMW OVERFLOWING "clip_norm = 1e9\n", 0, 0, 0},
      {"fp16, asked between steps", ADAMW OVERFLOWING, 1, 0, 0},
  };
  post_validation_outcome *on = post_validation_outcomes(), *off = post_validation_outcomes();
  char train[256];
  for (size_t s = 0; s < N_SHAPES; ++s)
    for (size_t v = 0; v < sizeof kVariants / sizeof *kVariants; ++v) {
      snprintf(train, sizeof train, kVariants[v].train, kShapes[s].is_large ? "1e34" : "1e36");
      try_variant(&kShapes[s], &kVariants[v], train, 0, on, off);
    }
  free_validation_outcomes(on);
  free_validation_outcomes(off);
}

/* ---- when it is used ---- */

static void tell_program(rank_run* run) {
  post_validation_session s;
  gsel_error* err = NULL;
  const gsel_status status = open_validation(run, &s, &err);
  if (!status) {
    const gsel_str text = gsel_program_text(gsel_trainer_program(s.trainer));
    int32_t* found = &((post_validation_trial*)run->user)->out[run->rank].restarts;
    *found = strstr(text.data, "\npost_validate\n") != NULL;
    rank_check(run, (strstr(text.data, " optimistic\n") != NULL) == *found);
  }
  close_validation(&s);
  rank_ok(run, status, err);
}

static void auto_is_for_zb_h2_where_something_is_looked_at(void** state) {
  (void)state;
  static const struct {
    const char *schedule, *validation, *train;
    int pipeline_ranks, expected;
  } kRows[] = {
      {"zb-h2", "auto", "clip_norm = 1.0\n", 2, 1},
      {"zb-h2", "auto", "precision = \"fp16\"\n", 3, 1},
      {"zb-h2", "auto", "", 2, 0},
      {"zb-h2", "off", "clip_norm = 1.0\n", 2, 0},
      {"1f1b", "auto", "clip_norm = 1.0\n", 2, 0},
      {"1f1b", "on", "clip_norm = 1.0\n", 2, 1},
      {"zb-h2", "on", "", 2, 0},
      {"zb-h2", "on", "clip_norm = 1.0\n", 1, 0},
      {"zb-v", "on", "precision = \"fp16\"\nclip_norm = 1.0\n", 2, 1},
  };
  post_validation_outcome* out = post_validation_outcomes();
  for (size_t i = 0; i < sizeof kRows / sizeof *kRows; ++i) {
    const struct shape shape = {kRows[i].schedule, "", kRows[i].pipeline_ranks, 1, 0};
    post_validation_trial t = trial_of(&shape, kRows[i].validation, kRows[i].train, out);
    as_threads(shape.pipeline_ranks, tell_program, &t);
    for (int r = 0; r < shape.pipeline_ranks; ++r)
      if (out[r].restarts != kRows[i].expected)
        fail_msg("%s, %s, %d pipeline ranks, %s: rank %d %s", kRows[i].schedule, kRows[i].validation,
                 shape.pipeline_ranks, kRows[i].train, r, out[r].restarts ? "validates" : "does not validate");
  }
  free_validation_outcomes(out);
}

static void expect_refused_option(rank_run* run) {
  post_validation_session s;
  gsel_error* err = NULL;
  const gsel_status status = open_validation(run, &s, &err);
  close_validation(&s);
  rank_fails(run, status, err, GSEL_ERR_CONFIG,
             "post_validate = \"maybe\" is not accepted; expected \"auto\", \"on\" or \"off\"", -1);
}

static void another_word_is_refused(void** state) {
  (void)state;
  const struct shape shape = {"zb-h2", "", 2, 1, 0};
  post_validation_trial t = trial_of(&shape, "maybe", "clip_norm = 1.0\n", NULL);
  as_threads(2, expect_refused_option, &t);
}

/* ---- who ends while a step is open ---- */

static void whoever_leaves_with_an_open_step_leaves_nothing_behind(void** state) {
  (void)state;
  post_validation_outcome* out = post_validation_outcomes();
  for (int processes = 0; processes < 2; ++processes)
    for (size_t s = 0; s < N_SHAPES; s += 4) {
      post_validation_trial t = trial_of(&kShapes[s], "on", ADAMW "clip_norm = 1e-3\n", out);
      t.leaves = 1;
      run_trial(&kShapes[s], &t, processes);
    }
  free_validation_outcomes(out);
}

static void expect_death(rank_run* run) {
  const post_validation_trial* t = (const post_validation_trial*)run->user;
  post_validation_session s;
  gsel_error* err = NULL;
  rank_ok(run, open_validation(run, &s, &err), err);
  gsel_status status = GSEL_OK;
  for (; s.step < VALIDATION_STEPS && !status; ++s.step) status = gsel_trainer_step(s.trainer, NULL, &err);
  rank_fails(run, status, err, GSEL_ERR_PEER, "ended without gsel_comm_free", t->dies);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  close_validation(&s);
}

/* In its forwards of step 2, while step 1 is open. */
static void a_rank_killed_with_an_open_step_is_an_error_that_names_it(void** state) {
  (void)state;
  for (size_t s = 0; s < N_SHAPES; s += 3) {
    const int world = kShapes[s].pipeline_ranks * kShapes[s].ranks;
    post_validation_trial t = trial_of(&kShapes[s], "on", ADAMW "clip_norm = 1e9\n", NULL);
    t.dies = 0; /* it has inputs under every schedule */
    rank_run* runs = ranks_prepare(world, &t);
    pid_t pids[RANKS_MAX];
    for (int r = 0; r < world; ++r) pids[r] = rank_fork(&runs[r], expect_death);
    for (int r = 0; r < world; ++r) {
      int status = 0;
      waitpid(pids[r], &status, 0);
      assert_true(r == t.dies ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
    }
    ranks_verdict(runs, world);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(auto_is_for_zb_h2_where_something_is_looked_at),
      cmocka_unit_test(another_word_is_refused),
      cmocka_unit_test(clipped_steps_are_those_of_ranks_that_wait),
      cmocka_unit_test(every_kind_of_state_is_put_back),
      cmocka_unit_test(skipped_steps_are_those_of_ranks_that_wait),
      cmocka_unit_test(whoever_leaves_with_an_open_step_leaves_nothing_behind),
      cmocka_unit_test(a_rank_killed_with_an_open_step_is_an_error_that_names_it),
  };
  return cmocka_run_group_tests_name("pipeline_validation", tests, NULL, NULL);
}
