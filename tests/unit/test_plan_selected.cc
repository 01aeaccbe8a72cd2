// The devices that [strategy] plan = "auto" plans for: those of the ranks, by rank, with what is free on each now.
#include "api/handles.h"
#include "plan/automatic.h"
#include "plan/cluster.h"
#include "support/ranks.h"

namespace {

using namespace gsel;
using namespace gsel::plan;

// Four boards, one of them nearly full; free memory goes down from one look to the next.
Inventory seen_by(int32_t rank) {
  std::string boards;
  for (int32_t i = 0; i < 4; ++i)
    boards += fmt::format(
        R"({}{{"vendor":"nvidia","name":"NVIDIA H100 80GB HBM3","uuid":"GPU-{}","memory_bytes":85899345920,)"
        R"("free_bytes":{}}})",
        i == 0 ? "" : ",", i, (i == 1 ? 10LL << 30 : 40LL << 30) - (int64_t{rank} << 20));
  return parse_inventory(fmt::format(R"({{"gsel_inventory":1,"hosts":[{{"name":"box","devices":[{}],"links":[)"
                                     R"({{"a":0,"b":1,"class":"SYS","bytes_per_second":1e10}},)"
                                     R"({{"a":2,"b":3,"class":"NV4","bytes_per_second":8e10}}]}}]}})",
                                     boards),
                         "box.json");
}

struct Job {
  const char* uuids[3];
  Inventory of_rank[3];
};

void select_here(rank_run* run) {
  auto* job = static_cast<Job*>(run->user);
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, rank_join(run, &comm, &err), err);
  job->of_rank[run->rank] = selected(comm->impl, seen_by(run->rank), job->uuids[run->rank]);
  gsel_comm_free(comm);
}

void ranks_plan_for_their_own_devices_and_what_is_free(void**) {
  Job job{{"GPU-3", "GPU-2", "GPU-2"}, {}};
  as_threads(3, select_here, &job);
  const Inventory& first = job.of_rank[0];
  for (const Inventory& one : job.of_rank)
    assert_string_equal(inventory_json(one).c_str(), inventory_json(first).c_str());
  assert_int_equal(first.devices.size(), 3);
  assert_int_equal(first.devices[0].index, 3);
  assert_int_equal(first.devices[1].index, 2);
  assert_int_equal(first.devices[2].free_bytes, (40LL << 30) - (2 << 20));
  const Cluster cluster = cluster_of(first, {});
  assert_true(cluster.kind(0).memory_bytes == 40 * kGiB && cluster.kind(1).memory_bytes == 39 * kGiB);
  assert_string_equal(cluster.inside.name.c_str(), "NVLink");  // the slow link is of boards without ranks
  assert_non_null(strstr(cluster.notes.at(0).c_str(), "have memory in use: "));
}

void a_device_that_is_not_found_leaves_all_with_all_their_memory(void**) {
  for (const char* unknown : {"", "GPU-9"}) {
    Job job{{"GPU-3", unknown, "GPU-2"}, {}};
    as_threads(3, select_here, &job);
    for (const Inventory& one : job.of_rank) {
      const Cluster cluster = cluster_of(one, {});
      assert_int_equal(cluster.size(), 4);
      assert_true(cluster.uniform() && cluster.kinds[0].memory_bytes == 80 * kGiB);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ranks_plan_for_their_own_devices_and_what_is_free),
      cmocka_unit_test(a_device_that_is_not_found_leaves_all_with_all_their_memory),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
