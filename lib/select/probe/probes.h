// select/probe/probes.h: where an inventory comes from. One file per source, each adding to what is there; a further source
// is a further file and a line in detect_inventory. Refuses to know: masks, requests. No probe starts a context.
#pragma once

#include "select/inventory/inventory.h"

namespace gsel {

// NVIDIA devices through NVML; a missing library or driver becomes a note.
void probe_nvml(Inventory& inventory);

// The CPU of this machine through hwloc.
void probe_cpu(Inventory& inventory);

}  // namespace gsel
