/* gsel/schedule.h: schedules by name and from text, what is refused and where, simulations and their JSON. */
#include <math.h>
#include <stdlib.h>

#include "support/check.h"

static gsel_schedule* made(const char* name, int32_t ranks, int32_t microbatches, int32_t chunks) {
  gsel_error* err = NULL;
  gsel_schedule* schedule = NULL;
  check_ok(gsel_schedule_create(gsel_str_from(name), ranks, microbatches, chunks, &schedule, &err), err);
  return schedule;
}

static gsel_schedule* parsed(const char* text) {
  gsel_error* err = NULL;
  gsel_schedule* schedule = NULL;
  check_ok(gsel_schedule_parse(gsel_str_from(text), gsel_str_from("s.csv"), &schedule, &err), err);
  return schedule;
}

static void test_a_schedule_tells_its_shape_and_actions(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_schedule* s = made("zb-v", 3, 6, 0);
  assert_int_equal(gsel_schedule_ranks(s), 3);
  assert_int_equal(gsel_schedule_stages(s), 6);
  assert_int_equal(gsel_schedule_microbatches(s), 6);
  const int32_t rank_of[] = {0, 1, 2, 2, 1, 0};
  for (int32_t stage = 0; stage < 6; ++stage) assert_int_equal(gsel_schedule_rank_of(s, stage), rank_of[stage]);
  assert_int_equal(gsel_schedule_rank_of(s, 6), -1);
  assert_int_equal(gsel_schedule_rank_of(s, -1), -1);
  assert_int_equal(gsel_schedule_length(s, 0), 36);
  assert_int_equal(gsel_schedule_length(s, 3), 0);
  gsel_action action = {0, 0, 0};
  check_ok(gsel_schedule_action(s, 2, 2, &action, &err), err);
  assert_int_equal(action.kind, GSEL_FORWARD);
  assert_int_equal(action.stage, 2);
  assert_int_equal(action.microbatch, 1);
  check_fails(gsel_schedule_action(s, 3, 0, &action, &err), err, GSEL_ERR_ARG,
              "rank 3 was asked for; the schedule has 3");
  check_fails(gsel_schedule_action(s, 0, 36, &action, &err), err, GSEL_ERR_ARG,
              "action 36 was asked for; rank 0 has 36");
  gsel_schedule_free(s);
}

static void test_nothing_is_a_schedule_without_ranks(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_action action;
  gsel_simulation* simulation = NULL;
  gsel_simulation_report report = GSEL_SIMULATION_REPORT_INIT;
  assert_int_equal(gsel_schedule_ranks(NULL) + gsel_schedule_stages(NULL) + gsel_schedule_microbatches(NULL), 0);
  assert_int_equal(gsel_schedule_rank_of(NULL, 0) + gsel_schedule_length(NULL, 0), 0);
  assert_null(gsel_schedule_text(NULL).data);
  assert_null(gsel_simulation_json(NULL).data);
  check_fails(gsel_schedule_action(NULL, 0, 0, &action, &err), err, GSEL_ERR_ARG, "schedule is NULL");
  check_fails(gsel_schedule_create(gsel_str_from("1f1b"), 1, 1, 0, NULL, &err), err, GSEL_ERR_ARG, "out is NULL");
  check_fails(gsel_schedule_simulate(NULL, NULL, &simulation, &err), err, GSEL_ERR_ARG, "schedule is NULL");
  check_fails(gsel_simulation_get(NULL, &report, &err), err, GSEL_ERR_ARG, "simulation is NULL");
  gsel_schedule_free(NULL);
  gsel_simulation_free(NULL);
}

static void test_text_of_torch_is_read_without_its_sends_and_gathers(void** state) {
  (void)state;
  gsel_schedule* s = parsed(
      "# compute and communication, as it is dumped\r\n"
      "\r\n"
      "0UNSHARD, 0F0 ,0SEND_F0,,\"0F1\",0SEND_F1,0RECV_B0,0B0,,0RECV_B1,0I1,0W1,0REDUCE_GRAD,0RESHARD\r\n"
      "1UNSHARD,1RECV_F0,1F0,1RECV_F1,(1F1;1B0)OVERLAP_F_B,1SEND_B0,1B1,1SEND_B1,,");
  assert_string_equal(gsel_schedule_text(s).data, "0F0,0F1,0B0,0I1,0W1\n1F0,1F1,1B0,1B1\n");
  gsel_schedule_free(s);
}

