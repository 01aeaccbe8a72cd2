// unit/test_network_model_library.cc: what the model of `gsel bench --simulate` starts from is what the library does:
// its constants, the tree of hosts, the table of hosts, and the way that a call takes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "collective_model.h"
#include "comm/call/collective.h"
#include "comm/hosts/assembly.h"
#include "comm/hosts/failure_notifier.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/tree.h"
#include "comm/hosts/ways.h"
#include "comm/hosts/wire.h"
#include "network_model.h"
#include "support/check.h"

namespace {

namespace cli = gsel::cli;
namespace hosts = gsel::hosts;
using cli::find_modelled;
using cli::HostWorld;
using cli::ModelledCollective;

void check_same(const char* what, double expected, double got) {
  if (got != expected) fail_msg("%s: the library has %g, the model %g", what, expected, got);
}

constexpr struct {
  const char* name;
  gsel_collective_kind kind;
  bool in_parts;  // a count is that of each rank
} kKinds[] = {{"allreduce", GSEL_COLLECTIVE_ALLREDUCE, false}, {"reduce_scatter", GSEL_COLLECTIVE_REDUCE_SCATTER, true},
              {"allgather", GSEL_COLLECTIVE_ALLGATHER, true},  {"broadcast", GSEL_COLLECTIVE_BROADCAST, false},
              {"reduce", GSEL_COLLECTIVE_REDUCE, false},       {"gather", GSEL_COLLECTIVE_GATHER, true},
              {"scatter", GSEL_COLLECTIVE_SCATTER, true},      {"alltoall", GSEL_COLLECTIVE_ALLTOALL, true}};

gsel::shm::Call call_of(gsel_collective_kind kind, uint64_t count, int64_t ranks) {
  gsel_collective given{};
  given.struct_size = sizeof given;
  given.kind = kind;
  given.dtype = GSEL_F32;
  given.op = GSEL_SUM;
  given.root = 0;
  given.source = -1;
  given.count = count;
  gsel::shm::Call call;
  gsel::shm::complete(given, static_cast<int32_t>(ranks), 0, call);
  return call;
}

void a_call_takes_the_way_of_the_library(void**) {
  std::string seen;
  for (const HostWorld world : {HostWorld{2, 2}, {2, 1}, {4, 8}, {8, 8}, {9, 2}, {16, 1}, {33, 4}, {40, 1}, {1024, 8}})
    for (const auto& row : kKinds)
      for (uint64_t parts = 1; parts <= 1 << 16; parts *= 2) {
        const auto ranks = static_cast<uint64_t>(world.ranks());
        const auto call = call_of(row.kind, row.in_parts ? parts : parts * ranks, world.ranks());
        const auto bytes = static_cast<double>(parts * ranks * sizeof(float));
        const ModelledCollective& modelled = *find_modelled(row.name);
        check_same(row.name, static_cast<double>(call.payload_bytes), modelled.payload(world, bytes));
        const hosts::Spread spread{
            ranks,           static_cast<size_t>(world.hosts), static_cast<size_t>(world.each), true, true, false,
            GSEL_ORDER_RANKS};
        const char* const expected = hosts::way_name(hosts::way_of(call, spread));
        const cli::Algorithm* const got = modelled.taken(world, bytes);
        if (std::strcmp(got->name, expected) != 0 || !got->is_way)
          fail_msg("%s of %.0f bytes on %dx%d: the library takes %s, the model %s", row.name, bytes,
                   static_cast<int>(world.hosts), static_cast<int>(world.each), expected, got->name);
        if (gsel::is_reduction(row.kind) && !got->is_exact(world)) fail_msg("%s by %s is exact", row.name, got->name);
        if (seen.find(expected) == std::string::npos) seen += expected;
      }
  for (size_t way = 0; way < hosts::kWays; ++way)
    if (seen.find(hosts::way_name(static_cast<hosts::Way>(way))) == std::string::npos)
      fail_msg("only %s", seen.c_str());
  assert_null(find_modelled("sendrecv"));
  assert_null(find_modelled("allreduce")->taken({1, 4}, 1024));
}

void constants_are_those_of_the_library(void**) {
  const struct {
    const char* name;
    double model, library;
  } rows[] = {{"fan-out", cli::kFanOut, hosts::kDefaultFanout},
              {"a word", cli::kWordBytes, sizeof(hosts::Word)},
              {"a message", cli::kMessageBytes, hosts::Assembly::kMessageBytes},
              {"a verdict", cli::kVerdictBytes, hosts::Assembly::kVerdictBytes},
              {"a record", cli::kRecordBytes, sizeof(hosts::Assembly::Record)},
              {"a short payload", cli::kShortBytes, hosts::Assembly::kShortBytes},
              {"with the verdict", cli::kWithVerdictBytes, hosts::Assembly::kWithVerdictBytes},
              {"silence", cli::kSilenceSeconds, hosts::kDefaultSilence},
              {"beats", cli::kBeatsInSilence, hosts::kBeats},
              {"small", cli::kSmallBytes, hosts::kSmallBytes},
              {"small in all", cli::kSmallInAllBytes, hosts::kSmallInAll},
              {"direct", cli::kMostDirectBytes, hosts::kMostDirectBytes},
              {"measured hosts", cli::kMostMeasuredHosts, hosts::kMostMeasuredHosts},
              {"a step", cli::kStepPs, hosts::kStepPs},
              {"a message's price", cli::kMessagePs, hosts::kMessagePs},
              {"a byte between hosts", cli::kNetworkBytePs, hosts::kNetworkBytePs},
              {"a byte in memory", cli::kMemoryBytePs, hosts::kMemoryBytePs},
              {"at the first", cli::kMostAtFirstBytes, hosts::kMostAtFirstBytes},
              {"packed", cli::kPackedBytes, hosts::kPackedBytes},
              {"a chunk of a piece", cli::kPieceChunkBytes, hosts::kPieceChunkBytes}};
  for (const auto& row : rows) check_same(row.name, row.library, row.model);
}

void chunks_are_those_of_the_library(void**) {
  for (const size_t n : {2, 8, 9, 32, 1024, 10000})
    for (const size_t each : {1, 2, 8})
      for (uint64_t bytes = 1; bytes < uint64_t{1} << 40; bytes = bytes * 3 + 1)
        assert_int_equal(cli::chunk_bytes(bytes, n, each), hosts::chunk_bytes(bytes, n, each, false));
  // 32 MiB of each of 8 lanes: 2046 hops of 8 x 16 KiB take as long as 2048 chunks of 4 messages.
  assert_int_equal(hosts::chunk_bytes(1 << 25, 1024, 8, false), 16384);
  assert_int_equal(hosts::chunk_bytes(1 << 25, 8, 8, false), 524288);
}

// What others than hosts in blocks take, and other sums than of floats in the order of ranks.
void a_way_is_chosen_by_places_and_order(void**) {
  const auto sum = call_of(GSEL_COLLECTIVE_ALLREDUCE, 1 << 20, 4);
  const auto parts = call_of(GSEL_COLLECTIVE_REDUCE_SCATTER, 1 << 18, 4);
  const auto short_parts = call_of(GSEL_COLLECTIVE_REDUCE_SCATTER, 1 << 13, 4);
  auto whole = sum, least = sum, by_caller = sum;
  whole.dtype = GSEL_I32;
  least.operation.op = GSEL_MIN;
  by_caller.operation.op = GSEL_OP_USER + 1;
  constexpr hosts::Spread kUneven{4, 2, 3, false, true, false, GSEL_ORDER_RANKS};
  constexpr hosts::Spread kDealt{4, 2, 2, false, false, false, GSEL_ORDER_RANKS};
  constexpr hosts::Spread kMany{72, 9, 8, true, true, false, GSEL_ORDER_RANKS};
  auto uneven_tree = kUneven, many_dealt = kMany, many_tree = kMany;
  uneven_tree.order = many_tree.order = GSEL_ORDER_TREE;
  many_dealt.is_in_blocks = many_dealt.is_consecutive = false;
  const struct {
    const char* name;
    const gsel::shm::Call& call;
    const hosts::Spread& spread;
    hosts::Way way;
  } rows[] = {{"floats, uneven", sum, kUneven, hosts::Way::chain},
              {"floats in parts, uneven", parts, kUneven, hosts::Way::slices},
              {"floats in short parts, dealt", short_parts, kDealt, hosts::Way::host_slices},
              {"floats, dealt", sum, kDealt, hosts::Way::host_slices},
              {"floats, uneven, a tree", sum, uneven_tree, hosts::Way::host_slices},
              {"integers, uneven", whole, kUneven, hosts::Way::two_levels},
              {"integers, dealt", whole, kDealt, hosts::Way::two_levels},
              {"the least, uneven", least, kUneven, hosts::Way::two_levels},
              {"the least, dealt", least, kDealt, hosts::Way::host_slices},
              {"by the caller, uneven", by_caller, kUneven, hosts::Way::chain},
              {"by the caller, dealt", by_caller, kDealt, hosts::Way::host_slices},
              {"integers, many hosts, dealt", whole, many_dealt, hosts::Way::two_levels},
              {"floats, many hosts", sum, kMany, hosts::Way::chain},
              {"floats, many hosts, dealt", sum, many_dealt, hosts::Way::host_slices},
              {"floats, many hosts, a tree", sum, many_tree, hosts::Way::two_levels}};
  for (const auto& row : rows)
    if (const hosts::Way got = hosts::way_of(row.call, row.spread); got != row.way)
      fail_msg("%s: expected %s, got %s", row.name, hosts::way_name(row.way), hosts::way_name(got));
  const auto copies = call_of(GSEL_COLLECTIVE_ALLGATHER, 1 << 20, 4);
  for (const hosts::Spread& spread : {kUneven, kDealt})
    assert_int_equal(hosts::way_of(copies, spread), hosts::Way::lanes);
  // A small payload goes to the first rank, but that of a caller's operation.
  auto small = call_of(GSEL_COLLECTIVE_ALLREDUCE, 64, 72);
  assert_int_equal(hosts::way_of(small, kMany), hosts::Way::at_first);
  small.operation.op = GSEL_OP_USER + 1;
  assert_int_equal(hosts::way_of(small, kMany), hosts::Way::small);
}

void hosts_form_the_tree_of_the_library(void**) {
  for (const size_t n : {1, 2, 8, 65, 66, 512, 1250, 4161, 4162, 5000}) {
    const cli::Tree got = cli::tree_of(static_cast<int64_t>(n));
    const hosts::Tree tree{n, hosts::kDefaultFanout};
    const size_t levels = tree.levels_below(0);
    assert_int_equal(got.levels, levels);
    std::vector<int64_t> below(n, 0);
    int64_t asks = 0, most_lines = 0;
    for (size_t h = n; h-- > 1;) {
      below[tree.above(h)] += below[h] + 1;
      for (size_t above = tree.above(h); above != 0; above = tree.above(above)) ++asks;
    }
    for (size_t h = 0; h < n; ++h)
      most_lines = std::max<int64_t>(most_lines, tree.end_below(h) - tree.first_below(h) + (h != 0 ? 1 : 0));
    assert_int_equal(got.lowest, asks);
    assert_int_equal(got.most_lines, most_lines);
    size_t first = 0;
    for (size_t level = 0; level < levels; ++level, first = tree.first_below(first)) {
      assert_int_equal(got.of[level].children, tree.end_below(first) - tree.first_below(first));
      assert_int_equal(got.of[level].below, below[first]);
    }
  }
}

// Names and addresses that count up, in networks of 256 hosts.
void the_table_is_that_of_the_library(void**) {
  for (const HostWorld world : {HostWorld{2, 2}, {256, 1}, {257, 4}, {1250, 8}}) {
    hosts::HostTable table;
    for (int32_t h = 0; h < world.hosts; ++h) {
      char name[16];
      snprintf(name, sizeof name, "node%04d", h);
      table.names.emplace_back(name);
      table.addresses.push_back("10.100." + std::to_string(100 + h / 256) + "." + std::to_string(h % 256));
      table.host_of.insert(table.host_of.end(), static_cast<size_t>(world.each), h);
    }
    check_same("a table", static_cast<double>(hosts::encode_table(table).size()), cli::table_bytes(world));
  }
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_call_takes_the_way_of_the_library), cmocka_unit_test(constants_are_those_of_the_library),
      cmocka_unit_test(chunks_are_those_of_the_library),     cmocka_unit_test(a_way_is_chosen_by_places_and_order),
      cmocka_unit_test(hosts_form_the_tree_of_the_library),  cmocka_unit_test(the_table_is_that_of_the_library),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
