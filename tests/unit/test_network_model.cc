// unit/test_network_model.cc: the closed forms of `gsel bench --simulate`, against figures worked out by hand: steps,
// bytes and messages of each algorithm, the price of a cost, rendezvous and control. test_network_model_library.cc
// compares what they start from with the library.
#include <cmath>
#include <cstring>
#include <string>

#include "collective_model.h"
#include "network_model.h"
#include "support/check.h"

namespace {

namespace cli = gsel::cli;
using cli::Cost;
using cli::find_modelled;
using cli::HostWorld;
using cli::ModelledCollective;
using cli::NetworkModel;

struct CostRow {
  HostWorld world;
  const char *collective, *algorithm;
  double bytes;
  Cost cost;  // host steps, network steps, host bytes, network bytes, messages
};

constexpr HostWorld kFour{4, 2}, kThree{3, 2}, kOneHost{1, 4}, kSingles{4, 1}, kAlone{1, 1};
constexpr double kS = 1024;

// The agreement of 4 hosts of 2 ranks: 2 steps on a host, where a rank reads a record of 256 B and an answer of 184; 1
// level up and down, 3 messages of 200 B each way.
constexpr double kSaid = 256 + 184, kAgreed = 6 * 200;

constexpr CostRow kRows[] = {
    {kFour, "barrier", "assembly", 0, {2, 2, kSaid, kAgreed, 6}},
    // 1 KiB of each rank is no short payload and goes over a host by itself; up go those of 6 ranks, down 3 times all
    // 8, of which each rank adds the 8.
    {kFour, "allreduce", "assembly", kS, {3, 2, kSaid + kS + 8 * kS + 8 * kS, kAgreed + 6 * kS + 24 * kS, 6}},
    // Parts of 128 B are short.
    {kFour, "gather", "assembly", kS, {2, 2, kSaid + kS, kAgreed + 6 * 128 + 24 * 128, 6}},
    // 64 KiB of all ranks and no more go over a host with the answer.
    {kFour, "broadcast", "assembly", 8192, {3, 2, kSaid + 9 * 8192, kAgreed + 30 * 8192, 6}},
    {kFour, "broadcast", "assembly", 8200, {4, 2, kSaid + 9 * 8200, kAgreed + 30 * 8200, 6}},
    // A host sends g S (N-1) = 6 S; a rank adds N S, 8 inputs of its lane.
    {kFour, "allreduce", "direct", kS, {4, 3, kSaid + kS + 4 * kS, kAgreed + 6 * kS, 6 + 12}},
    {kFour, "allreduce", "two-level", kS, {4, 4, kSaid + kS + kS / 2 + kS / 2, kAgreed + 1.5 * kS, 6 + 12}},
    {kFour, "reduce", "two-level", kS, {4, 4, kSaid + 2 * kS, kAgreed + 1.5 * kS, 6 + 9}},
    {kFour, "reduce_scatter", "two-level", kS, {6, 3, kSaid + 2 * kS, kAgreed + 0.75 * kS, 6 + 6}},
    {kSingles, "allreduce", "two-level", kS, {0, 4, kS, kAgreed + 1.5 * kS, 6 + 12}},
    // A piece of 1 MiB in two segments.
    {{2, 1}, "allreduce", "two-level", 1 << 21, {0, 4, 1 << 21, 400 + (1 << 21), 2 + 8}},
    // One chunk: 6 hops, and each host adds 3 lanes of S/2.
    {kFour, "allreduce", "chain", kS, {4, 8, kSaid + kS + 1.5 * 4 * kS, kAgreed + 6 * kS, 6 + 12}},
    {kFour, "reduce", "chain", kS, {4, 6, kSaid + kS + 6 * kS, kAgreed + 4 * kS, 6 + 8}},
    // Four pieces of a lane, one behind the other.
    {kFour,
     "reduce_scatter",
     "chain",
     kS,
     {6, 6, kSaid + kS / 2 + 1.5 * (768 + 4 * 256), kAgreed + 768 + 4 * 256, 6 + 14}},
    // A lane of 1 MiB in 8 chunks of 128 KiB: the first passes 4 hops, and 7 follow in both directions of the host in
    // the middle.
    {{3, 1},
     "allreduce",
     "chain",
     1 << 20,
     {0, 6, 2.0 * ((1 << 20) + 2 * (1 << 17)), 800 + 2.0 * 7 * (1 << 17) + 4 * (1 << 17), 4 + 8 + 28}},
    // Two inputs of a host for a slice of 128 B are one message; the sum of a slice goes to the 3 other hosts.
    {kFour, "allreduce", "host-slices", kS, {4, 4, kSaid + 2 * kS, kAgreed + 2.25 * kS, 6 + 12}},
    // With 4 elements only 4 of 8 ranks have a slice, of one element, and a rank has inputs for 2 of them.
    {kFour, "allreduce", "host-slices", 16, {4, 4, kSaid + 16 + 8 * 4, kAgreed + 2 * 4 * 9, 6 + 10}},
    // Slices of 1 MiB: two inputs, each in two segments.
    {{2, 2},
     "allreduce",
     "host-slices",
     1 << 22,
     {4, 4, kSaid + 2.0 * (1 << 22), 400 + 1.5 * (1 << 22), 2 + 2 * (4 + 2)}},
    {kFour, "reduce", "host-slices", kS, {4, 4, kSaid + 2 * kS, kAgreed + 2.25 * kS, 6 + 9}},
    {kFour, "reduce_scatter", "host-slices", kS, {6, 3, kSaid + 1.5 * kS, kAgreed + 1.5 * kS, 6 + 6}},
    {kFour, "reduce_scatter", "slices", kS, {3, 3, kSaid + 128 + kS, kAgreed + 1.5 * kS, 6 + 12}},
    // 1 KiB of each rank goes over a host by itself; up go those of 6 ranks, down 3 results. The first rank sorts and
    // adds 8.
    {kFour, "allreduce", "at-first", kS, {3, 2, kSaid + 2 * kS + 16 * kS, kAgreed + 6 * kS + 3 * kS, 6}},
    {kFour, "allgather", "lanes", kS, {6, 3, kSaid + kS / 2, kAgreed + 0.75 * kS, 6 + 6}},
    {kFour, "allgather", "slices", kS, {3, 3, kSaid + 128, kAgreed + 1.5 * kS, 6 + 12}},
    {kFour, "broadcast", "lanes", kS, {4, 3, kSaid + 1.5 * kS, kAgreed + 3 * kS, 6 + 3}},
    {kSingles, "broadcast", "slices", kS, {0, 3, 0, kAgreed + 3 * kS, 6 + 3}},
    {kFour, "gather", "slices", kS, {3, 3, kSaid + 128, kAgreed + 0.75 * kS, 6 + 6}},
    {kFour, "alltoall", "slices", kS, {3, 3, kSaid + 128, kAgreed + 1.5 * kS, 6 + 12}},
    // 66 hosts are two levels: 64 hosts below the first, one below the next; 65 messages each way.
    {{66, 2}, "allgather", "lanes", 132, {68, 5, kSaid + 66, 130 * 200 + 2 * 65, 130 + 130}},
    // Others: N = 4, g = 2: 2(N-1) = 6 steps and 2S(N-1)/N = 1536 bytes between hosts; 2S(g-1)/g = 1024 inside.
    {kFour, "allreduce", "rings", kS, {2, 6, 1024, 1536, 12}},
    {kFour, "allreduce", "halving", kS, {2, 4, 1024, 1536, 8}},
    {kFour, "allreduce", "leader", kS, {2, 2, 2048, 2048, 4}},
    {kFour, "allreduce", "flat ring", kS, {0, 14, 0, 1792, 28}},
    {kFour, "allreduce", "flat doubling", kS, {1, 2, 1024, 4096, 4}},  // g S log2 N
    {kFour, "reduce_scatter", "rings", kS, {1, 3, 512, 768, 6}},
    {kFour, "reduce_scatter", "halving", kS, {1, 2, 512, 768, 4}},
    {kFour, "allgather", "flat ring", kS, {0, 7, 0, 896, 14}},
    {kFour, "broadcast", "rings", kS, {2, 5, 1024, 1536, 10}},
    {kFour, "broadcast", "leader", kS, {1, 2, 1024, 2048, 4}},
    {kFour, "broadcast", "flat tree", kS, {1, 2, 1024, 2048, 4}},
    {{4, 4}, "reduce", "leader", kS, {1, 2, 3072, 2048, 4}},
    {kFour, "gather", "leader", kS, {1, 2, 128, 768, 4}},
    {kFour, "scatter", "flat tree", kS, {1, 2, 128, 768, 4}},
    {kFour, "alltoall", "by host", kS, {2, 3, 2048, 1536, 6}},
    {kFour, "alltoall", "flat pairs", kS, {1, 6, 128, 1536, 12}},
    {kFour, "barrier", "leader", 0, {2, 2, 0, 0, 4}},
    {kFour, "barrier", "flat", 0, {0, 3, 0, 0, 6}},
    // No power of two: one host hands its bytes to another, and gets the result.
    {kThree, "allreduce", "halving", kS, {2, 4, 1024, 3072, 8}},
    {kThree, "allreduce", "leader", kS, {2, 3, 2048, 3072, 6}},
    {kThree, "allreduce", "flat doubling", kS, {1, 3, 1024, 6144, 6}},
    {kThree, "broadcast", "leader", kS, {1, 2, 1024, 2048, 4}},
    // On one host nothing passes a network, and with one rank a host nothing passes memory.
    {kOneHost, "allreduce", "host-slices", kS, {2, 0, 2560, 0, 0}},
    {kOneHost, "allreduce", "rings", kS, {2, 0, 1536, 0, 0}},
    {kOneHost, "allreduce", "flat ring", kS, {6, 0, 1536, 0, 0}},
    {kOneHost, "allreduce", "flat doubling", kS, {2, 0, 2048, 0, 0}},
    {kOneHost, "alltoall", "flat pairs", kS, {3, 0, 768, 0, 0}},
    {kSingles, "allreduce", "rings", kS, {0, 6, 0, 1536, 12}},
    {kSingles, "allreduce", "leader", kS, {0, 2, 0, 2048, 4}},
    {kSingles, "allreduce", "flat doubling", kS, {0, 2, 0, 2048, 4}},
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
    const struct {
      const char* name;
      double expected, got;
    } fields[] = {{"host steps", row.cost.host_steps, got.host_steps},
                  {"network steps", row.cost.network_steps, got.network_steps},
                  {"host bytes", row.cost.host_bytes, got.host_bytes},
                  {"network bytes", row.cost.network_bytes, got.network_bytes},
                  {"messages", row.cost.messages, got.messages}};
    for (const auto& field : fields) {
      const std::string what = std::string(row.collective) + " by " + row.algorithm + " on " +
                               std::to_string(row.world.hosts) + "x" + std::to_string(row.world.each) + ": " +
                               field.name;
      check_near(what.c_str(), field.expected, field.got);
    }
  }
}