/* Expects a message and the place it is about. */
static void refused_at(const char* text, gsel_status code, const char* message, int32_t rank, int32_t line,
                       int32_t column, const char* token) {
  gsel_error* err = NULL;
  gsel_schedule* schedule = NULL;
  const gsel_status status = gsel_schedule_parse(gsel_str_from(text), gsel_str_from("s.csv"), &schedule, &err);
  assert_int_equal(status, code);
  assert_null(schedule);
  assert_string_equal(gsel_error_message(err).data, message);
  assert_int_equal(gsel_error_rank(err), rank);
  assert_int_equal(gsel_error_line(err), line);
  assert_int_equal(gsel_error_column(err), column);
  assert_string_equal(gsel_error_token(err).data, token);
  gsel_error_free(err);
}

static void test_what_is_no_action_is_refused_at_its_place(void** state) {
  (void)state;
  refused_at("0F0,0G0\n", GSEL_ERR_PARSE,
             "s.csv:1: column 5: \"0G0\" is no action; one is <stage><F|I|W|B><micro-batch>, such as 2F0", 0, 1, 5,
             "0G0");
  refused_at("0F0,0B0\n#\n1F0, 1B\n", GSEL_ERR_PARSE,
             "s.csv:3: column 6: \"1B\" is no action; one is <stage><F|I|W|B><micro-batch>, such as 2F0", 1, 3, 6,
             "1B");
  refused_at("F0", GSEL_ERR_PARSE,
             "s.csv:1: column 1: \"F0\" is no action; one is <stage><F|I|W|B><micro-batch>, such as 2F0", 0, 1, 1,
             "F0");
  refused_at("0F0x", GSEL_ERR_PARSE,
             "s.csv:1: column 1: \"0F0x\" is no action; one is <stage><F|I|W|B><micro-batch>, such as 2F0", 0, 1, 1,
             "0F0x");
  refused_at("(0F0;0B0)OVERLAP,", GSEL_ERR_PARSE, "s.csv:1: column 1: \"(0F0;0B0)OVERLAP\" is not (...)OVERLAP_F_B", 0,
             1, 1, "(0F0;0B0)OVERLAP");
  refused_at("(0F0; 0C0)OVERLAP_F_B", GSEL_ERR_PARSE,
             "s.csv:1: column 7: \"0C0\" is no action; one is <stage><F|I|W|B><micro-batch>, such as 2F0", 0, 1, 7,
             "0C0");
  refused_at("0F99999999999", GSEL_ERR_PARSE,
             "s.csv:1: column 1: \"99999999999\" is too large a number of a micro-batch; expected 0 to 1048575", 0, 1,
             1, "0F99999999999");
  refused_at("4096F0", GSEL_ERR_PARSE,
             "s.csv:1: column 1: \"4096\" is too large a number of a stage; expected 0 to 4095", 0, 1, 1, "4096F0");
  refused_at("# nothing\n\n", GSEL_ERR_PARSE, "s.csv: there are no rows; a schedule has one for each rank", -1, 0, 0,
             "");
}

static void test_what_is_no_schedule_is_refused_with_rank_line_and_action(void** state) {
  (void)state;
  refused_at("0F0,0B0\n,,\n", GSEL_ERR_PROGRAM,
             "s.csv:2: column 1: rank 1 has no actions; each rank has a stage or more", 1, 2, 1, ",,");
  refused_at("0F0,0B0,1F0\n1B0\n", GSEL_ERR_PROGRAM,
             "s.csv:2: column 1: rank 1, \"1B0\": stage 1 is on rank 0, see line 1; a stage has one rank", 1, 2, 1,
             "1B0");
  refused_at("0F0,0B0\n2F0,2B0\n", GSEL_ERR_PROGRAM,
             "s.csv: stage 1 is on no rank; stages count from 0 without a gap, and this schedule has 3", -1, 0, 0, "");
  refused_at("0F0,0F1,0B0,0B1\n1F0,1F1,1B0\n", GSEL_ERR_PROGRAM,
             "s.csv:2: rank 1: 1B1 (or 1I1 and 1W1) is missing; each stage sees each of the 2 micro-batches once", 1, 2,
             0, "");
  refused_at("0F0,0B0\n1F1,1B1\n", GSEL_ERR_PROGRAM,
             "s.csv:1: rank 0: 0F1 is missing; each stage sees each of the 2 micro-batches once", 0, 1, 0, "");
  refused_at("0F0,0F0,0B0,0B1\n1F0,1F1,1B0,1B1\n", GSEL_ERR_PROGRAM,
             "s.csv:1: column 5: rank 0, 0F0: this forward is there twice", 0, 1, 5, "0F0");
  refused_at("0F0,0I0,0B0,0F1,0B1\n", GSEL_ERR_PROGRAM, "s.csv:1: column 9: rank 0, 0B0: this backward is there twice",
             0, 1, 9, "0B0");
  refused_at("0F0,0B0,0B0\n", GSEL_ERR_PROGRAM, "s.csv:1: column 9: rank 0, 0B0: this backward is there twice", 0, 1, 9,
             "0B0");
  refused_at("0F0,0B0,0W0\n", GSEL_ERR_PROGRAM,
             "s.csv:1: column 9: rank 0, 0W0: 0B0 is both halves of backward; write 0I0 where 0W0 follows", 0, 1, 9,
             "0W0");
  refused_at("0B0,0F0\n", GSEL_ERR_PROGRAM,
             "s.csv:1: column 1: rank 0, 0B0: it comes before 0F0, whose output it needs", 0, 1, 1, "0B0");
  refused_at("0F0,0W0,0I0\n", GSEL_ERR_PROGRAM,
             "s.csv:1: column 5: rank 0, 0W0: it comes before 0I0, the other half of backward", 0, 1, 5, "0W0");
  refused_at("0F0,0I0\n1F0,1B0\n", GSEL_ERR_PROGRAM,
             "s.csv:1: column 5: rank 0, 0I0: 0W0, the other half of backward, is missing", 0, 1, 5, "0I0");
}

