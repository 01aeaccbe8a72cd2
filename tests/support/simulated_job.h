// support/simulated_job.h: a job of many ranks that meet on one machine: a process for each host, a thread for each
// rank, and the library's own code for the rendezvous on all sides, over sockets of the loopback device. No rank has
// memory to share, or a transport. What the program and the processes that it forks send over sockets is counted, by
// phases: simulated_job.cc replaces the system's calls, so it must be linked into the program itself.
#pragma once

#include <atomic>
#include <cstdint>

namespace gsel::test {

struct Traffic {
  std::atomic<uint64_t> bytes, messages, connections;
};
// Between hosts, and between the ranks of one host.
struct PhaseTraffic {
  Traffic tcp, local;
};

constexpr int kPhases = 4;
struct Counted {
  std::atomic<int32_t> phase, hosts_have_one_name;
  PhaseTraffic phases[kPhases];
};

Counted& counted();

enum Phase { kMeet, kConnect, kCalls, kAfter };

struct SimulatedJob {
  int32_t hosts, ranks_per_host, calls;
  uint16_t fanout, port;
};

struct Simulated {
  PhaseTraffic* traffic;              // by phase, of the whole job
  double meet_s, connect_s, calls_s;  // until the last rank or host is through
  double processor_s;                 // of all processes
  uint32_t most_connections;          // of one host at the end
  bool ok;
};

// Gives up where a host fails; says why on stderr.
Simulated simulate(const SimulatedJob& job);

}  // namespace gsel::test
