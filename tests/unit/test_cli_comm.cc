// unit/test_cli_comm.cc: the commands about communicators, as their users meet them: gsel tune, gsel trace.
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

// clang-format off: names of command.h would be hidden by parameters of ranks.h
#include "support/command.h"
#include "support/ranks.h"
// clang-format on

namespace {

using Json = nlohmann::json;

Json json_of_file(const std::string& name) {
  std::ifstream file(std::string(dir) + "/" + name);
  return Json::parse(file, nullptr, false);
}

// ---- tune ----

void tune_writes_a_file_that_is_then_used(void**) {
  check_gsel("tune --ranks 2 --largest 64K --time 0.00001 -o tuned.toml", 0);
  assert_string_equal(out, "tuned.toml\n");
  assert_int_equal(finish(start("GSEL_LOG=warn GSEL_TUNING=tuned.toml gsel bench -e 8 --iterations 2 >out 2>err")), 0);
  assert_string_equal(err, "");
  read_back("tuned.toml", out);
  check_part(out, "[[world]]\nranks = 2\n");
  check_part(out, "\nalltoallv = [[0, ");
  assert_int_equal(finish(start("sed -i \"s/^ranks.*/&\\\\nchunk_bytes=1/; /^chunk_bytes = /d\" tuned.toml; "
                                "GSEL_LOG=warn GSEL_TUNING=tuned.toml "
                                "gsel bench -e 8 --iterations 2 >out 2>err")),
                   0);
  check_part(err, "tuning is not used: tuned.toml:");
  check_part(err, "world.chunk_bytes must be");
  check_gsel("tune --ranks 1", 2);
  check_part(err, "--ranks 1: 2 to 256 are allowed");
}

// ---- trace ----

struct Gate {
  int ends[2];
};

void one_stays_away(rank_run* run) {
  const auto* gate = static_cast<const Gate*>(run->user);
  gsel_comm* comm = nullptr;
  gsel_error* err_out = nullptr;
  char byte;
  close(gate->ends[1]);
  rank_ok(run, rank_join(run, &comm, &err_out), err_out);
  rank_ok(run, gsel_barrier(comm, &err_out), err_out);
  if (run->rank == 1) rank_check(run, read(gate->ends[0], &byte, 1) == 0);
  rank_ok(run, gsel_barrier(comm, &err_out), err_out);
  gsel_comm_free(comm);
}

void trace_names_the_laggard_of_a_hanging_job(void**) {
  Gate gate;
  assert_int_equal(pipe2(gate.ends, O_CLOEXEC), 0);
  rank_run* runs = ranks_prepare(3, &gate);
  pid_t pids[3];
  for (int r = 0; r < 3; ++r) pids[r] = rank_fork(&runs[r], one_stays_away);
  const std::string pid = std::to_string(pids[2]), line = "trace " + pid + " --chrome chrome.json --json";
  Json told;
  size_t waiting = 0;
  while (waiting < 2 && kill(pids[2], 0) == 0) {  // the ranks' alarm ends them
    if (gsel(line.c_str()) != 0) continue;        // has not joined yet
    told = Json::parse(out, nullptr, false);
    waiting = 0;
    for (const Json& rank : told["communicators"][0]["ranks"]) waiting += rank["awaits"] == 1 && rank["call"] == 2;
  }
  const Json chrome = json_of_file("chrome.json");
  check_status(gsel(("trace --last 1 " + pid).c_str()), 0, "trace", __LINE__);
  close(gate.ends[1]);
  for (pid_t p : pids) waitpid(p, nullptr, 0);
  close(gate.ends[0]);
  ranks_verdict(runs, 3);

  check_part(out, ("rank 1 (pid " + std::to_string(pids[1]) + ") holds up the others: it left call 1 ").c_str());
  check_part(out, "waits for");
  check_part(out, "still in it  barrier()\n");
  assert_true(told["communicators"][0]["late"] == Json::array({1}));
  std::set<int> lanes;
  size_t durations = 0;
  for (const Json& event : chrome["traceEvents"]) {
    lanes.insert(event["pid"].get<int>());
    durations += event["ph"] == "X" && event["dur"].get<double>() >= 0 && event["name"] == "barrier";
  }
  assert_int_equal(lanes.size(), 3);
  assert_int_equal(durations, 5);
}

void disagree(rank_run* run) {
  gsel_comm* comm = nullptr;
  gsel_error* err_out = nullptr;
  float x[4] = {};
  setenv("GSEL_TRACE", dir, 1);
  rank_ok(run, rank_join(run, &comm, &err_out), err_out);
  rank_fails(run, gsel_allreduce(comm, x, x, run->rank == 1 ? 3 : 4, GSEL_F32, GSEL_SUM, &err_out), err_out,
             GSEL_ERR_MISMATCH, "rank 1", 1);
  gsel_comm_free(comm);
}

void trace_takes_the_files_of_a_job_together(void**) {
  as_processes(3, disagree, nullptr);
  assert_int_equal(finish(start("gsel trace gsel-*.json >out 2>err")), 0);
  check_part(out, "communicator world of 3 ranks");
  assert_null(strstr(strstr(out, "communicator") + 1, "communicator world"));
  for (const char* part : {"rank 0 got: rank 0 called", "rank 1 got: rank 0 called", "rank 2 got: rank 0 called"})
    check_part(out, part);
  check_part(out, "allreduce(count 3, f32, sum)  failed");
}

void trace_refuses_what_is_no_recording(void**) {
  write_file("other.json", "{\"communicators\": 3}");
  write_file("hostile.json",
             "{\"communicators\": [{\"made_ns\": 1, \"world_size\": [], \"reader\": 2, \"ranks\": 3}]}");
  write_file("bare.json", "{\"communicators\": [{\"made_ns\": 1, \"taken_us\": 1, \"ranks\": []}]}");
  const struct {
    const char *arguments, *words;
  } rows[] = {{"trace", "source"},
              {"trace other.json", "other.json: communicators is 3 (number), an array is needed"},
              {"trace hostile.json", "hostile.json: communicators[0].taken_us is missing"},
              {"trace bare.json", "a file lacks what docs/trace.md or docs/step.md lists"},
              {"trace ./nosuch", "./nosuch: cannot be opened"},
              {"trace 2147483647", "there is no process 2147483647"}};
  for (const auto& row : rows) {
    check_gsel(row.arguments, 2);
    check_part(err, row.words);
  }
}

int set_up(void**) {
  for (const char* name : {"GSEL_CONFIG", "GSEL_TRACE", "GSEL_LOG"}) unsetenv(name);
  setenv("GSEL_TUNING", "", 1);
  return command_set_up("cli-comm");
}

int tear_down(void**) {
  return command_tear_down();
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tune_writes_a_file_that_is_then_used),
      cmocka_unit_test(trace_names_the_laggard_of_a_hanging_job),
      cmocka_unit_test(trace_takes_the_files_of_a_job_together),
      cmocka_unit_test(trace_refuses_what_is_no_recording),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
