// simulate.h: `gsel bench --simulate`: costs on many hosts by the model of network_model.h.
#pragma once

#include <string>
#include <vector>

namespace gsel::cli {

struct SimulateOptions {
  std::string simulate, network;        // the options' values; empty: default worlds and network
  std::vector<std::string> operations;  // empty or "all": every modelled collective
  std::vector<uint64_t> sizes;
};

// Prints a table for each world, or JSON.
int print_simulation(const SimulateOptions& options, bool json);

}  // namespace gsel::cli
