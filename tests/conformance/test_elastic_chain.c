/* A chain of changes: three ranks train, one is killed in a step; two train on and save; two more join, four train and
 * save; three others load that with another batch, train and save; five load that and train. Each sample is trained
 * once, in order, and the state at the end is that of one rank that trained on the same batches. */
#include "support/checkpoint_trial.h"
#include "support/layouts.h"
#include "support/scratch.h"

enum { FIRST = 3, SURVIVORS = 2, NEW = 2, DIES_IN = 1, GROWS_AT = 2, SAVED_AT = 3, SMALL = 4, LARGE = 9, SAMPLES = 44 };

/* In memory that all ranks share. */
struct seen {
  volatile int32_t arrived; /* ranks at the step in which one is lost */
  int32_t times[SAMPLES], step[SAMPLES];
};
static struct seen* seen; /* NULL: samples are not counted */
static _Thread_local int64_t step_now;
static _Thread_local bool dies;

static gsel_status data(const gsel_data_request* request, void* user) {
  if (dies) kill(getpid(), SIGKILL);
  for (int64_t i = 0; i < request->n_samples && seen; ++i) {
    const int64_t id = request->sample_ids[i];
    if (id >= SAMPLES) {
      snprintf(request->message, request->message_capacity, "sample %d comes after the last", (int)id);
      return GSEL_ERR_INTERNAL;
    }
    __atomic_fetch_add(&seen->times[id], 1, __ATOMIC_RELAXED);
    seen->step[id] = (int32_t)step_now;
  }
  return exact_data(request, user);
}

static void take_steps(rank_run* run, gsel_trainer* trainer, int64_t first, int64_t end) {
  gsel_error* err = NULL;
  for (step_now = first; step_now < end; ++step_now) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    rank_ok(run, gsel_trainer_step(trainer, &report, &err), err);
    rank_check(run, report.step == step_now);
  }
}

/* ---- links of the chain that begin with a load ---- */

struct link {
  trial t;
  const char *from, *to; /* from NULL: the first step */
  int64_t step, steps;   /* where it begins; how many */
};

static void load_train_save(rank_run* run) {
  const struct link* link = (const struct link*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  run->user = (void*)&link->t;
  rank_ok(run, open_session(run, &s, &err), err);
  if (link->from) rank_ok(run, gsel_trainer_load(s.trainer, gsel_str_from(link->from), &report, &err), err);
  rank_check(run, report.step == link->step);
  take_steps(run, s.trainer, link->step, link->step + link->steps);
  if (run->failure[0]) return;
  rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(link->to), NULL, NULL, &err), err);
  close_session(&s);
}

#define LION_OF(batch) \
  "[train]\noptimizer = \"lion\"\nlearning_rate = 1.0\nweight_decay = 0.0\nbatch = " batch "\nseed = 5\n"

static void add_link(const char* config, int ranks, const char* from, const char* to, int64_t step, int64_t steps) {
  struct link link = {plain(config, NULL), from, to, step, steps};
  link.t.data = data;
  as_threads(ranks, load_train_save, &link);
}

/* ---- the first link: one is lost, two join ---- */

struct growing {
  trial t;
  const char* folder;
};

/* Another communicator than the run's. */
static gsel_status meet(const rank_run* run, int number, int rank, int ranks, gsel_comm** comm, gsel_error** err) {
  rank_run other = *run;
  other.id.bytes[0] ^= (unsigned char)number;
  other.rank = rank;
  other.world_size = ranks;
  return rank_join(&other, comm, err);
}

static void forget(const gsel_comm* comm, int64_t step) {
  if (gsel_comm_rank(comm) == 0)
    memset((void*)&seen->times[step * LARGE], 0, sizeof(int32_t) * (size_t)(SAMPLES - step * LARGE));
}

static gsel_status parsed(const char* text, gsel_config** config, gsel_error** err) {
  return gsel_config_parse(gsel_str_from(text), gsel_str_from("chain.toml"), config, err);
}

/* The step in which the last of three dies; the others go on as two. */
static void lose_one(rank_run* run, session* s) {
  gsel_error* err = NULL;
  gsel_comm* smaller = NULL;
  gsel_rebind_options options = GSEL_REBIND_OPTIONS_INIT;
  gsel_rebind_report report = GSEL_REBIND_REPORT_INIT;
  gsel_config* config = NULL;
  __atomic_fetch_add(&seen->arrived, 1, __ATOMIC_SEQ_CST);
  dies = run->rank == FIRST - 1;
  if (dies) await_step(&seen->arrived, FIRST);
  step_now = DIES_IN;
  rank_fails(run, gsel_trainer_step(s->trainer, NULL, &err), err, GSEL_ERR_PEER, "rank ", FIRST - 1);
  rank_ok(run, parsed(ZERO("1", "") LION_OF("9"), &config, &err), err);
  options.config = config;
  rank_ok(run, gsel_comm_shrink(s->comm, &smaller, &err), err);
  rank_ok(run, gsel_trainer_rebind(s->trainer, smaller, &options, &report, &err), err);
  rank_check(run, gsel_comm_world_size(smaller) == SURVIVORS && report.source == GSEL_REBIND_FROM_RANKS);
  rank_check(run, report.step <= DIES_IN && report.lost_steps <= 1);
  gsel_config_free(config);
  gsel_comm_free(s->comm);
  s->comm = smaller;
  forget(smaller, report.step);
  rank_ok(run, gsel_barrier(smaller, &err), err);
  take_steps(run, s->trainer, report.step, GROWS_AT);
}

