// report.cc: writes what bench_comm measured as a Markdown page and an SVG picture. It measures nothing.
#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "cells.h"

namespace {

using bench::Cell;
using bench::Results;
using bench::Row;

// What we mean to reach: gsel's time over that of the fastest named peer, at each size from..to. "floor" is the byte
// floor over the measured bandwidth, "" the best library.
struct Target {
  const char* words;
  const char* operation;
  int ranks;
  uint64_t from, to;
  std::vector<std::string> against;
  double most;
  const char* ours = "gsel";
};
constexpr const char* kShared = "gsel-shared";
constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20, kAny = std::numeric_limits<uint64_t>::max();
const std::vector<std::string> kOpenMpi = {"ompi", "ompi-ucx", "ompi-malloc"};
const std::vector<std::string> kMpi = {"ompi", "ompi-ucx", "ompi-malloc", "mpich", "mpich-malloc"};
const std::vector<Target> kTargets = {
    {"allreduce to 48 B: 0.8 of the better MPI", "allreduce", 2, 1, 48, kMpi, 0.8},
    {"allreduce to 48 B: 1/100 of Gloo", "allreduce", 2, 1, 48, {"gloo"}, 0.01},
    {"barrier: no slower than MPICH", "barrier", 2, 0, 0, {"mpich"}, 1},
    {"allreduce 4 to 256 KiB, private buffers: no slower than Open MPI", "allreduce", 2, 4 * kKiB, 256 * kKiB, kOpenMpi,
     1},
    {"allreduce 64 KiB: 0.75 of the best library", "allreduce", 2, 64 * kKiB, 64 * kKiB, {""}, 0.75},
    {"allreduce 16 MiB: 0.9 of the best library", "allreduce", 2, 16 * kMiB, 16 * kMiB, {""}, 0.9},
    {"allreduce 64 MiB: 0.65 of the best library", "allreduce", 2, 64 * kMiB, 64 * kMiB, {""}, 0.65},
    {"allreduce from 16 MiB, private buffers: 2.8 times memcpy", "allreduce", 2, 16 * kMiB, kAny, {"memcpy"}, 2.8},
    {"allreduce from 16 MiB: no slower than plain staging", "allreduce", 2, 16 * kMiB, kAny, {"staging"}, 1},
    {"allreduce from 16 MiB: 1/3 of Gloo", "allreduce", 2, 16 * kMiB, kAny, {"gloo"}, 1.0 / 3},
    {"reduce_scatter from 16 MiB: 0.9 of the best library", "reduce_scatter", 2, 16 * kMiB, kAny, {""}, 0.9},
    {"allgather from 16 MiB: 0.9 of the best library", "allgather", 2, 16 * kMiB, kAny, {""}, 0.9},
    {"broadcast from 16 MiB: 0.9 of the best library", "broadcast", 2, 16 * kMiB, kAny, {""}, 0.9},
    {"reduce_scatter from 16 MiB: 1.25 times its byte floor", "reduce_scatter", 2, 16 * kMiB, kAny, {"floor"}, 1.25},
    {"allgather from 16 MiB: 1.25 times its byte floor", "allgather", 2, 16 * kMiB, kAny, {"floor"}, 1.25},
    {"broadcast from 16 MiB: 1.25 times its byte floor", "broadcast", 2, 16 * kMiB, kAny, {"floor"}, 1.25},
    {"alltoall from 16 MiB: 0.9 of the best library", "alltoall", 2, 16 * kMiB, kAny, {""}, 0.9},
    {"alltoall from 16 MiB: 1.25 times its byte floor", "alltoall", 2, 16 * kMiB, kAny, {"floor"}, 1.25},
    {"shared memory, allreduce 4 to 256 KiB: half of Open MPI", "allreduce", 2, 4 * kKiB, 256 * kKiB, kOpenMpi, 0.5,
     kShared},
    {"shared memory, allreduce from 16 MiB: 1.15 times memcpy",
     "allreduce",
     2,
     16 * kMiB,
     kAny,
     {"memcpy"},
     1.15,
     kShared},
    {"shared memory, allreduce from 16 MiB: half of plain staging",
     "allreduce",
     2,
     16 * kMiB,
     kAny,
     {"staging"},
     0.5,
     kShared},
    {"shared memory, reduce_scatter from 16 MiB: 1.25 times its byte floor",
     "reduce_scatter",
     2,
     16 * kMiB,
     kAny,
     {"floor"},
     1.25,
     kShared},
    {"shared memory, allgather from 16 MiB: 1.25 times its byte floor",
     "allgather",
     2,
     16 * kMiB,
     kAny,
     {"floor"},
     1.25,
     kShared},
    {"shared memory, alltoall from 16 MiB: 1.25 times its byte floor",
     "alltoall",
     2,
     16 * kMiB,
     kAny,
     {"floor"},
     1.25,
     kShared},
    {"shared memory, broadcast from 16 MiB: 1.25 times its byte floor",
     "broadcast",
     2,
     16 * kMiB,
     kAny,
     {"floor"},
     1.25,
     kShared},
    {"beside a busy process, allreduce: no slower than Open MPI told to yield",
     "allreduce+busy",
     2,
     1,
     kAny,
     {"ompi-yield"},
     1},
    {"4 ranks, allreduce of any size: no slower than the best library", "allreduce", 4, 1, kAny, {""}, 1},
    {"4 ranks, allreduce to 48 B: no slower than Open MPI", "allreduce", 4, 1, 48, kOpenMpi, 1},
};

std::optional<double> against(const Results& results, const Row& row, const std::string& peer,
                              const std::string& ours) {
  if (peer != "floor") return bench::ratio(results, row, peer, ours);
  const auto efficiency = bench::memory_efficiency(results, row, ours);
  return efficiency ? std::optional(1 / *efficiency) : std::nullopt;
}

// The worst size's ratio to the fastest of the named.
struct Reached {
  double ratio = 0;
  uint64_t at = 0;
};

std::optional<Reached> reached(const Results& results, const Target& target) {
  std::optional<Reached> worst;
  for (const Row& row : results.rows) {
    if (row.operation != target.operation || row.ranks != target.ranks) continue;
    if (row.bytes < target.from || row.bytes > target.to) continue;
    double highest = 0;
    for (const std::string& peer : target.against)
      highest = std::max(highest, against(results, row, peer, target.ours).value_or(0));
    if (highest > 0 && (!worst || highest > worst->ratio)) worst = Reached{highest, row.bytes};
  }
  return worst;
}

std::string cell_text(const Cell* cell) {
  if (!cell) return "";
  return fmt::format("{} ({}-{}) / {} / {}{}{}", bench::time_text(cell->median()), bench::time_text(cell->least()),
                     bench::time_text(cell->most()), bench::time_text(cell->p99()), bench::time_text(cell->mean()),
                     cell->quiet ? "" : " *", cell->alike ? "" : " ~");
}

std::string row_name(const Row& row) {
  return row.bytes ? fmt::format("{} {}", row.operation, bench::size_text(row.bytes)) : row.operation;
}

std::string header(const std::vector<std::string>& columns) {
  std::string top = "|", rule = "|";
  for (const std::string& column : columns) {
    top += " " + column + " |";
    rule += "---|";
  }
  return top + "\n" + rule + "\n";
}

std::string notes(const Results& results) {
  std::string out;
  for (const std::string& note : results.notes)
    if (note.rfind("command ", 0) != 0) out += "- " + note + "\n";
  const auto quiet =
      std::count_if(results.others.begin(), results.others.end(), [](double o) { return o <= bench::kQuiet; });
  out += fmt::format("- cores mostly {}: a cache line there and back {:.0f} ns in the median start\n",
                     results.near ? "near each other" : "far apart",
                     results.lines.empty() ? 0 : bench::middle(results.lines));
  out += fmt::format(
      "- {} of {} starts ran while others used at most {} core; median of what others used: {:.2f} cores\n\n```\n",
      quiet, results.others.size(), bench::kQuiet, bench::middle(results.others));
  for (const std::string& note : results.notes)
    if (note.rfind("command ", 0) == 0) out += note.substr(8) + "\n";
  return out + "```\n";
}

std::string times(const Results& results, int ranks) {
  std::vector<std::string> columns = {"operation, size"};
  columns.insert(columns.end(), results.peers.begin(), results.peers.end());
  std::string out = header(columns);
  for (const Row& row : results.rows) {
    if (row.ranks != ranks || row.operation == "memcpy") continue;
    out += "| " + row_name(row) + " |";
    for (const std::string& peer : results.peers)
      out += " " + cell_text(results.find(peer == "memcpy" ? Row{ranks, "memcpy", row.bytes} : row, peer)) + " |";
    out += "\n";
  }
  return out;
}

std::string number(const std::optional<double>& value) {
  if (!value) return "";
  return *value < 0.095 ? fmt::format("{:.1g}", *value) : fmt::format("{:.{}f}", *value, *value < 10 ? 2 : 0);
}

std::string ratios(const Results& results, int ranks) {
  std::vector<std::string> columns = {"operation, size", "best library"};
  for (const std::string& peer : results.peers)
    if (peer != "gsel") columns.push_back("gsel / " + peer);
  for (const char* more : {"algbw GB/s", "busbw GB/s", "memory efficiency, gsel", "of the best library"})
    columns.push_back(more);
  std::string out = header(columns);
  for (const Row& row : results.rows) {
    const Cell* ours = results.find(row, "gsel");
    if (row.ranks != ranks || row.operation == "memcpy" || !ours) continue;
    const std::string best = bench::best_peer(results, row);
    out += fmt::format("| {} | {} |", row_name(row), best);
    for (const std::string& peer : results.peers)
      if (peer != "gsel") out += " " + number(bench::ratio(results, row, peer)) + " |";
    const double bandwidth = 1e-3 * static_cast<double>(row.bytes) / ours->median();
    out += fmt::format(" {:.2f} | {:.2f} | {} | {} |\n", bandwidth, bandwidth * bench::bus_factor(row),
                       number(bench::memory_efficiency(results, row, "gsel")),
                       number(bench::memory_efficiency(results, row, best)));
  }
  return out;
}

std::string measured_text(const Reached& reached) {
  const std::string ratio = fmt::format("{:.2g}", reached.ratio);
  return reached.at ? ratio + " at " + bench::size_text(reached.at) : ratio;
}

std::string targets(const Results& results) {
  std::string out = header({"target (gsel's time over the other's)", "at most", "measured, worst size", ""});
  for (const Target& target : kTargets) {
    const auto found = reached(results, target);
    out += fmt::format("| {} | {:.3g} | {} | {} |\n", target.words, target.most,
                       found ? measured_text(*found) : "not measured",
                       !found                        ? ""
                       : found->ratio <= target.most ? "met"
                                                     : "not met");
  }
  return out;
}

std::string page(const Results& results, const std::string& picture) {
  std::string out =
      "# gsel's communicator beside its peers\n\n"
      "`make bench-comm`. One host, f32, sum, in place, calls back to back, times of all ranks together. The peers "
      "take turns "
      "in each\n"
      "round, and a round starts each of them once per operation.\n\n"
      "- **Cells**: median of the rounds' medians (min-max of those) / median p99 / median mean, microseconds. Where "
      "ranks "
      "overtake each\n"
      "  other, calls alternate between two times and the median is one of them; the mean says how many pass.\n"
      "- **Which rounds count**: those in which others used at most 0.25 core, and in which the two cores were as near "
      "each "
      "other as in\n"
      "  most of the run. The cores of a virtual machine may be two threads of one processor at one time and two "
      "processors at "
      "another;\n"
      "  a cache line there and back, under or over 200 ns, is measured before and behind each start. `*` marks cells "
      "without "
      "quiet rounds,\n"
      "  `~` cells without rounds like most; ratios leave out what was not alike.\n"
      "- **Sizes** are those of nccl-tests: reduce_scatter, allgather, alltoall, gather and scatter name all parts "
      "together. "
      "alltoall is\n"
      "  not in place; sendrecv is half of a ping-pong between neighbours; +busy: beside a process that computes all "
      "the "
      "time.\n"
      "- **Buffers** are private, page-aligned and used again in each call; gsel-shared: memory of gsel_mem_alloc.\n"
      "- **Others**: memcpy: every rank copies that size at once. staging: our own copy-in, copy-out allreduce in the "
      "way of "
      "DeepSpeed's CPU\n"
      "  communication. ompi-malloc, mpich-malloc: glibc told to keep large blocks, which the MPIs otherwise map anew "
      "in each "
      "call. Open\n"
      "  MPI's coll/xhc is not in Debian's 4.1.\n"
      "- In the MPIs a root of a broadcast or scatter, and a rank that only sends to a gather or reduce, returns "
      "before the "
      "others have\n"
      "  come, so their small sizes show how many calls pass and not how long one takes to arrive. In gsel every rank "
      "waits "
      "for all, which\n"
      "  is how a disagreement is found in the call itself.\n\n";
  out += notes(results) + fmt::format("\n![time over size]({})\n\n## Targets\n\n", picture) + targets(results);
  std::vector<int> ranks;
  for (const Row& row : results.rows)
    if (std::find(ranks.begin(), ranks.end(), row.ranks) == ranks.end()) ranks.push_back(row.ranks);
  for (const int n : ranks)
    out += fmt::format("\n## {} ranks: times, us\n\n{}\n## {} ranks: ratios and bandwidth\n\n{}", n, times(results, n),
                       n, ratios(results, n));
  return out +
         "\nMemory efficiency is the byte floor / (time x bandwidth): the floor counts every input read once and every "
         "output written\n"
         "once, the bandwidth is that of all ranks in memcpy of the same size. It passes 1 where a call touches less "
         "memory than that\n"
         "memcpy does, so that it stays in a nearer cache. busbw = algbw x 2(n-1)/n (allreduce), x (n-1)/n "
         "(reduce_scatter, allgather),\n"
         "x 1 (broadcast, sendrecv).\n";
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text)) throw std::runtime_error("cannot write " + path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: bench_comm_report SAMPLES FOLDER: writes FOLDER/comm.md and FOLDER/comm.svg\n");
    return 2;
  }
  try {
    const Results results = bench::read_results(argv[1]);
    const std::string folder = argv[2];
    write(folder + "/comm.svg", bench::picture(results));
    write(folder + "/comm.md", page(results, "comm.svg"));
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_comm_report: {}\n", e.what());
    return 1;
  }
  return 0;
}
