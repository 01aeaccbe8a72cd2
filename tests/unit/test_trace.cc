// unit/test_trace.cc: the flight recorder read back: by a rank, by another process, from garbage, and as files.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "comm/shm/memory/arena.h"
#include "comm/shm/memory/shared_memory.h"
#include "support/ranks.h"
#include "support/scratch.h"

namespace {

using Json = nlohmann::json;

Json json_of(gsel_trace* trace) {
  const gsel_str text = gsel_trace_json(trace);
  Json json = Json::parse(text.data, text.data + text.len, nullptr, false);
  gsel_trace_free(trace);
  return json;
}

gsel_status labelled(gsel_comm* comm, const char* label, float* x, size_t count, gsel_error** err) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.send = call.recv = x;
  call.count = count;
  call.label = gsel_str_from(label);
  return gsel_comm_run(comm, &call, err);
}

void record_and_read(rank_run* run) {
  gsel_comm* comm = nullptr;
  gsel_error* err = nullptr;
  gsel_trace* trace = nullptr;
  float x[4] = {};
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, labelled(comm, "first", x, 4, &err), err);
  rank_ok(run, gsel_broadcast(comm, x, x, 3, GSEL_F32, 1, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  rank_ok(run, gsel_comm_trace(comm, &trace, &err), err);
  const Json json = json_of(trace);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);

  rank_check(run, json["gsel"] == gsel_version_text() && json["communicators"].size() == 1);
  const Json& told = json["communicators"][0];
  rank_check(run, told["world_size"] == run->world_size && told["failure"].is_null() && told["order"] == "ranks");
  rank_check(run, told["reader"]["rank"] == run->rank && told["reader"]["pid"] == getpid());
  for (const Json& rank : told["ranks"]) {
    const Json& calls = rank["calls"];
    rank_check(run, calls.size() >= 3 && rank["alive"] == true && rank["pid"] == getpid());
    rank_check(run, calls[0]["text"] == "allreduce(count 4, f32, sum) \"first\"" && calls[0]["label"] == "first");
    rank_check(run, calls[0]["op"] == "sum" && calls[0]["root"].is_null() && calls[0]["number"] == 1);
    rank_check(run, calls[1]["text"] == "broadcast(count 3, f32, root 1)" && calls[1]["root"] == 1);
    rank_check(run, calls[2]["kind"] == "barrier");
    double before = 0;
    for (const Json& call : calls) {
      rank_check(run, call["entered_us"].get<double>() >= before && call["failed"] == false);
      if (call["left_us"].is_null()) continue;
      before = call["left_us"].get<double>();
      rank_check(run, before >= call["entered_us"].get<double>());
    }
  }
  const Json& own = told["ranks"][static_cast<size_t>(run->rank)];
  rank_check(run, own["state"] == "between calls" && own["call"] == 3 && own["awaits"].is_null());
  rank_check(run, own["calls"][2]["left_us"].get<double>() <= told["taken_us"].get<double>());
}

void the_calls_of_every_rank_are_told(void**) {
  as_threads(2, record_and_read, nullptr);
  as_threads(3, record_and_read, nullptr);
}

void many_calls(rank_run* run) {
  gsel_comm* comm = nullptr;
  gsel_error* err = nullptr;
  gsel_trace* trace = nullptr;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int i = 0; i < 300; ++i) rank_ok(run, gsel_barrier(comm, &err), err);
  rank_ok(run, gsel_comm_trace(comm, &trace, &err), err);
  const Json json = json_of(trace);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
  const Json& calls = json["communicators"][0]["ranks"][static_cast<size_t>(run->rank)]["calls"];
  rank_check(run, calls.size() == 256);
  for (size_t i = 0; i < calls.size(); ++i) rank_check(run, calls[i]["number"] == 45 + i);
}

void the_last_256_calls_are_kept(void**) {
  as_threads(2, many_calls, nullptr);
}

// ---- another process ----

struct Gate {
  int ends[2];
};

void one_rank_stays_away(rank_run* run) {
  const auto* gate = static_cast<const Gate*>(run->user);
  gsel_comm* comm = nullptr;
  gsel_error* err = nullptr;
  float x[4] = {};
  close(gate->ends[1]);  // the test's end alone holds it open
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  char byte;
  if (run->rank == 2) rank_check(run, read(gate->ends[0], &byte, 1) == 0);
  rank_ok(run, labelled(comm, "step", x, 4, &err), err);
  gsel_comm_free(comm);
}

