// plan/cluster_parts.h: what a cluster is put together of, whether text or an inventory says its devices.
#pragma once

#include <string>

#include "plan/cluster.h"

namespace gsel::plan {

constexpr double kNvlinkLatency = 5e-6, kPcieLatency = 8e-6, kNetworkLatency = 15e-6;
constexpr int64_t kMostDevices = 1'000'000;

void check_options(const ClusterOptions& options);
// Of a device to its neighbours, where nothing else is told.
Link usual_link(const Accelerator& accelerator);
// text: ClusterOptions::network; empty: usual, in bytes per second of a node.
Link network_of(const std::string& text, double usual);
// Of an equal kind, which is added where there is none.
int32_t kind_index(Cluster& cluster, const DeviceKind& kind);
// The cluster's devices are those of one node.
void repeat_nodes(Cluster& cluster, int32_t nodes);

}  // namespace gsel::plan
