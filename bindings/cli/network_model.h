// network_model.h: the cost of start-up and control on many hosts, by a two-level network model: closed forms of the
// library's protocol, without measurements. A cost is counted in steps, bytes and messages; a step and a byte have a
// price within a host and a price between hosts. docs/simulate.md has the formulas and the origin of the constants.
// Does not know collectives (collective_model.h), the command line or output formats.
#pragma once

#include <cstdint>
#include <string>

namespace gsel::cli {

struct LinkPrice {
  double alpha_s = 0;  // per step
  double bytes_per_second = 0;
};

struct NetworkModel {
  std::string name;
  LinkPrice host{0.5e-6, 10e9};   // per rank, through memory
  LinkPrice network{20e-6, 8e9};  // per host, all its ranks together, in each direction
  double congestion = 1;          // c, factor on the time of bytes between hosts
  double network_seconds(double bytes) const { return bytes / network.bytes_per_second * congestion; }
};

// Hosts with equally many ranks; ranks fill them in order.
struct HostWorld {
  int64_t hosts = 1, each = 1;
  int64_t ranks() const { return hosts * each; }
};

// The same in the notation of the formulas: N hosts with g ranks each, p = N g.
struct WorldSize {
  double N, g, p, far;  // far: number of ranks on other hosts
  bool network;         // N > 1
  explicit WorldSize(const HostWorld& world)
      : N(static_cast<double>(world.hosts)),
        g(static_cast<double>(world.each)),
        p(static_cast<double>(world.ranks())),
        far(p - g),
        network(world.hosts > 1) {}
};

// The critical path of a call. host_bytes: copied or reduced by one rank within a host. network_bytes: through the
// adapter of the busiest host in one direction. messages: written to and read from other hosts by the busiest rank, one
// after the other.
struct Cost {
  double host_steps = 0, network_steps = 0, host_bytes = 0, network_bytes = 0, messages = 0;
  Cost& operator+=(const Cost& more);
  double seconds(const NetworkModel& model) const;
};

// Copies of the library's constants; unit_network_model_library compares them.
constexpr int64_t kFanOut = 64;              // of the tree of hosts
constexpr int64_t kConnectionsOfLine = 2;    // per pair of connected hosts of the tree
constexpr double kWordBytes = 952;           // from rank 0 to a host while ranks join, before the table
constexpr double kMessageBytes = 200;        // from a host about a call, over a connection of the tree;
constexpr double kVerdictBytes = 184;        // and to its ranks; both without payloads
constexpr double kRecordBytes = 256;         // from a rank about a call to the ranks of its host, with a payload of
constexpr double kShortBytes = 168;          // at most these bytes
constexpr double kWithVerdictBytes = 65536;  // from this total payload on, payloads take a separate step
constexpr double kSilenceSeconds = 5;        // silence after which a host is probed
constexpr double kBeatsInSilence = 5;        // heartbeats in each direction of a connection
// Sizes of gloo's join (plugins/transport/gloo), from each rank to all.
constexpr double kSeatBytes = 416, kReportBytes = 404, kRowBytes = 28, kPortBytes = 2;

// Budgets.
constexpr double kJoinSeconds = 30e-6;    // accepting and authenticating a connection
constexpr double kMessageSeconds = 5e-6;  // writing or reading a message
constexpr double kHandshakeSteps = 5;     // connect and its reply; challenge, proof and answer
constexpr double kWitnessSeconds = 1;     // a witness's wait for a silent host: a fifth of the silence

// The tree of hosts: host 0 is the root, and the children of host h are 64 h + 1 to 64 h + 64. On each level the first
// host has the most hosts below it.
struct Tree {
  int64_t levels = 0;  // below the root
  struct Level {
    int64_t children, below;  // direct children, and all hosts below
  } of[16] = {};
  int64_t lowest = 0;      // connections with which lower hosts find their parent
  int64_t most_lines = 0;  // of one host, to its parent and children
};
Tree tree_of(int64_t hosts);

// The start of every call: all ranks report their call up the tree of hosts and get an answer; each rank adds a
// payload, which all ranks receive.
Cost agreement(const HostWorld& world, double payload);
// The same where the first rank gets the payloads, and all ranks get a result of this many bytes.
Cost agreement_at_first(const HostWorld& world, double payload, double result);

// Encoded size of the table of hosts, whose names (8 bytes) and addresses (12, 256 hosts per network) are consecutive.
double table_bytes(const HostWorld& world);

struct StartCost {
  Tree tree;
  double local_s = 0;         // ranks connect to the leader of their host
  double root_s = 0;          // hosts connect to rank 0
  double table_s = 0;         // table of hosts, from rank 0 to each host
  double acknowledged_s = 0;  // confirmation of the table, to rank 0 and back
  double lines_s = 0;         // the connections of the tree
  double exchanges_s = 0;     // of ports and the transport's name
  double gloo_s = 0;          // gloo joins
  double table_bytes = 0;     // one copy
  double all_bytes = 0;       // all copies
  double line_connections = 0;
  double gloo_bytes = 0;  // to each host
  double gloo_connections = 0;
  double seconds() const { return local_s + root_s + table_s + acknowledged_s + lines_s + exchanges_s + gloo_s; }
};
StartCost start_cost(const HostWorld& world, const NetworkModel& model);

struct ControlCost {
  double agreement_s = 0;    // before a call
  double messages = 0;       // per call, all hosts
  double death_s = 0;        // from a host's knowledge of a dead rank to that of all ranks
  double silent_s = 0;       // until a silent host is reported
  double beats = 0;          // per second, all hosts
  int64_t most_beats = 0;    // per second, to and from the busiest host
  int64_t most_sockets = 0;  // for control, on the busiest host
};
ControlCost control_cost(const HostWorld& world, const NetworkModel& model);

}  // namespace gsel::cli