static void grow(rank_run* run, session* s) {
  const bool is_new = run->rank >= FIRST;
  gsel_error* err = NULL;
  gsel_comm* larger = NULL;
  gsel_rebind_options options = GSEL_REBIND_OPTIONS_INIT;
  gsel_trainer_options made = GSEL_TRAINER_OPTIONS_INIT;
  gsel_rebind_report report = GSEL_REBIND_REPORT_INIT;
  gsel_config* config = NULL;
  rank_ok(run, parsed(DDP("") LION_OF("9"), &config, &err), err);
  rank_ok(run, meet(run, 2, is_new ? run->rank - 1 : run->rank, SURVIVORS + NEW, &larger, &err), err);
  made.config = options.config = config;
  made.data = data;
  if (is_new)
    rank_ok(run, gsel_trainer_join(larger, s->model, &made, NULL, &s->trainer, &report, &err), err);
  else
    rank_ok(run, gsel_trainer_rebind(s->trainer, larger, &options, &report, &err), err);
  rank_check(run, report.step == GROWS_AT && report.lost_steps == 0 && report.source == GSEL_REBIND_FROM_RANKS);
  gsel_config_free(config);
  gsel_comm_free(s->comm);
  s->comm = larger;
  take_steps(run, s->trainer, GROWS_AT, SAVED_AT);
}

static void is_lost_or_joins(rank_run* run) {
  const struct growing* what = (const struct growing*)run->user;
  const bool is_new = run->rank >= FIRST;
  session s;
  gsel_error* err = NULL;
  rank_run own = *run;
  trial t = what->t;
  t.without_comm = is_new;
  own.user = &t;
  own.world_size = FIRST;
  if (is_new) t.config = LION_OF("9");
  rank_ok(run, open_session(&own, &s, &err), err);
  if (is_new) {
    gsel_trainer_free(s.trainer); /* it was needed for nothing */
    s.trainer = NULL;
  } else {
    take_steps(run, s.trainer, 0, DIES_IN);
    if (!run->failure[0]) lose_one(run, &s);
    if (run->failure[0]) return;
    rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(what->folder), NULL, NULL, &err), err);
  }
  grow(run, &s);
  if (run->failure[0]) return;
  rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(what->folder), NULL, NULL, &err), err);
  close_session(&s);
}

static void first_link(const char* folder) {
  struct growing what = {plain(ZERO("3", ALL_SHARDED) LION_OF("9") "redundancy = 1\n", NULL), folder};
  what.t.data = data;
  rank_run* runs = ranks_prepare(FIRST + NEW, &what);
  pid_t pids[FIRST + NEW];
  for (int r = 0; r < FIRST + NEW; ++r) pids[r] = rank_fork(&runs[r], is_lost_or_joins);
  for (int r = 0; r < FIRST + NEW; ++r) {
    int status = 0;
    waitpid(pids[r], &status, 0);
    const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (is_killed != (r == FIRST - 1) && !runs[r].failure[0])
      snprintf(runs[r].failure, sizeof runs[r].failure, "rank %d ended with wait status 0x%x", r, (unsigned)status);
  }
  ranks_verdict(runs, FIRST + NEW);
}

/* ---- the chain ---- */

static void each_sample_is_trained_once_and_in_order(void** state) {
  char folder[256], alone[300], changed[300];
  (void)state;
  assert_true(make_scratch(folder, sizeof folder, "chain"));
  snprintf(alone, sizeof alone, "%s/alone", folder);
  snprintf(changed, sizeof changed, "%s/changed", folder);
  add_link(LION_OF("9"), 1, NULL, alone, 0, 3);
  add_link(LION_OF("4"), 1, alone, alone, 3, 2);
  add_link(LION_OF("9"), 1, alone, alone, 5, 1);

  seen = (struct seen*)shared_memory(sizeof *seen);
  first_link(changed);
  add_link(ZERO("2", "bucket_bytes = 1\n") LION_OF("4"), 3, changed, changed, 3, 2);
  add_link(DP("") LION_OF("9"), 5, changed, changed, 5, 1);
  for (int i = 0; i < SAMPLES; ++i) {
    const int step = i < SAVED_AT * LARGE ? i / LARGE : i < SAVED_AT * LARGE + 2 * SMALL ? 3 + (i - 27) / SMALL : 5;
    if (seen->times[i] != 1 || seen->step[i] != step)
      fail_msg("sample %d was seen %d times, last in step %d; expected once in step %d", i, seen->times[i],
               seen->step[i], step);
  }
  munmap(seen, sizeof *seen);
  seen = NULL;

  gsel_checkpoint *const a = opened_checkpoint(alone), *const b = opened_checkpoint(changed);
  same_state(a, b);
  gsel_checkpoint_free(a);
  gsel_checkpoint_free(b);
  assert_int_equal(remove_scratch(folder), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_sample_is_trained_once_and_in_order),
  };
  return cmocka_run_group_tests_name("a chain of changes", tests, NULL, NULL);
}
