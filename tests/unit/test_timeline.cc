// unit/test_timeline.cc: documents of steps and recordings, read strictly and drawn completely.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "support/share.h"
#include "support/timelines.h"

namespace {

using namespace gsel;
using test::count, test::svg_of, test::timeline_of;
using Json = nlohmann::json;

std::string interval(const char* instruction, const char* text, double begin, double end, bool beside = false) {
  return Json({{"instruction", instruction},
               {"text", text},
               {"begin_s", begin},
               {"end_s", end},
               {"asynchronous", beside}})
      .dump();
}

std::string step_of(int rank, int64_t began_ns, const std::string& intervals) {
  return fmt::format(R"({{"gsel":"0","steps":[{{"rank":{},"began_ns":{},"intervals":[{}]}}]}})", rank, began_ns,
                     intervals);
}

std::string usual_step(int rank, int64_t began_ns) {
  return step_of(rank, began_ns,
                 interval("forward", "forward layer=fc mb=0", 0, 0.01) + "," +
                     interval("reduce", "allreduce bucket=1 axis=data", 0.01, 0.04, true) + "," +
                     interval("reduce", "allreduce bucket=0 axis=data", 0.02, 0.05, true) + "," +
                     interval("backward", "backward layer=fc mb=0", 0.011, 0.03) + "," +
                     interval("wait", "wait bucket=0", 0.03, 0.05));
}

constexpr const char* kRecording =
    R"x({"communicators":[{"made_ns":1000000,"taken_us":500,"ranks":[
      {"rank":0,"pid":41,"calls":[{"number":1,"text":"barrier()","kind":"barrier","label":"",
                                   "entered_us":100,"left_us":250.5,"failed":true},
                                  {"number":2,"text":"allreduce(count 4, f32, sum) \"a<b\"","kind":"allreduce",
                                   "label":"a<b","entered_us":300,"left_us":null,"failed":false}]},
      {"rank":1,"pid":42,"calls":[]}]}]})x";

struct Box {
  double x, y, width;
};

// The box whose hover title begins so.
Box box_of(const std::string& svg, const std::string& title) {
  const size_t at = svg.find("<title>" + title);
  if (at == svg.npos) fail_msg("no box is titled %s", title.c_str());
  const std::string rect = svg.substr(svg.rfind("<rect", at));
  const auto number = [&](const char* name) {
    return std::stod(rect.substr(rect.find(std::string(" ") + name + "=\"") + strlen(name) + 3));
  };
  return {number("x"), number("y"), number("width")};
}

void every_interval_is_in_the_picture(void**) {
  const std::string svg = svg_of(timeline_of({usual_step(0, 1000), usual_step(1, 1000)}));
  assert_int_equal(count(svg, "<title>"), 10);
  for (const char* text :
       {"forward layer=fc mb=0", "allreduce bucket=1 axis=data", "backward layer=fc mb=0", "wait bucket=0"})
    assert_int_equal(count(svg, std::string("<title>") + text), 2);
  assert_non_null(strstr(svg.c_str(), "from 11.000 ms for 19.000 ms"));
  assert_non_null(strstr(svg.c_str(), ">2 ranks, 50.000 ms<"));
  for (const char* text :
       {">rank 0<", ">rank 1<", ">calling thread<", ">communication<", ">ms<", ">forward<", ">wait<"})
    assert_non_null(strstr(svg.c_str(), text));
  assert_non_null(strstr(svg.c_str(), "prefers-color-scheme:dark"));
  assert_null(strstr(svg.c_str(), "href"));  // needs no other file
  assert_null(strstr(svg.c_str(), "url("));
}

void boxes_stand_where_their_times_are(void**) {
  const std::string svg = svg_of(timeline_of({usual_step(0, 1000)}));
  const Box forward = box_of(svg, "forward"), backward = box_of(svg, "backward"), wait = box_of(svg, "wait");
  const Box one = box_of(svg, "allreduce bucket=1"), zero = box_of(svg, "allreduce bucket=0");
  const double unit = forward.width / 10;  // of a millisecond
  assert_true(std::abs(backward.x - forward.x - 11 * unit) < 0.02 && std::abs(backward.width - 19 * unit) < 0.02);
  assert_true(std::abs(wait.x - forward.x - 30 * unit) < 0.02);
  assert_true(std::abs(one.x - forward.x - 10 * unit) < 0.02 && std::abs(one.width - 30 * unit) < 0.02);
  assert_true(forward.y == backward.y && wait.y == forward.y);
  assert_true(one.y > forward.y && zero.y > one.y);  // both are under way at once: a row for each
}

void the_same_documents_give_the_same_text(void**) {
  const std::vector<std::string> documents{usual_step(0, 1000), usual_step(3, 2000), kRecording};
  assert_true(to_svg(timeline_of(documents)) == to_svg(timeline_of(documents)));
  assert_true(to_chrome(timeline_of(documents)) == to_chrome(timeline_of(documents)));
}

