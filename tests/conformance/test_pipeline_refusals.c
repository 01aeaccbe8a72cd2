/* A pipeline that cannot run is refused on every rank before anything runs, and one that breaks ends everywhere with
 * its reason. Schedules from files, good and bad. */
#include "support/pipe_trial.h"
#include "support/scratch.h"

/* ---- what is refused before anything runs ---- */

static void expect_refusal(rank_run* run) {
  const pipe_trial* t = (const pipe_trial*)run->user;
  const int odd = run->rank == t->odd_rank;
  pipe_session s;
  gsel_error* err = NULL;
  const gsel_status status = pipe_open(run, odd ? &t->odd : &t->m, odd ? &t->odd_options : &t->options, &s, &err);
  char text[512] = "";
  gsel_error_format(err, text, sizeof text);
  rank_fails(run, status, err, t->code, strstr(text, t->text) && t->more ? t->more : t->text, -1);
  rank_check(run, s.pipeline == NULL);
  rank_ok(run, gsel_barrier(s.comm, &err), err); /* it stays usable */
  for (int l = 0; l < t->m.layers; ++l) rank_check(run, s.m.forwards[l] == 0);
  pipe_close(&s);
}

static void refuse(pipe_trial t, int ranks, gsel_status code, const char* text, const char* more) {
  t.code = code;
  t.text = text;
  t.more = more;
  as_threads(ranks, expect_refusal, &t);
}

static void more_stages_than_layers_are_refused(void** state) {
  (void)state;
  refuse(trial_of(3, "1f1b", 4, 1), 4, GSEL_ERR_CONFIG, "3 layers", "4 stages");
  refuse(trial_of(5, "zb-v", 4, 1), 3, GSEL_ERR_CONFIG, "5 layers", "6 stages");
}

static void a_schedule_that_does_not_exist_or_divide_is_refused(void** state) {
  (void)state;
  refuse(trial_of(5, "2f2b", 4, 1), 2, GSEL_ERR_CONFIG, "2f2b", "1f1b");
  pipe_trial t = trial_of(9, "1f1b", 4, 1);
  t.options.chunks = 2;
  refuse(t, 2, GSEL_ERR_CONFIG, "1f1b", "one stage of each rank");
  refuse(trial_of(9, "interleaved-1f1b", 7, 1), 3, GSEL_ERR_CONFIG, "7", "micro-batches");
}

