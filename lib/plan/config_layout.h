// plan/config_layout.h: converts a layout to gsel.toml and back.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "plan/plan.h"

namespace gsel::plan {

// A setting of [strategy.AXIS]; is_text: quoted in the file.
struct StrategySetting {
  gsel_axis axis;
  const char* key;
  std::string value;
  bool is_text;
};
// The settings that a layout determines, in the order of the file, "plugin" first in each section.
std::vector<StrategySetting> strategy_settings(const Workload& workload, const Layout& layout);

// Mesh, strategies and the [train] settings that the layout determines; `gsel run --config` accepts the text unchanged.
std::string toml_of(const Request& request, const Candidate& candidate);

// Why no gsel.toml can express the planned layout, and the nearest layout that one can; empty: toml_of expresses it.
std::string why_not_run(const Request& request, const Layout& layout);

// The devices of a run of the file, in the order of its ranks: the devices that select.devices lists by index, one for
// each rank of the mesh. GSEL_ERR_CONFIG for an index that does not exist.
Cluster devices_of(const Config& config, const Cluster& cluster);

// GSEL_ERR_CONFIG with the place when the file has a setting that no layout has, such as another schedule. others:
// whether the file excludes layers from the tensor axis that are no unit of the workload; the layout divides these.
Layout layout_of(const Config& config, const Workload& workload, int32_t world_size, bool* others);
// "7 samples of a replica of FILE are not 2 micro-batches of 4 samples; ...", or empty.
std::string uneven_note(const Config& config, const Layout& layout);
// The shards that the file's weights give, in whole samples and heads. Without weights: equal shards on unequal
// devices, empty on equal devices.
Shares shares_of(const Config& config, const Workload& workload, const Cluster& cluster, const Layout& layout);

}  // namespace gsel::plan
