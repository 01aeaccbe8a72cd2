// select/probe/kfd.cc: AMD devices of the kernel's compute topology (KFD), which every user may read and no mask
// affects. Its order is that of ROCr. Does not know ROCr or HIP. Source: the kernel's amdkfd/kfd_topology.c and amdgpu
// sysfs pages.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "select/probe/probes.h"

namespace gsel {
namespace {

constexpr const char* kNodes = "/sys/class/kfd/kfd/topology/nodes";
constexpr const char* kProcesses = "/sys/class/kfd/kfd/proc";
constexpr uint64_t kXgmi = 11;  // kind of link, as in HSA_IOLINKTYPE
constexpr uint64_t kFrameBuffer = 1, kHiddenFrameBuffer = 2;

struct Node {
  std::string name;  // of its folder
  std::string gpu_id;
  Device device;
};

class Properties {
 public:
  Properties(const FileTree& files, const std::string& path) : fields_(files.fields(path, ' ')) {}
  uint64_t operator[](const char* name) const {
    const auto it = fields_.find(name);
    return it == fields_.end() ? 0 : parse_number(it->second).value_or(0);
  }

 private:
  std::map<std::string, std::string> fields_;
};

// 90402 is gfx942, 90010 gfx90a: the last two parts are hexadecimal digits.
std::string architecture_of(uint64_t version) {
  if (version == 0 || version > 999999) return {};
  return fmt::format("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100);
}

struct Address {
  std::string physical;  // address in sysfs
  std::string shown;     // a partition of a device has its own function number
};

// Bus, device and function are in the low 16 bits, the number of a compute partition in the highest four.
Address address_of(const Properties& properties) {
  const uint64_t location = properties["location_id"], domain = properties["domain"] & 0xffffffff;
  const auto text = [&](uint64_t function) {
    return fmt::format("{:08x}:{:02x}:{:02x}.{:x}", domain, location >> 8 & 0xff, location >> 3 & 0x1f, function & 0xf);
  };
  const uint64_t partition = location >> 28 & 0xf;
  return {text(location & 7), text(partition ? partition : location & 7)};
}

uint64_t frame_buffer_bytes(const FileTree& files, const std::string& node) {
  uint64_t bytes = 0;
  const std::string banks = node + "/mem_banks";
  for (const std::string& bank : files.numbered(banks, "")) {
    const Properties properties(files, fmt::format("{}/{}/properties", banks, bank));
    const uint64_t kind = properties["heap_type"];
    if (kind == kFrameBuffer || kind == kHiddenFrameBuffer) bytes += properties["size_in_bytes"];
  }
  return bytes;
}

// The name that the maker stored in the board, else the name of the chip.
std::string product_name(const FileTree& files, const std::string& node, const std::string& pci) {
  const std::string board = files.text(pci_folder(pci) + "/product_name").value_or("");
  if (!board.empty()) return board;
  const std::string chip = files.text(node + "/name").value_or("");
  return chip.empty() ? "AMD device" : "AMD " + chip;
}

Device describe_node(const FileTree& files, const std::string& node, const Properties& properties) {
  Device device;
  const Address address = address_of(properties);
  device.vendor = "amd";
  device.pci = address.shown;
  device.name = product_name(files, node, address.physical);
  if (properties["unique_id"]) device.uuid = fmt::format("GPU-{:016x}", properties["unique_id"]);
  device.architecture = architecture_of(properties["gfx_target_version"]);
  device.compute_units = static_cast<int32_t>(
      std::min<uint64_t>(properties["simd_count"] / std::max<uint64_t>(properties["simd_per_cu"], 1), INT32_MAX));
  device.clock_khz = static_cast<int64_t>(std::min<uint64_t>(properties["max_engine_clk_fcompute"], INT32_MAX)) * 1000;
  device.memory_bytes = frame_buffer_bytes(files, node);
  // A device without its own memory, or with CPU cores in the same node, is part of a processor.
  device.integrated = properties["cpu_cores_count"] > 0 || device.memory_bytes == 0;
  const int64_t used = files.number(pci_folder(address.physical) + "/mem_info_vram_used").value_or(-1);
  if (used >= 0) device.free_bytes = device.memory_bytes - std::min(static_cast<uint64_t>(used), device.memory_bytes);
  device.numa = pci_numa(files, address.physical);
  const uint64_t render = properties["drm_render_minor"];
  device.accessible = files.usable("/dev/kfd") && files.usable(fmt::format("/dev/dri/renderD{}", render));
  return device;
}

// A process computes on a device when it has a queue or memory there.
bool computes_on(const FileTree& files, const std::string& process, const std::string& gpu_id) {
  if (files.number(fmt::format("{}/vram_{}", process, gpu_id)).value_or(0) > 0) return true;
  const std::string queues = process + "/queues";
  for (const std::string& queue : files.numbered(queues, ""))
    if (files.text(fmt::format("{}/{}/gpuid", queues, queue)) == gpu_id) return true;
  return false;
}

void count_processes(const FileTree& files, std::vector<Node>& nodes) {
  if (!files.exists(kProcesses)) return;
  const std::vector<std::string> processes = files.numbered(kProcesses, "");
  for (Node& node : nodes)
    node.device.process_count =
        static_cast<int32_t>(std::count_if(processes.begin(), processes.end(), [&](const std::string& process) {
          return computes_on(files, fmt::format("{}/{}", kProcesses, process), node.gpu_id);
        }));
}

// XGMI links only; KFD lists PCI links for processors only.
void find_links(const FileTree& files, const std::vector<Node>& nodes, Found& found) {
  std::map<uint64_t, const Node*> by_number;
  for (const Node& node : nodes) by_number.emplace(parse_number(node.name).value_or(0), &node);
  for (const auto& [number, node] : by_number) {
    const std::string links = fmt::format("{}/{}/io_links", kNodes, node->name);
    for (const std::string& link : files.numbered(links, "")) {
      const Properties properties(files, fmt::format("{}/{}/properties", links, link));
      const auto other = by_number.find(properties["node_to"]);
      if (properties["type"] != kXgmi || other == by_number.end() || other->first <= number) continue;
      const auto megabytes = static_cast<double>(properties["max_bandwidth"]);
      found.links.push_back({node->device.pci, other->second->device.pci, "XGMI", megabytes * 1e6, 0});
    }
  }
}

// Compute partitions of one device have the same uuid, which therefore identifies none of the partitions.
void drop_shared_uuids(std::vector<Node>& nodes, Found& found) {
  std::map<std::string, int> uses;
  for (const Node& node : nodes) ++uses[node.device.uuid];
  for (Node& node : nodes) {
    if (node.device.uuid.empty() || uses[node.device.uuid] == 1) continue;
    found.notes.push_back(fmt::format("KFD: {} is one of {} partitions with uuid {}, which is left out",
                                      node.device.pci, uses[node.device.uuid], node.device.uuid));
    node.device.uuid.clear();
  }
}

}  // namespace

void probe_kfd(const FileTree& files, Found& found) {
  std::vector<Node> nodes;
  for (const std::string& name : files.numbered(kNodes, "")) {
    const std::string folder = fmt::format("{}/{}", kNodes, name);
    const Properties properties(files, folder + "/properties");
    if (properties["simd_count"] == 0) continue;  // a processor, or a device that this container may not see
    Node node{name, files.text(folder + "/gpu_id").value_or(""), describe_node(files, folder, properties)};
    node.device.ordinal = static_cast<int32_t>(nodes.size());
    nodes.push_back(std::move(node));
  }
  count_processes(files, nodes);
  find_links(files, nodes, found);
  drop_shared_uuids(nodes, found);
  for (Node& node : nodes) {
    if (!node.device.accessible)
      found.notes.push_back(fmt::format("KFD: {} may not be used by this user", node.device.pci));
    found.devices.push_back(std::move(node.device));
  }
}

}  // namespace gsel
