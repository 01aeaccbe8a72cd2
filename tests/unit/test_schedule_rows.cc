// The rows of named schedules: each passes the check for many shapes, its first rows are as published, and each stage
// works through its micro-batches in order.
#include "schedule/schedule.h"
#include "schedule/simulate.h"
#include "support/check.h"

namespace {

using namespace gsel;

constexpr const char* kNames[] = {"naive",          "gpipe", "1f1b", "interleaved-1f1b", "zb-h1",
                                  "interleaved-zb", "zb-h2", "zb-v", "dualpipe-v"};

bool is_interleaved(const std::string& name) {
  return name.starts_with("interleaved");
}

// Forwards, inputs' gradients and weights' gradients of a stage come in the order of micro-batches: gradients then add
// up in one order, whatever the schedule.
void check_in_order(const Schedule& schedule) {
  struct Next {
    int32_t forward = 0, input = 0, weight = 0;
  };
  std::vector<Next> next(schedule.rank_of.size());
  for (const auto& row : schedule.rows)
    for (const gsel_action& a : row) {
      Next& n = next[a.stage];
      if (a.kind == GSEL_FORWARD) assert_int_equal(a.microbatch, n.forward++);
      if (a.kind == GSEL_BACKWARD || a.kind == GSEL_BACKWARD_INPUT) assert_int_equal(a.microbatch, n.input++);
      if (a.kind == GSEL_BACKWARD || a.kind == GSEL_BACKWARD_WEIGHT) assert_int_equal(a.microbatch, n.weight++);
    }
}

template <class Visit>
void for_every_shape(Visit&& visit) {
  for (const std::string name : kNames)
    for (int32_t p = 1; p <= 9; ++p)
      for (int32_t m = 1; m <= 20; ++m)
        for (int32_t v = 1; v <= (is_interleaved(name) ? 4 : 1); ++v) {
          if (name == "dualpipe-v" && m < 2 * p) continue;
          if (is_interleaved(name) && m % std::max(1, m / p) != 0) continue;
          visit(make_schedule(name, p, m, is_interleaved(name) ? v : 0));
        }
}

void test_every_named_schedule_is_complete_and_free_of_deadlock(void**) {
  int schedules = 0;
  for_every_shape([&](const Schedule& schedule) {
    check_schedule(schedule);
    check_in_order(schedule);
    ++schedules;
  });
  assert_true(schedules > 1500);
}

void test_every_named_schedule_reads_back_from_its_text(void**) {
  for_every_shape([](const Schedule& schedule) {
    const Schedule again = parse_schedule(to_text(schedule), "again.csv");
    assert_true(again.rank_of == schedule.rank_of);
    assert_int_equal(again.n_microbatches, schedule.n_microbatches);
    assert_string_equal(to_text(again).c_str(), to_text(schedule).c_str());
  });
}

void check_text(const char* name, int32_t p, int32_t m, int32_t v, const char* text) {
  assert_string_equal(to_text(make_schedule(name, p, m, v)).c_str(), text);
}

void test_small_schedules_are_as_published(void**) {
  check_text("naive", 2, 2, 0, "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
  check_text("gpipe", 2, 2, 0, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  check_text("1f1b", 2, 3, 0, "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  check_text("interleaved-1f1b", 2, 2, 2,
             "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n"
             "1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n");
  check_text("zb-h1", 2, 3, 0,
             "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\n"
             "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\n");
  check_text("zb-h2", 2, 4, 0,
             "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3\n"
             "1F0,1I0,1F1,1I1,1F2,1I2,1W0,1F3,1I3,1W1,1W2,1W3\n");
  check_text("zb-v", 2, 3, 0,
             "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,3W2,0I1,0W1,0I2,0W2\n"
             "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1I1,2I2,1I2,1W1,2W2,1W2\n");
  check_text("dualpipe-v", 2, 4, 0,
             "0F0,0F1,0F2,3F0,3I0,3W0,3F1,0F3,3B1,3F2,0B0,3B2,3F3,0B1,3B3,0I2,0W2,0I3,0W3\n"
             "1F0,2F0,1F1,2F1,1F2,2B0,2F2,1B0,1F3,2B1,2F3,1B1,2B2,1B2,2I3,1I3,2W3,1W3\n");
}

void test_names_of_torch_and_other_letters_are_known(void**) {
  const char* names[][2] = {{"GPipe", "gpipe"},
                            {"1F1B", "1f1b"},
                            {"Interleaved1F1B", "interleaved-1f1b"},
                            {"InterleavedZeroBubble", "interleaved-zb"},
                            {"ZBVZeroBubble", "zb-v"},
                            {"DualPipeV", "dualpipe-v"},
                            {"ZB-H1", "zb-h1"}};
  for (const auto& [torch_name, name] : names)
    assert_string_equal(make_schedule(torch_name, 2, 4, 0).name.c_str(), name);
}

template <class Make>
void check_refused(gsel_status code, const char* part, Make&& make) {
  try {
    make();
  } catch (const Error& error) {
    if (error.code() == code && error.message().find(part) != std::string::npos) return;
    fail_msg("expected %s with \"%s\", got %s with \"%s\"", gsel_status_name(code), part,
             gsel_status_name(error.code()), error.what());
  }
  fail_msg("nothing was refused; expected \"%s\"", part);
}

void test_what_a_schedule_cannot_have_is_refused_with_what_would_do(void**) {
  check_refused(GSEL_ERR_CONFIG,
                "\"zb-h3\" is none of naive, gpipe, 1f1b, interleaved-1f1b, zb-h1, interleaved-zb, zb-h2, "
                "zb-v, dualpipe-v; did you mean zb-h",
                [] { make_schedule("zb-h3", 2, 2, 0); });
  check_refused(GSEL_ERR_CONFIG, "schedule \"\" is none of", [] { make_schedule("", 2, 2, 0); });
  check_refused(GSEL_ERR_CONFIG, "schedule 1f1b has one stage of each rank, not 2; interleaved-1f1b",
                [] { make_schedule("1f1b", 2, 2, 2); });
  check_refused(GSEL_ERR_CONFIG, "schedule zb-v has 2 stages of each rank, not 3; leave chunks out",
                [] { make_schedule("zb-v", 2, 2, 3); });
  check_refused(
      GSEL_ERR_CONFIG,
      "interleaved-1f1b cannot divide 7 micro-batches over 2 ranks: they do not go into 3 rounds of equal size; "
      "6 or 8 do",
      [] { make_schedule("interleaved-1f1b", 2, 7, 2); });
  check_refused(GSEL_ERR_CONFIG,
                "schedule dualpipe-v takes 8 micro-batches or more over 4 ranks, not 7; zb-v takes any number",
                [] { make_schedule("dualpipe-v", 4, 7, 0); });
  check_refused(GSEL_ERR_ARG, "a pipeline of 0 ranks", [] { make_schedule("1f1b", 0, 2, 0); });
  check_refused(GSEL_ERR_ARG, "-1 micro-batches", [] { make_schedule("1f1b", 2, -1, 0); });
  check_refused(GSEL_ERR_ARG, "-2 chunks", [] { make_schedule("interleaved-zb", 2, 2, -2); });
  check_refused(GSEL_ERR_CONFIG, "at most 4096 stages", [] { make_schedule("interleaved-zb", 70000, 2, 70000); });
  check_refused(GSEL_ERR_CONFIG, "at most 65536 micro-batches of 64 stages",
                [] { make_schedule("gpipe", 64, INT32_MAX, 0); });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_every_named_schedule_is_complete_and_free_of_deadlock),
      cmocka_unit_test(test_every_named_schedule_reads_back_from_its_text),
      cmocka_unit_test(test_small_schedules_are_as_published),
      cmocka_unit_test(test_names_of_torch_and_other_letters_are_known),
      cmocka_unit_test(test_what_a_schedule_cannot_have_is_refused_with_what_would_do),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
