// network_model.h: what starting and control cost on many hosts, by a network model of two levels: closed forms of what
// the library does, nothing is measured. A cost is counted in steps, bytes and messages, and a step and a byte have a
// price inside a host and between hosts. docs/simulate.md has the forms and where the constants come from. Does not
// know: collectives (collective_model.h), the command line, and how it is printed.
#pragma once

#include <cstdint>
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
  double network_seconds(double bytes) const { return bytes / network.bytes_per_second * congestion; }
};

// Hosts that have equally many ranks; ranks fill them in order.
struct HostWorld {
  int64_t hosts = 1, each = 1;
  int64_t ranks() const { return hosts * each; }
};

// The same, as forms have it: N hosts of g ranks, p = N g.
struct WorldSize {
  double N, g, p, far;  // far: ranks of other hosts
  bool network;         // there are any
  explicit WorldSize(const HostWorld& world)
      : N(static_cast<double>(world.hosts)),
        g(static_cast<double>(world.each)),
        p(static_cast<double>(world.ranks())),
        far(p - g),
        network(world.hosts > 1) {}
};

// What a call waits for. Bytes inside a host are those that one rank copies or folds, bytes between hosts those that
// pass the adapter of the busiest host in one direction, messages those that the busiest rank writes to and reads from
// other hosts, one after the other.
struct Cost {
  double host_steps = 0, network_steps = 0, host_bytes = 0, network_bytes = 0, messages = 0;
  Cost& operator+=(const Cost& more);
  double seconds(const NetworkModel& model) const;
};

// The same as in the library, which unit_network_model_library compares.
constexpr int64_t kFanOut = 64;              // of the tree of hosts
constexpr int64_t kConnectionsOfLine = 2;    // between two hosts of the tree
constexpr double kWordBytes = 952;           // of what rank 0 says to a host while ranks meet, before the table
constexpr double kMessageBytes = 200;        // of what a host says of a call over a line of the tree,
constexpr double kVerdictBytes = 184;        // and its ranks are told, before payloads
constexpr double kRecordBytes = 256;         // of what a rank says of a call to those of its host, with a payload of
constexpr double kShortBytes = 168;          // up to these
constexpr double kWithVerdictBytes = 65536;  // payloads of all ranks, from which on they take a step of their own
constexpr double kSilenceSeconds = 5;        // after which a host is asked about
constexpr double kBeatsInSilence = 5;        // over each line in both directions
// Of gloo (plugins/transport/gloo), when it joins: of each rank to all.
constexpr double kSeatBytes = 416, kReportBytes = 404, kRowBytes = 28, kPortBytes = 2;

// Budgets.
constexpr double kJoinSeconds = 30e-6;    // to accept a connection, and to check who is there
constexpr double kMessageSeconds = 5e-6;  // to write or to read a message
constexpr double kHandshakeSteps = 5;     // to connect, there and back; challenge, proof and answer
constexpr double kWitnessSeconds = 1;     // that a witness waits for a silent host: a fifth of the silence

// Host 0 at the top, and below host h those from 64 h + 1 to 64 h + 64. On each level the first host has the most.
struct Tree {
  int64_t levels = 0;  // below the top
  struct Level {
    int64_t children, below;  // hosts directly below, and all below
  } of[16] = {};
  int64_t lowest = 0;      // connections by which hosts of lower levels ask their way
  int64_t most_lines = 0;  // of a host, up and down
};
Tree tree_of(int64_t hosts);

// What every call begins with: all ranks say which call they make, up the tree of hosts, and are answered; each gives a
// payload, which all get.
Cost agreement(const HostWorld& world, double payload);

// Of the table of hosts as it travels, where names (of 8 bytes) and addresses (of 12, 256 hosts in a network) count up.
double table_bytes(const HostWorld& world);

struct StartCost {
  Tree tree;
  double local_s = 0;         // ranks at the one of their host that speaks for them
  double root_s = 0;          // hosts at rank 0
  double table_s = 0;         // the table of hosts, from rank 0 to each host
  double acknowledged_s = 0;  // that all have it, to rank 0 and back
  double lines_s = 0;         // the connections of the tree
  double exchanges_s = 0;     // of ports and of the transport's name
  double gloo_s = 0;          // gloo joins
  double table_bytes = 0;     // of one copy
  double all_bytes = 0;       // of all copies
  double line_connections = 0;
  double gloo_bytes = 0;  // to each host
  double gloo_connections = 0;
  double seconds() const { return local_s + root_s + table_s + acknowledged_s + lines_s + exchanges_s + gloo_s; }
};
StartCost start_cost(const HostWorld& world, const NetworkModel& model);

struct ControlCost {
  double agreement_s = 0;    // before a call
  double messages = 0;       // of a call, of all hosts
  double death_s = 0;        // until all ranks know, from when its host does
  double silent_s = 0;       // until a silent host is told
  double beats = 0;          // a second, of all hosts
  int64_t most_beats = 0;    // a second, to and from the busiest host
  int64_t most_sockets = 0;  // of control, at the busiest host
};
ControlCost control_cost(const HostWorld& world, const NetworkModel& model);

}  // namespace gsel::cli
