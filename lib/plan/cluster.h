// plan/cluster.h: the devices to plan for: kinds, nodes and links. Built from "8xH100" or from an inventory. Does not
// know models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/accelerator.h"
#include "select/inventory/inventory.h"

namespace gsel::plan {

inline constexpr double kGiB = 1 << 30;
inline constexpr double kFastLink = 60e9;  // bytes per second; faster than any PCIe link

// The time of a message of n bytes is latency_s + n / bytes_per_second.
struct Link {
  std::string name;  // "NVLink", "PCIe", "network"
  double bytes_per_second = 0, latency_s = 0;
};

struct DeviceKind {
  std::string name, device_class;
  double memory_bytes = 0;  // usable by a plan
  double memory_bytes_per_second = 0;
  double flop_16 = 0, flop_tf32 = 0, flop_32 = 0, flop_8 = 0;
  double matmul_share = 0.8;
  double host_bytes_per_second = 0;                    // to and from host memory
  double flop(double element_bytes, bool tf32) const;  // of matrix products; 1 byte: 8-bit
  bool operator==(const DeviceKind&) const = default;
};

struct Cluster {
  std::string name;
  std::vector<DeviceKind> kinds;
  std::vector<int32_t> devices;  // kind of each device, node by node
  std::vector<int32_t> indices;  // index of each device in its inventory, as in index:; empty: no inventory
  int32_t per_node = 1;
  Link inside;                     // between two devices of a node, one direction
  std::string slowest_pair;        // the pair of devices with this link, if others are faster: "devices 0 and 5 of box"
  Link network;                    // from one node to the others, all its adapters together, one direction
  double host_memory_bytes = 0;    // per node; 0: unknown
  std::vector<std::string> notes;  // assumptions about the devices

  int32_t size() const { return static_cast<int32_t>(devices.size()); }
  int32_t nodes() const { return (size() + per_node - 1) / per_node; }
  bool uniform() const { return kinds.size() == 1; }
  const DeviceKind& kind(int32_t device) const { return kinds[devices[device]]; }
  bool has_slow_links() const { return inside.name != "NVLink" && inside.bytes_per_second < kFastLink; }
};

DeviceKind kind_of(const Accelerator& accelerator);

struct ClusterOptions {
  int32_t nodes = 1;
  std::string link =
      {};  // "": the device's; a class of nvidia-smi topo -m ("NV4", "PIX", "SYS"), "p2p-off", or "300GB/s"
  std::string network = {};  // "": usual; "8x400Gb/s" per node
  double memory_bytes = 0;   // per device, replaces the catalogue's
};

// From "8xH100", or unequal devices of one node: "2xA100-80GB+1xRTX4090". GSEL_ERR_ARG with the token.
Cluster cluster_of(std::string_view text, const ClusterOptions& options);
// The accelerators of an inventory, whose hosts must have equally many, with the speed in the inventory, else by name.
// GSEL_ERR_ARG names the hosts, or a device without a speed and a known name.
Cluster cluster_of(const Inventory& inventory, const ClusterOptions& options);
// Bandwidth of a class of links between two devices of this kind. GSEL_ERR_ARG names the classes.
Link link_of(std::string_view link, const Accelerator* accelerator);

// For the functions that build a cluster, from text or from an inventory.
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