void ranks_of_one_host_share_a_clock(void**) {
  const auto begin_of = [](const Timeline& timeline, size_t track) { return common_zeros(timeline)[track]; };
  const Timeline together = timeline_of({usual_step(0, 1'000'000'000), usual_step(1, 1'005'000'000)});
  assert_true(begin_of(together, 2) - begin_of(together, 0) == 5000);
  // Steps that were never under way at once are of other steps or clocks.
  const Timeline apart = timeline_of({usual_step(0, 1'000'000'000), usual_step(1, 9'000'000'000)});
  assert_true(begin_of(apart, 2) == begin_of(apart, 0));
  svg_of(apart);
}

void chrome_gets_an_event_for_each_span(void**) {
  const Json json = Json::parse(to_chrome(timeline_of({usual_step(0, 1000), usual_step(1, 1000), kRecording})));
  std::multiset<std::string> texts;
  std::set<std::pair<int, int>> tracks, named;
  for (const Json& event : json["traceEvents"]) {
    const std::pair<int, int> track{event["pid"].get<int>(), event["tid"].get<int>()};
    if (event["ph"] == "M") {
      named.insert(track);
      continue;
    }
    assert_true(event["ph"] == "X" && event["dur"].get<double>() >= 0);
    tracks.insert(track);
    texts.insert(event["args"]["text"].get<std::string>());
  }
  assert_int_equal(texts.size(), 12);
  assert_int_equal(texts.count("allreduce bucket=0 axis=data"), 2);
  assert_int_equal(texts.count("call 2: allreduce(count 4, f32, sum) \"a<b\""), 1);
  assert_int_equal(tracks.size(), 5);  // two ranks with two tracks, and one that made calls
  assert_true(std::ranges::includes(named, tracks));
  for (const Json& event : json["traceEvents"])
    if (event["ph"] == "X" && event["cat"] == "barrier") {
      assert_true(event["ts"] == 1100 && event["dur"] == 150.5 && event["args"]["note"] == "failed");
    } else if (event["ph"] == "X" && event["cat"] == "allreduce") {
      assert_true(event["name"] == "a<b" && event["dur"] == 200 && event["args"]["note"] == "still in it");
    }
}

void recordings_are_drawn_too(void**) {
  const std::string svg = svg_of(timeline_of({kRecording, kRecording}));
  assert_int_equal(count(svg, "<title>"), 4);
  assert_non_null(strstr(svg.c_str(), "communicator 1, rank 1 (pid 42)"));
  assert_non_null(strstr(svg.c_str(), "call 2: allreduce(count 4, f32, sum) &quot;a&lt;b&quot; (still in it)"));
}

void any_text_and_any_number_of_spans_can_be_drawn(void**) {
  const std::string hostile =
      R"({"steps":[{"rank":0,"intervals":[{"instruction":"a","text":"\u0001\ufffe\ud83d\ude00]]>&amp;'","begin_s":0,"end_s":0}]}]})";
  const std::string svg = svg_of(timeline_of({hostile}));
  assert_non_null(strstr(svg.c_str(), "<title>????\xf0\x9f\x98\x80]]&gt;&amp;amp;'"));
  Timeline raw;  // text that is no UTF-8, from elsewhere than a document
  raw.tracks.push_back({0, "\xff\xc0\xaf", 0, "\xed\xa0\x80", 0, true, {{"\xf8", "\xe2\x82", "x\n", "", 0, 1}}});
  svg_of(raw);
  assert_false(Json::parse(to_chrome(raw), nullptr, false).is_discarded());
  svg_of(Timeline{});
  std::string many;
  for (int i = 0; i < 3000; ++i) many += (i ? "," : "") + interval("reduce", "r", 0, 1, true);
  assert_int_equal(count(svg_of(timeline_of({step_of(0, 0, many)})), "<title>"), 3000);
}

void check_refused(const std::string& document, const char* words) {
  Timeline timeline = timeline_of({usual_step(0, 0)});
  try {
    add_document(timeline, document, "file.json");
    fail_msg("%s was taken", document.c_str());
  } catch (const Error& e) {
    if (e.code() != GSEL_ERR_PARSE || !strstr(e.what(), words) || !strstr(e.what(), "timeline file.json: "))
      fail_msg("expected \"%s\" in: %s", words, e.what());
    assert_true(e.place().file == "file.json");
  }
  assert_int_equal(timeline.tracks.size(), 2);  // unchanged
}