void one_rank_costs_nothing(void**) {
  NetworkModel model;
  for (const ModelledCollective& collective : cli::modelled_collectives())
    for (const auto& one : collective.algorithms) {
      const double seconds = one.cost(kAlone, kS).seconds(model);
      if (seconds != 0) fail_msg("%s by %s: expected 0, got %g", collective.name, one.name, seconds);
    }
}

void a_cost_is_priced_by_level(void**) {
  const NetworkModel model{"made up", {1e-6, 1e9}, {1e-5, 1e8}, 2};
  // 2 x 1 us + 1024 B / 1 GB/s + 6 x 10 us + 2 x 1536 B / 100 MB/s + 12 x 5 us
  check_near("rings", 153.744e-6, cost_of(kFour, "allreduce", "rings", kS).seconds(model));
}

// ---- rendezvous and control ----

// 10,000 ranks on 1,250 hosts, 20 us and 8 GB/s.
void rendezvous_and_control_are_those_worked_out_by_hand(void**) {
  const NetworkModel model;
  const HostWorld world{1250, 8};
  const auto start = cli::start_cost(world, model);
  check_near("on a host", 7 * 30e-6, start.local_s);
  check_near("at rank 0", 100e-6 + 1250 * 30e-6 + 8749 * 5e-6, start.root_s);
  check_near("bytes of a table", 140, start.table_bytes);
  check_near("bytes of all tables", 1250 * 1092, start.all_bytes);
  check_near("table", 20e-6 + 1250 * 5e-6 + 1250 * 1092 / 8e9, start.table_s);
  check_near("acknowledged", 2 * (20e-6 + 1250 * 5e-6) + 1250 * 952 / 8e9 + 21 * 5e-6, start.acknowledged_s);
  // Host 0 accepts two connections of 64 hosts and one of each other, host 1 two of 64; three are made in a row.
  check_near("lines", 3 * 100e-6 + (128 + 1185 + 128) * 30e-6 + 2 * 20e-6 + 128 * 5e-6, start.lines_s);
  check_near("connections of lines", 2 * 1249 + 1185, start.line_connections);
  check_near("bytes of gloo", 10000.0 * (416 + 404 + 404 + 28 + 2 * 10000), start.gloo_bytes);
  check_near("connections of gloo", 49995000, start.gloo_connections);
  const double agreement = 4 * 20e-6 + 2 * 128 * 5e-6 + 256 * 200 / 8e9, here = 2 * 0.5e-6 + (7 * 256 + 184) / 10e9;
  const double ports = ((1249 + 64) * 8 * 2 + 128 * 20000.0) / 8e9 + 20000 / 10e9;
  check_near("exchanges", 2 * (agreement + here) + ports, start.exchanges_s);
  assert_true(start.gloo_s > (start.gloo_bytes * 128) / 8e9 && start.gloo_s < 1.5 * (start.gloo_bytes * 128) / 8e9);
  const auto control = cli::control_cost(world, model);
  check_near("agreement", agreement + here, control.agreement_s);
  check_near("messages", 2498, control.messages);
  check_near("a death", 4 * 20e-6 + (2 + 128) * 5e-6, control.death_s);
  check_near("a silent host", 6, control.silent_s);
  check_near("beats", 2498, control.beats);
  assert_int_equal(control.most_beats, 130);
  assert_int_equal(control.most_sockets, 130);
  const auto alone = cli::control_cost({1, 4}, model);
  assert_true(alone.messages == 0 && alone.silent_s == 0 && alone.most_sockets == 0);
  assert_true(cli::start_cost({1, 4}, model).root_s == 0);
  check_near("two hosts", 5, cli::control_cost({2, 1}, model).silent_s);
}

// bench/results/rendezvous.md: connections of the lines, and of the busiest host.
void connections_are_those_counted(void**) {
  const struct {
    int64_t hosts;
    double connections;
    int64_t most;
  } rows[] = {{8, 14, 14}, {64, 126, 126}, {128, 317, 128}, {256, 701, 130}, {512, 1469, 130}};
  for (const auto& row : rows) {
    check_near("connections", row.connections, cli::start_cost({row.hosts, 8}, {}).line_connections);
    assert_int_equal(cli::control_cost({row.hosts, 8}, {}).most_sockets, row.most);
  }
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(costs_are_those_worked_out_by_hand),
      cmocka_unit_test(one_rank_costs_nothing),
      cmocka_unit_test(a_cost_is_priced_by_level),
      cmocka_unit_test(rendezvous_and_control_are_those_worked_out_by_hand),
      cmocka_unit_test(connections_are_those_counted),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
