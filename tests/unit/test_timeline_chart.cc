// unit/test_timeline_chart.cc: pipelines as charts: simulated schedules, and the actions that recorded instructions are
// part of.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "schedule/simulate.h"
#include "support/timelines.h"

namespace {

using namespace gsel;
using test::count, test::svg_of, test::timeline_of;
using Json = nlohmann::json;

std::string simulation_of(const char* name, int32_t ranks, int32_t microbatches) {
  const Schedule schedule = make_schedule(name, ranks, microbatches, 0);
  return to_json(simulate(schedule, equal_stages(schedule, {1, 1, 1}), 0));
}

Json interval(const char* instruction, int microbatch, double begin_ms, double end_ms, int stage = -1) {
  Json json{{"instruction", instruction},
            {"text", fmt::format("{} layer=x mb={}", instruction, microbatch)},
            {"begin_s", begin_ms * 1e-3},
            {"end_s", end_ms * 1e-3}};
  if (stage >= 0) json["stage"] = stage;
  return json;
}

std::string step_of(int rank, int pipeline, int replicas, const Json& intervals) {
  return Json{{"steps",
               {{{"rank", rank},
                 {"mesh", {{"tensor", 1}, {"data", replicas}, {"pipeline", pipeline}}},
                 {"began_ns", 1'000'000'000},
                 {"intervals", intervals}}}}}
      .dump();
}

std::string actions_of(const ChartRow& row) {
  std::string text;
  for (const ChartAction& action : row.actions) text += (text.empty() ? "" : " ") + to_text(action);
  return text;
}

void check_text(const std::string& got, const char* expected) {
  if (got != expected) fail_msg("expected: %s\ngot:      %s", expected, got.c_str());
}

void a_simulation_is_a_row_per_rank_with_a_box_per_action(void**) {
  const std::string svg = svg_of(timeline_of({simulation_of("zb-v", 4, 8)}));
  assert_int_equal(count(svg, "<title>"), 4 * 8 * 2 * 3);
  assert_non_null(strstr(svg.c_str(), ">zb-v, 4 stages x 8 micro-batches, 2 chunks each: bubble 5.9 % of makespan<"));
  assert_non_null(strstr(svg.c_str(),
                         ">makespan 25.5, busiest rank 24, longest rank span 24; F, I, W of a rank take "
                         "1, 1, 1; a hop takes 0<"));
  assert_non_null(strstr(svg.c_str(), "<title>7F0 from 3.5 to 4</title>"));
  for (const char* text : {">rank 3<", ">forward<", ">backward, input half<", ">backward, weight half<", ">idle<",
                           ">paler: chunk 1<", ">peak<", ">time<"})
    assert_int_equal(count(svg, text), 1);
  assert_int_equal(count(svg, ">7</text>"), 4 * 2 * 3);  // every number fits
  assert_null(strstr(svg.c_str(), ">backward<"));
}

void several_simulations_share_a_scale(void**) {
  const std::string svg = svg_of(timeline_of({simulation_of("1f1b", 2, 4), simulation_of("zb-h1", 2, 4)}));
  assert_int_equal(count(svg, "micro-batches: bubble"), 2);
  const auto box = [&](size_t at) { return svg.substr(svg.rfind("<rect", at), at - svg.rfind("<rect", at)); };
  const auto x = [&](size_t at) { return std::stod(box(at).substr(box(at).find(" x=\"") + 4)); };
  const size_t one = svg.find("<title>0F1 from 1 to 2"), other = svg.find("<title>0F1 from 1 to 2", one + 1);
  assert_true(other != svg.npos && x(one) == x(other));
}

void many_actions_are_paths_and_small(void**) {
  const std::string svg = svg_of(timeline_of({simulation_of("zb-h1", 64, 1024)}));
  assert_true(svg.size() < 8u << 20);
  assert_int_equal(count(svg, "<path class=\"sF0\""), 64);
  assert_null(strstr(svg.c_str(), "<title>"));
}

void chrome_gets_a_thread_for_each_rank(void**) {
  const std::vector<std::string> both{simulation_of("1f1b", 2, 3), simulation_of("zb-h1", 2, 3)};
  const Json json = Json::parse(to_chrome(timeline_of(both)));
  size_t boxes[2] = {0, 0};
  for (const Json& event : json["traceEvents"])
    if (event["ph"] == "X") ++boxes[event["pid"].get<int>() - 2'001'000'000 >= 1'000'000];
  assert_int_equal(boxes[0], 2 * 3 * 2);
  assert_int_equal(boxes[1], 2 * 3 * 3);
}

void instructions_join_to_actions(void**) {
  const Json halves = {interval("input", 0, 0, 1),
                       interval("forward", 0, 1, 2, 0),
                       interval("forward", 0, 2, 3, 0),
                       interval("forward", 0, 3, 4, 3),
                       interval("recv", 0, 4, 5),
                       interval("recompute", 0, 5, 6, 3),
                       interval("backward_input", 0, 6, 7, 3),
                       interval("backward_input", 0, 7, 8, 3),
                       interval("forward", 1, 8, 9, 0),
                       interval("backward_weight", 0, 9, 10, 3),
                       interval("norm", -1, 11, 12),
                       interval("step", -1, 12, 13)};
  Timeline timeline = timeline_of({step_of(0, 2, 1, halves)});
  std::vector<Chart> charts = recorded_charts(timeline);
  assert_int_equal(charts.size(), 1);
  check_text(actions_of(charts[0].rows[0]), "0F0 3F0 3I0 0F1 3W0 step");
  assert_true(charts[0].rows[0].actions[0].end - charts[0].rows[0].actions[0].begin == 3000);
  assert_int_equal(charts[0].rows[0].actions[1].chunk, 1);
  assert_int_equal(charts[0].rows[0].marks.size(), 1);
  // Ten milliseconds, nine of them at work.
  check_text(charts[0].title, "recorded: 2 stages x 2 micro-batches, 2 chunks each: bubble 10.0 % of makespan");
  assert_non_null(strstr(svg_of(timeline).c_str(), charts[0].title.c_str()));
}

void an_input_before_a_wait_is_in_no_box(void**) {
  const Json waits = {interval("input", 0, 0, 1), interval("recv", 0, 1, 5), interval("forward", 0, 5, 6, 1),
                      interval("input", 1, 6, 7), interval("forward", 1, 7, 8, 1)};
  const std::vector<Chart> charts = recorded_charts(timeline_of({step_of(1, 2, 1, waits)}));
  const std::vector<ChartAction>& actions = charts[0].rows[0].actions;
  check_text(actions_of(charts[0].rows[0]), "1F0 1F1");
  assert_true(actions[0].end - actions[0].begin == 1000 && actions[1].end - actions[1].begin == 2000);
}

void both_halves_in_a_row_are_one_backward(void**) {
  const Json whole = {interval("forward", 0, 0, 1), interval("backward_input", 0, 1, 2),
                      interval("backward_weight", 0, 2, 3), interval("backward_input", 0, 3, 4),
                      interval("backward_weight", 0, 4, 5)};
  const Json apart = {interval("forward", 0, 0, 1), interval("backward_input", 0, 1, 2), interval("forward", 1, 2, 3),
                      interval("backward_weight", 0, 3, 4)};
  const Json fused = {interval("forward", 0, 0, 1), interval("backward", 0, 1, 2)};
  const auto rows = [](const std::vector<Json>& ranks) {
    std::vector<std::string> documents, texts;
    for (size_t r = 0; r < ranks.size(); ++r)
      documents.push_back(step_of(static_cast<int>(r), static_cast<int>(ranks.size()), 1, ranks[r]));
    const std::vector<Chart> charts = recorded_charts(timeline_of(documents));
    for (const ChartRow& row : charts[0].rows) texts.push_back(actions_of(row));
    return fmt::format("{}", fmt::join(texts, "; "));
  };
  check_text(rows({whole, fused}), "F0 B0; F0 B0");
  check_text(rows({whole, apart}), "F0 B0; F0 I0 F1 W0");
  // Where halves are apart, those of one layer in a row are the end of one and the begin of the other.
  const Json one_layer = {interval("forward", 0, 0, 1), interval("backward_input", 0, 1, 2),
                          interval("backward_weight", 0, 2, 3)};
  check_text(rows({one_layer, apart}), "F0 I0 W0; F0 I0 F1 W0");
  check_text(rows({one_layer, fused}), "F0 B0; F0 B0");
}

void ranks_stand_in_order_of_replica_and_pipeline_rank(void**) {
  std::vector<std::string> documents;
  for (int rank = 3; rank >= 0; --rank)
    documents.push_back(step_of(rank, 2, 2, Json::array({interval("forward", 0, rank, rank + 1)})));
  const std::vector<Chart> charts = recorded_charts(timeline_of(documents));
  const char* expected[] = {"rank 0: pipeline rank 0 of replica 0", "rank 2: pipeline rank 1 of replica 0",
                            "rank 1: pipeline rank 0 of replica 1", "rank 3: pipeline rank 1 of replica 1"};
  assert_int_equal(charts[0].rows.size(), 4);
  for (size_t i = 0; i < 4; ++i) check_text(charts[0].rows[i].name, expected[i]);
}

void steps_without_a_pipeline_have_no_chart(void**) {
  const Timeline timeline = timeline_of({step_of(0, 1, 2, Json::array({interval("forward", 0, 0, 1)}))});
  assert_true(recorded_charts(timeline).empty());
  assert_non_null(strstr(svg_of(timeline).c_str(), ">calling thread<"));
  // Together with one that has, each is drawn its own way.
  const std::string both =
      svg_of(timeline_of({step_of(0, 1, 2, Json::array({interval("forward", 0, 0, 1)})),
                          step_of(1, 2, 1, Json::array({interval("recv", 0, 0, 1)})), simulation_of("gpipe", 2, 2)}));
  for (const char* text : {">calling thread<", ">recorded: 2 stages", ">gpipe, 2 stages x 2 micro-batches: bubble"})
    assert_non_null(strstr(both.c_str(), text));
}

void check_refused(const std::string& document, const char* words) {
  Timeline timeline;
  try {
    add_document(timeline, document, "file.json");
    fail_msg("%s was taken", document.c_str());
  } catch (const Error& e) {
    if (e.code() != GSEL_ERR_PARSE || !strstr(e.what(), words)) fail_msg("expected \"%s\" in: %s", words, e.what());
  }
  assert_true(timeline.tracks.empty() && timeline.schedules.empty());
}

void bad_documents_are_refused_with_their_place(void**) {
  const auto changed = [](const char* path, const Json& value) {
    Json json = Json::parse(simulation_of("1f1b", 2, 2));
    json[Json::json_pointer(path)] = value;
    return json.dump();
  };
  check_refused(changed("/gsel-simulation", 2), "gsel-simulation is 2");
  check_refused(R"({"gsel-simulation":1})", "schedule is missing");
  check_refused(changed("/rows", Json::array()), "rows has 0 ranks");
  check_refused(changed("/rows/1", 3), "rows[1] is 3 (number), an array is needed");
  check_refused(changed("/rows/1/0/action", "1X0"), "rows[1][0].action is \"1X0\", an action such as 2F0 is needed");
  check_refused(changed("/rows/1/0/action", "-1F0"), "rows[1][0].action is");
  check_refused(changed("/rows/1/0/action", "1F"), "rows[1][0].action is");
  check_refused(changed("/rows/1/0/action", "1F0 "), "rows[1][0].action is");
  check_refused(changed("/rows/1/0/action", "99999999F0"), "rows[1][0].action is");
  check_refused(changed("/rows/0/1/end", -1), "rows[0][1].end is -1");
  check_refused(changed("/times", {1, 1, 1}), "times[0] is 1 (number), an array is needed");
  check_refused(changed("/times", Json::array({{1, 1}})), "times has no three numbers for stage 0");
  check_refused(changed("/bubble_of_makespan", 7), "bubble_of_makespan is 7");
  check_refused(R"({"steps":[{"rank":2,"mesh":{"pipeline":2}}]})", "steps[0].mesh has no rank 2");
  check_refused(R"({"steps":[{"rank":0,"mesh":{"pipeline":0}}]})", "steps[0].mesh.pipeline is 0");
  check_refused(R"({"steps":[{"rank":0,"mesh":7}]})", "steps[0].mesh is 7");
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_simulation_is_a_row_per_rank_with_a_box_per_action),
      cmocka_unit_test(several_simulations_share_a_scale),
      cmocka_unit_test(many_actions_are_paths_and_small),
      cmocka_unit_test(chrome_gets_a_thread_for_each_rank),
      cmocka_unit_test(instructions_join_to_actions),
      cmocka_unit_test(an_input_before_a_wait_is_in_no_box),
      cmocka_unit_test(both_halves_in_a_row_are_one_backward),
      cmocka_unit_test(ranks_stand_in_order_of_replica_and_pipeline_rank),
      cmocka_unit_test(steps_without_a_pipeline_have_no_chart),
      cmocka_unit_test(bad_documents_are_refused_with_their_place),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
