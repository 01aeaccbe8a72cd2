// unit/test_cli_steps.cc: `gsel trace` of steps: the tables, the picture, and what is said of files that are none.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command.h"
#include "support/xml.h"

namespace {

using Json = nlohmann::ordered_json;

// Ten milliseconds: computing to 8 ms, then waiting for what began at 4 ms and ends at 9 ms, then the step.
Json step_of(int rank) {
  const auto interval = [](const char* instruction, const char* text, double begin_ms, double end_ms, bool beside) {
    return Json{{"position", 0},          {"instruction", instruction}, {"text", text}, {"begin_s", begin_ms * 1e-3},
                {"end_s", end_ms * 1e-3}, {"asynchronous", beside}};
  };
  Json step{{"rank", rank}, {"world_size", 2}, {"step", 7}, {"loss", 2.5}, {"weight", 64.0}, {"seconds", 0.01}};
  step["compute_s"] = 0.0075;
  step["optimizer_s"] = 0.0005;
  step["exposed_comm_s"] = 0.001;
  step["bytes_sent"] = 1'500'016;
  step["peak_bytes"] = 12'000'000;
  step["skipped"] = rank == 1;
  step["counts"] = {{{"axis", "data"}, {"instruction", "allreduce"}, {"calls", 2}, {"bytes_sent", 1'500'000}},
                    {{"axis", "data"}, {"instruction", "loss_allreduce"}, {"calls", 1}, {"bytes_sent", 16}},
                    {{"axis", "data"}, {"instruction", "allgather"}, {"calls", 0}, {"bytes_sent", 0}}};
  step["began_ns"] = 1'000'000'000 + rank * 250'000;
  step["intervals"] = {interval("forward", "forward layer=a mb=0", 0, 3, false),
                       interval("forward", "forward layer=b mb=0", 3, 4, false),
                       interval("backward", "backward layer=b mb=0", 4, 8, false),
                       interval("allreduce", "allreduce bucket=0 axis=data", 4, 7, true),
                       interval("allreduce", "allreduce bucket=1 axis=data", 6, 9, true),
                       interval("wait", "wait bucket=0", 8, 9, false),
                       interval("step", "step bucket=0", 9, 9.5, false)};
  return step;
}

std::string document(const Json& step) {
  return Json{{"gsel", "0"}, {"steps", Json::array({step})}}.dump();
}

void write_folder() {
  mkdir((std::string(dir) + "/steps").c_str(), 0755);
  for (int rank = 0; rank < 2; ++rank)
    write_file(fmt::format("steps/step-{}.json", rank).c_str(), document(step_of(rank)).c_str());
}

std::string text_of_file(const char* name) {
  std::ifstream file(std::string(dir) + "/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

void a_folder_of_steps_is_told_as_tables(void**) {
  write_folder();
  check_gsel("trace steps", 0);
  const char* expected =
      "step 7, 2 ranks, 10.0 ms, 6400 tokens/s\n"
      "rank  step  time     computing  optimizer  exposed  overlap  sent     peak memory\n"
      "0     7     10.0 ms  7.5 ms     500.0 us   1.0 ms   80.0%    1.50 MB  12.00 MB\n"
      "1     7     10.0 ms  7.5 ms     500.0 us   1.0 ms   80.0%    1.50 MB  12.00 MB     "
      "skipped: a gradient was not finite\n"
      "rank 0\n"
      "  instruction            where           times  time      of the step  sent\n"
      "  forward                calling thread  2      4.0 ms    40.0%        -\n"
      "  backward               calling thread  1      4.0 ms    40.0%        -\n"
      "  allreduce              asynchronous    2      6.0 ms    60.0%        1.50 MB\n"
      "  wait                   calling thread  1      1.0 ms    10.0%        -\n"
      "  step                   calling thread  1      500.0 us  5.0%         -\n"
      "  loss_allreduce (data)  -               1      -         -            16 B\n"
      "  between them           calling thread  -      500.0 us  5.0%         -\n"
      "rank 1\n";
  if (strncmp(out, expected, strlen(expected)) != 0) fail_msg("expected:\n%sgot:\n%s", expected, out);
}

void the_same_step_twice_is_one(void**) {
  write_folder();
  check_gsel("trace steps steps/step-0.json --json", 0);
  const Json json = Json::parse(out);
  assert_int_equal(json["steps"].size(), 2);
  assert_false(json.contains("communicators"));
  assert_true(json["steps"][1] == step_of(1));
}

void steps_become_a_picture_and_events(void**) {
  write_folder();
  check_gsel("trace steps --svg steps.svg --chrome steps.chrome", 0);
  assert_string_equal(out, "");
  const std::string svg = text_of_file("steps.svg");
  assert_null(xml_fault(svg.data(), svg.size()));
  check_part(svg.c_str(), "<title>allreduce bucket=1 axis=data\nfrom 6.000 ms for 3.000 ms</title>");
  check_part(svg.c_str(), "<title>allreduce bucket=1 axis=data\nfrom 6.250 ms for 3.000 ms</title>");
  const Json chrome = Json::parse(text_of_file("steps.chrome"));
  size_t durations = 0;
  for (const Json& event : chrome["traceEvents"]) durations += event["ph"] == "X";
  assert_int_equal(durations, 14);
}

void a_step_without_intervals_is_told_by_its_counts(void**) {
  Json step = step_of(0);
  step["intervals"] = nullptr;
  step["loss"] = nullptr;
  write_file("bare.json", document(step).c_str());
  check_gsel("trace bare.json", 0);
  check_part(out, "500.0 us   1.0 ms   -        1.50 MB");
  check_part(out, "allreduce (data)       -      2      -     -            1.50 MB\n");
  assert_null(strstr(out, "between them"));
}

void steps_and_recordings_are_told_apart_by_content(void**) {
  write_folder();
  write_file("recording",
             R"x({"communicators":[{"world_size":1,"made_ns":900000000,"taken_us":500,"reader":{"rank":0,"error":null},
                 "failure":null,"late":[],"ranks":[{"rank":0,"pid":41,"alive":true,"state":"in call","call":1,
                 "since_us":100,"awaits":null,"calls":[{"number":1,"text":"barrier()","kind":"barrier","label":"",
                 "entered_us":100,"left_us":null,"failed":false}]}]}]})x");
  check_gsel("trace recording steps", 0);
  check_part(out, "step 7, 2 ranks");
  check_part(out, "\ncommunicator of 1 rank, 500.0 us old\n");
  check_part(out, "still in it  barrier()");
  check_gsel("trace recording --svg recording.svg", 0);
  const std::string svg = text_of_file("recording.svg");
  assert_null(xml_fault(svg.data(), svg.size()));
  check_part(svg.c_str(), "<title>call 1: barrier() (still in it)");
}

