// unit/test_network_model.cc: the closed forms of `gsel bench --simulate`, against figures worked out by hand: steps
// and bytes of each algorithm, the price of a cost, the tree of hosts, rendezvous and control.
#include <cmath>
#include <cstring>

#include "network_model.h"
#include "support/check.h"

namespace {

using gsel::cli::Cost;
using gsel::cli::find_modelled;
using gsel::cli::HostWorld;
using gsel::cli::ModelledCollective;
using gsel::cli::NetworkModel;

struct CostRow {
  HostWorld world;
  const char *collective, *algorithm;
  double bytes;
  Cost cost;  // host steps, network steps, host bytes, network bytes
};

constexpr HostWorld kFour{4, 2}, kThree{3, 2}, kOneHost{1, 4}, kSingles{4, 1}, kAlone{1, 1};
constexpr double kS = 1024;

constexpr CostRow kRows[] = {
    // N = 4, g = 2: 2(N-1) = 6 steps and 2S(N-1)/N = 1536 bytes between hosts; 2S(g-1)/g = 1024 inside.
    {kFour, "allreduce", "slices", kS, {2, 6, 1024, 1536}},
    {kFour, "allreduce", "halving", kS, {2, 4, 1024, 1536}},
    {kFour, "allreduce", "leader", kS, {2, 2, 2048, 2048}},
    {kFour, "allreduce", "chain", kS, {2, 6, 1024, 7168}},  // S + 6 chunks, each of them S
    {kFour, "allreduce", "flat ring", kS, {0, 14, 0, 1792}},
    {kFour, "allreduce", "flat doubling", kS, {1, 2, 1024, 4096}},  // g S log2 N
    {kFour, "reduce_scatter", "slices", kS, {1, 3, 512, 768}},
    {kFour, "reduce_scatter", "halving", kS, {1, 2, 512, 768}},
    {kFour, "allgather", "flat ring", kS, {0, 7, 0, 896}},
    {kFour, "broadcast", "slices", kS, {2, 5, 1024, 1536}},
    {kFour, "broadcast", "leader", kS, {1, 2, 1024, 2048}},
    {kFour, "broadcast", "flat tree", kS, {1, 2, 1024, 2048}},
    {{4, 4}, "reduce", "leader", kS, {1, 2, 3072, 2048}},
    {kFour, "gather", "leader", kS, {1, 2, 128, 768}},
    {kFour, "scatter", "flat tree", kS, {1, 2, 128, 768}},
    {kFour, "alltoall", "by host", kS, {2, 3, 2048, 1536}},
    {kFour, "alltoall", "flat pairs", kS, {1, 6, 128, 1536}},
    {kFour, "barrier", "leader", 0, {2, 2, 0, 0}},
    {kFour, "barrier", "flat", 0, {0, 3, 0, 0}},
    // No power of two: one host hands its bytes to another, and gets the result.
    {kThree, "allreduce", "halving", kS, {2, 4, 1024, 3072}},
    {kThree, "allreduce", "leader", kS, {2, 3, 2048, 3072}},
    {kThree, "allreduce", "flat doubling", kS, {1, 3, 1024, 6144}},
    {kThree, "broadcast", "leader", kS, {1, 2, 1024, 2048}},
    // The chain in chunks of 128 KiB: S, and the pipeline's two ends.
    {{2, 1}, "allreduce", "chain", 1 << 20, {0, 2, 0, (1 << 20) + 2 * (128 << 10)}},
    // On one host nothing passes a network, and with one rank a host nothing passes memory.
    {kOneHost, "allreduce", "slices", kS, {2, 0, 1536, 0}},
    {kOneHost, "allreduce", "chain", kS, {2, 0, 1536, 0}},
    {kOneHost, "allreduce", "flat ring", kS, {6, 0, 1536, 0}},
    {kOneHost, "allreduce", "flat doubling", kS, {2, 0, 2048, 0}},
    {kOneHost, "alltoall", "flat pairs", kS, {3, 0, 768, 0}},
    {kSingles, "allreduce", "slices", kS, {0, 6, 0, 1536}},
    {kSingles, "allreduce", "leader", kS, {0, 2, 0, 2048}},
    {kSingles, "allreduce", "flat doubling", kS, {0, 2, 0, 2048}},
};

Cost cost_of(const HostWorld& world, const char* collective, const char* algorithm, double bytes) {
  const ModelledCollective* found = find_modelled(collective);
  assert_non_null(found);
  for (const auto& one : found->algorithms)
    if (std::strcmp(one.name, algorithm) == 0) return one.cost(world, bytes);
  fail_msg("%s has no algorithm %s", collective, algorithm);
  return {};
}

void check_near(const char* what, double expected, double got) {
  if (std::abs(got - expected) > 1e-9 * std::abs(expected))
    fail_msg("%s: expected %.12g, got %.12g", what, expected, got);
}

void costs_are_those_worked_out_by_hand(void**) {
  for (const CostRow& row : kRows) {
    const Cost got = cost_of(row.world, row.collective, row.algorithm, row.bytes);
    const double pairs[4][2] = {{row.cost.host_steps, got.host_steps},
                                {row.cost.network_steps, got.network_steps},
                                {row.cost.host_bytes, got.host_bytes},
                                {row.cost.network_bytes, got.network_bytes}};
    static const char* const fields[] = {"host steps", "network steps", "host bytes", "network bytes"};
    for (int i = 0; i < 4; ++i)
      if (pairs[i][0] != pairs[i][1])
        fail_msg("%s by %s on %dx%d: %s: expected %g, got %g", row.collective, row.algorithm,
                 static_cast<int>(row.world.hosts), static_cast<int>(row.world.each), fields[i], pairs[i][0],
                 pairs[i][1]);
  }
}

void one_rank_costs_nothing(void**) {
  NetworkModel model;
  for (const ModelledCollective& collective : gsel::cli::modelled_collectives())
    for (const auto& one : collective.algorithms) {
      const double seconds = one.cost(kAlone, kS).seconds(model);
      if (seconds != 0) fail_msg("%s by %s: expected 0, got %g", collective.name, one.name, seconds);
    }
}

void a_cost_is_priced_by_level(void**) {
  const NetworkModel model{"made up", {1e-6, 1e9}, {1e-5, 1e8}, 2};
  // 2 x 1 us + 1024 B / 1 GB/s + 6 x 10 us + 2 x 1536 B / 100 MB/s
  check_near("slices", 93.744e-6, cost_of(kFour, "allreduce", "slices", kS).seconds(model));
}

// Steps against bytes: the leader wins small calls; of slices, those by halving need fewer steps for the same bytes.
void small_calls_go_through_a_leader(void**) {
  const ModelledCollective* allreduce = find_modelled("allreduce");
  assert_string_equal(allreduce->taken(4096).name, "leader");
  assert_string_equal(allreduce->taken(4097).name, "slices");
  assert_string_equal(allreduce->algorithms[static_cast<size_t>(allreduce->exact)].name, "chain");
  assert_string_equal(find_modelled("broadcast")->taken(8).name, "leader");
  assert_string_equal(find_modelled("allgather")->taken(8).name, "slices");
  assert_null(find_modelled("sendrecv"));
  const NetworkModel model;
  const HostWorld many{1024, 8};
  assert_true(cost_of(many, "allreduce", "leader", 4096).seconds(model) <
              cost_of(many, "allreduce", "slices", 4096).seconds(model));
  assert_true(cost_of(many, "allreduce", "halving", 1 << 20).seconds(model) <
              cost_of(many, "allreduce", "slices", 1 << 20).seconds(model));
}

void hosts_form_a_tree_of_64(void**) {
  const struct {
    int64_t hosts, levels, first, second;
  } rows[] = {{1, 0, 0, 0},      {2, 1, 1, 0},      {65, 1, 64, 0},   {66, 2, 64, 1},
              {1250, 2, 64, 19}, {4161, 2, 64, 64}, {4162, 3, 64, 64}};
  for (const auto& row : rows) {
    const gsel::cli::Tree tree = gsel::cli::tree_of(row.hosts);
    assert_int_equal(tree.levels, row.levels);
    assert_int_equal(tree.children[0], row.first);
    assert_int_equal(tree.children[1], row.second);
    assert_int_equal(tree.most(), row.first);
  }
}

// 10,000 ranks on 1,250 hosts, 20 us and 8 GB/s.
void rendezvous_and_control_are_those_worked_out_by_hand(void**) {
  const NetworkModel model;
  const HostWorld world{1250, 8};
  const auto start = gsel::cli::start_cost(world, model);
  check_near("at the leader", 8 * 30e-6, start.local_s);
  check_near("at the root", 80e-6 + 1249 * 30e-6, start.root_s);
  check_near("tree", 2 * 80e-6 + 83 * 30e-6, start.tree_s);
  check_near("bytes of a table", 2e6, start.table_bytes);
  check_near("table", 2 * 20e-6 + 83 * 250e-6, start.table_s);
  check_near("acknowledged", 2 * 20e-6 + 83 * 5e-6, start.acknowledged_s);
  check_near("all", 61.685e-3, start.seconds());
  check_near("bytes of all tables", 1249 * 2e6, start.all_bytes);
  const auto control = gsel::cli::control_cost(world, model);
  check_near("agreement", 2 * 0.5e-6 + 2 * (2 * 20e-6 + 83 * 5e-6), control.agreement_s);
  check_near("messages", 2498, control.messages);
  check_near("a silent host", 5 + 40e-6, control.silent_s);
  check_near("beats", 2498, control.beats);
  assert_int_equal(control.most_beats, 128);
  assert_int_equal(control.most_sockets, 66);
  const auto alone = gsel::cli::control_cost({1, 4}, model);
  assert_true(alone.messages == 0 && alone.silent_s == 0 && alone.most_sockets == 0);
  assert_true(gsel::cli::start_cost({1, 4}, model).root_s == 0);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(costs_are_those_worked_out_by_hand),
      cmocka_unit_test(one_rank_costs_nothing),
      cmocka_unit_test(a_cost_is_priced_by_level),
      cmocka_unit_test(small_calls_go_through_a_leader),
      cmocka_unit_test(hosts_form_a_tree_of_64),
      cmocka_unit_test(rendezvous_and_control_are_those_worked_out_by_hand),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
