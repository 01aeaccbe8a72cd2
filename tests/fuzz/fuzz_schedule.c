/* fuzz_schedule: the text of a schedule. A text is a schedule whose own text reads back to itself and which a
 * simulation gets through, or one mistake whose place is inside the text. */
#include <string.h>

#include "fuzz/fuzz.h"

static int32_t lines_of(gsel_str text) {
  int32_t lines = 1;
  for (size_t i = 0; i < text.len; ++i) lines += text.data[i] == '\n';
  return lines;
}

static void check_refusal(gsel_status status, const gsel_error* err, gsel_str text) {
  CLAIM(status == GSEL_ERR_PARSE || status == GSEL_ERR_PROGRAM, "%s: %s", gsel_status_name(status),
        gsel_error_message(err).data);
  const gsel_str message = gsel_error_message(err);
  CLAIM(message.len > 0 && message.len < 4096, "a message of %zu bytes", message.len);
  for (size_t i = 0; i < message.len; ++i)
    CLAIM((unsigned char)message.data[i] >= 0x20 && message.data[i] != 0x7f, "a control character in: %s",
          message.data);
  CLAIM(gsel_error_line(err) >= 0 && gsel_error_line(err) <= lines_of(text), "line %d", gsel_error_line(err));
  CLAIM(gsel_error_column(err) >= 0 && (size_t)gsel_error_column(err) <= text.len, "column %d", gsel_error_column(err));
}

static void check_text(const gsel_schedule* schedule) {
  gsel_error* err = NULL;
  gsel_schedule* again = NULL;
  const gsel_str text = gsel_schedule_text(schedule);
  CLAIM(gsel_schedule_parse(text, gsel_str_from("again"), &again, &err) == GSEL_OK, "%s\n%s",
        gsel_error_message(err).data, text.data);
  CLAIM(!strcmp(text.data, gsel_schedule_text(again).data), "another text:\n%s\n%s", text.data,
        gsel_schedule_text(again).data);
  gsel_schedule_free(again);
}

static void check_actions(const gsel_schedule* schedule) {
  const int32_t stages = gsel_schedule_stages(schedule);
  int64_t forwards = 0;
  for (int32_t rank = 0; rank < gsel_schedule_ranks(schedule); ++rank)
    for (int32_t i = 0; i < gsel_schedule_length(schedule, rank); ++i) {
      gsel_action action;
      CLAIM(gsel_schedule_action(schedule, rank, i, &action, NULL) == GSEL_OK, "action %d of rank %d", i, rank);
      CLAIM(gsel_schedule_rank_of(schedule, action.stage) == rank, "stage %d", action.stage);
      forwards += action.kind == GSEL_FORWARD;
    }
  CLAIM(forwards == (int64_t)stages * gsel_schedule_microbatches(schedule), "%lld forwards", (long long)forwards);
}

static void check_simulation(const gsel_schedule* schedule) {
  gsel_error* err = NULL;
  gsel_simulation* simulation = NULL;
  gsel_simulation_report report = GSEL_SIMULATION_REPORT_INIT;
  CLAIM(gsel_schedule_simulate(schedule, NULL, &simulation, &err) == GSEL_OK, "%s", gsel_error_message(err).data);
  CLAIM(gsel_simulation_get(simulation, &report, &err) == GSEL_OK, "%s", gsel_error_message(err).data);
  const double rounding = 1e-9 * report.ideal;
  CLAIM(report.makespan >= report.longest_rank_span - rounding && report.longest_rank_span >= report.ideal - rounding,
        "makespan %g, span %g, ideal %g", report.makespan, report.longest_rank_span, report.ideal);
  CLAIM(report.ideal > 0 && report.bubble_of_makespan < 1, "ideal %g", report.ideal);
  CLAIM(gsel_simulation_json(simulation).len > 0, "no JSON");
  gsel_simulation_free(simulation);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const gsel_str text = {(const char*)data, size};
  gsel_schedule* schedule = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_schedule_parse(text, gsel_str_from("input"), &schedule, &err);
  CLAIM((status == GSEL_OK) == (schedule != NULL) && (status == GSEL_OK) == (err == NULL), "status %d", status);
  if (schedule) {
    check_text(schedule);
    check_actions(schedule);
    check_simulation(schedule);
  } else {
    check_refusal(status, err, text);
  }
  gsel_schedule_free(schedule);
  gsel_error_free(err);
  return 0;
}
