// unit/test_tuning.cc: tuning files: what they say, what is refused and with which words, that no bytes do harm, and
// that a communicator goes by them.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "base/error.h"
#include "comm/shm/tuning/tuning.h"
#include "support/counts.h"
#include "support/ranks.h"
#include "support/scratch.h"

namespace {

using namespace gsel::shm;

const std::string kCpu = "Test processor 9000";

std::string head() {
  return std::string("gsel = \"") + gsel_version_text() + "\"\ncpu = \"" + kCpu + "\"\n";
}

const char* const kWorlds =
    "[[world]]\nranks = 4\nstream_from = 1048576\n"
    "[[world]]\nranks = 2\nsingle_copy_from = 131072\nchunk_bytes = 32768\n"
    "[world.microseconds]\nallreduce = [[8, 0.5], [1024, 2], [1048576, 200.5]]\nbarrier = [[0, 0.25]]\n";

void a_file_says_thresholds_and_times(void**) {
  const auto worlds = parse_tuning(head() + kWorlds, "t.toml", kCpu);
  assert_int_equal(worlds.size(), 2);
  assert_int_equal(worlds[0].ranks, 2);
  assert_int_equal(worlds[0].tuning.single_copy_from, 131072);
  assert_int_equal(worlds[0].tuning.chunk_bytes, 32768);
  assert_int_equal(worlds[0].tuning.stream_from, Tuning().stream_from);
  assert_int_equal(worlds[1].tuning.stream_from, 1048576);
  const auto& timings = worlds[0].timings[GSEL_COLLECTIVE_ALLREDUCE];
  assert_int_equal(timings.size(), 3);
  assert_true(std::abs(timings[2].seconds - 200.5e-6) < 1e-12);
  assert_true(worlds[0].timings[GSEL_COLLECTIVE_BROADCAST].empty());
}

void times_between_sizes_are_interpolated(void**) {
  const std::vector<Timing> timings{{8, 1e-6}, {800, 1e-5}};
  const auto near = [&](uint64_t bytes, double seconds) {
    return std::abs(interpolated_seconds(timings, bytes) - seconds) < seconds * 1e-9;
  };
  assert_true(near(0, 1e-6) && near(8, 1e-6) && near(800, 1e-5));
  assert_true(near(80, std::sqrt(1e-11)));
  assert_true(near(8000, 1e-4));
  assert_true(interpolated_seconds({}, 8) == 0);
  assert_true(interpolated_seconds({{0, 2e-6}}, 100) == 2e-6);
}

std::string refusal(const std::string& text) {
  try {
    parse_tuning(text, "t.toml", kCpu);
  } catch (const gsel::Error& e) {
    assert_true(e.code() == GSEL_ERR_CONFIG || e.code() == GSEL_ERR_PARSE);
    return e.what();
  }
  return "accepted";
}

void what_is_wrong_is_named_by_line_and_key(void**) {
  const struct {
    std::string text;
    const char* words;
  } rows[] = {
      {"", "t.toml:1: gsel is missing"},
      {"gsel = \"0.0.1\"\ncpu = \"x\"\n", "t.toml:1: gsel is \"0.0.1\", here it is"},
      {std::string("gsel = \"") + gsel_version_text() + "\"\ncpu = \"x\"\n",
       "t.toml:2: cpu is \"x\", here it is \"Test processor 9000\"; run gsel tune"},
      {head() + "colour = 1\n", "t.toml:3: colour is not known"},
      {head() + "world = 1\n", "t.toml:3: world is no list"},
      {head() + "world = [1]\n", "world is no section"},
      {head() + "[[world]]\nstream_from = 8192\n", "world.ranks is missing"},
      {head() + "[[world]]\nranks = 1\n", "t.toml:4: world.ranks must be a whole number from 2 to 256"},
      {head() + "[[world]]\nranks = \"2\"\n", "t.toml:4: world.ranks must be a whole number"},
      {head() + "[[world]]\nranks = 2\n[[world]]\nranks = 2\n", "world.ranks is 2 twice"},
      {head() + "[[world]]\nranks = 2\nchunk_bytes = 1\n", "t.toml:5: world.chunk_bytes must be a whole number"},
      {head() + "[[world]]\nranks = 2\nchunk = 1\n", "t.toml:5: world.chunk is not known"},
      {head() + "[[world]]\nranks = 2\nmicroseconds = 1\n", "world.microseconds is no section"},
      {head() + "[[world]]\nranks = 2\nmicroseconds.dance = []\n", "world.microseconds.dance is no call"},
      {head() + "[[world]]\nranks = 2\nmicroseconds.barrier = 1\n", "must be a list of at most 64 pairs"},
      {head() + "[[world]]\nranks = 2\nmicroseconds.barrier = [[1]]\n", "must hold pairs"},
      {head() + "[[world]]\nranks = 2\nmicroseconds.barrier = [[0, nan]]\n", "must hold times above 0"},
      {head() + "[[world]]\nranks = 2\nmicroseconds.barrier = [[0, -1]]\n", "must hold times above 0"},
      {head() + "[[world]]\nranks = 2\nmicroseconds.barrier = [[8, 1], [8, 1]]\n", "must have rising sizes"},
      {head() + "[[world\n", "t.toml:3: "},
      {std::string(70000, '#'), "has more than 65536 bytes"},
  };
  for (const auto& row : rows) {
    const std::string words = refusal(row.text);
    if (words.find(row.words) == words.npos) fail_msg("expected \"%s\", got \"%s\"", row.words, words.c_str());
    assert_true(words.find('\n') == words.npos);
  }
}

void any_bytes_are_refused_or_read(void**) {
  const std::string good = head() + kWorlds;
  std::mt19937 random(7);
  static const char* const pieces[] = {
      "[",     "]", "\"", "=", "[[world]]", "[world",  ".",   "-9223372036854775808", "\n",
      "1e400", "{", "}",  ",", "'''",       "\\u0000", "inf", "1979-05-27",           "\xff"};
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, pieces[random() % std::size(pieces)]);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
      }
      if (text.empty()) text = good;
    }
    refusal(text);
  }
  refusal(std::string(60000, '['));
  std::string deep = head() + "a";
  for (int i = 0; i < 30000; ++i) deep += ".a";
  refusal(deep + " = 1\n");
}