void bad_input_is_refused_with_its_place(void**) {
  check_refused("", "line 1, column 1: not JSON");
  check_refused("{\"steps\":\n [{\"rank\":0,", "line 2, column");
  check_refused("[]", "an object is needed");
  check_refused("{\"some\":1}", "has neither steps nor communicators");
  check_refused("{\"steps\":3}", "steps is 3 (number), an array is needed");
  check_refused("{\"steps\":[7]}", "steps[0] is 7");
  check_refused("{\"steps\":[{}]}", "steps[0].rank is missing");
  check_refused("{\"steps\":[{\"rank\":-1}]}", "steps[0].rank is -1");
  check_refused("{\"steps\":[{\"rank\":1000000}]}", "steps[0].rank is 1000000");
  check_refused("{\"steps\":[{\"rank\":0,\"seconds\":\"1\"}]}", "steps[0].seconds is \"1\" (string)");
  check_refused("{\"steps\":[{\"rank\":0,\"counts\":[{\"axis\":\"data\"}]}]}",
                "steps[0].counts[0].instruction is missing");
  check_refused("{\"steps\":[{\"rank\":0,\"counts\":[{\"axis\":\"data\",\"instruction\":\"x\",\"calls\":1.5}]}]}",
                "steps[0].counts[0].calls is 1.5");
  check_refused("{\"steps\":[{\"rank\":0,\"intervals\":[{}]}]}", "steps[0].intervals[0].instruction is missing");
  check_refused(step_of(0, 0, R"({"instruction":"x","begin_s":0})"), "steps[0].intervals[0].end_s is missing");
  check_refused(step_of(0, 0, R"({"instruction":"x","begin_s":2,"end_s":1})"), "intervals[0].end_s is 1");
  check_refused(step_of(0, 0, R"({"instruction":"x","begin_s":0,"end_s":1e300})"), "a number from 0 to 1e+09");
  check_refused(step_of(0, 0, R"({"instruction":"x","begin_s":0,"end_s":1e999})"), "a number is too large");
  check_refused(step_of(0, 0, R"({"instruction":"x","begin_s":0,"end_s":1,"asynchronous":1})"),
                "true or false is needed");
  check_refused(R"({"communicators":[{"taken_us":1,"ranks":[]}]})", "communicators[0].made_ns is missing");
  check_refused(R"({"communicators":[{"made_ns":1,"taken_us":1}]})", "communicators[0].ranks is missing");
  check_refused(std::string(100, '[') + std::string(100, ']'), "nested more than");
}

void what_is_too_large_is_refused(void**) {
  check_refused(std::string((64 << 20) + 1, ' '), "has 67108865 bytes; at most 67108864");
  if (SANITIZED) return;  // a million intervals take minutes there
  std::string many;
  const std::string one = R"({"instruction":"x","begin_s":0,"end_s":0})";
  for (int i = 0; i < 999'995; ++i) (many += one) += ',';
  check_refused(step_of(1, 0, many + one), "intervals[999995] is one too many");  // five are there already
}

void the_public_calls_check_what_they_are_given(void**) {
  gsel_timeline* timeline = nullptr;
  gsel_error* err = nullptr;
  gsel_str text{};
  check_fails(gsel_timeline_create(nullptr, &err), err, GSEL_ERR_ARG, "out");
  check_ok(gsel_timeline_create(&timeline, &err), err);
  const std::string document = usual_step(0, 1);
  check_ok(gsel_timeline_add(timeline, {document.data(), document.size()}, gsel_str_from("one"), &err), err);
  check_fails(gsel_timeline_add(timeline, gsel_str_from("{}"), gsel_str_from("two"), &err), err, GSEL_ERR_PARSE, "two");
  check_fails(gsel_timeline_add(nullptr, gsel_str_from("{}"), gsel_str_from("two"), &err), err, GSEL_ERR_ARG,
              "timeline");
  check_ok(gsel_timeline_draw(timeline, GSEL_TIMELINE_SVG, &text, &err), err);
  assert_true(std::string(text.data, text.len) == to_svg(timeline_of({document})));
  check_ok(gsel_timeline_draw(timeline, GSEL_TIMELINE_CHROME, &text, &err), err);
  assert_true(std::string(text.data, text.len) == to_chrome(timeline_of({document})));
  check_fails(gsel_timeline_draw(timeline, 3, &text, &err), err, GSEL_ERR_ARG, "format 3");
  assert_null(text.data);
  check_fails(gsel_timeline_draw(timeline, 1, nullptr, &err), err, GSEL_ERR_ARG, "out");
  gsel_timeline_free(timeline);
  gsel_timeline_free(nullptr);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_interval_is_in_the_picture),
      cmocka_unit_test(boxes_stand_where_their_times_are),
      cmocka_unit_test(the_same_documents_give_the_same_text),
      cmocka_unit_test(ranks_of_one_host_share_a_clock),
      cmocka_unit_test(chrome_gets_an_event_for_each_span),
      cmocka_unit_test(recordings_are_drawn_too),
      cmocka_unit_test(any_text_and_any_number_of_spans_can_be_drawn),
      cmocka_unit_test(bad_input_is_refused_with_its_place),
      cmocka_unit_test(what_is_too_large_is_refused),
      cmocka_unit_test(the_public_calls_check_what_they_are_given),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
