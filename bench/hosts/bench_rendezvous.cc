// bench_rendezvous: what the rendezvous of many ranks says and costs: the library's own code on all sides, a process
// for each host and a thread for each rank of one machine (tests/support/simulated_job.h). Prints Markdown tables.
//   bench_rendezvous [RANKS_PER_HOST [RANKS...]]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "comm/hosts/stream.h"
#include "comm/hosts/tree.h"
#include "support/simulated_job.h"

using namespace gsel::test;

namespace {

struct Row {
  int32_t ranks;
  double bytes, messages, connections;
};

uint16_t free_port() {
  return gsel::hosts::Listener::at_any_port().port();
}

Row row_of(int32_t ranks, const PhaseTraffic& phase) {
  const auto sum = [](const std::atomic<uint64_t>& a, const std::atomic<uint64_t>& b) {
    return static_cast<double>(a.load() + b.load());
  };
  return {ranks, sum(phase.tcp.bytes, phase.local.bytes), sum(phase.tcp.messages, phase.local.messages),
          sum(phase.tcp.connections, phase.local.connections)};
}

// By which factor it grows where the ranks double.
double growth(double before, double after, const Row& from, const Row& to) {
  return std::pow(after / before, 1 / std::log2(static_cast<double>(to.ranks) / from.ranks));
}

void print_table(const char* title, const std::vector<Row>& rows) {
  printf(
      "\n%s\n\n| ranks | bytes | a rank | messages | connections | growth a doubling: bytes, messages, connections | n "
      "log n |\n"
      "|---|---|---|---|---|---|---|\n",
      title);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    printf("| %d | %.0f | %.0f | %.0f | %.0f |", row.ranks, row.bytes, row.bytes / row.ranks, row.messages,
           row.connections);
    if (i == 0) {
      printf(" | |\n");
      continue;
    }
    const Row& before = rows[i - 1];
    const auto n_log_n = [](const Row& at) { return at.ranks * std::log2(at.ranks); };
    printf(" %.2f, %.2f, %.2f | %.2f |\n", growth(before.bytes, row.bytes, before, row),
           growth(before.messages, row.messages, before, row),
           before.connections > 0 ? growth(before.connections, row.connections, before, row) : 0,
           growth(n_log_n(before), n_log_n(row), before, row));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int32_t ranks_per_host = argc > 1 ? atoi(argv[1]) : 8;
  std::vector<int32_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(atoi(argv[i]));
  if (sizes.empty()) sizes = {64, 256, 1024, 4096};
  constexpr int32_t kCalls = 10;
  std::vector<Row> tables[3];
  printf(
      "| ranks | hosts | all have met | lines stand | %d calls | processor time | a rank | most connections of a host "
      "|\n"
      "|---|---|---|---|---|---|---|---|\n",
      kCalls);
  for (const int32_t ranks : sizes) {
    const Simulated done =
        simulate({ranks / ranks_per_host, ranks_per_host, kCalls, gsel::hosts::kDefaultFanout, free_port()});
    if (!done.ok) return 1;
    printf("| %d | %d | %.3f s | %.3f s | %.1f ms | %.2f s | %.2f ms | %u |\n", ranks, ranks / ranks_per_host,
           done.meet_s, done.connect_s, done.calls_s * 1e3, done.processor_s, done.processor_s / ranks * 1e3,
           done.most_connections);
    fflush(stdout);
    for (size_t i = 0; i < 3; ++i) tables[i].push_back(row_of(ranks, done.traffic[i]));
  }
  char calls[64];
  snprintf(calls, sizeof calls, "Control of %d calls:", kCalls);
  print_table("Rendezvous:", tables[0]);
  print_table("Lines between hosts:", tables[1]);
  print_table(calls, tables[2]);
  return 0;
}