// What rank 0's process shows once rank 2 has left its first call and all others are known to wait; the alarm of the
// ranks bounds the wait.
Json trace_when_all_wait(pid_t pid) {
  for (;;) {
    gsel_error* err = nullptr;
    gsel_trace* trace = nullptr;
    if (gsel_trace_process(pid, &trace, &err) != GSEL_OK) {
      assert_int_equal(gsel_error_code(err), GSEL_ERR_NOT_FOUND);  // has not joined yet
      gsel_error_free(err);
      continue;
    }
    const Json json = json_of(trace);
    assert_false(json.is_discarded());
    const Json& ranks = json["communicators"][0]["ranks"];
    size_t waiting = 0;
    for (const Json& rank : ranks) waiting += !rank["awaits"].is_null() && rank["call"] == 2;
    if (waiting == 3 && ranks[2]["state"] == "between calls") return json;
  }
}

// Ranks 1 and 3 split from a world of four, and 3 stays away from the new communicator; it has left a duplicate.
void one_rank_stays_away_from_a_split(rank_run* run) {
  const auto* gate = static_cast<const Gate*>(run->user);
  gsel_comm *comm = nullptr, *odd = nullptr, *copy = nullptr;
  gsel_error* err = nullptr;
  float x[4] = {};
  close(gate->ends[1]);
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_comm_dup(comm, &copy, &err), err);
  gsel_comm_free(copy);
  rank_ok(run, gsel_comm_split(comm, run->rank % 2, 0, &odd, &err), err);
  char byte;
  if (run->rank == 3) rank_check(run, read(gate->ends[0], &byte, 1) == 0);
  if (run->rank % 2) rank_ok(run, labelled(odd, "half", x, 4, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(odd);
  gsel_comm_free(comm);
}

// What the communicators of rank 0's process are once both halves are made and rank 1 is known to wait in its own.
Json trace_when_rank_1_waits(pid_t pid) {
  for (;;) {
    gsel_trace* trace = nullptr;
    if (gsel_trace_process(pid, &trace, nullptr) != GSEL_OK) continue;
    const Json json = json_of(trace);
    if (json["communicators"].size() < 3) continue;
    for (const Json& communicator : json["communicators"])
      for (const Json& rank : communicator["ranks"])
        if (rank["joined_as"] == 1 && communicator["world_size"] == 2 && !rank["awaits"].is_null()) return json;
  }
}

void a_hanging_split_is_seen_from_any_rank(void**) {
  Gate gate;
  assert_int_equal(pipe(gate.ends), 0);
  rank_run* runs = ranks_prepare(4, &gate);
  pid_t pids[4];
  for (int r = 0; r < 4; ++r) pids[r] = rank_fork(&runs[r], one_rank_stays_away_from_a_split);
  const Json all = trace_when_rank_1_waits(pids[0])["communicators"];
  close(gate.ends[1]);
  for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
  close(gate.ends[0]);
  ranks_verdict(runs, 4);
  assert_int_equal(all.size(), 3);  // world and two halves; not the duplicate that all have left
  assert_int_equal(all[0]["world_size"], 4);
  for (const Json& half : {all[1], all[2]}) {
    const int parity = half["ranks"][0]["joined_as"].get<int>() % 2;
    for (size_t r = 0; r < 2; ++r) {
      const Json& rank = half["ranks"][r];
      assert_int_equal(rank["rank"], r);
      assert_int_equal(rank["joined_as"], 2 * r + static_cast<size_t>(parity));
      assert_int_equal(rank["pid"], pids[2 * r + static_cast<size_t>(parity)]);
      assert_true(rank["alive"] == true);
    }
    if (parity == 0) continue;
    assert_true(half["late"] == Json::array({1}));
    assert_true(half["ranks"][0]["calls"][0]["text"] == "allreduce(count 4, f32, sum) \"half\"");
    assert_true(half["ranks"][0]["awaits"] == 1);
  }
}

void a_hanging_job_names_its_laggard_from_outside(void**) {
  Gate gate;
  assert_int_equal(pipe(gate.ends), 0);
  rank_run* runs = ranks_prepare(4, &gate);
  pid_t pids[4];
  for (int r = 0; r < 4; ++r) pids[r] = rank_fork(&runs[r], one_rank_stays_away);
  const Json told = trace_when_all_wait(pids[0])["communicators"][0];
  close(gate.ends[1]);
  for (pid_t pid : pids) waitpid(pid, nullptr, 0);
  close(gate.ends[0]);
  ranks_verdict(runs, 4);
  assert_true(told["late"] == Json::array({2}));
  assert_true(told["reader"]["rank"].is_null());
  const Json& late = told["ranks"][2];
  assert_true(late["state"] == "between calls" && late["call"] == 1 && late["pid"] == pids[2] && late["alive"] == true);
  const Json& held = told["ranks"][3];
  assert_true(held["state"] == "in call" && held["calls"][1]["text"] == "allreduce(count 4, f32, sum) \"step\"");
  assert_true(held["calls"][1]["left_us"].is_null());
}

void processes_without_communicators_are_told_so(void**) {
  gsel_trace* trace = nullptr;
  gsel_error* err = nullptr;
  check_fails(gsel_trace_process(getpid(), &trace, &err), err, GSEL_ERR_NOT_FOUND, "has no communicator");
  check_fails(gsel_trace_process(0x7ffffff0, &trace, &err), err, GSEL_ERR_NOT_FOUND, "there is no process");
  check_fails(gsel_trace_process(0, &trace, &err), err, GSEL_ERR_ARG, "pid 0");
  check_fails(gsel_trace_process(getpid(), nullptr, &err), err, GSEL_ERR_ARG, "out");
  check_fails(gsel_comm_trace(nullptr, &trace, &err), err, GSEL_ERR_ARG, "comm");
  assert_null(gsel_trace_json(nullptr).data);
  gsel_trace_free(nullptr);
}

// Memory under our name with anything in it: an answer or NOT_FOUND.
void garbage_is_survived(void**) {
  const gsel::shm::Layout layout(2);
  std::vector<uint64_t> words(layout.staging_at / 8);
  auto* bytes = reinterpret_cast<char*>(words.data());
  std::mt19937_64 random(1);
  int answers = 0, refusals = 0;
  for (int round = 0; round < 300; ++round) {
    std::fill(words.begin(), words.end(), 0);
    gsel::shm::Arena::create(bytes, layout, gsel::shm::ArenaHeader{}, {{1, 0, 0}, {2, 1, 1}}, "world");
    const size_t begin = round % 3 == 0 ? 0 : sizeof(gsel::shm::ArenaHeader) / 8;
    for (int i = 0; i < round * 8; ++i) words[begin + random() % (words.size() - begin)] = random() >> random() % 64;
    if (round % 7 == 6) words[random() % 8] = random();
    const int fd = memfd_create("gsel", MFD_CLOEXEC);
    const size_t length = round % 5 == 4 ? random() % layout.staging_at : layout.staging_at;
    constexpr auto control = static_cast<off_t>(gsel::shm::SharedMemory::kControlAt);
    assert_int_equal(pwrite(fd, bytes, length, control), length);
    if (round % 5 != 3) assert_int_equal(ftruncate(fd, control + static_cast<off_t>(layout.total_bytes)), 0);
    gsel_trace* trace = nullptr;
    gsel_error* err = nullptr;
    if (gsel_trace_process(getpid(), &trace, &err) == GSEL_OK) {
      assert_false(json_of(trace).is_discarded());
      ++answers;
    } else {
      assert_int_equal(gsel_error_code(err), GSEL_ERR_NOT_FOUND);
      gsel_error_free(err);
      ++refusals;
    }
    close(fd);
  }
  assert_true(answers > 0 && refusals > 0);
}

// ---- files ----

char dir[256];

Json file_of(pid_t pid, int rank) {
  char path[512];
  snprintf(path, sizeof path, "%s/gsel-%d-%d.json", dir, pid, rank);
  std::ifstream file(path);
  return Json::parse(file, nullptr, false);
}

void disagree(rank_run* run) {
  gsel_comm* comm = nullptr;
  gsel_error* err = nullptr;
  float x[4] = {};
  setenv("GSEL_TRACE", static_cast<const char*>(run->user), 1);
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_fails(run, labelled(comm, "odd", x, run->rank == 1 ? 3 : 4, &err), err, GSEL_ERR_MISMATCH, "rank 1 called", 1);
  gsel_comm_free(comm);
}

void a_failed_call_leaves_a_file(void**) {
  rank_run* runs = ranks_prepare(3, dir);
  std::array<pid_t, 3> pids;
  for (size_t r = 0; r < 3; ++r) pids[r] = rank_fork(&runs[r], disagree);
  for (pid_t pid : pids) waitpid(pid, nullptr, 0);
  ranks_verdict(runs, 3);
  for (size_t r = 0; r < 3; ++r) {
    const Json json = file_of(pids[r], static_cast<int>(r));
    assert_false(json.is_discarded());
    const Json& told = json["communicators"][0];
    assert_true(told["reader"]["rank"] == r && told["reader"]["error"]["code"] == "GSEL_ERR_MISMATCH");
    assert_true(told["ranks"][r]["state"] == "failed" && told["ranks"][r]["calls"][0]["failed"] == true);
    assert_true(told["ranks"][1]["calls"][0]["count"] == 3);
  }
}

void a_missing_folder_fails_no_call(void**) {
  static char missing[] = "/nonexistent/folder";
  as_processes(2, disagree, missing);
}

void wait_in_vain(rank_run* run) {
  gsel_comm* comm = nullptr;
  gsel_error* err = nullptr;
  gsel_config* config = nullptr;
  char text[512];
  snprintf(text, sizeof text, "[comm]\ntrace = \"%s\"\ntimeout_s = 0.05\n", dir);
  rank_ok(run, gsel_config_parse(gsel_str_from(text), gsel_str_from("test"), &config, &err), err);
  gsel_comm_options how = GSEL_COMM_OPTIONS_INIT;
  how.rank = run->rank;
  how.world_size = run->world_size;
  how.id = &run->id;
  how.config = config;
  rank_ok(run, gsel_comm_init(&how, &comm, &err), err);
  gsel_config_free(config);
  const auto* gate = static_cast<const Gate*>(run->user);
  char byte = 0;
  if (run->rank == 0) {
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_TIMEOUT, "rank 1", 1);
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_TIMEOUT, "rank 1", 1);
    rank_check(run, write(gate->ends[1], &byte, 1) == 1);
  } else {
    rank_check(run, read(gate->ends[0], &byte, 1) == 1);
  }
  gsel_comm_free(comm);
}

