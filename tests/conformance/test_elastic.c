/* Training that goes on with other ranks (gsel_trainer_rebind, gsel_trainer_join): a rank is killed at each of its
 * callbacks in turn; the others shrink, rebind, and end with the losses and parameters of one rank that trained alone,
 * and no sample is lost or seen twice. */
#include <sys/wait.h>

#include "support/elastic_trial.h"

struct case_of {
  const char *name, *sections, *more, *afterwards;
  int ranks;
  int lost;         /* most steps that are trained again */
  bool checkpoints; /* there are some */
};

static const struct case_of kCases[] = {
    {"ddp, elastic", DDP(""), "elastic = \"on\"\n", NULL, 4, 0, false},
    {"ddp, elastic, a bucket per parameter", DDP("bucket_bytes = 1\nfirst_bucket_bytes = 1\n"), "elastic = \"on\"\n",
     NULL, 3, 0, false},
    {"dp, elastic", DP("bucket_bytes = 1\n"), "elastic = \"on\"\n", NULL, 3, 0, false},
    {"ddp, redundant", DDP(""), "redundancy = 1\n", NULL, 3, 1, false},
    {"zero 1, redundant", ZERO("1", ""), "redundancy = 1\n", NULL, 3, 1, false},
    {"zero 2, redundant", ZERO("2", "bucket_bytes = 1\n"), "redundancy = 1\n", NULL, 4, 1, false},
    {"zero 3, redundant", ZERO("3", ALL_SHARDED), "redundancy = 1\n", NULL, 3, 1, false},
    {"zero 3, redundant, to a single rank", ZERO("3", ALL_SHARDED), "redundancy = 1\n", NULL, 2, 1, false},
    {"zero 3, offload, redundant every second step", ZERO("3", ALL_SHARDED "offload = \"all\"\n"),
     "redundancy = 1\nredundancy_every = 2\n", NULL, 3, 2, false},
    {"zero 3, redundant, small micro-batches", ZERO("3", ALL_SHARDED), "microbatch = 1\nredundancy = 1\n", NULL, 3, 1,
     false},
    {"pipeline, redundant, then zero 2", PIPELINE("3", "schedule = \"gpipe\"\n"), "microbatch = 3\nredundancy = 1\n",
     ZERO("2", "") LION, 3, 1, false},
    {"zero 3, from a checkpoint", ZERO("3", ALL_SHARDED), "", NULL, 3, 2, true},
    {"pipeline with zero 1, from a checkpoint, then ddp", PIPELINE("2", "schedule = \"1f1b\"\n") ZERO("1", ""),
     "microbatch = 1\n", DDP("") LION, 4, 2, true},
};
enum { N_CASES = sizeof kCases / sizeof *kCases };

static void strike_at_each_callback(const struct case_of* of, outcome* expected, int victim) {
  char config[1024];
  snprintf(config, sizeof config, "%s" LION "%s", of->sections, of->more);
  struct change c = change_of(config, expected);
  c.afterwards = of->afterwards;
  c.has_folder = of->checkpoints;
  c.lost = of->lost;
  c.n_victims = 1;
  c.victims[0] = victim;
  const struct losses losses = lose_ranks_in_turn(&c, of->ranks, at_each_callback);
  print_message("  %s: rank %d lost at %d moments; from ranks %d times, from a checkpoint %d\n", of->name, victim,
                losses.worlds, losses.from_ranks, losses.from_checkpoint);
  assert_true(losses.worlds - losses.ended > 2);
  if (!of->checkpoints) assert_int_equal(losses.from_checkpoint, 0);
}

static void a_rank_is_lost_at_any_callback(void** state) {
  (void)state;
  outcome* expected = trained_alone();
  for (int i = 0; i < N_CASES; ++i) strike_at_each_callback(&kCases[i], expected, i % kCases[i].ranks);
  free_outcomes(expected);
}

/* ---- ranks that join ---- */