static void test_a_standstill_is_refused_with_who_waits_for_whom(void** state) {
  (void)state;
  refused_at("0F0,0B0,0F1,0B1\n1F0,1F1,1I0,1W0,1B1\n", GSEL_ERR_PROGRAM,
             "s.csv:1: column 5: rank 0, 0B0: the schedule comes to a standstill: rank 0 waits at 0B0, which "
             "needs 1I0 of "
             "rank 1; rank 1 waits at 1F1, which needs 0F1 of rank 0",
             0, 1, 5, "0B0");
  refused_at("2F0,0F0,0B0,2B0\n1F0,1B0\n", GSEL_ERR_PROGRAM,
             "s.csv:1: column 1: rank 0, 2F0: the schedule comes to a standstill: rank 0 waits at 2F0, which "
             "needs 1F0 of "
             "rank 1; rank 1 waits at 1F0, which needs 0F0 of rank 0",
             0, 1, 1, "2F0");
  refused_at("1F0,0F0,1B0,0B0\n", GSEL_ERR_PROGRAM,
             "s.csv:1: column 1: rank 0, 1F0: the schedule comes to a standstill: rank 0 waits at 1F0, which "
             "needs 0F0 of "
             "rank 0",
             0, 1, 1, "1F0");
}

static void test_large_numbers_in_little_text_take_little_memory(void** state) {
  (void)state;
  refused_at("4095F1048575,4095B1048575", GSEL_ERR_PROGRAM,
             "s.csv: stage 0 is on no rank; stages count from 0 without a gap, and this schedule has 4096", -1, 0, 0,
             "");
  refused_at("0F1048575,0B1048575", GSEL_ERR_PROGRAM,
             "s.csv:1: rank 0: 0F0 is missing; each stage sees each of the 1048576 micro-batches once", 0, 1, 0, "");
}

static gsel_simulation_report simulated(const gsel_schedule* schedule, double f, double i, double w, double hop) {
  gsel_error* err = NULL;
  gsel_simulation* simulation = NULL;
  gsel_schedule_times times = GSEL_SCHEDULE_TIMES_INIT;
  gsel_simulation_report report = GSEL_SIMULATION_REPORT_INIT;
  times.forward = f;
  times.backward_input = i;
  times.backward_weight = w;
  times.hop = hop;
  check_ok(gsel_schedule_simulate(schedule, &times, &simulation, &err), err);
  check_ok(gsel_simulation_get(simulation, &report, &err), err);
  gsel_simulation_free(simulation);
  return report;
}

static void test_a_report_names_both_bubbles(void** state) {
  (void)state;
  gsel_schedule* s = made("1F1B", 4, 8, 0);
  const gsel_simulation_report report = simulated(s, 3, 4, 2, 0);
  assert_true(report.makespan == 99 && report.ideal == 72 && report.longest_rank_span == 99);
  assert_true(fabs(report.bubble_of_makespan - 3.0 / 11) < 1e-15 && report.bubble_of_ideal == 3.0 / 8);
  assert_true(simulated(s, 3, 4, 2, 0.5).makespan == 99 + 0.5 * 16);
  gsel_schedule_free(s);
}

/* Breadth first, as torch writes it with its messages: backward goes through the micro-batches the other way round. */
static void test_a_schedule_without_a_name_comes_from_a_file(void** state) {
  (void)state;
  char path[4096], text[4096];
  snprintf(path, sizeof path, "%s/schedules/breadth_first.csv", getenv("GSEL_TEST_DATA"));
  FILE* file = fopen(path, "rb");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  gsel_schedule* s = parsed(text);
  assert_int_equal(gsel_schedule_stages(s), 4);
  assert_int_equal(gsel_schedule_length(s, 1), 16);
  assert_true(simulated(s, 1, 1, 1, 0).makespan == 13.5); /* m (F + B) + (p - 1) (F + B) / v */
  gsel_schedule_free(s);
}

