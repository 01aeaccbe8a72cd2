// plan/cluster_parts.h: functions that build a cluster, from text or from an inventory.
#pragma once

#include <string>

#include "plan/cluster.h"

namespace gsel::plan {

constexpr double kNvlinkLatency = 5e-6, kPcieLatency = 8e-6, kNetworkLatency = 15e-6;
constexpr int64_t kMostDevices = 1'000'000;

void check_options(const ClusterOptions& options);
// The default link of a device to its neighbours.
Link usual_link(const Accelerator& accelerator);
// text: ClusterOptions::network; empty: `usual`, in bytes per second of a node.
Link network_of(const std::string& text, double usual);
// Index of an equal kind, which is added if missing.
int32_t kind_index(Cluster& cluster, const DeviceKind& kind);
// Repeats the cluster's devices, which are those of one node.
void repeat_nodes(Cluster& cluster, int32_t nodes);

}  // namespace gsel::plan
