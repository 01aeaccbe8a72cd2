/* Which state ranks go on from after a change of ranks: never one that was loaded in part, never a mixture of before
 * and after a write between steps, and only one of the same optimizer. */
#include <sys/stat.h>
#include <sys/wait.h>

#include "support/checkpoint_trial.h"
#include "support/layouts.h"
#include "support/scratch.h"

static char folder[64];

static int begin(void** state) {
  (void)state;
  return make_scratch(folder, sizeof folder, "elastic") ? 0 : -1;
}
static int end(void** state) {
  (void)state;
  return remove_scratch(folder);
}

/* ---- another optimizer ---- */

static void has_another_optimizer(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  gsel_comm* again = NULL;
  gsel_rebind_options options = GSEL_REBIND_OPTIONS_INIT;
  gsel_config* config = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_comm_split(s.comm, 0, run->rank, &again, &err), err);
  rank_ok(run,
          gsel_config_parse(gsel_str_from(DDP("") "[train]\noptimizer = \"adamw\"\nbatch = 9\n"),
                            gsel_str_from("other.toml"), &config, &err),
          err);
  options.config = config;
  const gsel_status status = gsel_trainer_rebind(s.trainer, again, &options, NULL, &err);
  rank_fails(run, status, err, GSEL_ERR_MISMATCH, "a change of ranks keeps the optimizer", -1);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  gsel_config_free(config);
  close_session(&s);
  gsel_comm_free(again);
}

static void another_optimizer_is_refused(void** state) {
  (void)state;
  trial t = plain(config_of(&kLayouts[2], ""), NULL);
  as_threads(2, has_another_optimizer, &t);
}

/* ---- a load that ends in the middle ---- */

static void loads_in_part(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  gsel_comm* again = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(folder), NULL, NULL, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  if (run->rank == 0) {
    char path[128];
    snprintf(path, sizeof path, "%s/step-000000000001/rank-00001.safetensors", folder);
    flip_bit(path, 1);
  }
  rank_ok(run, gsel_barrier(s.comm, &err), err);
  gsel_status status = gsel_trainer_load(s.trainer, gsel_str_from(folder), NULL, &err);
  rank_check(run, status == GSEL_ERR_PARSE || status == GSEL_ERR_PEER);
  gsel_error_free(err);
  err = NULL;
  rank_ok(run, gsel_comm_shrink(s.comm, &again, &err), err);
  rank_check(run, gsel_comm_world_size(again) == 2);
  status = gsel_trainer_rebind(s.trainer, again, NULL, NULL, &err);
  rank_fails(run, status, err, GSEL_ERR_NOT_FOUND, "no rank has a whole state", -1);
  close_session(&s);
  gsel_comm_free(again);
}

static void a_state_that_was_loaded_in_part_is_nobodys(void** state) {
  (void)state;
  trial t = plain(config_of(&kLayouts[2], "elastic = \"on\"\n"), NULL);
  as_processes(2, loads_in_part, &t);
}

/* ---- writes between steps ---- */

enum { ELEMS_OF_FIRST = 8 };

static void writes_and_dies(rank_run* run) {
  const float values[ELEMS_OF_FIRST] = {1, 2, 3, 4, 5, 6, 7, 8};
  float got[ELEMS_OF_FIRST] = {0};
  session s;
  gsel_error* err = NULL;
  gsel_comm *left = NULL, *beside = NULL; /* a step is in the calls of the other one */
  gsel_state* dict = NULL;
  gsel_rebind_report report = GSEL_REBIND_REPORT_INIT;
  gsel_training_numbers numbers = GSEL_TRAINING_NUMBERS_INIT;
  gsel_work work = GSEL_WORK_INIT;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_comm_split(s.comm, 0, run->rank, &beside, &err), err);
  for (int i = 0; i < 2; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_state_open(s.trainer, &dict, &err), err);
  rank_ok(run, gsel_state_write(dict, 0, 0, ELEMS_OF_FIRST, values, NULL, &err), err);
  gsel_state_free(dict);
  rank_ok(run, gsel_trainer_set_learning_rate(s.trainer, 0.5, &err), err);
  rank_ok(run, gsel_trainer_next_work(s.trainer, &work, &err), err); /* the step has begun on every rank */
  if (gsel_barrier(beside, &err)) gsel_error_free(err);              /* who dies behind it can be heard in it */
  err = NULL;
  if (run->rank == 2) kill(getpid(), SIGKILL);
  gsel_status status = GSEL_OK;
  while (status == GSEL_OK && work.kind != GSEL_WORK_DONE) {
    status = work.input ? exact_data(work.input, NULL) : call_layer(&work, &s.m);
    status = gsel_trainer_complete(s.trainer, work.ticket, status, gsel_str_from(""), &err);
    if (status == GSEL_OK) status = gsel_trainer_next_work(s.trainer, &work, &err);
  }
  rank_fails(run, status, err, GSEL_ERR_PEER, "rank ", 2);
  rank_ok(run, gsel_comm_shrink(s.comm, &left, &err), err);
  rank_ok(run, gsel_trainer_rebind(s.trainer, left, NULL, &report, &err), err);
  rank_check(run, report.source == GSEL_REBIND_FROM_RANKS && report.step == 2);
  rank_ok(run, gsel_state_open(s.trainer, &dict, &err), err);
  rank_ok(run, gsel_state_read(dict, 0, 0, ELEMS_OF_FIRST, got, &err), err);
  rank_check(run, memcmp(got, values, sizeof got) == 0);
  rank_ok(run, gsel_state_numbers(dict, &numbers, &err), err);
  rank_check(run, numbers.learning_rate == 0.5 && numbers.step == 2);
  gsel_state_free(dict);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  gsel_comm_free(beside);
  close_session(&s);
  gsel_comm_free(left);
}

