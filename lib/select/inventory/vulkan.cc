// select/inventory/vulkan.cc: see vulkan.h.
#include "select/inventory/vulkan.h"

#include <fmt/format.h>

#include "base/text.h"

namespace gsel {

// CUDA and Vulkan tell the same uuid of an NVIDIA card. Drivers of AMD and Intel derive Vulkan's from the bus address,
// and their other software does not (ROCm/hipamd issue 50).
int32_t device_of_vulkan(const Inventory& inventory, const Host& host, const VulkanDevice& vulkan) {
  for (int32_t i = host.first; i < host.first + host.count; ++i) {
    const Device& device = inventory.devices[static_cast<size_t>(i)];
    if (vulkan.kind == kVulkanCpu || device.is_cpu()) {
      if (vulkan.kind == kVulkanCpu && device.is_cpu()) return i;
      continue;
    }
    if (!vulkan.pci.empty() && !device.pci.empty()) {
      if (vulkan.pci == device.pci) return i;
      continue;
    }
    if (!vulkan.uuid.empty() && device.uuid == "GPU-" + vulkan.uuid) return i;
  }
  return -1;
}

std::string vulkan_text(const VulkanDevice& vulkan) {
  return fmt::format("{}{}, {}{}", one_line(vulkan.name),
                     vulkan.driver.empty() ? "" : fmt::format(" ({})", one_line(vulkan.driver)), vulkan.kind,
                     vulkan.pci.empty() ? "" : ", " + vulkan.pci);
}

std::string vulkan_lines(const Inventory& inventory, const Host& host) {
  std::string out;
  for (size_t i = 0; host.vulkan && i < host.vulkan->size(); ++i) {
    const VulkanDevice& vulkan = (*host.vulkan)[i];
    const int32_t device = device_of_vulkan(inventory, host, vulkan);
    out += fmt::format("Vulkan {}: {}: {}\n", i, vulkan_text(vulkan),
                       device < 0 ? "no device of this list" : unit_text(inventory, {device, -1, -1}));
  }
  if (host.vulkan && host.vulkan->empty()) out = "Vulkan: no devices\n";
  return out;
}

}  // namespace gsel