// ---- a communicator goes by it ----

char dir[256];

std::string write_file(const char* name, const std::string& text) {
  const std::string path = std::string(dir) + "/" + name;
  std::ofstream(path) << text;
  return path;
}

double predicted(size_t count) {
  gsel_comm* comm = nullptr;
  gsel_error* err = nullptr;
  gsel_unique_id id;
  check_ok(gsel_unique_id_create(&id, &err), err);
  struct Other {
    static void* join(void* given) {
      gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
      options.rank = 1;
      options.world_size = 2;
      options.id = static_cast<gsel_unique_id*>(given);
      gsel_comm* other = nullptr;
      gsel_comm_init(&options, &other, nullptr);
      return other;
    }
  };
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, nullptr, Other::join, &id), 0);
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.world_size = 2;
  options.id = &id;
  check_ok(gsel_comm_init(&options, &comm, &err), err);
  void* other = nullptr;
  pthread_join(thread, &other);
  assert_non_null(other);

  std::vector<float> x(count);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.send = call.recv = x.data();
  call.count = count;
  gsel_comm_explanation told = GSEL_COMM_EXPLANATION_INIT;
  check_ok(gsel_comm_explain(comm, &call, &told, &err), err);
  assert_int_equal(told.sent_bytes, count * 4);
  assert_string_equal(told.protocol, count * 4 <= 48 ? "line" : count * 4 <= 4096 ? "slots" : "direct");
  assert_true(strlen(told.reason) > 10);
  assert_int_equal(told.chunk_bytes, 0);
  assert_int_equal(comm_counts(comm, GSEL_COLLECTIVE_ALLREDUCE).calls, 0);
  call.op = 77;
  check_fails(gsel_comm_explain(comm, &call, &told, &err), err, GSEL_ERR_ARG, "77");
  check_fails(gsel_comm_explain(comm, nullptr, &told, &err), err, GSEL_ERR_ARG, "gsel_collective");
  check_fails(gsel_comm_explain(nullptr, &call, &told, &err), err, GSEL_ERR_ARG, "comm");
  gsel_comm_free(comm);
  gsel_comm_free(static_cast<gsel_comm*>(other));
  return told.seconds;
}

std::string of_this_machine() {
  return std::string("gsel = \"") + gsel_version_text() + "\"\ncpu = \"" + cpu_model() + "\"\n";
}

