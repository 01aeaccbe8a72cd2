/* Training that goes on with other ranks (gsel_trainer_rebind, gsel_trainer_join): a rank is killed at each of its
 * callbacks in turn, in some cases at every second or third; the others shrink, rebind, and end with the losses and
 * parameters of one rank that trained alone, so that no sample is lost or seen twice. The optimizer is Lion, whose sums
 * are exact here (support/layouts.h). */
#include <ftw.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "support/layouts.h"

enum { STRUCK = 2, MOST_CALLBACKS = 400 };

struct change {
  trial t;
  const char* afterwards; /* configuration of the ranks that are left; NULL: the same */
  const char* folder;     /* of checkpoints; NULL: none */
  int victim, at;         /* at its callback number `at` of step STRUCK; `at` past the last: after the step */
  int32_t* sources;       /* shared: how often state came from each GSEL_REBIND_FROM_* */
  int32_t* ended;         /* shared: the victim's step has no such callback */
  int32_t* seen;          /* shared: by sample id, how often ranks asked for it, in steps that were not trained again */
  int64_t lost;           /* most steps that may be lost */
};

enum { BATCH = 9, SAMPLES = STEPS * BATCH }; /* of LION */

static gsel_status counted_data(const gsel_data_request* r, int32_t* seen) {
  for (int64_t i = 0; i < r->n_samples && r->value == 0; ++i)
    __atomic_fetch_add(&seen[r->sample_ids[i]], 1, __ATOMIC_RELAXED);
  return exact_data(r, NULL);
}

static gsel_status step_until(session* s, const struct change* c, bool is_victim, int* number, gsel_error** err) {
  for (;;) {
    gsel_work work = GSEL_WORK_INIT;
    gsel_status status = gsel_trainer_next_work(s->trainer, &work, err);
    if (status || work.kind == GSEL_WORK_DONE) return status;
    if (is_victim && (*number)++ == c->at) kill(getpid(), SIGKILL);
    status = work.input ? counted_data(work.input, c->seen) : call_layer(&work, &s->m);
    status = gsel_trainer_complete(s->trainer, work.ticket, status, gsel_str_from(""), err);
    if (status) return status;
  }
}

static void rebinds(rank_run* run, session* s, const struct change* c, gsel_config* config, int64_t* next) {
  gsel_error* err = NULL;
  gsel_comm* smaller = NULL;
  gsel_rebind_options options = GSEL_REBIND_OPTIONS_INIT;
  gsel_rebind_report report = GSEL_REBIND_REPORT_INIT;
  options.config = config;
  options.folder = gsel_str_from(c->folder);
  rank_ok(run, gsel_comm_shrink(s->comm, &smaller, &err), err);
  rank_ok(run, gsel_trainer_rebind(s->trainer, smaller, &options, &report, &err), err);
  gsel_comm_free(s->comm);
  s->comm = smaller;
  if (gsel_comm_rank(smaller) == 0)
    memset(&c->seen[report.step * BATCH], 0, sizeof *c->seen * (size_t)(SAMPLES - report.step * BATCH));
  rank_ok(run, gsel_barrier(smaller, &err), err);
  rank_check(run, report.step <= *next + 1 && report.lost_steps >= 0 && report.lost_steps <= c->lost);
  rank_check(run, report.step >= STRUCK - c->lost && report.step <= STRUCK + 1);
  __atomic_fetch_add(&c->sources[report.source], 1, __ATOMIC_RELAXED);
  *next = report.step;
}

static void goes_on_without_the_victim(rank_run* run) {
  const struct change* c = (const struct change*)run->user;
  const outcome* expected = c->t.expected;
  session s;
  gsel_error* err = NULL;
  gsel_config* afterwards = NULL;
  float params[EXACT_ELEMS];
  int number = 0;
  run->user = (void*)&c->t;
  run->timeout_s = 20;
  rank_ok(run, open_session(run, &s, &err), err);
  if (c->afterwards)
    rank_ok(run, gsel_config_parse(gsel_str_from(c->afterwards), gsel_str_from("after.toml"), &afterwards, &err), err);
  bool has_lost = false;
  for (int64_t step = 0; step < STEPS;) {
    const bool is_struck = run->rank == c->victim && step == STRUCK;
    gsel_status status = step_until(&s, c, is_struck, &number, &err);
    if (is_struck) {
      if (number < c->at) __atomic_store_n(c->ended, 1, __ATOMIC_RELAXED);
      kill(getpid(), SIGKILL);
    }
    if (status == GSEL_OK) {
      gsel_step_report report = GSEL_STEP_REPORT_INIT;
      rank_ok(run, gsel_trainer_report(s.trainer, &report, &err), err);
      rank_check(run, report.step == step && memcmp(&report.loss_sum, &expected->loss[step], sizeof(double)) == 0);
      ++step;
      if (c->folder && !has_lost && step < STRUCK)
        rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(c->folder), NULL, NULL, &err), err);
      continue;
    }
    rank_check(run, !has_lost && step >= STRUCK - 1); /* others may still be at the copy after the step before */
    rank_fails(run, status, err, GSEL_ERR_PEER, "rank ", c->victim);
    has_lost = true;
    rebinds(run, &s, c, afterwards, &step);
    if (run->failure[0]) return;
  }
  rank_check(run, has_lost);
  read_params(run, s.trainer, params);
  same_params(run, params, expected->params, EXACT_ELEMS);
  gsel_config_free(afterwards);
  close_session(&s);
}

