// unit/test_step_record.cc: what a step did, as JSON and as a file.
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "program/text/text.h"
#include "program/timeline/timeline.h"
#include "support/check.h"
#include "support/scratch.h"
#include "train/report/step_record.h"

namespace {

using namespace gsel;
using Json = nlohmann::json;

char dir[256];

Program small_program() {
  return parse_program(
      "gsel-program 1\n"
      "rank 1\n"
      "mesh tensor=1 data=2 pipeline=1\n"
      "param w 64\n"
      "value x input\n"
      "value sum\n"
      "value weight\n"
      "layer loss reads=x writes=sum,weight params=w loss backward_weight\n"
      "microbatch 0 4\n"
      "bucket params=w\n"
      "setup\n"
      "step\n"
      "input value=x mb=0\n"
      "forward layer=loss mb=0\n"
      "backward_weight layer=loss mb=0\n"
      "allreduce bucket=0 axis=data\n"
      "loss_allreduce axis=data\n"
      "wait bucket=0\n"
      "step bucket=0\n"
      "end\n",
      "test");
}

StepRecord record_of() {
  StepRecord record;
  gsel_step_report& r = record.report;
  r.step = 12;
  r.loss = 2.5;
  r.loss_sum = 20;
  r.weight = 8;
  r.gradient_norm = std::numeric_limits<double>::infinity();
  r.learning_rate = 1e-3;
  r.loss_scale = 1024;
  r.seconds = 0.5;
  r.compute_s = 0.3;
  r.exposed_comm_s = 0.05;
  r.optimizer_s = 0.1;
  r.allgather_s = 0.25;
  r.exposed_allgather_s = 0.125;
  r.bytes_sent = (uint64_t{1} << 62) + 1;
  r.n_reduces = 1;
  r.n_overlapped = 1;
  r.n_allgathers = 3;
  r.skipped = 1;
  r.peak_bytes = 4096;
  r.offload_bytes_in = 5;
  r.offload_bytes_out = 6;
  r.validated_step = 11;
  r.restarts = 1;
  record.began_ns = 7'000'000'000;
  record.intervals = {{0, 0, 0.01}, {1, 0.01, 0.2}, {3, 0.2, 0.4, true}, {5, 0.39, 0.4}};
  record.counts = {{GSEL_AXIS_DATA, GSEL_INSTR_ALLREDUCE, {}}, {GSEL_AXIS_DATA, GSEL_INSTR_LOSS_ALLREDUCE, {}}};
  record.counts[0].count.calls = 1;
  record.counts[0].count.bytes_sent = 256;
  record.exposed_s[GSEL_AXIS_DATA] = 0.05;
  record.forecast[static_cast<size_t>(MemoryPart::params)] = 256;
  record.peak[static_cast<size_t>(MemoryPart::params)] = 256;
  record.peak[static_cast<size_t>(MemoryPart::offload_state)] = 99;
  return record;
}

void every_field_of_the_report_is_told(void**) {
  const Json json = Json::parse(to_json(small_program(), record_of(), false));
  assert_true(json["gsel"] == gsel_version_text() && json["steps"].size() == 1);
  const Json& step = json["steps"][0];
  assert_true(step["rank"] == 1 && step["world_size"] == 2);
  assert_true(step["mesh"] == Json({{"tensor", 1}, {"data", 2}, {"pipeline", 1}, {"context", 1}}));
  assert_true(step["step"] == 12 && step["loss"] == 2.5 && step["loss_sum"] == 20 && step["weight"] == 8);
  assert_true(step["gradient_norm"].is_null());  // JSON has no infinity
  assert_true(step["learning_rate"] == 1e-3 && step["loss_scale"] == 1024 && step["skipped"] == true);
  assert_true(step["seconds"] == 0.5 && step["tokens_per_second"] == 16);
  assert_true(step["compute_s"] == 0.3 && step["exposed_comm_s"] == 0.05 && step["optimizer_s"] == 0.1);
  assert_true(step["allgather_s"] == 0.25 && step["exposed_allgather_s"] == 0.125);
  assert_true(step["bytes_sent"] == (uint64_t{1} << 62) + 1);
  assert_true(step["n_reduces"] == 1 && step["n_overlapped"] == 1 && step["n_allgathers"] == 3);
  assert_true(step["peak_bytes"] == 4096 && step["offload_bytes_in"] == 5 && step["offload_bytes_out"] == 6);
  assert_true(step["validated_step"] == 11 && step["restarts"] == 1);
  assert_true(step["began_ns"] == 7'000'000'000 && step["intervals"].is_null());
}

void bytes_and_memory_are_told_by_kind_and_part(void**) {
  const Json step = Json::parse(to_json(small_program(), record_of(), false))["steps"][0];
  assert_true(step["counts"] ==
              Json::parse(R"([{"axis": "data", "instruction": "allreduce", "calls": 1, "bytes_sent": 256},
                              {"axis": "data", "instruction": "loss_allreduce", "calls": 0, "bytes_sent": 0}])"));
  assert_true(step["axes"] == Json::parse(R"([{"axis": "data", "bytes_sent": 256, "exposed_s": 0.05}])"));
  assert_int_equal(step["memory"].size(), kMemoryParts);
  assert_true(step["memory"][0] ==
              Json({{"part", "parameters"}, {"offloaded", 0}, {"forecast_bytes", 256}, {"peak_bytes", 256}}));
  const Json& offloaded = step["memory"][static_cast<size_t>(MemoryPart::offload_state)];
  assert_true(offloaded["offloaded"] == 1 && offloaded["peak_bytes"] == 99 && offloaded["forecast_bytes"] == 0);
  assert_int_equal(step["stages"].size(), 1);
  assert_true(step["stages"][0]["stage"] == 0 && std::abs(step["stages"][0]["busy_s"].get<double>() - 0.19) < 1e-12);
}

void intervals_carry_the_instructions_text(void**) {
  const Json step = Json::parse(to_json(small_program(), record_of(), true))["steps"][0];
  const Json& intervals = step["intervals"];
  assert_int_equal(intervals.size(), 4);
  assert_true(intervals[1] == Json({{"position", 1},
                                    {"instruction", "forward"},
                                    {"text", "forward layer=loss mb=0"},
                                    {"begin_s", 0.01},
                                    {"end_s", 0.2},
                                    {"asynchronous", false}}));
  assert_true(intervals[2]["text"] == "allreduce bucket=0 axis=data" && intervals[2]["asynchronous"] == true);
}

void no_time_is_no_rate(void**) {
  StepRecord record = record_of();
  record.report.seconds = 0;
  record.report.loss = std::nan("");
  const Json step = Json::parse(to_json(small_program(), record, false))["steps"][0];
  assert_true(step["tokens_per_second"].is_null() && step["loss"].is_null());
}

void a_file_appears_whole_and_is_replaced(void**) {
  const std::string path = std::string(dir) + "/step-1.json";
  for (const int64_t number : {1, 2}) {
    StepRecord record = record_of();
    record.report.step = number;
    write_timeline(dir, small_program(), record);
    std::ifstream file(path);
    const Json json = Json::parse(file);
    assert_true(json["steps"][0]["step"] == number && json["steps"][0]["intervals"].size() == 4);
  }
  struct stat info {};
  assert_int_equal(stat(path.c_str(), &info), 0);
  assert_int_equal(info.st_mode & 0777 & ~0644, 0);
  char command[512];
  snprintf(command, sizeof command, "test $(ls '%s' | wc -l) = 1", dir);  // nothing else is left behind
  assert_int_equal(system(command), 0);
}

void what_is_written_can_be_read_as_a_timeline(void**) {
  Timeline timeline;
  add_document(timeline, to_json(small_program(), record_of(), true), "step");
  assert_int_equal(timeline.tracks.size(), 2);
  assert_int_equal(timeline.tracks[0].spans.size(), 3);
  assert_int_equal(timeline.tracks[1].spans.size(), 1);
  assert_true(timeline.tracks[1].process_name == "rank 1" && timeline.tracks[1].spans[0].kind == "allreduce");
  assert_true(timeline.tracks[1].zero_us == 7e6 && timeline.tracks[1].spans[0].begin_us == 0.2e6);
  Timeline without;
  add_document(without, to_json(small_program(), record_of(), false), "step");
  assert_int_equal(without.tracks.size(), 1);
}

void a_folder_that_cannot_be_written_to_is_named(void**) {
  try {
    write_timeline("/nonexistent/folder", small_program(), record_of());
    _fail(__FILE__, __LINE__);
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_IO);
    assert_non_null(strstr(e.what(), "/nonexistent/folder/step-1.json cannot be written: ENOENT"));
    assert_true(e.place().file == "/nonexistent/folder/step-1.json");
  }
}

int set_up(void**) {
  return make_scratch(dir, sizeof dir, "step-record") ? 0 : -1;
}

int tear_down(void**) {
  return remove_scratch(dir);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_field_of_the_report_is_told),
      cmocka_unit_test(bytes_and_memory_are_told_by_kind_and_part),
      cmocka_unit_test(intervals_carry_the_instructions_text),
      cmocka_unit_test(no_time_is_no_rate),
      cmocka_unit_test(a_file_appears_whole_and_is_replaced),
      cmocka_unit_test(what_is_written_can_be_read_as_a_timeline),
      cmocka_unit_test(a_folder_that_cannot_be_written_to_is_named),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
