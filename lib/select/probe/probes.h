// select/probe/probes.h: the sources of this machine's inventory. There is one file per source, and each adds to the
// findings of the others; detect.cc calls them in order. No probe starts a context or changes anything, so detection is
// safe before fork, but for Vulkan's, which is asked by itself. Does not know masks or requests.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "select/inventory/inventory.h"
#include "select/probe/file_tree.h"

namespace gsel {

// A link with bus addresses for ends, until the devices have indexes.
struct FoundLink {
  std::string a, b;  // Device::pci
  std::string kind;
  double bytes_per_second = 0;
  double latency_s = 0;
};

struct Found {
  std::vector<Device> devices;
  std::vector<FoundLink> links;
  std::vector<std::string> notes;  // what was searched and not found
};

// NVIDIA devices through NVML. Returns false and adds a note when there is no library or no driver.
bool probe_nvml(const FileTree& files, Found& found);

// NVIDIA devices as the kernel driver lists them: identity, and published figures of the product. For machines without
// NVML.
void probe_nvidia_driver(const FileTree& files, Found& found);
std::vector<Device> nvidia_driver_devices(const FileTree& files);

// AMD devices of the kernel's compute topology (KFD).
void probe_kfd(const FileTree& files, Found& found);

// Intel graphics devices of DRM; identity and memory through Level Zero Sysman if installed.
void probe_drm(const FileTree& files, Found& found);
void ask_sysman(const FileTree& files, Found& found);

// Gaudi devices of the habanalabs driver; uuid through HLML if installed.
void probe_habana(const FileTree& files, Found& found);
void ask_hlml(const FileTree& files, Found& found);

// Ascend devices on the PCI bus; logical id, name and memory through DCMI if installed.
void probe_ascend(const FileTree& files, Found& found);
void ask_dcmi(const FileTree& files, Found& found);

// Vulkan's devices, in its order. Nothing, and a note, when there is no loader or it fails. Loads drivers.
std::optional<std::vector<VulkanDevice>> ask_vulkan(const FileTree& files, std::vector<std::string>& notes);

// The CPU through hwloc, always that of the running machine.
Device probe_cpu();

// Fills fields that a probe could not read with published figures of the product; the memory is then nominal.
void fill_from_product(Device& device);

}  // namespace gsel
