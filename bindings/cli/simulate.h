// simulate.h: `gsel bench --simulate`: what many hosts would cost, by the model of network_model.h.
#pragma once

#include <string>
#include <vector>

namespace gsel::cli {

struct SimulateOptions {
  std::string simulate, network;        // the values of the options; empty: the usual worlds and network
  std::vector<std::string> operations;  // empty or "all": every collective that is modelled
  std::vector<uint64_t> sizes;
};

// Prints a table for each world, or JSON.
int print_simulation(const SimulateOptions& options, bool json);

}  // namespace gsel::cli
