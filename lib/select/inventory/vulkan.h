// select/inventory/vulkan.h: which device of the inventory a physical device of Vulkan is. Does not know who enumerates
// Vulkan devices or who numbers them further.
#pragma once

#include <string>

#include "select/inventory/unit.h"

namespace gsel {

// Kinds as inventory files spell them.
constexpr const char* kVulkanDiscrete = "discrete";
constexpr const char* kVulkanIntegrated = "integrated";
constexpr const char* kVulkanCpu = "cpu";
constexpr const char* kVulkanKinds[] = {"other", kVulkanIntegrated, kVulkanDiscrete, "virtual", kVulkanCpu};

// The device in Inventory::devices, or -1: by bus address, else, as of an NVIDIA card, by the digits of its uuid; a
// renderer on the CPU is the host's CPU.
int32_t device_of_vulkan(const Inventory& inventory, const Host& host, const VulkanDevice& vulkan);

// "AMD Radeon RX 7900 XTX (radv), discrete, 00000000:03:00.0".
std::string vulkan_text(const VulkanDevice& vulkan);

// A line for each device that Vulkan enumerates: "Vulkan 1: NVIDIA L4 (NVIDIA), discrete: device 2 (GPU-...)".
std::string vulkan_lines(const Inventory& inventory, const Host& host);

}  // namespace gsel
