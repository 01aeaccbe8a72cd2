// plan/automatic.h: [strategy] plan = "auto": chooses the strategy of a configuration when a trainer is created. On
// CPUs it measures the machine and prices programs (plan/measure.h, plan/finalist.h); on accelerators it searches with
// the figures of the devices.
#pragma once

#include <memory>
#include <string_view>

#include "base/config.h"
#include "plan/measure.h"
#include "select/inventory/inventory.h"

namespace gsel::plan {

// A collective. Returns the devices of the ranks of one host, in rank order, each with the memory that its rank sees as
// free; the result is the same on all ranks. uuid: of this rank's device. If a rank does not find its device, all
// devices of the inventory with all their memory.
Inventory selected(Communicator& comm, const Inventory& inventory, std::string_view uuid);

// A collective of comm. Returns the configuration with mesh, strategies and micro-batches of the fastest layout, the
// same on all ranks; rank 0 logs the choice and the runner-up at level info. GSEL_ERR_CONFIG when the file itself names
// a strategy, or when no layout can run, with the first reason.
Config planned(Communicator& comm, const std::shared_ptr<Model>& model, const Config& config, const DataSource& data);

}  // namespace gsel::plan
