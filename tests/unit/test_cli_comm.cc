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

// ---- parts of several hosts ----

// What a rank that is alone on its host records, or one of several: n calls of all hosts from a number on, each a
// millisecond after the one before.
Json rank_of_part(int rank, int shown, size_t of_ranks, int first_number, int n) {
  Json calls = Json::array();
  const auto add = [&](const char* kind, const std::string& label, double entered_us, double left_us) {
    calls.push_back({{"number", calls.size() + 1}, {"text", kind}, {"kind", kind}, {"label", label}});
    calls.back()["entered_us"] = entered_us;
    calls.back()["left_us"] = left_us;
    calls.back()["failed"] = false;
  };
  for (int i = 0; i < n; ++i) {
    const std::string label = "#" + std::to_string((first_number + i) % 100'000) + " allreduce";
    add("allgather", label, 1000.0 * i + 2, 1000.0 * i + 10);
    if (of_ranks > 1 && i + 1 < n) add("broadcast", "", 1000.0 * i + 20, 1000.0 * i + 500);
  }
  const double since = calls.back()["left_us"];
  Json json{{"rank", rank}, {"shown_as", shown}, {"joined_as", rank}, {"pid", 100 + shown}, {"alive", true}};
  json["state"] = "between calls";
  json["call"] = calls.size();
  json["since_us"] = since;
  json["awaits"] = nullptr;
  json["calls"] = calls;
  return json;
}

// Host a has ranks 0 and 1, b and c one each.
Json part_of(const char* host, int first_rank, double taken_us, const Json& ranks) {
  Json part{{"name", "world"}, {"world_size", ranks.size()}, {"made_ns", 1'000'000 + first_rank}};
  part["part"] = {{"of", "17"}, {"host", host}, {"hosts", 3}, {"world_size", 4}};
  part["part"]["parts"] = {{{"host", "a"}, {"first_rank", 0}, {"ranks", 2}},
                           {{"host", "b"}, {"first_rank", 2}, {"ranks", 1}},
                           {{"host", "c"}, {"first_rank", 3}, {"ranks", 1}}};
  part["taken_us"] = taken_us;
  part["reader"] = {{"pid", 1}, {"rank", nullptr}, {"error", nullptr}};
  part["failure"] = nullptr;
  part["late"] = Json::array();
  part["ranks"] = ranks;
  return part;
}

// On host a rank 1 waits for rank 0, which waits for the other hosts.
Json waiting_part(int number, int n, double taken_us) {
  Json ranks = Json::array({rank_of_part(0, 0, 2, number, n), rank_of_part(1, 1, 2, number, n)});
  ranks[1]["awaits"] = 0;
  Json part = part_of("a", 0, taken_us, ranks);
  part["late"] = Json::array({0});
  return part;
}

std::string file_of(const Json& part) {
  const std::string name = "part-" + part["part"]["host"].get<std::string>() + ".json";
  write_file(name.c_str(), Json{{"gsel", "0"}, {"communicators", Json::array({part})}}.dump().c_str());
  return " " + name;
}

Json lone_part(const char* host, int rank, int number, int n, double taken_us) {
  return part_of(host, rank, taken_us, Json::array({rank_of_part(0, rank, 1, number, n)}));
}

void a_rank_that_is_alone_on_its_host_is_blamed(void**) {
  for (const int number : {7, 99'998}) {  // labels begin again
    const std::string a = file_of(waiting_part(number, 4, 1e6)), b = file_of(lone_part("b", 2, number, 3, 1e6)),
                      c = file_of(lone_part("c", 3, number, 4, 1e6));
    check_gsel(("trace" + a + b + c).c_str(), 0);
    check_part(out, "communicator world of 4 ranks");
    check_part(out, "rank 2 on b (pid 102) holds up the others: it left call 3 ");
    assert_null(strstr(strstr(out, "holds up") + 1, "holds up"));
    assert_null(strstr(out, "missing"));
    check_gsel(("trace --json" + a + b + c).c_str(), 0);
    const Json whole = Json::parse(out, nullptr, false)["communicators"][0];
    assert_true(whole["late"] == Json::array({2}) && whole["missing"] == Json::array());
    assert_true(whole["world_size"] == 4 && whole["ranks"].size() == 4);
  }
}

// All hosts have begun the last call, and one rank is still in its step within its own host.
void a_rank_that_stopped_in_a_call_is_blamed(void**) {
  Json stopped = lone_part("b", 2, 1, 4, 1e6);
  Json& rank = stopped["ranks"][0];
  rank["state"] = "in call";
  rank["calls"].back()["left_us"] = nullptr;
  const std::string others = file_of(waiting_part(1, 4, 1e6)) + file_of(lone_part("c", 3, 1, 4, 1e6));
  check_gsel(("trace" + others + file_of(stopped)).c_str(), 0);
  check_part(out, "rank 2 on b (pid 102) holds up the others: it is in allgather (call 4) since ");
  assert_null(strstr(strstr(out, "holds up") + 1, "holds up"));
}

// The last call has begun on the other hosts a moment ago.
void a_rank_that_comes_in_time_is_not_blamed(void**) {
  Json a = waiting_part(1, 4, 3100);
  a["late"] = Json::array();
  a["ranks"][1]["awaits"] = nullptr;
  check_gsel(
      ("trace" + file_of(a) + file_of(lone_part("b", 2, 1, 3, 3100)) + file_of(lone_part("c", 3, 1, 4, 3100))).c_str(),
      0);
  assert_null(strstr(out, "holds up"));
}

void nobody_is_blamed_while_a_part_is_missing(void**) {
  const Json waiting = waiting_part(1, 4, 1e6);
  const std::string b = file_of(lone_part("b", 2, 1, 3, 1e6));
  check_gsel(("trace" + file_of(waiting)).c_str(), 0);
  check_part(out, "communicator world of 4 ranks");
  check_part(out,
             "missing: the recordings of b (rank 2), c (rank 3); 2 of 4 ranks are shown, and who holds them up is not "
             "known\n");
  assert_null(strstr(out, "holds up"));
  check_part(out, "1     a     101");
  check_gsel(("trace" + file_of(waiting) + b).c_str(), 0);
  check_part(out, "missing: the recordings of c (rank 3); 3 of 4 ranks are shown, and who");
  assert_null(strstr(out, "holds up"));
  check_gsel(("trace" + b).c_str(), 0);
  check_part(out, "missing: the recordings of a (2 ranks from rank 0), c (rank 3); 1 of 4 ranks are shown");
  check_gsel(("trace --json --parts" + b).c_str(), 0);
  assert_true(Json::parse(out, nullptr, false)["communicators"][0]["part"]["host"] == "b");

  Json dead = waiting;
  dead["ranks"][1]["alive"] = false;
  dead["late"] = {0, 1};
  check_gsel(("trace" + file_of(dead)).c_str(), 0);
  check_part(out, "missing: the recordings of b (rank 2), c (rank 3); 2 of 4 ranks are shown\n");
  check_part(out, "rank 1 on a (pid 101) holds up the others: its process has ended");
  assert_null(strstr(strstr(out, "holds up") + 1, "holds up"));
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
      cmocka_unit_test(a_rank_that_is_alone_on_its_host_is_blamed),
      cmocka_unit_test(a_rank_that_stopped_in_a_call_is_blamed),
      cmocka_unit_test(a_rank_that_comes_in_time_is_not_blamed),
      cmocka_unit_test(nobody_is_blamed_while_a_part_is_missing),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