void the_config_names_the_folder_and_a_timeout_its_laggard(void**) {
  Gate gate;
  assert_int_equal(pipe(gate.ends), 0);
  as_threads(2, wait_in_vain, &gate);
  close(gate.ends[0]);
  close(gate.ends[1]);
  const Json json = file_of(getpid(), 0);
  assert_false(json.is_discarded());
  const Json& told = json["communicators"][0];
  assert_true(told["failure"]["code"] == "GSEL_ERR_TIMEOUT" && told["failure"]["rank"] == 1);
  assert_true(told["late"] == Json::array({1}) && told["ranks"][0]["awaits"] == 1);
  assert_true(told["ranks"][1]["state"] == "no call yet" && told["ranks"][1]["since_us"].is_null());
  assert_true(told["ranks"][0]["calls"].size() == 1);  // what was refused later is no call
}

// Rank 1 dies while nobody waits for it, and rank 0 hears of it between calls.
void dies_unawaited(rank_run* run) {
  gsel_comm* comm = nullptr;
  gsel_error* err = nullptr;
  gsel_trace* trace = nullptr;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank == 1) kill(getpid(), SIGKILL);
  while (gsel_comm_get_async_error(comm, nullptr) == GSEL_OK) usleep(1000);
  rank_ok(run, gsel_comm_trace(comm, &trace, &err), err);
  const Json told = json_of(trace)["communicators"][0];
  rank_check(run, told["late"] == Json::array({1}) && told["ranks"][0]["awaits"].is_null());
  gsel_comm_free(comm);
}

void who_has_died_holds_up_the_others(void**) {
  rank_run* runs = ranks_prepare(2, nullptr);
  const pid_t pids[] = {rank_fork(&runs[0], dies_unawaited), rank_fork(&runs[1], dies_unawaited)};
  for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
  ranks_verdict(runs, 2);
}

int set_up(void**) {
  unsetenv("GSEL_TRACE");
  return make_scratch(dir, sizeof dir, "trace") ? 0 : -1;
}

int tear_down(void**) {
  return remove_scratch(dir);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_calls_of_every_rank_are_told),
      cmocka_unit_test(the_last_256_calls_are_kept),
      cmocka_unit_test(a_hanging_job_names_its_laggard_from_outside),
      cmocka_unit_test(a_hanging_split_is_seen_from_any_rank),
      cmocka_unit_test(processes_without_communicators_are_told_so),
      cmocka_unit_test(garbage_is_survived),
      cmocka_unit_test(a_failed_call_leaves_a_file),
      cmocka_unit_test(a_missing_folder_fails_no_call),
      cmocka_unit_test(the_config_names_the_folder_and_a_timeout_its_laggard),
      cmocka_unit_test(who_has_died_holds_up_the_others),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
