/* See elastic_trial.h. */
#include "support/elastic_trial.h"

#include <ftw.h>
#include <sys/wait.h>

#include "support/port.h"

enum { MOST_TRIES = 5, MOST_WORLDS = 16, AT_ONCE = 4, MOST_IN_TURN = 2000 };

struct change change_of(const char* config, const outcome* expected) {
  struct change c;
  memset(&c, 0, sizeof c);
  c.t = plain(config, NULL);
  c.t.expected = expected;
  c.signal = SIGKILL;
  c.after_us = c.second = -1;
  return c;
}

static bool is_victim(const struct change* c, int rank) {
  for (int i = 0; i < c->n_victims; ++i)
    if (c->victims[i] == rank) return true;
  return false;
}

outcome* transformer_trained_alone(const small_transformer* m) {
  outcome* out = shared_outcomes();
  trial t = plain(config_of(&kLayouts[0], ""), out);
  t.transformer = m;
  as_threads(1, train, &t);
  assert_true(out->largest < 16777216.0 / 8);
  return out;
}
outcome* trained_alone(void) {
  return transformer_trained_alone(NULL);
}

static int remove_one(const char* path, const struct stat* status, int kind, struct FTW* at) {
  (void)status, (void)kind, (void)at;
  return remove(path);
}
static void remove_folder(const char* folder) {
  assert_int_equal(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- one rank ---- */

struct rank_state {
  rank_run* run;
  const struct change* c;
  session s;
  gsel_config* afterwards;
  int number; /* of callbacks of the step that is struck */
  bool was_stopped, has_met, is_out;
};

static void see(const struct rank_state* r, int role, const int64_t* ids, int64_t n) {
  for (int64_t i = 0; i < n && !r->was_stopped; ++i)
    __atomic_fetch_add(&r->c->tally->seen[role][ids[i]], 1, __ATOMIC_RELAXED);
}

static void see_work(const struct rank_state* r, const gsel_work* work) {
  const int tokens = r->s.transformer ? TM_TOKENS : V_TOKENS, loss = r->s.transformer ? TM_L_LOSS : L_LOSS;
  const gsel_data_request* input = work->input;
  const gsel_call* call = work->call;
  if (input && input->value == tokens) see(r, SEEN_READ, input->sample_ids, input->n_samples);
  if (!call || call->shard_index || call->phase) return;
  if (call->layer == 0 && work->kind == GSEL_BACKWARD_WEIGHT) see(r, SEEN_FIRST, call->sample_ids, call->n_samples);
  if (call->layer == loss && work->kind == GSEL_FORWARD) see(r, SEEN_LAST, call->sample_ids, call->n_samples);
}

static void strike(struct rank_state* r) {
  if (__atomic_exchange_n(&r->was_stopped, true, __ATOMIC_SEQ_CST)) return;
  kill(getpid(), r->c->signal);
}

/* The fault of `second` stops it. */
static bool stops_second(const struct change* c) {
  return c->second >= 0 && strncmp(c->fault, "stop", 4) == 0;
}

static gsel_status step_until(struct rank_state* r, int at, gsel_error** err) {
  for (;;) {
    gsel_work work = GSEL_WORK_INIT;
    gsel_status status = gsel_trainer_next_work(r->s.trainer, &work, err);
    if (status || work.kind == GSEL_WORK_DONE) return status;
    if (at >= 0 && r->number++ == at) strike(r);
    see_work(r, &work);
    status = session_work(&r->s, &work);
    status = gsel_trainer_complete(r->s.trainer, work.ticket, status, gsel_str_from(""), err);
    if (status) return status;
  }
}

static void* strike_later(void* argument) {
  struct rank_state* r = (struct rank_state*)argument;
  usleep((useconds_t)r->c->after_us);
  strike(r);
  return NULL;
}

/* The step or save in which this rank is struck. */
static gsel_status struck_step(struct rank_state* r, gsel_error** err) {
  const struct change* c = r->c;
  gsel_status status = GSEL_OK;
  pthread_t later;
  if (c->after_us >= 0) pthread_create(&later, NULL, strike_later, r);
  if (c->strikes == IN_SAVE) status = gsel_trainer_save(r->s.trainer, gsel_str_from(c->tally->folder), NULL, NULL, err);
  if (c->strikes == IN_SAVE_BEGIN)
    status = gsel_trainer_save_begin(r->s.trainer, gsel_str_from(c->tally->folder), NULL, NULL, err);
  if (!status && c->strikes != IN_SAVE) status = step_until(r, c->after_us < 0 ? c->at : -1, err);
  if (!status && (c->after_us >= 0 || r->number <= c->at)) __atomic_store_n(&c->tally->ended, 1, __ATOMIC_RELAXED);
  if (c->after_us >= 0 && c->signal == SIGSTOP) pthread_join(later, NULL);
  strike(r);
  return status;
}

/* What a rank that was stopped meets when it goes on. */
static void is_left_out(struct rank_state* r, gsel_status status, gsel_error* err) {
  gsel_comm* smaller = NULL;
  for (int i = 0; i < 2 && status == GSEL_OK; ++i) status = step_until(r, -1, &err);
  if (status != GSEL_ERR_TIMEOUT && status != GSEL_ERR_PEER && status != GSEL_ERR_STATE) {
    rank_check(r->run, status != GSEL_OK);
    rank_ok(r->run, status, err);
  }
  gsel_error_free(err);
  err = NULL;
  status = gsel_comm_shrink(r->s.comm, &smaller, &err);
  rank_fails(r->run, status, err, GSEL_ERR_PEER, "", -1);
  close_session(&r->s);
}

/* The same in the rebind. */
static void second_is_left_out(struct rank_state* r, gsel_comm** comms, int n, gsel_error* err) {
  gsel_comm* smaller = NULL;
  r->is_out = true;
  gsel_error_free(err);
  err = NULL;
  gsel_status status = gsel_comm_shrink(comms[n], &smaller, &err);
  rank_fails(r->run, status, err, GSEL_ERR_PEER, "", -1);
  for (r->s.comm = NULL; n >= 0; --n) gsel_comm_free(comms[n]);
}

/* A new communicator of all that are left, at which `second` is struck. */
static gsel_status meet_again(const struct rank_state* r, gsel_comm** comm, gsel_error** err) {
  const struct change* c = r->c;
  rank_run again = *r->run;
  again.id.bytes[0] ^= 1;
  again.world_size -= c->n_victims;
  for (int i = 0; i < c->n_victims; ++i) again.rank -= c->victims[i] < r->run->rank;
  if (r->run->rank == c->second) setenv("GSEL_FAULT", c->fault, 1);
  return rank_join(&again, comm, err);
}

static gsel_status rebind_or_join(struct rank_state* r, gsel_comm* comm, const char* folder, gsel_rebind_report* report,
                                  gsel_error** err) {
  gsel_rebind_options options = GSEL_REBIND_OPTIONS_INIT;
  gsel_trainer_options made = GSEL_TRAINER_OPTIONS_INIT;
  options.config = r->afterwards;
  options.folder = gsel_str_from(folder);
  if (r->s.trainer) return gsel_trainer_rebind(r->s.trainer, comm, &options, report, err);
  made.config = r->s.config;
  made.data = session_data(&r->s);
  return gsel_trainer_join(comm, r->s.model, &made, &options, &r->s.trainer, report, err);
}

static void forget_seen(const struct tally* tally, int64_t step) {
  for (int role = 0; role < N_SEEN; ++role)
    memset((void*)&tally->seen[role][step * BATCH], 0, sizeof(int32_t) * (size_t)(SAMPLES - step * BATCH));
}

static void send_continue(const struct change* c, int moment) {
  if (stops_second(c) && moment > 0) kill(c->tally->pids[c->second], SIGCONT);
  if (c->signal == SIGSTOP && moment == c->at % 3)
    for (int i = 0; i < c->n_victims; ++i) kill(c->tally->pids[c->victims[i]], SIGCONT);
}

/* To the ranks that are left, again if one dies in there. */
static void rebinds(struct rank_state* r, int64_t* next) {
  rank_run* run = r->run;
  const struct change* c = r->c;
  gsel_error* err = NULL;
  gsel_comm* tried[MOST_TRIES] = {r->s.comm};
  int n = 1;
  gsel_rebind_report report = GSEL_REBIND_REPORT_INIT;
  const bool meets = (c->strikes == IN_REBIND || c->strikes == IN_JOIN) && !r->has_met;
  r->has_met = true;
  for (bool is_done = false; !is_done;) {
    rank_check(run, n < MOST_TRIES);
    if (n == 1 && meets) {
      rank_ok(run, meet_again(r, &tried[n], &err), err);
    } else {
      rank_ok(run, gsel_comm_shrink(tried[n - 1], &tried[n], &err), err);
    }
    if (gsel_comm_rank(tried[n]) == 0) send_continue(c, 0);
    gsel_status status = rebind_or_join(r, tried[n], c->is_last_resort ? "" : c->tally->folder, &report, &err);
    if (status == GSEL_ERR_NOT_FOUND && c->is_last_resort) {
      rank_fails(run, status, err, GSEL_ERR_NOT_FOUND, "give a folder", -1);
      __atomic_fetch_add(&c->tally->refused, 1, __ATOMIC_RELAXED);
      status = rebind_or_join(r, tried[n], c->tally->folder, &report, &err);
    }
    is_done = status == GSEL_OK;
    if (!is_done && stops_second(c) && run->rank == c->second) {
      second_is_left_out(r, tried, n, err);
      return;
    }
    if (!is_done && c->second >= 0) {
      rank_fails(run, status, err, stops_second(c) ? GSEL_ERR_TIMEOUT : GSEL_ERR_PEER, "", -1);
    } else {
      rank_ok(run, status, err);
    }
    ++n;
  }
  r->s.comm = tried[--n];
  while (n > 0) gsel_comm_free(tried[--n]);
  if (meets && run->rank == c->second) { /* the fault has not struck */
    __atomic_store_n(&c->tally->ended, 1, __ATOMIC_RELAXED);
    kill(getpid(), SIGKILL);
  }
  const bool is_first = gsel_comm_rank(r->s.comm) == 0;
  if (is_first) forget_seen(c->tally, report.step);
  if (gsel_barrier(r->s.comm, &err) != GSEL_OK) {
    rank_check(run, c->second >= 0);
    gsel_error_free(err);
  }
  if (is_first) send_continue(c, 1);
  rank_check(run, report.step <= *next + 1 && report.lost_steps >= 0 && report.lost_steps <= c->lost);
  rank_check(run, report.step >= STRUCK - c->lost && report.step <= STRUCK + 1);
  __atomic_fetch_add(&c->tally->sources[report.source], 1, __ATOMIC_RELAXED);
  *next = report.step;
}

static bool is_expected(const struct change* c, gsel_status status, const gsel_error* err) {
  if (status == GSEL_ERR_TIMEOUT)
    return stops_second(c) || (c->signal == SIGSTOP && is_victim(c, gsel_error_rank(err)));
  return status == GSEL_ERR_PEER && (c->second >= 0 || is_victim(c, gsel_error_rank(err)));
}

/* Steps [step, STEPS), with what has happened. */
static void trains_to_the_end(struct rank_state* r, int64_t step, bool has_lost) {
  rank_run* run = r->run;
  const struct change* c = r->c;
  gsel_error* err = NULL;
  while (step < STEPS) {
    const bool is_struck = !has_lost && step == STRUCK && is_victim(c, run->rank);
    gsel_status status = GSEL_OK;
    if (is_struck) {
      status = struck_step(r, &err);
      is_left_out(r, status, err);
      return;
    }
    if (step == STRUCK && !has_lost && c->strikes == IN_SAVE)
      status = gsel_trainer_save(r->s.trainer, gsel_str_from(c->tally->folder), NULL, NULL, &err);
    if (step == STRUCK && !has_lost && c->strikes == IN_SAVE_BEGIN)
      status = gsel_trainer_save_begin(r->s.trainer, gsel_str_from(c->tally->folder), NULL, NULL, &err);
    if (!status) status = step_until(r, -1, &err);
    if (!status) {
      gsel_step_report report = GSEL_STEP_REPORT_INIT;
      rank_ok(run, gsel_trainer_report(r->s.trainer, &report, &err), err);
      rank_check(run, report.step == step && memcmp(&report.loss_sum, &c->t.expected->loss[step], sizeof(double)) == 0);
      ++step;
      if (has_lost && gsel_comm_rank(r->s.comm) == 0) send_continue(c, 2);
      if (c->has_folder && !has_lost && step == 1)
        rank_ok(run, gsel_trainer_save(r->s.trainer, gsel_str_from(c->tally->folder), NULL, NULL, &err), err);
      continue;
    }
    if (!has_lost && is_victim(c, run->rank)) strike(r); /* of two, the other one was faster */
    rank_check(run, step >= STRUCK - 1);                 /* others may still be at the copy after the step before */
    if (!is_expected(c, status, err)) rank_ok(run, status, err);
    gsel_error_free(err);
    err = NULL;
    has_lost = true;
    rebinds(r, &step);
    if (run->failure[0] || r->is_out) return;
  }
  float params[MOST_ELEMS];
  rank_check(run, has_lost);
  read_session_params(run, &r->s, params);
  if (run->failure[0]) return;
  same_params(run, params, c->t.expected->params, session_elems(&r->s));
}

/* The newest checkpoint is whole. */
static void loads_and_trains(struct rank_state* r) {
  gsel_error* err = NULL;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  gsel_status status = gsel_trainer_load(r->s.trainer, gsel_str_from(r->c->tally->folder), &report, &err);
  rank_ok(r->run, status, err);
  rank_check(r->run, report.step == 1 || report.step == STRUCK);
  r->was_stopped = true; /* samples are not counted again */
  trains_to_the_end(r, report.step, true);
}

/* IN_JOIN: the new ranks have a model and no trainer, the others a communicator of their own. */
static gsel_status open_for(struct rank_state* r, gsel_error** err) {
  const struct change* c = r->c;
  rank_run own = *r->run;
  trial alone = c->t;
  own.user = (void*)&c->t;
  own.world_size -= c->n_new;
  if (own.rank < own.world_size) return open_session(&own, &r->s, err);
  alone.without_comm = 1;
  alone.config = config_of(&kLayouts[0], "");
  own.user = &alone;
  gsel_status status = open_session(&own, &r->s, err);
  gsel_trainer_free(r->s.trainer);
  gsel_config_free(r->s.config);
  r->s.trainer = NULL;
  r->s.config = NULL;
  const gsel_str text = gsel_str_from(c->afterwards ? c->afterwards : c->t.config);
  return status ? status : gsel_config_parse(text, gsel_str_from("new.toml"), &r->s.config, err);
}

static void grows_and_trains(struct rank_state* r) {
  gsel_error* err = NULL;
  int64_t step = 0;
  for (; step < STRUCK && r->s.trainer; ++step) rank_ok(r->run, step_until(r, -1, &err), err);
  step = STRUCK;
  rebinds(r, &step);
  if (!r->run->failure[0] && !r->is_out) trains_to_the_end(r, step, true);
}

static void goes_on(rank_run* run) {
  const struct change* c = (const struct change*)run->user;
  struct rank_state r;
  gsel_error* err = NULL;
  memset(&r, 0, sizeof r);
  r.run = run;
  r.c = c;
  c->tally->pids[run->rank] = getpid();
  run->timeout_s = c->signal == SIGSTOP || stops_second(c) ? 1 : 20;
  if (c->hosts) {
    const char host[] = {'h', c->hosts[run->rank], '\0'};
    setenv("GSEL_HOST_ID", host, 1);
    setenv("GSEL_TEST_PLACE", c->tally->place, 1);
  }
  rank_ok(run, open_for(&r, &err), err);
  if (c->afterwards) {
    const gsel_str text = gsel_str_from(c->afterwards);
    rank_ok(run, gsel_config_parse(text, gsel_str_from("after.toml"), &r.afterwards, &err), err);
  }
  if (c->strikes == IN_JOIN)
    grows_and_trains(&r);
  else
    trains_to_the_end(&r, 0, false);
  if (is_victim(c, run->rank) || run->failure[0] || r.is_out) return;
  if (c->strikes == IN_SAVE || c->strikes == IN_SAVE_BEGIN) loads_and_trains(&r);
  gsel_config_free(r.afterwards);
  close_session(&r.s);
}

/* ---- worlds ---- */

struct world {
  rank_run* runs;
  pid_t pids[MOST_WORLD];
};

static struct world start_world(struct change* c, int ranks) {
  struct world w = {ranks_prepare(ranks, c), {0}};
  c->tally = (struct tally*)shared_memory(sizeof *c->tally);
  snprintf(c->tally->place, sizeof c->tally->place, "tcp://127.0.0.1:%d", free_port());
  if (c->has_folder) {
    snprintf(c->tally->folder, sizeof c->tally->folder, "/tmp/gsel-elastic-XXXXXX"); /* mkdtemp fills in the X */
    assert_non_null(mkdtemp(c->tally->folder));
  }
  for (int r = 0; r < ranks; ++r) w.pids[r] = rank_fork(&w.runs[r], goes_on);
  return w;
}

static void judge_world(const struct world* w, const struct change* c, int ranks, struct losses* sum) {
  for (int r = 0; r < ranks; ++r) {
    int status = 0;
    waitpid(w->pids[r], &status, 0);
    const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool is_struck = is_victim(c, r) || r == c->second, may_live = stops_second(c) && r == c->second;
    const bool should_be = c->signal == SIGKILL && is_struck; /* second kills itself where no fault has stopped it */
    char* failure = w->runs[r].failure;
    if (((is_killed && !should_be) || (should_be && !is_killed && !may_live) || (!is_killed && status)) && !failure[0])
      snprintf(failure, sizeof w->runs[r].failure, "rank %d ended with wait status 0x%x", r, (unsigned)status);
    const size_t length = strlen(failure);
    if (length)
      snprintf(failure + length, sizeof w->runs[r].failure - length,
               " (victims %d %d at %d, after %d us, second %d, %s)", c->victims[0],
               c->n_victims > 1 ? c->victims[1] : -1, c->at, c->after_us, c->second, c->fault);
  }
  ranks_verdict(w->runs, ranks);
  const int readers = c->t.transformer ? MOST_WORLD : strstr(c->t.config, "\"pp\"") ? 2 : 1;
  for (int i = 0; i < SAMPLES; ++i) { /* none is lost, none seen twice; two stages of a pipeline read a sample */
    const int least = i / BATCH == STRUCK && c->signal == SIGSTOP && c->after_us >= 0 ? 0 : 1; /* it counts no more */
    assert_in_range(c->tally->seen[SEEN_READ][i], least, readers);
    assert_in_range(c->tally->seen[SEEN_FIRST][i], least, 1);
    assert_in_range(c->tally->seen[SEEN_LAST][i], least, 1);
  }
  ++sum->worlds;
  sum->ended += c->tally->ended && !c->may_miss;
  sum->from_ranks += c->tally->sources[GSEL_REBIND_FROM_RANKS];
  sum->from_checkpoint += c->tally->sources[GSEL_REBIND_FROM_CHECKPOINT];
  sum->refused += c->tally->refused;
  if (c->has_folder) remove_folder(c->tally->folder);
  munmap(c->tally, sizeof *c->tally);
}

void lose_ranks(struct change* worlds, int n, int ranks, struct losses* sum) {
  struct world started[MOST_WORLDS];
  assert_true(n <= MOST_WORLDS);
  for (int i = 0; i < n; ++i) started[i] = start_world(&worlds[i], ranks);
  for (int i = 0; i < n; ++i) judge_world(&started[i], &worlds[i], ranks, sum);
}

struct losses lose_ranks_in_turn(const struct change* c, int ranks, void (*vary)(struct change* world, int i)) {
  struct losses sum = {0, 0, 0, 0, 0};
  while (!sum.ended) {
    struct change worlds[AT_ONCE];
    assert_true(sum.worlds < MOST_IN_TURN);
    for (int i = 0; i < AT_ONCE; ++i) {
      worlds[i] = *c;
      vary(&worlds[i], sum.worlds + i);
    }
    lose_ranks(worlds, AT_ONCE, ranks, &sum);
  }
  return sum;
}

void at_each_callback(struct change* world, int i) {
  world->at = i;
}