/* Three ranks, of which the last one kills itself. */
static void in_three_of_which_one_dies(rank_body body, const char* more) {
  char config[1024];
  snprintf(config, sizeof config, ZERO("3", ALL_SHARDED) LION "redundancy = 1\n%s", more);
  trial t = plain(config, NULL);
  rank_run* runs = ranks_prepare(3, &t);
  pid_t pids[3];
  int died[3];
  for (int r = 0; r < 3; ++r) pids[r] = rank_fork(&runs[r], body);
  for (int r = 0; r < 3; ++r) {
    int status = 0;
    waitpid(pids[r], &status, 0);
    died[r] = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  ranks_verdict(runs, 3);
  for (int r = 0; r < 3; ++r) assert_int_equal(died[r], r == 2 ? SIGKILL : 0);
}

static void what_was_written_between_steps_is_what_goes_on(void** state) {
  (void)state;
  in_three_of_which_one_dies(writes_and_dies, "");
}

/* ---- copies that are older than a checkpoint ---- */

enum { SAVED_AT = 3, DIES_AT = 5 };
static int saves; /* these ranks; else the folder is another run's */
static const char* runs_folder(void) {
  static _Thread_local char path[128];
  snprintf(path, sizeof path, "%s/copies-%d", folder, saves);
  return path;
}

static void dies_after_a_save(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  gsel_comm* left = NULL;
  gsel_rebind_options options = GSEL_REBIND_OPTIONS_INIT;
  gsel_rebind_report report = GSEL_REBIND_REPORT_INIT;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < DIES_AT; ++i) {
    if (i == SAVED_AT && saves)
      rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(runs_folder()), NULL, NULL, &err), err);
    rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  }
  if (run->rank == 2) kill(getpid(), SIGKILL);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_PEER, "rank ", 2);
  err = NULL;
  rank_ok(run, gsel_comm_shrink(s.comm, &left, &err), err);
  options.folder = gsel_str_from(runs_folder());
  rank_ok(run, gsel_trainer_rebind(s.trainer, left, &options, &report, &err), err);
  rank_check(run, report.source == (saves ? GSEL_REBIND_FROM_CHECKPOINT : GSEL_REBIND_FROM_RANKS));
  rank_check(run, report.step == (saves ? SAVED_AT : 0));
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  close_session(&s);
  gsel_comm_free(left);
}

static void is_another_run(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < SAVED_AT; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(runs_folder()), NULL, NULL, &err), err);
  close_session(&s);
}

static void a_newer_checkpoint_of_these_ranks_goes_before_their_copies(void** state) {
  (void)state;
  saves = 1;
  in_three_of_which_one_dies(dies_after_a_save, "redundancy_every = 10\n");
  saves = 0;
  trial t = plain(config_of(&kLayouts[0], ""), NULL);
  as_threads(1, is_another_run, &t);
  in_three_of_which_one_dies(dies_after_a_save, "redundancy_every = 10\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(another_optimizer_is_refused),
      cmocka_unit_test(a_state_that_was_loaded_in_part_is_nobodys),
      cmocka_unit_test(what_was_written_between_steps_is_what_goes_on),
      cmocka_unit_test(a_newer_checkpoint_of_these_ranks_goes_before_their_copies),
  };
  return cmocka_run_group_tests_name("states of a change of ranks", tests, begin, end);
}
