// run.cc: the driver of bench/peers: starts the peers' programs one after the other, round by round, so that a drift of
// the machine meets all of them, and appends what they print to a file of samples. It knows command lines and nothing
// of results; report.cc reads those. Beside each sample stands how much of the machine others used meanwhile.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "line.h"

namespace {

// One row per line of the picture. {bin}, {n}, {crowded} are replaced; the harness's options are appended.
struct Peer {
  const char *name, *program, *launcher;
  const char* only;      // the operations it has, comma separated; "": all of them
  uint64_t least = 0;    // bytes from which it differs from the row it varies
  bool crowded = false;  // beside a busy process only
};
constexpr uint64_t kMallocCeiling = 32 << 20;  // above it glibc maps and faults in a fresh block for each call
#define MALLOC_KEEPS "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592"
#define OPENMPI "mpirun.openmpi --allow-run-as-root {crowded}--bind-to none -np {n} "
constexpr Peer kPeers[] = {
    {"memcpy", "bench_peer_memcpy", "", "memcpy"},
    {"gsel", "bench_peer_gsel", "{bin}/gsel run -n {n} -- ", ""},
    {"gsel-shared", "bench_peer_gsel", "env BENCH_SHARED=1 {bin}/gsel run -n {n} -- ",
     "allreduce,reduce_scatter,allgather,alltoall,broadcast,reduce,gather,scatter", 4096},
    {"ompi", "bench_peer_openmpi", OPENMPI "--mca pml ob1 --mca btl self,vader ", ""},
    {"ompi-ucx", "bench_peer_openmpi", OPENMPI "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any ", ""},
    {"ompi-malloc", "bench_peer_openmpi",
     OPENMPI "-x GLIBC_TUNABLES=" MALLOC_KEEPS " --mca pml ob1 --mca btl self,vader ", "", kMallocCeiling},
    {"ompi-yield", "bench_peer_openmpi", OPENMPI "--mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl self,vader ", "",
     0, true},
    {"mpich", "bench_peer_mpich", "mpiexec.hydra -n {n} ", ""},
    {"mpich-malloc", "bench_peer_mpich", "mpiexec.hydra -n {n} -env GLIBC_TUNABLES " MALLOC_KEEPS " ", "",
     kMallocCeiling},
    {"staging", "bench_peer_staging", "", "allreduce"},
    {"gloo", "bench_peer_gloo", "",
     "allreduce,reduce_scatter,allgather,alltoall,broadcast,reduce,gather,sendrecv,barrier"},
};
const std::vector<std::string> kOperations = {"memcpy",   "allreduce", "reduce_scatter", "allgather",
                                              "alltoall", "broadcast", "reduce",         "gather",
                                              "scatter",  "sendrecv",  "barrier"};
const std::string kBusy = "+busy";  // behind an operation: measured beside a process that computes all the time

struct Options {
  std::string bin, out, bytes;
  std::vector<std::string> runs = {"2:all", "2:allreduce+busy", "4:all"}, peers;
  int rounds = 5, pin = 1, limit = 120;
  double seconds = 0.15, wait = 2;
};

struct Run {
  int ranks;
  std::vector<std::string> operations;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// "2:allreduce,barrier" or "4:all"; the floor is always measured.
Run parse_run(const std::string& text) {
  const auto parts = split(text, ':');
  if (parts.size() != 2)
    throw CLI::ValidationError("--run", "'" + text + "': expected RANKS:OPERATION,... or RANKS:all");
  Run run{std::stoi(parts[0]), kOperations};
  if (parts[1] != "all") {
    run.operations = split(parts[1], ',');
    run.operations.insert(run.operations.begin(), "memcpy");
  }
  return run;
}

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (!pipe) return text;
  char block[512];
  for (size_t n; (n = fread(block, 1, sizeof block, pipe)) > 0;) text.append(block, n);
  pclose(pipe);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// Core-seconds the whole machine has been busy, and those of our finished children.
double machine_busy() {
  std::ifstream stat("/proc/stat");
  std::string word;
  double user, nice, system, idle, iowait, irq, softirq, steal;
  stat >> word >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  return (user + nice + system + irq + softirq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double children_busy() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Until others use less than a quarter of a core, or for `most` seconds.
void wait_for_quiet(double most) {
  for (const double begin = now(); now() - begin < most;) {
    const double busy = machine_busy(), at = now();
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    if (machine_busy() - busy < 0.25 * (now() - at)) return;
  }
}

bool present(const Options& options, const Peer& peer) {
  return access((options.bin + "/" + peer.program).c_str(), X_OK) == 0;
}

bool asked(const Options& options, const Peer& peer) {
  return options.peers.empty() ||
         std::find(options.peers.begin(), options.peers.end(), peer.name) != options.peers.end();
}

std::string command_of(const Options& options, const Peer& peer, int ranks) {
  const bool crowded = ranks > sysconf(_SC_NPROCESSORS_ONLN);
  std::string command = fmt::format("{}{{bin}}/{}", peer.launcher, peer.program);
  command = replaced(command, "{n}", std::to_string(ranks));
  command = replaced(command, "{crowded}", crowded ? "--oversubscribe " : "");
  return replaced(command, "{bin}", options.bin);
}

std::string sizes_of(const Options& options, const Peer& peer, const std::string& operation) {
  if (operation == "barrier") return peer.least ? "" : "0";
  std::vector<std::string> sizes;
  for (const std::string& size : split(options.bytes, ','))
    if (std::stoull(size) >= peer.least) sizes.push_back(size);
  return fmt::format("{}", fmt::join(sizes, ","));
}

bool beside_busy(const std::string& operation) {
  return operation.ends_with(kBusy);
}

std::string base_of(const std::string& operation) {
  return beside_busy(operation) ? operation.substr(0, operation.size() - kBusy.size()) : operation;
}

// A process that computes all the time, while it lives.
class Busy {
 public:
  Busy() : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile uint64_t i = 0;; i = i + 1) {
    }
  }
  ~Busy() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  pid_t pid_;
};

bool has(const Peer& peer, const std::string& operation) {
  if (peer.crowded && !beside_busy(operation)) return false;
  if (!*peer.only) return operation != "memcpy";
  const auto all = split(peer.only, ',');
  return std::find(all.begin(), all.end(), base_of(operation)) != all.end();
}

// One start of one peer: its lines go to `out` behind its name, the round, the cores that others used and the time of a
// cache line there and back, 0 where that changed meanwhile.
void measure(const Options& options, const Peer& peer, const std::string& operation, int ranks, int round,
             std::ofstream& out) {
  const std::string base = base_of(operation), sizes = sizes_of(options, peer, base);
  if (sizes.empty()) return;
  wait_for_quiet(options.wait);
  const double trip_before = bench::line_round_trip();
  std::optional<Busy> beside;
  if (beside_busy(operation)) beside.emplace();
  const double busy = machine_busy(), own = children_busy(), begin = now();
  const std::string command =
      fmt::format("timeout -k 5 {} {} --ranks {} --operation {} --bytes {} --seconds {} --pin {}", options.limit,
                  command_of(options, peer, ranks), ranks, base, sizes, options.seconds, beside ? 0 : options.pin);
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("no process could be started");
  std::vector<std::string> lines;
  char line[512];
  while (fgets(line, sizeof line, pipe))
    if (std::string(line).rfind(base + " ", 0) == 0) lines.push_back(operation + (line + base.size()));
  if (const int status = pclose(pipe); status != 0)
    out << fmt::format("# failed {}: {} on {} ranks, status {}\n", peer.name, operation, ranks, status);
  beside.reset();
  const double others = (machine_busy() - busy - (children_busy() - own)) / (now() - begin);
  const double trip_after = bench::line_round_trip();
  const bool steady = (trip_before < bench::kNear) == (trip_after < bench::kNear);
  const double trip = steady ? std::max(trip_before, trip_after) : 0;
  for (const std::string& text : lines)
    out << fmt::format("sample {} {} {:.2f} {:.0f} {}", peer.name, round, others, trip, text);
  out.flush();
}

std::string today() {
  char text[64];
  const time_t t = time(nullptr);
  strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", gmtime(&t));
  return text;
}

std::string load() {
  return output_of("cut -d' ' -f1-3 /proc/loadavg");
}

void describe(const Options& options, const std::vector<Run>& runs, std::ofstream& out) {
  out << "# machine " << output_of("sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1") << ", "
      << sysconf(_SC_NPROCESSORS_ONLN) << " cores, "
      << output_of("lscpu | sed -n 's/^L[23] cache: */&/p' | sed 's/  */ /g' | paste -sd, | sed 's/,/, /g'")
      << "; Linux " << output_of("uname -r") << "\n";
  for (const char* package : {"openmpi-bin", "mpich", "libgloo-dev", "libucx0"})
    out << "# package " << package << " " << output_of(fmt::format("dpkg-query -W -f '${{Version}}' {}", package))
        << "\n";
  out << fmt::format("# started {}, load {}\n", today(), load());
  out << fmt::format("# method {} rounds, {} s per size, ranks {}\n", options.rounds, options.seconds,
                     options.pin ? "on a core each where there are enough" : "where the system puts them");
  for (const Peer& peer : kPeers) {
    if (!asked(options, peer)) continue;
    if (!present(options, peer)) {
      fmt::print(stderr, "bench_comm: {} is left out: {} was not built, its library was not found\n", peer.name,
                 peer.program);
      out << "# missing " << peer.name << "\n";
      continue;
    }
    for (const Run& run : runs)
      out << "# command " << peer.name << " "
          << replaced(command_of(options, peer, run.ranks), options.bin, "build/bin") << "\n";
  }
}

void measure_all(const Options& options, const std::vector<Run>& runs, std::ofstream& out) {
  for (int round = 1; round <= options.rounds; ++round)
    for (const Run& run : runs)
      for (const std::string& operation : run.operations) {
        fmt::print(stderr, "round {} of {}: {} on {} ranks\n", round, options.rounds, operation, run.ranks);
        for (const Peer& peer : kPeers) {
          if (has(peer, operation) && asked(options, peer) && present(options, peer))
            measure(options, peer, operation, run.ranks, round, out);
        }
      }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bool brief = false;
  CLI::App app{"gsel's communicator beside its peers, interleaved"};
  app.add_option("--bin", options.bin, "folder of the programs")->required();
  app.add_option("--out", options.out, "file the samples go to")->required();
  app.add_option("--run", options.runs,
                 "RANKS:OPERATION,... or RANKS:all; OPERATION+busy: beside a busy process; repeatable");
  app.add_option("--bytes", options.bytes, "sizes, comma separated");
  app.add_option("--peers", options.peers, "only these")->delimiter(',');
  app.add_option("--rounds", options.rounds, "starts of each peer per operation");
  app.add_option("--seconds", options.seconds, "time per size");
  app.add_option("--wait", options.wait, "seconds to wait for a quiet machine before each start, at most");
  app.add_option("--pin", options.pin, "1: a core per rank where there are enough");
  app.add_option("--limit", options.limit, "seconds after which a peer is ended");
  app.add_flag("--short", brief, "eight sizes; 2 ranks all operations, 4 ranks allreduce");
  CLI11_PARSE(app, argc, argv);
  if (brief && app.count("--run") == 0) options.runs = {"2:all", "2:allreduce+busy", "4:allreduce"};
  if (options.bytes.empty())
    options.bytes = brief ? "8,1024,16384,65536,262144,1048576,16777216,67108864"
                          : "8,64,1024,4096,16384,65536,262144,1048576,4194304,16777216,67108864,268435456";
  try {
    std::vector<Run> runs;
    for (const std::string& text : options.runs) runs.push_back(parse_run(text));
    std::ofstream out(options.out);
    if (!out) throw std::runtime_error("cannot write " + options.out);
    describe(options, runs, out);
    measure_all(options, runs, out);
    out << fmt::format("# ended {}, load {}\n", today(), load());
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_comm: {}\n", e.what());
    return 1;
  }
  return 0;
}
