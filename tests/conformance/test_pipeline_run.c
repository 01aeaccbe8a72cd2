/* A pipeline without a trainer gives what the same computation gives by hand, under every schedule, on ranks as threads
 * and as processes, forward alone as well as with a backward. */
#include <math.h>
#include <time.h>

#include "support/pipe_trial.h"
#include "support/scratch.h"

static void every_schedule_gives_what_is_computed_by_hand(void** state) {
  (void)state;
  static const int microbatches[] = {1, 2, 4, 7, 8};
  int tried = 0;
  for (int k = 0; k < N_SCHEDULES; ++k)
    for (int ranks = 1; ranks <= 4; ++ranks)
      for (int i = 0; i < 5; ++i) {
        if (!schedule_exists(kSchedules[k], ranks, microbatches[i])) continue;
        pipe_trial t = trial_of(9, kSchedules[k], microbatches[i], 2);
        t.runs = 2;
        print_message("%s, %d ranks, %d micro-batches\n", kSchedules[k], ranks, microbatches[i]);
        as_threads(ranks, expect_equal_to_by_hand, &t);
        ++tried;
      }
  assert_true(tried > 120);
}

static void ranks_may_be_processes(void** state) {
  (void)state;
  for (int k = 0; k < N_SCHEDULES; ++k) {
    pipe_trial t = trial_of(9, kSchedules[k], 8, 1);
    as_processes(4, expect_equal_to_by_hand, &t);
  }
}

/* Micro-batches stream through a model without a loss; runs go on where the last one ended. */
static void forward_alone_streams_samples_in_order(void** state) {
  (void)state;
  for (int k = 0; k < N_SCHEDULES; ++k)
    for (int ranks = 1; ranks <= 4; ++ranks) {
      if (!schedule_exists(kSchedules[k], ranks, 8)) continue;
      pipe_trial t = trial_of(9, kSchedules[k], 8, 3);
      t.m.without_loss = 1;
      t.what = GSEL_FORWARD;
      t.runs = 3;
      as_threads(ranks, expect_equal_to_by_hand, &t);
    }
}

static void forward_alone_gives_the_loss_and_changes_nothing(void** state) {
  (void)state;
  pipe_trial t = trial_of(9, "1f1b", 4, 2);
  t.what = GSEL_FORWARD;
  t.runs = 2;
  as_threads(3, expect_equal_to_by_hand, &t);
}

/* ---- cuts ---- */

static void expect_cuts(rank_run* run) {
  static const int first[] = {0, 2, 7}, n[] = {2, 5, 2};
  const pipe_trial* t = (const pipe_trial*)run->user;
  pipe_session s;
  gsel_error* err = NULL;
  gsel_pipeline_stage stage = GSEL_PIPELINE_STAGE_INIT;
  gsel_pipeline_report report = GSEL_PIPELINE_REPORT_INIT;
  rank_ok(run, pipe_open(run, &t->m, &t->options, &s, &err), err);
  rank_ok(run, gsel_pipeline_stage_get(s.pipeline, 0, &stage, &err), err);
  rank_check(run, stage.stage == run->rank && stage.first_layer == first[run->rank] && stage.n_layers == n[run->rank]);
  rank_check(run, stage.forward_s == 0 && stage.backward_input_s == 0 && stage.backward_weight_s == 0);
  rank_fails(run, gsel_pipeline_stage_get(s.pipeline, 1, &stage, &err), err, GSEL_ERR_ARG, "i is 1; expected 0 to 0",
             -1);
  rank_ok(run, gsel_pipeline_run(s.pipeline, t->what, &report, &err), err);
  rank_ok(run, gsel_pipeline_stage_get(s.pipeline, 0, &stage, &err), err);
  rank_check(run, stage.forward_s > 0 && stage.backward_input_s > 0);
  rank_check(run, report.rank == run->rank && report.elapsed_s > 0 && report.busy_s > 0 && report.idle_s >= 0);
  const double sum = report.busy_s + report.idle_s + report.comm_s + report.overhead_s;
  rank_check(run, fabs(sum - report.elapsed_s) < 1e-3 + report.elapsed_s / 100);
  /* For a sample: h1 and kind over the first cut, h1's gradient back; h4, h6 and kind over the second, two back. */
  static const uint64_t bytes[] = {16, 28 + 12, 24}, messages[] = {2, 3 + 1, 2};
  rank_check(run, report.bytes_sent == bytes[run->rank] * 5 * 2);
  rank_check(run, report.messages_sent == messages[run->rank] * 5);
  pipe_close(&s);
}

static void stages_begin_where_the_caller_says(void** state) {
  (void)state;
  static const int32_t first[] = {2, 7};
  pipe_trial t = trial_of(9, "1f1b", 5, 2);
  t.options.first_layers = first;
  t.options.n_first_layers = 2;
  as_threads(3, expect_cuts, &t);
  as_threads(3, expect_equal_to_by_hand, &t);
}

static void a_run_leaves_a_timeline_where_it_was_told(void** state) {
  (void)state;
  char folder[256], path[320], text[64];
  if (is_started()) skip(); /* each process would make a folder of its own */
  assert_true(make_scratch(folder, sizeof folder, "pipeline"));
  pipe_trial t = trial_of(5, "1f1b", 4, 1);
  t.options.timeline = gsel_str_from(folder);
  as_threads(2, expect_equal_to_by_hand, &t);
  for (int rank = 0; rank < 2; ++rank) {
    snprintf(path, sizeof path, "%s/step-%d.json", folder, rank);
    FILE* file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text, file) == sizeof text);
    fclose(file);
  }
  remove_scratch(folder);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The last weights' half of the last rank ends once the first rank is at its next run: never, if anything at the end of
 * a run waited for all. */
enum { DRIFT_CALLS = 2 * 4 };
static int next_run_began; /* ranks are threads: atomic */

static void hold_the_last_half(const pipe_model* m, int layer) {
  if (layer == 0 && m->forwards[0] > DRIFT_CALLS) __atomic_store_n(&next_run_began, 1, __ATOMIC_RELAXED);
  if (layer != 3 || m->backwards[3] != DRIFT_CALLS) return;
  for (int turn = 0; !__atomic_load_n(&next_run_began, __ATOMIC_RELAXED) && turn < 10000; ++turn) usleep(1000);
}

static void a_rank_that_has_ended_its_run_begins_the_next(void** state) {
  (void)state;
  static const int32_t first[] = {3};
  static const char* const schedules[] = {"zb-h1", "zb-h2"};
  if (is_started()) skip(); /* ranks look at a variable of one process */
  for (int i = 0; i < 2; ++i) {
    pipe_trial t = trial_of(5, schedules[i], DRIFT_CALLS / 2, 2);
    t.options.first_layers = first;
    t.options.n_first_layers = 1;
    t.runs = 2;
    t.m.watch = hold_the_last_half;
    next_run_began = 0;
    const double began = seconds();
    as_threads(2, expect_equal_to_by_hand, &t);
    assert_true(next_run_began && seconds() - began < 8);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_schedule_gives_what_is_computed_by_hand),
      cmocka_unit_test(ranks_may_be_processes),
      cmocka_unit_test(forward_alone_streams_samples_in_order),
      cmocka_unit_test(forward_alone_gives_the_loss_and_changes_nothing),
      cmocka_unit_test(stages_begin_where_the_caller_says),
      cmocka_unit_test(a_run_leaves_a_timeline_where_it_was_told),
      cmocka_unit_test(a_rank_that_has_ended_its_run_begins_the_next),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
