// network_model.h: what starting, control and collectives cost on many hosts, by a network model of two levels: closed
// forms, nothing is measured. A cost is counted in steps and bytes, and a step and a byte have a price inside a host
// and between hosts: steps x alpha + bytes x beta x c. docs/simulate.md has the forms and where the constants come
// from. Does not know: the command line, and how it is printed.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace gsel::cli {

struct LinkPrice {
  double alpha_s = 0;  // of a step
  double bytes_per_second = 0;
};

struct NetworkModel {
  std::string name;
  LinkPrice host{0.5e-6, 10e9};   // of each rank, through memory
  LinkPrice network{20e-6, 8e9};  // of each host, all its ranks together, in each direction
  double congestion = 1;          // c, by which bytes between hosts take longer
};

// Hosts that have equally many ranks; ranks fill them in order.
struct HostWorld {
  int64_t hosts = 1, each = 1;
  int64_t ranks() const { return hosts * each; }
};

// What a call waits for. Bytes inside a host are those that one rank reads, bytes between hosts those that pass the
// adapter of the busiest host in one direction.
struct Cost {
  double host_steps = 0, network_steps = 0, host_bytes = 0, network_bytes = 0;
  double seconds(const NetworkModel& model) const;
};

// ---- collectives ----

struct Algorithm {
  const char* name;
  Cost (*cost)(const HostWorld& world, double bytes);
};

struct ModelledCollective {
  const char* name;
  std::span<const Algorithm> algorithms;
  size_t small, large;  // of algorithms: what a call takes up to kSmallBytes, and above
  int exact;            // of algorithms: for sums in the exact order of ranks; -1: none
  const Algorithm& taken(double bytes) const;
};

constexpr double kSmallBytes = 4096;       // through a leader up to here
constexpr double kChainBytes = 128 << 10;  // a chunk of the chain

std::span<const ModelledCollective> modelled_collectives();
const ModelledCollective* find_modelled(const std::string& name);

// Exchanges of recursive doubling: log2(n), and two more where n is no power of two.
int64_t doubling_steps(int64_t n);
int64_t tree_steps(int64_t n);  // log2(n), rounded up

// ---- rendezvous and control ----

constexpr int64_t kFanOut = 64;           // of the tree of hosts
constexpr double kJoinSeconds = 30e-6;    // to accept one that joins
constexpr double kMessageSeconds = 5e-6;  // to read or write a control message
constexpr double kTableEntryBytes = 200;  // of a rank
constexpr double kMessageBytes = 64;      // of a control message
constexpr double kBeatSeconds = 1;        // between two beats of a host
constexpr double kMissedBeats = 5;        // after which a host is taken for silent
constexpr double kHandshakeTrips = 2;     // connect; challenge and answer

struct Tree {
  int64_t levels = 0;         // below the root
  int64_t children[16] = {};  // of the busiest host of each level, from the root down
  int64_t most() const;       // of any host
};
Tree tree_of(int64_t hosts);

struct StartCost {
  Tree tree;
  double local_s = 0;         // ranks at the leader of their host
  double root_s = 0;          // leaders at the root
  double tree_s = 0;          // hosts at their parents
  double table_s = 0;         // the table of ranks, down
  double acknowledged_s = 0;  // and up
  double table_bytes = 0;     // of one copy
  double all_bytes = 0;       // of all copies
  double seconds() const { return local_s + root_s + tree_s + table_s + acknowledged_s; }
};
StartCost start_cost(const HostWorld& world, const NetworkModel& model);

struct ControlCost {
  double agreement_s = 0;    // a call: up the tree and down; a death takes as long to reach all ranks
  double messages = 0;       // of a call, of all hosts
  double silent_s = 0;       // until a silent host is told
  double beats = 0;          // a second, of all hosts
  int64_t most_beats = 0;    // a second, at the busiest host
  int64_t most_sockets = 0;  // of control, at the busiest host: children, a parent, the listener
};
ControlCost control_cost(const HostWorld& world, const NetworkModel& model);

}  // namespace gsel::cli
