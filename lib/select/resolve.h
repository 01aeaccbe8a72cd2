// select/resolve.h: (inventory, environment, request) -> selection, a pure function. Strict reading narrows the
// candidates layer by layer: masks, hosts, the request. A compat system replaces these layers by its own reading. Does
// not know the source of the inventory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "select/candidates.h"
#include "select/request/request.h"
#include "select/rules/rules.h"
#include "select/words/tokens.h"

namespace gsel {

struct Selection {
  std::shared_ptr<const Inventory> inventory;
  std::vector<Unit> units;
  std::vector<Verdict> candidates;  // every device and partition of the inventory
  Trace trace;
  std::string system;             // the compat system, empty: strict
  int32_t processes = -1;         // number of processes that the system would start, -1: unknown
  bool sets_environment = false;  // `environment` is what the system sets; else what gsel emits
  EnvLines environment;
  std::map<int32_t, EnvLines> environment_of_host;  // in addition to `environment`
  // Of a system whose programs read variables of their own; nullptr: gsel emits by vendor.
  EnvLines (*emit)(const Inventory& inventory, int32_t host, const std::vector<Unit>& units) = nullptr;

  const Device& device(size_t position) const {
    return inventory->devices[static_cast<size_t>(units[position].device)];
  }
};

Selection resolve(std::shared_ptr<const Inventory> inventory, const Environment& environment, const Request& request);

// Checks whether this process's CUDA driver is already initialised, and with which devices: the driver ignores a mask
// that is set later, so a selection by that mask would be wrong. GSEL_ERR_ALREADY_INITIALIZED when the driver sees
// other devices than the environment now names. Only asks a driver that is loaded and initialised; loads and starts
// nothing (driver_state.cc).
void check_driver_state(const Inventory& inventory, const Environment& environment);

// ---- outputs of a selection (emit.cc): never change the caller's own environment ----

// Hosts with a selected unit, in the order of the selection.
std::vector<int32_t> selected_hosts(const Selection& selection);

// Variables for a child process on `host`: for all selected units of the host (local_rank -1) or for the unit of one
// local rank. A single unit, or a CPU, serves every rank. GSEL_ERR_RANK_OVERFLOW, GSEL_ERR_ARG.
Emission selection_env(const Selection& selection, int32_t host, int32_t local_rank);

std::string selection_json(const Selection& selection);
std::string selection_text(const Selection& selection);

}  // namespace gsel
