// network_spec.h: parses the worlds and the network of `gsel bench --simulate` and `--network`, and has the catalogue
// of fabrics. Does not know costs.
#pragma once

#include <string>
#include <vector>

#include "network_model.h"
#include "spec.h"

namespace gsel::cli {

// The named fabrics with their figures and the ranges of these, for help.
TermList fabric_list();

// More hosts are assumed to be in several racks.
constexpr int64_t kRackHosts = 32;
constexpr double kRackCongestion = 1, kFarCongestion = 1.5;

struct SimulatedWorlds {
  std::vector<HostWorld> worlds;
  NetworkModel model;
  bool congestion_given = false;
  // c of a world: as given, else by its number of hosts.
  NetworkModel model_of(const HostWorld& world) const;
};

// The value of --simulate, "hosts=1024x8,network=ndr,congestion=2" or empty, and that of --network, "ndr", "8x400Gb/s"
// or "latency=2us,rate=46GB/s". Keys: network, latency, rate, congestion, host_latency, host_rate. GSEL_ERR_SYNTAX,
// GSEL_ERR_OUT_OF_RANGE, GSEL_ERR_DUPLICATE and GSEL_ERR_ARG (no such fabric or key) name token and column.
SimulatedWorlds simulated_from(const std::string& simulate, const std::string& network);

}  // namespace gsel::cli