// What is explained is what happens: alike on every rank, so the ranks would not agree otherwise.
void explain_buffers(rank_run* run) {
  gsel_comm* comm = nullptr;
  gsel_error* err = nullptr;
  void* shared = nullptr;
  rank_ok(run, rank_join(run, &comm, &err), err);
  const size_t count = 1 << 18;
  std::vector<float> x(count);
  rank_ok(run, gsel_mem_alloc(comm, count * 4, &shared, &err), err);
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.send = call.recv = shared;
  call.count = count;
  gsel_comm_explanation told = GSEL_COMM_EXPLANATION_INIT;
  rank_ok(run, gsel_comm_explain(comm, &call, &told, &err), err);
  rank_check(run, strcmp(told.protocol, "direct") == 0 && told.chunk_bytes == 0);
  call.recv = x.data();
  rank_ok(run, gsel_comm_explain(comm, &call, &told, &err), err);
  rank_check(run, strcmp(told.protocol, "staged") == 0 && strstr(told.reason, "recv is not memory"));
  rank_check(run, told.chunk_bytes > 0 && told.chunk_bytes <= 1 << 20);
  call.kind = GSEL_COLLECTIVE_REDUCE;
  call.root = 1;
  rank_ok(run, gsel_comm_explain(comm, &call, &told, &err), err);
  rank_check(run, strcmp(told.protocol, run->rank == 1 ? "staged" : "direct") == 0);
  call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_RECV;
  call.dtype = GSEL_F32;
  call.recv = x.data();
  call.count = 12;
  call.root = 1 - run->rank;
  rank_ok(run, gsel_comm_explain(comm, &call, &told, &err), err);
  rank_check(run, strcmp(told.protocol, "line") == 0 && told.sent_bytes == 0);
  call.kind = GSEL_COLLECTIVE_BARRIER;
  rank_ok(run, gsel_comm_explain(comm, &call, &told, &err), err);
  rank_check(run, strcmp(told.protocol, "line") == 0 && told.sent_bytes == 0);
  gsel_comm_free(comm);
}

void an_explanation_looks_at_the_buffers(void**) {
  as_processes(2, explain_buffers, nullptr);
}

std::string logged;
void note_log(gsel_log_level, gsel_str, gsel_str line, void*) {
  logged.append(line.data, line.len).push_back('\n');
}

void an_explanation_predicts_from_the_file_in_force(void**) {
  setenv("GSEL_TUNING", "", 1);
  assert_true(predicted(2) == 0);
  setenv("GSEL_TUNING", write_file("good.toml", of_this_machine() + kWorlds).c_str(), 1);
  assert_true(std::abs(predicted(2) - 0.5e-6) < 1e-12);
  assert_true(std::abs(predicted(1 << 18) - 200.5e-6) < 1e-12);
  assert_int_equal(tuning_for(2).chunk_bytes, 32768);
  assert_int_equal(tuning_for(3).chunk_bytes, 32768);
  assert_int_equal(tuning_for(64).stream_from, 1048576);
}

void a_file_that_cannot_be_used_is_told_to_the_log_and_ignored(void**) {
  gsel_log_set(note_log, GSEL_LOG_WARN, nullptr, nullptr);
  setenv("GSEL_TUNING", write_file("foreign.toml", head() + kWorlds).c_str(), 1);
  assert_true(predicted(2) == 0);
  assert_true(logged.find("foreign.toml:2: cpu is \"Test processor 9000\"") != logged.npos);
  setenv("GSEL_TUNING", "/nonexistent/tuning.toml", 1);
  assert_true(predicted(2) == 0);
  assert_true(logged.find("/nonexistent/tuning.toml") != logged.npos);
  gsel_log_set(nullptr, 0, nullptr, nullptr);
}

void the_users_own_file_is_found(void**) {
  unsetenv("GSEL_TUNING");
  char folder[300];
  snprintf(folder, sizeof folder, "mkdir -p '%s/gsel'", dir);
  assert_int_equal(system(folder), 0);
  setenv("XDG_CONFIG_HOME", dir, 1);
  assert_true(predicted(2) == 0);
  write_file("gsel/tuning.toml", of_this_machine() + kWorlds);
  assert_true(predicted(2) > 0);
}

int set_up(void**) {
  return make_scratch(dir, sizeof dir, "tuning") ? 0 : -1;
}

int tear_down(void**) {
  return remove_scratch(dir);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_says_thresholds_and_times),
      cmocka_unit_test(times_between_sizes_are_interpolated),
      cmocka_unit_test(what_is_wrong_is_named_by_line_and_key),
      cmocka_unit_test(any_bytes_are_refused_or_read),
      cmocka_unit_test(an_explanation_predicts_from_the_file_in_force),
      cmocka_unit_test(an_explanation_looks_at_the_buffers),
      cmocka_unit_test(a_file_that_cannot_be_used_is_told_to_the_log_and_ignored),
      cmocka_unit_test(the_users_own_file_is_found),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
