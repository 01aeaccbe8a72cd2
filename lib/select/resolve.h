// select/resolve.h: (inventory, environment, request) -> selection, a pure function. Strict reading narrows the
// candidates layer after layer: masks, hosts, the request. A compat system replaces these layers by its own reading.
// Does not know where an inventory comes from and who asks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "select/candidates.h"
#include "select/request.h"
#include "select/rules/rules.h"
#include "select/trace.h"

namespace gsel {

struct Selection {
  std::shared_ptr<const Inventory> inventory;
  std::vector<Unit> units;
  std::vector<Verdict> candidates;  // every device and partition of the inventory
  Trace trace;
  std::string system;             // the compat system, empty: strict
  int32_t processes = -1;         // that the system would start, -1: not said
  bool sets_environment = false;  // `environment` is what the system gives its processes; else gsel's emission
  EnvLines environment;
  std::map<int32_t, EnvLines> environment_of_host;  // besides `environment`

  const Device& device(size_t position) const {
    return inventory->devices[static_cast<size_t>(units[position].device)];
  }
};

Selection resolve(std::shared_ptr<const Inventory> inventory, const Environment& environment, const Request& request);

}  // namespace gsel