static void write_file(const char* path, const char* text) {
  FILE* file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static char scratch[256], schedule_path[300];
static pipe_trial trial_of_file(const char* text, int layers, int microbatches) {
  write_file(schedule_path, text);
  return trial_of(layers, schedule_path, microbatches, 1);
}

static int make_folder(void** state) {
  (void)state;
  if (!make_scratch(scratch, sizeof scratch, "schedules")) return -1;
  snprintf(schedule_path, sizeof schedule_path, "%s/schedule.csv", scratch);
  return 0;
}
static int remove_folder(void** state) {
  (void)state;
  return remove_scratch(scratch);
}

static void a_schedule_from_a_file_runs(void** state) {
  (void)state;
  pipe_trial t = trial_of_file("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n", 6, 2);
  as_threads(2, expect_equal_to_by_hand, &t);
  t = trial_of_file(
      "# the last stage first on rank 0\n0F0,3F0,3I0,0F1,3F1,3I1,3W0,3W1,0B0,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n", 9,
      2);
  as_threads(2, expect_equal_to_by_hand, &t);
  refuse(trial_of_file("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n", 6, 3), 2, GSEL_ERR_CONFIG, "2", "3");
  refuse(trial_of_file("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n", 6, 2), 3, GSEL_ERR_CONFIG, "2", "3");
}

static void a_schedule_that_cannot_run_is_refused_with_file_line_and_action(void** state) {
  (void)state;
  refuse(trial_of_file("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", 6, 2), 2, GSEL_ERR_PROGRAM, "schedule.csv:1: column 5",
         "standstill");
  refuse(trial_of_file("0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n", 6, 2), 2, GSEL_ERR_PROGRAM, "schedule.csv:", "1B1");
  refuse(trial_of_file("0F0,0F1,0B0,0B1\n1F0,1B0,1F0,1B1\n", 6, 2), 2, GSEL_ERR_PROGRAM, "schedule.csv:2", "1F0");
  refuse(trial_of_file("0F0,0F1,0B0,0B1\n1F0,1X0,1F1,1B1\n", 6, 2), 2, GSEL_ERR_PARSE, "schedule.csv:2", "1X0");
  refuse(trial_of(6, "/nowhere/schedule.csv", 2, 1), 2, GSEL_ERR_IO, "/nowhere/schedule.csv", NULL);
}

static void ranks_that_describe_different_things_are_told_what(void** state) {
  (void)state;
  pipe_trial t = trial_of(6, "1f1b", 4, 2);
  t.odd_rank = 1;
  t.odd = t.m;
  t.odd.wide_layer = 2;
  t.odd_options = t.options;
  refuse(t, 3, GSEL_ERR_MISMATCH, "value \"h2\" differs", NULL);
  t.odd = t.m;
  t.odd_options.microbatch_samples = 3;
  refuse(t, 3, GSEL_ERR_MISMATCH, "microbatch_samples differs", NULL);
  t.odd_options = t.options;
  t.odd_options.schedule = gsel_str_from("gpipe");
  refuse(t, 3, GSEL_ERR_MISMATCH, "schedule differs", NULL);
}

static void ranks_that_read_different_files_are_told(void** state) {
  (void)state;
  char other[300];
  snprintf(other, sizeof other, "%s/other.csv", scratch);
  pipe_trial t = trial_of_file("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n", 6, 2);
  t.odd_rank = 1;
  t.odd = t.m;
  t.odd_options = t.options;
  t.odd_options.schedule = gsel_str_from(other);
  write_file(other, "0F0,0F1,,0B0,0B1\n,1F0,1F1,1B0,1B1\n");
  refuse(t, 2, GSEL_ERR_MISMATCH, "the schedule's file differs", NULL);
}

static void what_a_trainer_would_keep_is_refused(void** state) {
  (void)state;
  pipe_trial t = trial_of(5, "1f1b", 2, 1);
  t.m.declares = 1;
  refuse(t, 2, GSEL_ERR_UNSUPPORTED, "declares parameter \"w\"", "GSEL_LAYER_OWN_PARAMS");
}

/* ---- runs that break ---- */

static void die(void) {
  raise(SIGKILL);
}

static void expect_break(rank_run* run) {
  const pipe_trial* t = (const pipe_trial*)run->user;
  pipe_session s;
  gsel_error* err = NULL;
  run->timeout_s = 20;
  rank_ok(run, pipe_open(run, &t->m, &t->options, &s, &err), err);
  gsel_status status = GSEL_OK;
  for (int i = 0; i < t->runs && !status; ++i) status = gsel_pipeline_run(s.pipeline, t->what, NULL, &err);
  if (t->m.at_failure)
    rank_fails(run, status, err, GSEL_ERR_PEER, "ended without gsel_comm_free", -1);
  else
    rank_fails(run, status, err, status == GSEL_ERR_CALLBACK ? status : GSEL_ERR_ABORTED, t->text, -1);
  rank_fails(run, gsel_pipeline_run(s.pipeline, t->what, NULL, &err), err, GSEL_ERR_STATE, "an earlier run failed", -1);
  pipe_close(&s);
}

static void a_stage_that_fails_ends_the_run_everywhere(void** state) {
  (void)state;
  for (int k = 0; k < N_SCHEDULES; ++k)
    for (int layer = 1; layer < 8; layer += 3) {
      char text[96];
      pipe_trial t = trial_of(9, kSchedules[k], 8, 1);
      t.m.fail_layer = layer;
      t.m.fail_backward = layer > 4;
      t.m.fail_at_call = 3;
      snprintf(text, sizeof text, "layer \"mix.%d\" failed in %s", layer, t.m.fail_backward ? "backward" : "forward");
      t.text = text;
      as_threads(4, expect_break, &t);
    }
}

/* An early stage may be done with its part of the run before a late one fails: its next run fails then. */
static void a_stage_that_fails_without_a_backward_ends_a_run_too(void** state) {
  (void)state;
  pipe_trial t = trial_of(6, "1f1b", 8, 1);
  t.m.without_loss = 1;
  t.what = GSEL_FORWARD;
  t.runs = 1000000;
  t.m.fail_layer = 5;
  t.m.fail_at_call = 2;
  t.text = "layer \"end\" failed in forward";
  as_threads(3, expect_break, &t);
  as_processes(3, expect_break, &t);
}

static void a_rank_that_dies_is_an_error_on_the_others(void** state) {
  (void)state;
  pipe_trial t = trial_of(9, "1f1b", 8, 1);
  t.m.fail_layer = 3;
  t.m.fail_at_call = 4;
  t.m.at_failure = die;
  rank_run* runs = ranks_prepare(3, &t);
  pid_t pids[3];
  int killed = 0;
  for (int r = 0; r < 3; ++r) pids[r] = rank_fork(&runs[r], expect_break);
  for (int r = 0; r < 3; ++r) {
    int status = 0;
    waitpid(pids[r], &status, 0);
    killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }
  assert_int_equal(killed, 1);
  ranks_verdict(runs, 3);
}

static void data_that_ends_is_refused(void** state) {
  (void)state;
  pipe_trial t = trial_of(6, "1f1b", 4, 2);
  t.m.ends_at = 4;
  t.text = "no samples";
  as_threads(2, expect_break, &t);
}

static void expect_state_error(rank_run* run) {
  const pipe_trial* t = (const pipe_trial*)run->user;
  pipe_session s;
  gsel_error* err = NULL;
  rank_ok(run, pipe_open(run, &t->m, &t->options, &s, &err), err);
  rank_fails(run, gsel_pipeline_run(s.pipeline, GSEL_FORWARD_BACKWARD, NULL, &err), err, GSEL_ERR_STATE,
             "no loss layer", -1);
  rank_fails(run, gsel_pipeline_run(s.pipeline, 7, NULL, &err), err, GSEL_ERR_ARG, "what is 7", -1);
  rank_ok(run, gsel_pipeline_run(s.pipeline, GSEL_FORWARD, NULL, &err), err);
  pipe_close(&s);
}

static void backward_without_a_loss_is_refused_and_harmless(void** state) {
  (void)state;
  pipe_trial t = trial_of(6, "1f1b", 4, 2);
  t.m.without_loss = 1;
  as_threads(2, expect_state_error, &t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(more_stages_than_layers_are_refused),
      cmocka_unit_test(a_schedule_that_does_not_exist_or_divide_is_refused),
      cmocka_unit_test(a_schedule_from_a_file_runs),
      cmocka_unit_test(a_schedule_that_cannot_run_is_refused_with_file_line_and_action),
      cmocka_unit_test(ranks_that_describe_different_things_are_told_what),
      cmocka_unit_test(ranks_that_read_different_files_are_told),
      cmocka_unit_test(what_a_trainer_would_keep_is_refused),
      cmocka_unit_test(a_stage_that_fails_ends_the_run_everywhere),
      cmocka_unit_test(a_stage_that_fails_without_a_backward_ends_a_run_too),
      cmocka_unit_test(a_rank_that_dies_is_an_error_on_the_others),
      cmocka_unit_test(data_that_ends_is_refused),
      cmocka_unit_test(backward_without_a_loss_is_refused_and_harmless),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