/* The program's own states. Those of the ranks are theirs; the shared one is that of the ranks that were there. */
struct own_states {
  int64_t shared, of_rank;
};
static gsel_status add_own(gsel_trainer* trainer, struct own_states* own, gsel_error** err) {
  gsel_status status = gsel_trainer_add_state(trainer, gsel_str_from("mine"), &own->of_rank, sizeof own->of_rank,
                                              GSEL_STATE_OF_RANK, err);
  if (status) return status;
  return gsel_trainer_add_state(trainer, gsel_str_from("position"), &own->shared, sizeof own->shared, GSEL_STATE_SHARED,
                                err);
}

static void more_ranks_join(rank_run* run) {
  const struct change* c = (const struct change*)run->user;
  const outcome* expected = c->t.expected;
  session s;
  gsel_error* err = NULL;
  gsel_comm* some = NULL;
  gsel_rebind_report report = GSEL_REBIND_REPORT_INIT;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  float params[EXACT_ELEMS];
  trial without = c->t;
  without.without_comm = 1; /* the session's trainer is not used */
  without.config = config_of(&kLayouts[0], "");
  run->user = &without;
  rank_ok(run, open_session(run, &s, &err), err);
  gsel_trainer_free(s.trainer);
  gsel_config_free(s.config);
  s.trainer = NULL;
  rank_ok(run, gsel_config_parse(gsel_str_from(c->t.config), gsel_str_from("grown.toml"), &s.config, &err), err);
  rank_ok(run, rank_join(run, &s.comm, &err), err);
  const bool is_new = run->rank >= 2;
  struct own_states own = {is_new ? 1 : 4711, run->rank};
  rank_ok(run, gsel_comm_split(s.comm, is_new ? -1 : 0, run->rank, &some, &err), err);
  options.config = s.config;
  options.data = exact_data;
  if (!is_new) {
    rank_ok(run, gsel_trainer_create(some, s.model, &options, &s.trainer, &err), err);
    rank_ok(run, add_own(s.trainer, &own, &err), err);
    for (int i = 0; i < STRUCK; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
    rank_ok(run, gsel_trainer_rebind(s.trainer, s.comm, NULL, &report, &err), err);
  } else {
    rank_ok(run, gsel_trainer_join(s.comm, s.model, &options, NULL, &s.trainer, &report, &err), err);
    gsel_status status = gsel_trainer_add_state(s.trainer, gsel_str_from("position"), &own, 1, GSEL_STATE_SHARED, &err);
    rank_fails(run, status, err, GSEL_ERR_MISMATCH, "has 8 bytes on the ranks that this one has joined, and 1 here",
               -1);
    rank_ok(run, add_own(s.trainer, &own, &err), err);
  }
  rank_check(run, own.shared == 4711 && own.of_rank == run->rank);
  rank_check(run, report.step == STRUCK && report.lost_steps == 0 && report.source == GSEL_REBIND_FROM_RANKS);
  rank_check(run, !is_new || report.bytes_moved > 0 || c->at); /* dp: the first ranks alone hold state */
  gsel_comm_free(some);
  for (int i = STRUCK; i < STEPS; ++i) {
    gsel_step_report step = GSEL_STEP_REPORT_INIT;
    rank_ok(run, gsel_trainer_step(s.trainer, &step, &err), err);
    rank_check(run, step.step == i && memcmp(&step.loss_sum, &expected->loss[i], sizeof(double)) == 0);
  }
  read_params(run, s.trainer, params);
  same_params(run, params, expected->params, EXACT_ELEMS);
  close_session(&s);
}

static void ranks_join_between_steps(void** state) {
  static const char* const sections[] = {DDP(""), ZERO("1", ""), ZERO("3", ALL_SHARDED), DP("")};
  (void)state;
  outcome* expected = trained_alone();
  for (size_t i = 0; i < sizeof sections / sizeof *sections; ++i) {
    char config[1024];
    struct change c = change_of(config, expected);
    snprintf(config, sizeof config, "%s" LION "%s", sections[i], i % 2 ? "redundancy = 1\n" : "");
    c.at = i == 3;
    as_threads(4, more_ranks_join, &c);
    as_processes(3, more_ranks_join, &c);
  }
  free_outcomes(expected);
}

/* ---- what is refused ---- */

/* The rank that is lost had a third of the optimizer's state. */
static void has_nothing_to_go_on_from(rank_run* run) {
  const trial* t = (const trial*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_comm* smaller = NULL;
  (void)t;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  if (run->rank == 2) kill(getpid(), SIGKILL);
  gsel_status status = gsel_trainer_step(s.trainer, NULL, &err);
  rank_fails(run, status, err, GSEL_ERR_PEER, "rank ", 2);
  rank_ok(run, gsel_comm_shrink(s.comm, &smaller, &err), err);
  status = gsel_trainer_rebind(s.trainer, smaller, NULL, NULL, &err);
  rank_fails(run, status, err, GSEL_ERR_NOT_FOUND, "set train.redundancy = 1, or give a folder", -1);
  gsel_rebind_options options = GSEL_REBIND_OPTIONS_INIT;
  options.folder = gsel_str_from("/nowhere/at/all");
  status = gsel_trainer_rebind(s.trainer, smaller, &options, NULL, &err);
  rank_check(run, status == GSEL_ERR_NOT_FOUND || status == GSEL_ERR_IO || status == GSEL_ERR_PEER);
  gsel_error_free(err);
  err = NULL;
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  close_session(&s);
  gsel_comm_free(smaller);
}

static void a_state_that_nobody_has_is_named(void** state) {
  (void)state;
  char config[1024];
  snprintf(config, sizeof config, ZERO("3", ALL_SHARDED) LION);
  trial t = plain(config, NULL);
  rank_run* runs = ranks_prepare(3, &t);
  pid_t pids[3];
  for (int r = 0; r < 3; ++r) pids[r] = rank_fork(&runs[r], has_nothing_to_go_on_from);
  for (int r = 0; r < 3; ++r) waitpid(pids[r], NULL, 0);
  ranks_verdict(runs, 3);
}

/* ---- the memory of copies ---- */

static void keeps_what_is_forecast(rank_run* run) {
  const struct change* c = (const struct change*)run->user;
  session s;
  gsel_error* err = NULL;
  run->user = (void*)&c->t;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < STEPS; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  for (int32_t i = 0; i < gsel_trainer_memory_count(s.trainer); ++i) {
    gsel_memory_part part = GSEL_MEMORY_PART_INIT;
    rank_ok(run, gsel_trainer_memory(s.trainer, i, &part, &err), err);
    if (!strstr(part.name, "train.redundancy")) continue;
    rank_check(run, part.offloaded == 1 && part.forecast_bytes == part.peak_bytes);
    __atomic_fetch_add(&c->tally->sources[0], (int32_t)part.peak_bytes, __ATOMIC_RELAXED);
  }
  close_session(&s);
}

/* Two copies of what each rank has to keep and of what it keeps for another; of parameters, and of Lion's state. */
static void copies_are_in_the_forecast_of_memory(void** state) {
  static const char* const sections[] = {DDP(""), ZERO("3", ALL_SHARDED), PIPELINE("2", "schedule = \"gpipe\"\n")};
  (void)state;
  for (int i = 0; i < 6; ++i) {
    char config[1024];
    struct change c = change_of(config, NULL);
    snprintf(config, sizeof config, "%s" LION "microbatch = 3\n%s", sections[i / 2], i % 2 ? "" : "redundancy = 1\n");
    c.tally = (struct tally*)shared_memory(sizeof *c.tally);
    as_processes(2, keeps_what_is_forecast, &c);
    assert_int_equal(c.tally->sources[0], i % 2 ? 0 : 2 * 2 * 2 * EXACT_ELEMS * (int)sizeof(float));
    munmap(c.tally, sizeof *c.tally);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_is_lost_at_any_callback),
      cmocka_unit_test(ranks_join_between_steps),
      cmocka_unit_test(a_state_that_nobody_has_is_named),
      cmocka_unit_test(copies_are_in_the_forecast_of_memory),
  };
  return cmocka_run_group_tests_name("elastic", tests, NULL, NULL);
}
