// unit/test_cli_comm.cc: the commands about communicators, as their users meet them: gsel bench, gsel tune, gsel trace.
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

// clang-format off: names of command.h would be hidden by parameters of ranks.h
#include "support/ranks.h"
#include "support/command.h"
// clang-format on

namespace {

using Json = nlohmann::json;

Json json_of_file(const std::string& name) {
  std::ifstream file(std::string(dir) + "/" + name);
  return Json::parse(file, nullptr, false);
}

Json bench(const std::string& arguments) {
  const std::string line = "bench " + arguments + " --json";
  check_gsel(line.c_str(), 0);
  Json json = Json::parse(out, nullptr, false);
  if (json.is_discarded()) fail_msg("no JSON: %s", out);
  return json;
}

// ---- bench ----

constexpr const char* kQuick = " -b 4 -e 64K -f 40 --iterations 2 --warmup 1 --in-place --out-of-place";

void check_rows(const Json& told, size_t operations) {
  std::set<std::string> seen;
  for (const Json& row : told["rows"]) {
    if (row["wrong"] != 0) fail_msg("wrong elements: %s", row.dump().c_str());
    assert_true(row["seconds"].get<double>() > 0 && row["p99_seconds"] >= row["seconds"]);
    assert_int_equal(row["iterations"].get<int>(), 2);
    seen.insert(row["operation"]);
  }
  assert_int_equal(seen.size(), operations);
}

void bench_checks_every_operation(void**) {
  const std::string all = std::string("all -n 3 --root 1") + kQuick;
  check_rows(bench(all), 15);
  check_rows(bench(all + " --threads"), 15);
  check_rows(bench("all -n 1 --threads" + std::string(" -e 4K -f 8 --iterations 2 --warmup 1")), 14);
}

void bench_knows_every_type_and_operation(void**) {
  static const char* const rows[] = {"-t i8 -o prod",    "-t u8 -o avg",    "-t i16 -o bxor", "-t u16 -o band",
                                     "-t i64 -o bor",    "-t f16 -o max",   "-t bf16 -o avg", "-t f64 -o min",
                                     "-t f8e4m3 -o sum", "-t f8e5m2 -o sum"};
  for (const char* row : rows)
    check_rows(bench(std::string("allreduce reduce_scatterv allgather -n 3 --threads ") + row + kQuick), 3);
}

void bench_works_in_memory_of_all_ranks(void**) {
  check_rows(bench(std::string("allreduce allgather -n 2 --registered") + kQuick), 2);
}

void bench_counts_bandwidth_as_nccl_tests_do(void**) {
  const Json told = bench("allreduce allgather broadcast -n 3 -b 96K -e 96K --iterations 2 --threads");
  const double factors[] = {4.0 / 3, 2.0 / 3, 1};
  assert_int_equal(told["rows"].size(), 3);
  assert_true(told["memory_bandwidth"].get<double>() > 0 && told["ranks"] == 3 && told["threads"] == true);
  for (size_t i = 0; i < 3; ++i) {
    const Json& row = told["rows"][i];
    assert_int_equal(row["bytes"].get<int>(), 98304);
    assert_true(std::abs(row["algbw"].get<double>() * row["seconds"].get<double>() - 98304) < 1e-3);
    assert_true(std::abs(row["busbw"].get<double>() / row["algbw"].get<double>() - factors[i]) < 1e-9);
    assert_true(row["efficiency"].get<double>() > 0);
  }
  check_gsel("bench -n 2 -e 8 --iterations 2", 0);
  check_part(out, "algbw GB/s");
  check_part(out, "allreduce");
  assert_null(strstr(out, "memory:"));  // too small for memory to matter
}

void bench_refuses_what_it_cannot_do(void**) {
  const struct {
    const char *arguments, *words;
  } rows[] = {{"bench dance", "dance is no operation"},
              {"bench -n 0", "-n 0: 1 to 256 are allowed"},
              {"bench -b 8 -e 4", "-b 8 is more than -e 4"},
              {"bench -e 3X", "-e 3X: a whole number is needed"},
              {"bench -t f31", "-t f31 is no type"},
              {"bench -o mean", "-o mean is no operation"},
              {"bench -n 2 --root 2", "--root 2: 0 to 1 are allowed"},
              {"bench -f 1", "-f 1"},
              {"bench --check 2", "--check 2: 0 to 1 are allowed"},
              {"bench -n 2 -t f32 -o band -e 8", "band"}};
  for (const auto& row : rows) {
    check_gsel(row.arguments, 2);
    check_part(err, row.words);
  }
}

// ---- tune ----

void tune_writes_a_file_that_is_then_used(void**) {
  check_gsel("tune --ranks 2 --largest 64K --time 0.00001 --out tuned.toml", 0);
  assert_string_equal(out, "tuned.toml\n");
  assert_int_equal(finish(start("GSEL_LOG=warn GSEL_TUNING=tuned.toml gsel bench -e 8 --iterations 2 >out 2>err")), 0);
  assert_string_equal(err, "");
  read_back("tuned.toml", out);
  check_part(out, "[[world]]\nranks = 2\n");
  check_part(out, "\nalltoallv = [[0, ");
  assert_int_equal(
      finish(start("sed -i \"s/^ranks.*/&\\\\nchunk_bytes=1/; /^chunk_bytes = /d\" tuned.toml; GSEL_LOG=warn GSEL_TUNING=tuned.toml "
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
    for (const Json& rank : told["communicators"][0]["ranks"]) waiting += rank["awaits"] == 1;
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
      cmocka_unit_test(bench_checks_every_operation),
      cmocka_unit_test(bench_knows_every_type_and_operation),
      cmocka_unit_test(bench_works_in_memory_of_all_ranks),
      cmocka_unit_test(bench_counts_bandwidth_as_nccl_tests_do),
      cmocka_unit_test(bench_refuses_what_it_cannot_do),
      cmocka_unit_test(tune_writes_a_file_that_is_then_used),
      cmocka_unit_test(trace_names_the_laggard_of_a_hanging_job),
      cmocka_unit_test(trace_takes_the_files_of_a_job_together),
      cmocka_unit_test(trace_refuses_what_is_no_recording),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