static void test_times_are_checked(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_simulation* simulation = NULL;
  gsel_schedule* s = made("zb-v", 2, 2, 0);
  gsel_schedule_times times = GSEL_SCHEDULE_TIMES_INIT;
  double stage_times[12] = {1, 1, 1, 1, 1, 1, 1, -1, 1, 1, 1, 1};
  times.hop = -1;
  check_fails(gsel_schedule_simulate(s, &times, &simulation, &err), err, GSEL_ERR_ARG,
              "hop is -1; a time is a number from 0");
  times.hop = 0;
  times.backward_input = INFINITY;
  check_fails(gsel_schedule_simulate(s, &times, &simulation, &err), err, GSEL_ERR_ARG, "backward_input is inf");
  times.backward_input = 1e308;
  check_fails(gsel_schedule_simulate(s, &times, &simulation, &err), err, GSEL_ERR_ARG, "the times are too large");
  times.forward = times.backward_input = 0;
  times.backward_weight = 1e-310;
  times.hop = 1;
  check_fails(gsel_schedule_simulate(s, &times, &simulation, &err), err, GSEL_ERR_ARG, "or too far apart");
  times.stage_times = stage_times;
  check_fails(gsel_schedule_simulate(s, &times, &simulation, &err), err, GSEL_ERR_ARG, "stage_times[7] is -1");
  times.struct_size = 0;
  check_fails(gsel_schedule_simulate(s, &times, &simulation, &err), err, GSEL_ERR_VERSION,
              "gsel_schedule_times.struct_size");
  assert_null(simulation);
  gsel_schedule_free(s);
}

static void test_json_says_all_that_was_found(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_simulation* simulation = NULL;
  gsel_schedule* s = made("zb-v", 1, 1, 0);
  check_ok(gsel_schedule_simulate(s, NULL, &simulation, &err), err);
  gsel_schedule_free(s);
  assert_string_equal(gsel_simulation_json(simulation).data,
                      "{\n"
                      "  \"gsel-simulation\": 1,\n"
                      "  \"schedule\": \"zb-v\",\n"
                      "  \"ranks\": 1,\n"
                      "  \"stages\": 2,\n"
                      "  \"microbatches\": 1,\n"
                      "  \"chunks\": 2,\n"
                      "  \"rank_of_stage\": [0, 0],\n"
                      "  \"times\": [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]],\n"
                      "  \"hop\": 0,\n"
                      "  \"makespan\": 3,\n"
                      "  \"ideal\": 3,\n"
                      "  \"bubble_of_makespan\": 0,\n"
                      "  \"bubble_of_ideal\": 0,\n"
                      "  \"longest_rank_span\": 3,\n"
                      "  \"busy\": [3],\n"
                      "  \"peak_activations\": [1],\n"
                      "  \"peak_until_input\": [1],\n"
                      "  \"messages\": [0],\n"
                      "  \"messages_forward\": [0],\n"
                      "  \"messages_backward\": [0],\n"
                      "  \"rows\": [\n"
                      "    [{\"action\": \"0F0\", \"begin\": 0, \"end\": 0.5},\n"
                      "     {\"action\": \"1F0\", \"begin\": 0.5, \"end\": 1},\n"
                      "     {\"action\": \"1I0\", \"begin\": 1, \"end\": 1.5},\n"
                      "     {\"action\": \"1W0\", \"begin\": 1.5, \"end\": 2},\n"
                      "     {\"action\": \"0I0\", \"begin\": 2, \"end\": 2.5},\n"
                      "     {\"action\": \"0W0\", \"begin\": 2.5, \"end\": 3}]\n"
                      "  ]\n"
                      "}\n");
  gsel_simulation_free(simulation);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_schedule_tells_its_shape_and_actions),
      cmocka_unit_test(test_nothing_is_a_schedule_without_ranks),
      cmocka_unit_test(test_text_of_torch_is_read_without_its_sends_and_gathers),
      cmocka_unit_test(test_what_is_no_action_is_refused_at_its_place),
      cmocka_unit_test(test_what_is_no_schedule_is_refused_with_rank_line_and_action),
      cmocka_unit_test(test_a_standstill_is_refused_with_who_waits_for_whom),
      cmocka_unit_test(test_large_numbers_in_little_text_take_little_memory),
      cmocka_unit_test(test_a_report_names_both_bubbles),
      cmocka_unit_test(test_a_schedule_without_a_name_comes_from_a_file),
      cmocka_unit_test(test_times_are_checked),
      cmocka_unit_test(test_json_says_all_that_was_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
