/* An evaluation that needs a larger arena than a training step, under train.memory_bytes: without room for it, it is
 * GSEL_ERR_NOMEM on every rank, and the trainer goes on as if nobody had asked. */
#include "support/gap_model.h"

static void step(rank_run* run, gap_session* s, int steps) {
  gsel_error* err = NULL;
  for (int i = 0; i < steps; ++i) rank_ok(run, gsel_trainer_step(s->trainer, NULL, &err), err);
}
static void same_parameter(rank_run* run, gap_session* s, gap_session* expected) {
  gsel_error* err = NULL;
  float w[2] = {0, 1};
  rank_ok(run, gsel_trainer_read_param(s->trainer, 0, &w[0], sizeof(float), &err), err);
  rank_ok(run, gsel_trainer_read_param(expected->trainer, 0, &w[1], sizeof(float), &err), err);
  rank_check(run, w[0] == w[1] && w[0] != 2);
}

static void goes_on_without_room(rank_run* run) {
  gap_session free, bound, enough;
  gsel_step_report expected = GSEL_STEP_REPORT_INIT, report = GSEL_STEP_REPORT_INIT;
  gsel_error* err = NULL;
  char more[64], why[160];
  float last[GAP_LAST_ELEMS];
  rank_ok(run, gap_open(run, "", &free, &err), err);
  const uint64_t all = gap_memory_of(free.trainer).all, arena = gap_memory_of(free.trainer).arena;
  snprintf(more, sizeof more, "memory_bytes = %llu\n", (unsigned long long)all);
  rank_ok(run, gap_open(run, more, &bound, &err), err);
  step(run, &free, 2);
  step(run, &bound, 2);
  rank_ok(run, gsel_trainer_evaluate(free.trainer, 8, NULL, NULL, &expected, &err), err);
  const uint64_t peak = gap_memory_of(free.trainer).peak_arena;
  rank_check(run, peak > arena); /* else this model shows nothing any more */
  snprintf(why, sizeof why, "values and windows needs %llu bytes more; %llu of the %llu bytes that train.memory_bytes",
           (unsigned long long)peak, (unsigned long long)(all - arena), (unsigned long long)all);
  for (int i = 0; i < 2; ++i) {
    rank_fails(run, gsel_trainer_evaluate(bound.trainer, 8, NULL, NULL, NULL, &err), err, GSEL_ERR_NOMEM, why, -1);
    rank_fails(run, gsel_trainer_begin_evaluation(bound.trainer, 8, &err), err, GSEL_ERR_NOMEM, why, -1);
    rank_fails(run, gsel_trainer_infer(bound.trainer, GAP_LAST, 1, gap_data, NULL, last, sizeof last, &err), err,
               GSEL_ERR_NOMEM, "staging needs ", -1);
    step(run, &free, 2);
    step(run, &bound, 2);
    same_parameter(run, &bound, &free);
  }
  rank_check(run, gap_memory_of(bound.trainer).peak_arena == arena);
  snprintf(more, sizeof more, "memory_bytes = %llu\n", (unsigned long long)(all + peak - arena));
  rank_ok(run, gap_open(run, more, &enough, &err), err);
  step(run, &enough, 2);
  rank_ok(run, gsel_trainer_evaluate(enough.trainer, 8, NULL, NULL, &report, &err), err);
  rank_check(run, report.loss == expected.loss && report.loss != 0);
  step(run, &enough, 4);
  same_parameter(run, &enough, &free);
  rank_ok(run, gsel_trainer_infer(free.trainer, GAP_LAST, 1, gap_data, NULL, last, sizeof last, &err), err);
  float sum = 0;
  for (int i = 0; i < GAP_LAST_ELEMS; ++i) sum += last[i];
  rank_check(run, sum != 0);
  gap_close(&enough);
  gap_close(&bound);
  gap_close(&free);
}

static void of_one_rank(void** state) {
  (void)state;
  as_threads(1, goes_on_without_room, NULL);
}
static void of_several_ranks(void** state) {
  (void)state;
  as_threads(2, goes_on_without_room, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_one_rank),
      cmocka_unit_test(of_several_ranks),
  };
  return cmocka_run_group_tests_name("evaluation_memory", tests, NULL, NULL);
}
