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
  for (const HostWorld world : {HostWorld{2, 2}, {2, 1}, {4, 8}, {16, 1}, {32, 2}, {33, 2}, {40, 1}, {1024, 8}})
    for (const auto& row : kKinds)
      for (uint64_t parts = 1; parts <= 1 << 16; parts *= 2) {
        const auto ranks = static_cast<uint64_t>(world.ranks());
        const auto call = call_of(row.kind, row.in_parts ? parts : parts * ranks, world.ranks());
        const auto bytes = static_cast<double>(parts * ranks * sizeof(float));
        const ModelledCollective& modelled = *find_modelled(row.name);
        check_same(row.name, static_cast<double>(call.payload_bytes), modelled.payload(world, bytes));
        const hosts::Spread spread{
            ranks, static_cast<size_t>(world.hosts), static_cast<size_t>(world.each), true, false, GSEL_ORDER_RANKS};
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
              {"hosts of a chain", cli::kMostChainHosts, hosts::kMostChainHosts},
              {"the least chunk", cli::kLeastChunkBytes, hosts::kLeastChunkBytes},
              {"the largest chunk", cli::kMostChunkBytes, hosts::kMostChunkBytes},
              {"chunks of a lane", cli::kChunksOfLane, hosts::kChunksOfLane},
              {"a segment", cli::kSegmentBytes, hosts::kSegmentBytes}};
  for (const auto& row : rows) check_same(row.name, row.library, row.model);
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
      cmocka_unit_test(a_call_takes_the_way_of_the_library),
      cmocka_unit_test(constants_are_those_of_the_library),
      cmocka_unit_test(hosts_form_the_tree_of_the_library),
      cmocka_unit_test(the_table_is_that_of_the_library),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
