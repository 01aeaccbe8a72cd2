/* What a trainer tells about its memory and its last step. */
#include "support/counts.h"
#include "support/step_equals.h"

static void tell(rank_run* run) {
  step_model m = *(const step_model*)run->user;
  step_session s;
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  gsel_memory_part part = GSEL_MEMORY_PART_INIT;
  gsel_str json = {NULL, 0};
  rank_ok(run, step_open(run, &m, &s, &err), err);
  rank_fails(run, gsel_trainer_step_json(s.trainer, &json, &err), err, GSEL_ERR_STATE, "no step is finished", -1);
  for (int i = 0; i < 2; ++i) rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
  uint64_t total = 0;
  int32_t n = 0;
  for (; gsel_trainer_memory(s.trainer, n, &part, NULL) == GSEL_OK; ++n) {
    if (part.forecast_bytes != part.peak_bytes) {
      snprintf(run->failure, sizeof run->failure, "rank %d of %d: %s: forecast %llu bytes, taken %llu", (int)run->rank,
               (int)run->world_size, part.name, (unsigned long long)part.forecast_bytes,
               (unsigned long long)part.peak_bytes);
      return;
    }
    total += part.offloaded == 0 ? part.peak_bytes : 0;
  }
  rank_check(run, n > 4 && report.peak_bytes == total);
  rank_fails(run, gsel_trainer_memory(s.trainer, n, &part, &err), err, GSEL_ERR_ARG, "expected ", -1);
  rank_check(run, report.loss_scale == 1 && report.learning_rate == 1 && report.skipped == 0);
  uint64_t sent = 0, sent_twice = 0;
  for (gsel_instr_kind k = 1; k <= GSEL_INSTR_OVERFLOW; ++k)
    if (k != GSEL_INSTR_BROADCAST) sent_twice += trainer_counts(s.trainer, k, GSEL_AXIS_DATA).bytes_sent;
  sent = report.bytes_sent;
  rank_check(run, sent_twice == 2 * sent && (run->world_size == 1) == (sent == 0));
  rank_ok(run, gsel_trainer_step_json(s.trainer, &json, &err), err);
  rank_check(run, json.data && json.len == strlen(json.data) && json.data[0] == '{');
  rank_check(run, gsel_trainer_param_used(s.trainer, 0) == 1 && gsel_trainer_param_used(s.trainer, 9) == GSEL_ERR_ARG);
  rank_check(run, trainer_counts(s.trainer, 99, GSEL_AXIS_DATA).calls == 0);
  step_close(&s);
}

static void memory_taken_is_what_was_forecast_and_bytes_add_up(void** state) {
  (void)state;
  step_model m = nothing();
  char config[640];
  for (size_t z = 0; z < N_STEP_STRATEGIES; ++z)
    for (int n = 1; n <= 3; ++n) {
      snprintf(config, sizeof config, "%s%s", kStepStrategies[z], STEP_SIGN("6", "microbatch = 1\nclip_norm = 1e9\n"));
      m.config = config;
      as_threads(n, tell, &m);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_taken_is_what_was_forecast_and_bytes_add_up),
  };
  return cmocka_run_group_tests_name("trainer record", tests, NULL, NULL);
}