void what_is_no_step_is_refused_by_name(void**) {
  write_folder();
  mkdir((std::string(dir) + "/nothing").c_str(), 0755);
  const std::string whole = document(step_of(0));
  write_file("cut.json", whole.substr(0, whole.size() / 2).c_str());
  write_file("foreign.json", "{\"some\": \"thing\"}");
  write_file("text.json", "no json\n");
  write_file("typed.json", "{\"steps\": [{\"rank\": 0, \"intervals\": [{\"instruction\": 4}]}]}");
  write_file("bytes.json",
             "{\"steps\": [{\"rank\": 0, \"counts\": [{\"axis\": \"data\", \"instruction\": \"x\", \"calls\": -1}]}]}");
  const struct {
    const char *arguments, *words;
  } rows[] = {{"trace nothing", "nothing: has no step-RANK.json and no gsel-PID-RANK.json"},
              {"trace steps cut.json", "cut.json: line 1, column"},
              {"trace foreign.json", "foreign.json: the document has neither steps nor communicators"},
              {"trace text.json", "text.json: line 1, column 2: not JSON"},
              {"trace typed.json", "typed.json: steps[0].intervals[0].instruction is 4 (number), text is needed"},
              {"trace bytes.json", "bytes.json: steps[0].counts[0].calls is -1"},
              {"trace steps --svg /nonexistent/x.svg", "/nonexistent/x.svg: cannot be written"},
              {"trace steps --svg", "--svg"}};
  for (const auto& row : rows) {
    check_gsel(row.arguments, 2);
    check_part(err, row.words);
  }
}

int set_up(void**) {
  return command_set_up("cli-steps");
}

int tear_down(void**) {
  return command_tear_down();
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_folder_of_steps_is_told_as_tables),
      cmocka_unit_test(the_same_step_twice_is_one),
      cmocka_unit_test(steps_become_a_picture_and_events),
      cmocka_unit_test(a_step_without_intervals_is_told_by_its_counts),
      cmocka_unit_test(steps_and_recordings_are_told_apart_by_content),
      cmocka_unit_test(what_is_no_step_is_refused_by_name),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
