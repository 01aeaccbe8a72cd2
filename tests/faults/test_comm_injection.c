/* faults/test_comm_injection.c: every rank of three is killed, stopped, delayed or made to disagree at every step of
 * every kind of call, small and large, by GSEL_FAULT; every survivor gets the error that names the rank, in bounded
 * time, and nothing stays behind. */
#include "support/share.h"
#include "support/trials.h"

/* Trials of one action at each step for every kind and size; on every rank, or on one in turn; with a sanitizer a
 * share. */
static int plan_trials(action what, int every_rank, trial* trials) {
  int n = 0, turn = 0;
  gsel_collective_kind kind;
  for (int k = 0; every_call(k, &kind); ++k)
    for (int size = 0; size < (kind == GSEL_COLLECTIVE_BARRIER ? 1 : N_SIZES); ++size)
      for (int step = 0; step < N_STEPS; ++step) {
        if (what == CORRUPT && strcmp(steps[step], "header") != 0) continue;
        ++turn;
        for (int32_t r = 0; r < RANKS; ++r)
          for (int call = FAULTY_CALL; call <= (kind == EVERY_CALL_MESSAGES ? 4 : FAULTY_CALL); ++call)
            if ((every_rank || r == turn % RANKS) && in_share_of(7))
              trials[n++] = (trial){what, step, call, r, kind, sizes[size], 0};
      }
  return n;
}

enum { MOST_TRIALS = 16 * N_SIZES * N_STEPS * RANKS };

/* Which way large data takes is a matter of the machine. */
static int depends_on_memory(int step) {
  return strcmp(steps[step], "direct") == 0 || strcmp(steps[step], "single_copy") == 0;
}

/* trials[n], of which `struck` gets those that struck. */
static void strike(const trial* trials, int n, int* struck) {
  int of_step[N_STEPS] = {0};
  const double started = seconds();
  const int hit = run_all(trials, n, struck);
  for (int i = 0; i < n; ++i) of_step[trials[i].step] += struck[i];
  print_message("%s: %d worlds, %d struck in %.1f s:", actions[trials[0].what], n, hit, seconds() - started);
  for (int step = 0; step < N_STEPS; ++step) print_message(" %s %d", steps[step], of_step[step]);
  print_message("\n");
}

static void strike_everywhere(action what, int every_rank) {
  static trial trials[MOST_TRIALS];
  static int struck[MOST_TRIALS];
  const int n = plan_trials(what, every_rank, trials);
  strike(trials, n, struck);
  int n_struck = 0;
  for (int i = 0; i < n; ++i) n_struck += struck[i];
  assert_int_equal(n_struck > 0, what != DELAY);
}

/* Whoever stops is noticed by a timeout alone, so one rank stops where a kill has shown that a call passes the step. */
static void a_kill_or_a_stop_at_any_step_of_any_call_is_told_to_all(void** state) {
  (void)state;
  static trial trials[MOST_TRIALS];
  static int struck[MOST_TRIALS];
  const int n = plan_trials(KILL, 1, trials);
  strike(trials, n, struck);
  for (int step = 0; step < N_STEPS; ++step) {
    int n_struck = 0;
    for (int i = 0; i < n; ++i) n_struck += trials[i].step == step && struck[i];
    assert_true(n_struck > 0 || depends_on_memory(step));
  }
  int n_stops = 0;
  for (int i = 0; i < n; ++i) {
    if (!struck[i] || trials[i].victim != i / RANKS % RANKS) continue;
    trials[n_stops] = trials[i];
    trials[n_stops++].what = STOP;
  }
  strike(trials, n_stops, struck);
  for (int i = 0; i < n_stops; ++i) assert_true(struck[i] || depends_on_memory(trials[i].step));
}

static void a_delay_at_any_step_of_any_call_harms_nobody(void** state) {
  (void)state;
  strike_everywhere(DELAY, 0);
}

static void a_header_that_disagrees_is_told_to_all_and_the_next_call_works(void** state) {
  (void)state;
  strike_everywhere(CORRUPT, 1);
}

static void words_that_mean_nothing_are_refused(void** state) {
  (void)state;
  static const char* const bad[][2] = {
      {"kill", "\"kill\" is no fault; write fault@step"},
      {"drop@staged", "\"drop\" is no fault; use kill, stop, delay or corrupt"},
      {"kill@stagd:rank=0", "\"stagd\" is no step; use enter, header, staged"},
      {"kill@staged:rank=1", "\"rank=1\" needs a whole number of 0 to 0"},
      {"kill@staged:rank=", "\"rank=\" needs"},
      {"kill@staged:call=0", "\"call=0\" needs a whole number of 1"},
      {"kill@staged:call=3x", "\"call=3x\" needs"},
      {"kill@staged:when=3", "\"when=3\" is not known; use rank=, call= or ms="},
      {"kill@staged:", "\"\" is not known"},
      {"delay@staged:rank=0", "does not say how long; add ms="},
      {"delay@staged:ms=99999999", "\"ms=99999999\" needs"},
      {"corrupt@staged", "use corrupt@header"},
      {"kill@leave:call=9,", "\"\" is no fault"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    gsel_error* err;
    gsel_comm* comm;
    gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
    options.world_size = 1;
    setenv("GSEL_FAULT", bad[i][0], 1);
    check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_CONFIG, bad[i][1]);
    check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_CONFIG, "GSEL_FAULT is \"");
  }
  unsetenv("GSEL_FAULT");
}

/* Faults of several ranks and calls in one text; each strikes once. */
static void two_delays(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const double started = seconds(); /* before either rank can be delayed, however late this one goes on */
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int i = 0; i < 3; ++i) rank_ok(run, gsel_barrier(comm, &err), err);
  rank_check(run, seconds() - started >= 0.1);
  gsel_comm_free(comm);
}

static void several_faults_stand_in_one_text(void** state) {
  (void)state;
  setenv("GSEL_FAULT", "delay@enter:rank=0:call=1:ms=50,delay@header:rank=1:call=2:ms=50", 1);
  as_threads(2, two_delays, NULL);
  as_processes(2, two_delays, NULL);
  unsetenv("GSEL_FAULT");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_that_mean_nothing_are_refused),
      cmocka_unit_test(several_faults_stand_in_one_text),
      cmocka_unit_test(a_delay_at_any_step_of_any_call_harms_nobody),
      cmocka_unit_test(a_header_that_disagrees_is_told_to_all_and_the_next_call_works),
      cmocka_unit_test(a_kill_or_a_stop_at_any_step_of_any_call_is_told_to_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
