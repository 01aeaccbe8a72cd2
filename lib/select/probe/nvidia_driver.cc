// select/probe/nvidia_driver.cc: NVIDIA devices as the kernel driver lists them in /proc, for machines without NVML.
// Usage and MIG are in no file. Published figures of the product fill the missing fields.
#include <fmt/format.h>

#include "select/probe/probes.h"

namespace gsel {
namespace {

constexpr int64_t kNvidia = 0x10de;
constexpr const char* kFolder = "/proc/driver/nvidia/gpus";

Device describe_gpu(const FileTree& files, const std::string& folder, const std::string& pci) {
  const auto fields = files.fields(folder + "/information", ':');
  const auto field = [&](const char* name) {
    const auto it = fields.find(name);
    return it == fields.end() ? std::string() : it->second;
  };
  Device device;
  device.vendor = "nvidia";
  device.pci = pci;
  device.name = field("Model").empty() ? "NVIDIA device" : field("Model");
  const std::string uuid = field("GPU UUID");  // question marks until the device is first opened
  if (uuid.starts_with("GPU-") && uuid.find('?') == uuid.npos) device.uuid = uuid;
  const std::string minor = field("Device Minor");
  device.accessible = !minor.empty() && files.usable("/dev/nvidia" + minor) && files.usable("/dev/nvidiactl");
  device.numa = pci_numa(files, pci);
  fill_from_product(device);
  return device;
}

bool is_display(const PciFunction& function) {
  return function.class_id >> 16 == 0x03;
}

}  // namespace

std::vector<Device> nvidia_driver_devices(const FileTree& files) {
  std::vector<Device> out;
  for (const std::string& name : files.names(kFolder)) {
    const std::string pci = normalise_pci(name);
    if (!pci.empty()) out.push_back(describe_gpu(files, fmt::format("{}/{}", kFolder, name), pci));
  }
  return out;
}

void probe_nvidia_driver(const FileTree& files, Found& found) {
  found.devices = nvidia_driver_devices(files);
  if (!found.devices.empty()) {
    found.notes = {
        "NVML is missing: NVIDIA devices as their kernel driver lists them; memory is nominal, occupancy and MIG are "
        "not told"};
    return;
  }
  for (const PciFunction& function : pci_functions(files, kNvidia))
    if (is_display(function))
      found.notes.push_back(fmt::format("PCI: NVIDIA device at {} has no driver that lists it", function.pci));
}

}  // namespace gsel
