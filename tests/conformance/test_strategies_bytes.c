/* What a strategy sends and keeps, to the byte, and when it sends: counters of the executor and of memory against the
 * closed forms of support/closed_forms.h and docs/strategies.md at numbers of ranks that divide nothing, and
 * communication that overlaps backward. */
#include <sched.h>

#include "support/closed_forms.h"
#include "support/counts.h"

/* 11 samples in micro-batches of 2: unequal everywhere, and on 5 ranks some have none in the second. The 80 elements
 * divide by neither 3 nor 7. */
enum { BATCH = 11, LARGEST = 2 };

static uint64_t microbatches(uint64_t n) {
  const uint64_t share = shard_of(BATCH, n);
  return shard_of(share, LARGEST < share ? LARGEST : share);
}

static void bytes_sent_are_those_of_the_closed_forms(void** state) {
  (void)state;
  outcome* out = shared_outcomes();
  for (int i = 0; i < N_CLOSED_FORMS; ++i)
    for (int n = 2; n <= 7; n += n == 2 ? 1 : 2) {
      char config[512];
      const struct closed_form form = expected_traffic(i, (uint64_t)n, BATCH, microbatches((uint64_t)n), LARGEST);
      snprintf(config, sizeof config, form.section, BATCH, LARGEST);
      trial t = plain(config, out);
      t.steps = 2;
      print_message("  form %d on %d ranks\n", i, n);
      as_threads(n, train, &t);
      for (size_t k = 0; k < sizeof kSending / sizeof *kSending; ++k) {
        uint64_t calls, bytes = 2 * step_bytes(&form, kSending[k], &calls), sent = 0;
        const int broadcast = kSending[k] == GSEL_INSTR_BROADCAST;
        if (broadcast) bytes += form.setup_broadcast;
        for (int r = 0; r < n; ++r) {
          sent += out[r].counts[kSending[k]].bytes_sent;
          assert_int_equal(out[r].counts[kSending[k]].calls, 2 * calls + (broadcast && form.setup_broadcast));
        }
        if (sent != bytes)
          fail_msg("instruction %d: %llu bytes were counted, %llu expected", (int)kSending[k], (unsigned long long)sent,
                   (unsigned long long)bytes);
      }
    }
  free_outcomes(out);
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* Bytes of model states on the first rank and on the last: kept parameters, gradients, optimizer state, master copies,
 * and the two parts of offload memory. AdamW: 8 bytes of state per element. */
enum { PARAMETERS, GRADIENTS, STATE, MASTER, TIER_STATE, TIER_PARAMETERS, N_PARTS };
static const char* const kParts[N_PARTS] = {"parameters",
                                            "gradients",
                                            "optimizer state",
                                            "master copy",
                                            "optimizer state and master copy, offload memory",
                                            "parameters, offload memory"};
struct memory_form {
  const char* section;
  uint64_t first[N_PARTS], last[N_PARTS];
};
struct memory_check {
  const struct memory_form* form;
  const char* config;
};

static void check_memory(rank_run* run) {
  const struct memory_check* check = (const struct memory_check*)run->user;
  trial t = plain(check->config, NULL);
  rank_run mine = *run;
  mine.user = &t;
  session s;
  gsel_error* err = NULL;
  uint64_t peak[N_PARTS] = {0};
  rank_ok(run, open_session(&mine, &s, &err), err);
  for (int i = 0; i < 2; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  gsel_memory_part part = GSEL_MEMORY_PART_INIT;
  for (int i = 0; !gsel_trainer_memory(s.trainer, i, &part, NULL); ++i) {
    rank_check(run, part.forecast_bytes == part.peak_bytes);
    for (int p = 0; p < N_PARTS; ++p)
      if (!strcmp(kParts[p], part.name)) peak[p] = part.peak_bytes;
  }
  close_session(&s);
  const uint64_t* expected = run->rank == 0 ? check->form->first : check->form->last;
  for (int p = 0; p < N_PARTS; ++p)
    if (peak[p] != expected[p]) {
      snprintf(run->failure, sizeof run->failure, "%.60s: rank %d of %d has %llu bytes of %s, expected %llu",
               check->form->section, (int)run->rank, (int)run->world_size, (unsigned long long)peak[p], kParts[p],
               (unsigned long long)expected[p]);
      return;
    }
}

static void memory_of_model_states_is_that_of_the_closed_forms(void** state) {
  (void)state;
  for (uint64_t n = 2; n <= 7; n += n == 2 ? 1 : 2) {
    const uint64_t P = EXACT_ELEMS, S = shard_of(P, n), whole = n * S; /* whole: with the padding of the last shard */
    const uint64_t L = shard_of(TABLE, n) + shard_of(POSITION, n) + shard_of(FC1, n) + shard_of(FC2, n);
    const struct memory_form forms[] = {
        {DP(""), {4 * P, 4 * P, 8 * P, 0, 0, 0}, {0}},
        {DDP(""), {4 * P, 4 * P, 8 * P, 0, 0, 0}, {4 * P, 4 * P, 8 * P, 0, 0, 0}},
        {ZERO("1", ""), {4 * whole, 4 * whole, 8 * S, 0, 0, 0}, {4 * whole, 4 * whole, 8 * S, 0, 0, 0}},
        {ZERO("2", ""), {4 * whole, 4 * S, 8 * S, 0, 0, 0}, {4 * whole, 4 * S, 8 * S, 0, 0, 0}},
        {ZERO("2", "offload = \"state\"\n"), {4 * whole, 4 * S, 0, 0, 8 * S, 0}, {4 * whole, 4 * S, 0, 0, 8 * S, 0}},
        {ZERO("3", ALL_SHARDED), {4 * L, 4 * L, 8 * L, 0, 0, 0}, {4 * L, 4 * L, 8 * L, 0, 0, 0}},
        {ZERO("3", ALL_SHARDED "offload = \"all\"\n"), {0, 4 * L, 0, 0, 8 * L, 4 * L}, {0, 4 * L, 0, 0, 8 * L, 4 * L}},
        {ZERO("3", ALL_SHARDED) "[train]\nprecision = \"bf16\"\n",
         {2 * L, 4 * L, 8 * L, 4 * L, 0, 0},
         {2 * L, 4 * L, 8 * L, 4 * L, 0, 0}},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; ++i) {
      const struct memory_check check = {&forms[i], forms[i].section};
      as_threads((int32_t)n, check_memory, (void*)(uintptr_t)&check);
    }
  }
}

/* ---- overlap ------------------------------------------------------------------------------------------------ */

/* Bounded by the communicator's own timeout, which ends a reduction that never comes. */
static void until_a_reduction_is_done(void* comm) {
  const gsel_comm* c = (const gsel_comm*)comm;
  while (comm_counts(c, GSEL_COLLECTIVE_ALLREDUCE).calls == 0 &&
         comm_counts(c, GSEL_COLLECTIVE_REDUCE_SCATTER).calls == 0 && comm_counts(c, GSEL_COLLECTIVE_REDUCE).calls == 0)
    sched_yield();
}

/* The last backward callback of the first step does not return before a bucket has been reduced: it could not return
 * at all if reductions waited for the end of backward. */
static void overlap(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  rank_ok(run, open_session(run, &s, &err), err);
  s.m.in_last_backward = until_a_reduction_is_done;
  s.m.last_backward_user_data = s.comm;
  alarm(60);
  rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
  alarm(0);
  rank_check(run, report.n_reduces >= 4);
  rank_check(run, report.n_overlapped > 0 && report.n_overlapped < report.n_reduces);
  close_session(&s);
}

static void no_overlap(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
  rank_check(run, report.n_reduces >= 4 && report.n_overlapped == 0);
  close_session(&s);
}

static void a_bucket_is_reduced_while_backward_goes_on(void** state) {
  (void)state;
  static const char* const overlapped[] = {DP("bucket_bytes = 1\n"), DDP("bucket_bytes = 1\nfirst_bucket_bytes = 1\n"),
                                           ZERO("1", "bucket_bytes = 1\n"), ZERO("2", "bucket_bytes = 1\n"),
                                           ZERO("3", ALL_SHARDED)};
  static const char* const held[] = {DP("bucket_bytes = 1\noverlap = false\n"),
                                     DDP("bucket_bytes = 1\nfirst_bucket_bytes = 1\noverlap = false\n"),
                                     ZERO("1", "bucket_bytes = 1\noverlap = false\n")};
  char config[512];
  trial t = plain(config, NULL);
  for (size_t i = 0; i < sizeof overlapped / sizeof *overlapped; ++i) {
    snprintf(config, sizeof config, "%s" TRAIN("6", ""), overlapped[i]);
    as_processes(2, overlap, &t);
  }
  for (size_t i = 0; i < sizeof held / sizeof *held; ++i) {
    snprintf(config, sizeof config, "%s" TRAIN("6", ""), held[i]);
    as_processes(2, no_overlap, &t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_sent_are_those_of_the_closed_forms),
      cmocka_unit_test(memory_of_model_states_is_that_of_the_closed_forms),
      cmocka_unit_test(a_bucket_is_reduced_while_backward_goes_on),
  };
  return cmocka_run_group_tests_name("strategies_bytes", tests, NULL, NULL);
}
