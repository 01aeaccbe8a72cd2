// select/probe/probes.h: the sources of this machine's inventory. There is one file per source, and each adds to what
// the others found; detect.cc calls them in order. No probe starts a context or changes anything, so detection is safe
// before fork. Does not know masks and requests.
#pragma once

#include <string>
#include <vector>

#include "select/inventory/inventory.h"
#include "select/probe/file_tree.h"

namespace gsel {

// A link whose ends are known by bus address, until the devices have their places.
struct FoundLink {
  std::string a, b;  // Device::pci
  std::string kind;
  double bytes_per_second = 0;
  double latency_s = 0;
};

struct Found {
  std::vector<Device> devices;
  std::vector<FoundLink> links;
  std::vector<std::string> notes;  // what was looked for and not found
};

// NVIDIA devices through NVML. False when there is no library or no driver, which becomes a note.
bool probe_nvml(const FileTree& files, Found& found);

// NVIDIA devices as the kernel driver lists them: identity, and the figures of the product. For machines without NVML.
void probe_nvidia_driver(const FileTree& files, Found& found);
std::vector<Device> nvidia_driver_devices(const FileTree& files);

// AMD devices of the kernel's compute topology (KFD).
void probe_kfd(const FileTree& files, Found& found);

// Intel graphics devices of DRM; identity and memory through Level Zero Sysman where that is installed.
void probe_drm(const FileTree& files, Found& found);
void ask_sysman(const FileTree& files, Found& found);

// Gaudi devices of the habanalabs driver; uuid through HLML where that is installed.
void probe_habana(const FileTree& files, Found& found);
void ask_hlml(const FileTree& files, Found& found);

// Ascend devices on the PCI bus; logical id, name and memory through DCMI where that is installed.
void probe_ascend(const FileTree& files, Found& found);
void ask_dcmi(const FileTree& files, Found& found);

// The CPU of this machine through hwloc, always of the running machine.
Device probe_cpu();

// Fills what a probe could not learn from what is known of the product; the memory is then nominal.
void fill_from_product(Device& device);

}  // namespace gsel
