// plan/automatic.h: [strategy] plan = "auto": chooses the strategy of a configuration when a trainer is made. On
// processors the machine is measured and programs are priced (plan/measure.h, plan/finalist.h); on accelerators the
// search decides by the figures of the devices.
#pragma once

#include <memory>
#include <string_view>

#include "base/config.h"
#include "plan/measure.h"
#include "select/inventory/inventory.h"

namespace gsel::plan {

// A collective: the devices that the ranks of one host have, by rank, with the memory that is free on each as its rank
// sees it: the same on all ranks. uuid: of this rank's device. Where a rank does not find its own, all devices of the
// inventory, with all of their memory.
Inventory selected(Communicator& comm, const Inventory& inventory, std::string_view uuid);

// The configuration with mesh, strategies and micro-batches of the fastest layout; rank 0 tells the choice and the next
// best in the log, at level info. A collective of comm; all ranks get the same. GSEL_ERR_CONFIG where the file names a
// strategy itself, or nothing can run, with the first reason.
Config planned(Communicator& comm, const std::shared_ptr<Model>& model, const Config& config, const DataSource& data);

}  // namespace gsel::plan
