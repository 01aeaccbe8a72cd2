// plan/config_layout.h: a layout as gsel.toml, and gsel.toml as a layout. What one writes the other reads.
#pragma once

#include <string>

#include "base/config.h"
#include "plan/plan.h"

namespace gsel::plan {

// Mesh, strategies and the settings of [train] that the layout decides; `gsel run --config` takes the text as it is.
std::string toml_of(const Request& request, const Candidate& candidate);

// Why no gsel.toml says what was planned, and the nearest that one says; empty: toml_of says it.
std::string why_not_run(const Request& request, const Layout& layout);

// The devices that a run of the file has, in the order of its ranks: those that select.devices lists by index, and as
// many as its mesh has ranks. GSEL_ERR_CONFIG where it lists one that is not there.
Cluster devices_of(const Config& config, const Cluster& cluster);

// GSEL_ERR_CONFIG where the file asks for what no layout has, such as another schedule, with its place. others: whether
// it excludes layers from the tensor axis that the workload does not know as a unit; these are divided in the layout.
Layout layout_of(const Config& config, const Workload& workload, int32_t world_size, bool* others);
// "7 samples of a replica of FILE are not 2 micro-batches of 4 samples; ...": empty where they are.
std::string uneven_note(const Config& config, const Layout& layout);
// The parts that its weights give, in whole samples and heads. Without weights they are equal ones on unequal devices,
// and empty on alike devices.
Shares shares_of(const Config& config, const Workload& workload, const Cluster& cluster, const Layout& layout);

}  // namespace gsel::plan
