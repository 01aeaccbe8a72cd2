// unit/test_comm_hosts_trace.cc: recordings of a communicator over several hosts: what each host has of it, also where
// it has one rank, and the files of a failure.
#include <dirent.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "support/hosts.h"
#include "support/scratch.h"

using namespace gsel::test;

namespace {

using Json = nlohmann::json;

// The communicators of this process that are parts, by the first of their ranks here; those of other ranks of this host
// are among them.
Json own_parts() {
  gsel_trace* trace = nullptr;
  Json parts = Json::array();
  if (gsel_trace_process(getpid(), &trace, nullptr) != GSEL_OK) return parts;
  const gsel_str text = gsel_trace_json(trace);
  const Json all = Json::parse(text.data, text.data + text.len);
  for (const Json& communicator : all["communicators"])
    if (!communicator["part"].is_null()) parts.push_back(communicator);
  gsel_trace_free(trace);
  return parts;
}

size_t parts_of_size(const Json& parts, int32_t world_size) {
  size_t n = 0;
  for (const Json& part : parts) n += part["part"]["world_size"] == world_size;
  return n;
}

// Ranks 0 and 1 are on one host, 2 and 3 alone on theirs. Halves of it have one rank on each of their hosts.
void is_found(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm *comm = nullptr, *half = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  const size_t here = run->rank < 2 ? 2 : 1;
  Json parts = own_parts();
  rank_check(run, parts.size() == 1);
  rank_check(run, parts[0]["world_size"] == here && parts[0]["ranks"].size() == here);
  const Json& part = parts[0]["part"];
  rank_check(run, part["world_size"] == 4 && part["hosts"] == 3 && part["parts"].size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    const Json& one = part["parts"][i];
    rank_check(run, one["first_rank"] == (i == 0 ? 0 : i + 1) && one["ranks"] == (i == 0 ? 2 : 1));
    rank_check(run, one["host"] == part["host"]);  // they are one machine
  }
  const Json& own = parts[0]["ranks"][here == 2 ? static_cast<size_t>(run->rank) : 0];
  rank_check(run, own["shown_as"] == run->rank && own["pid"] == getpid() && !own["calls"].empty());

  rank_ok(run, gsel_comm_split(comm, run->rank % 2, 0, &half, &err), err);
  rank_ok(run, gsel_barrier(half, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);  // both halves are made
  parts = own_parts();
  rank_check(run, parts.size() == 1 + here && parts_of_size(parts, 2) == here);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(half);
  rank_ok(run, gsel_barrier(comm, &err), err);
  rank_check(run, parts_of_size(own_parts(), 2) == 0);
  rank_ok(run, gsel_barrier(comm, &err), err);

  rank_ok(run, gsel_comm_resync(comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  parts = own_parts();
  rank_check(run, parts_of_size(parts, 4) >= 1);  // the one before may still be in memory
  rank_check(run, parts.back()["ranks"].back()["state"] != "left");
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
  rank_check(run, own_parts().empty());
}

void test_each_host_has_its_part(void**) {
  on_hosts("0012", is_found);
}

// ---- files ----------------------------------------------------------------------------------------------------------

char dir[256];

void is_left_alone(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  setenv("GSEL_TRACE", dir, 1);
  rank_ok(run, join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank == 2) kill(getpid(), SIGKILL);
  int32_t x = 1;
  gsel_status status = GSEL_OK;
  while (status == GSEL_OK) status = gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_MAX, &err);
  rank_fails(run, status, err, GSEL_ERR_PEER, "rank 2 on ", 2);
  gsel_comm_free(comm);
}

// Each of them: the first of a host, which waits for the other hosts, others, and one that is alone.
void test_each_rank_leaves_a_file(void**) {
  assert_true(make_scratch(dir, sizeof dir, "hosts-trace"));
  on_hosts_but("0021", is_left_alone, {2});
  std::set<int32_t> readers;
  DIR* folder = opendir(dir);
  assert_non_null(folder);
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    std::ifstream file(std::string(dir) + "/" + entry->d_name);
    const Json told = Json::parse(file)["communicators"][0];
    assert_int_equal(told["part"]["world_size"], 4);
    assert_true(told["failure"]["code"] == "GSEL_ERR_PEER" && told["failure"]["rank"] == 2);
    assert_true(told["reader"]["error"]["code"] == "GSEL_ERR_PEER");
    readers.insert(told["ranks"][told["reader"]["rank"].get<size_t>()]["shown_as"].get<int32_t>());
  }
  closedir(folder);
  assert_true(readers == std::set<int32_t>({0, 1, 3}));
  assert_int_equal(remove_scratch(dir), 0);
}

}  // namespace

int main() {
  unsetenv("GSEL_TRACE");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_host_has_its_part),
      cmocka_unit_test(test_each_rank_leaves_a_file),
  };
  return run_tests_on_hosts(tests, std::size(tests));
}
