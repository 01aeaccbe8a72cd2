// select/resolve.h: (inventory, environment, request) -> selection, a pure function. Layers narrow the candidates one
// after the other: kind of device, each vendor's variables, the request. Refuses to know: where an inventory comes
// from, who asks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "select/candidates.h"
#include "select/rules.h"

namespace gsel {

struct Request {
  std::optional<std::string> devices;      // absent: auto
  std::optional<std::string> accelerator;  // absent: auto
};

struct Selection {
  Inventory inventory;
  std::vector<int32_t> order;     // indexes in the inventory
  std::vector<Verdict> verdicts;  // by index in the inventory
  std::vector<std::string> warnings;

  const Device& device(size_t position) const { return inventory.devices[order[position]]; }
};

Selection resolve(const Inventory& inventory, const Environment& environment, const Request& request);

// Variables for a child process that is to see the whole selection (local_rank -1) or the device of one local rank.
EnvLines selection_env(const Selection& selection, int32_t local_rank);

std::string selection_json(const Selection& selection);
std::string selection_text(const Selection& selection);

}  // namespace gsel