static int remove_one(const char* path, const struct stat* status, int kind, struct FTW* at) {
  (void)status, (void)kind, (void)at;
  return remove(path);
}

static void lose_one(struct change* c, int ranks) {
  rank_run* runs = ranks_prepare(ranks, c);
  pid_t pids[8];
  for (int r = 0; r < ranks; ++r) pids[r] = rank_fork(&runs[r], goes_on_without_the_victim);
  for (int r = 0; r < ranks; ++r) {
    int status = 0;
    waitpid(pids[r], &status, 0);
    const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (is_killed != (r == c->victim) && !runs[r].failure[0])
      snprintf(runs[r].failure, sizeof runs[r].failure, "rank %d ended with wait status 0x%x", r, (unsigned)status);
  }
  ranks_verdict(runs, ranks);
}

static outcome* reference(void) {
  outcome* out = shared_outcomes();
  trial t = plain(config_of(&kLayouts[0], ""), out);
  as_threads(1, train, &t);
  return out;
}

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

enum { SHARED_BYTES = (16 + SAMPLES) * sizeof(int32_t) };

static void strike_at_each_callback(const struct case_of* of, outcome* expected, int victim) {
  char config[1024], folder[64];
  struct change c = {plain(NULL, NULL), of->afterwards, NULL, victim, 0, NULL, NULL, NULL, of->lost};
  int32_t* shared = (int32_t*)shared_memory(SHARED_BYTES);
  const int stride = 1 + (int)(of - kCases) % 3; /* 1, 2 or 3, by the case, for the time that it takes */
  snprintf(config, sizeof config, "%s" LION "%s", of->sections, of->more);
  c.t.config = config;
  c.t.expected = expected;
  c.sources = shared;
  c.ended = shared + 8;
  c.seen = shared + 16;
  const bool is_pipeline = strstr(of->sections, "\"pp\"") != NULL;
  int n = 0;
  for (c.at = 0; !*c.ended; c.at += stride, ++n) {
    assert_true(c.at < MOST_CALLBACKS);
    if (of->checkpoints) {
      snprintf(folder, sizeof folder, "/tmp/gsel-elastic-XXXXXX"); /* mkdtemp fills in the X */
      assert_non_null(mkdtemp(folder));
      c.folder = folder;
    }
    memset(c.seen, 0, sizeof *c.seen * SAMPLES);
    lose_one(&c, of->ranks);
    for (int i = 0; i < SAMPLES; ++i) /* none is lost, none seen twice; of a pipeline two stages read a sample */
      assert_in_range(c.seen[i], 1, is_pipeline ? 2 : 1);
    if (of->checkpoints) assert_int_equal(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
  }
  print_message("  %s: rank %d lost at %d moments; from ranks %d times, from a checkpoint %d\n", of->name, victim, n,
                (int)c.sources[GSEL_REBIND_FROM_RANKS], (int)c.sources[GSEL_REBIND_FROM_CHECKPOINT]);
  assert_true(n > 2);
  if (!of->checkpoints) assert_int_equal(c.sources[GSEL_REBIND_FROM_CHECKPOINT], 0);
  munmap(shared, SHARED_BYTES);
}

static void a_rank_is_lost_at_any_callback(void** state) {
  (void)state;
  outcome* expected = reference();
  for (int i = 0; i < N_CASES; ++i) strike_at_each_callback(&kCases[i], expected, i % kCases[i].ranks);
  free_outcomes(expected);
}

/* ---- ranks that join ---- */

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
  rank_ok(run, gsel_comm_split(s.comm, is_new ? -1 : 0, run->rank, &some, &err), err);
  options.config = s.config;
  options.data = exact_data;
  if (!is_new) {
    rank_ok(run, gsel_trainer_create(some, s.model, &options, &s.trainer, &err), err);
    for (int i = 0; i < STRUCK; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
    rank_ok(run, gsel_trainer_rebind(s.trainer, s.comm, NULL, &report, &err), err);
  } else {
    rank_ok(run, gsel_trainer_join(s.comm, s.model, &options, NULL, &s.trainer, &report, &err), err);
  }
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
  outcome* expected = reference();
  for (size_t i = 0; i < sizeof sections / sizeof *sections; ++i) {
    char config[1024];
    struct change c = {plain(NULL, NULL), NULL, NULL, -1, 0, NULL, NULL, NULL, 0};
    snprintf(config, sizeof config, "%s" LION "%s", sections[i], i % 2 ? "redundancy = 1\n" : "");
    c.t.config = config;
    c.t.expected = expected;
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_is_lost_at_any_callback),
      cmocka_unit_test(ranks_join_between_steps),
      cmocka_unit_test(a_state_that_nobody_has_is_named),
  };
  return cmocka_run_group_tests_name("elastic", tests, NULL, NULL);
}
