// select/probe/vulkan.cc: physical devices in the order in which Vulkan enumerates them in this process, through its
// loader, which is opened at run time. Unlike the other probes this one starts drivers: vkCreateInstance loads those of
// all vendors, and layers. So it is asked only when somebody wants to know. This file declares what it uses.
// Source: Vulkan specification 1.3, "Devices and Queues"; layouts of version 1.1, which do not change.
#include "select/inventory/vulkan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "select/probe/library.h"
#include "select/probe/probes.h"

namespace gsel {
namespace {

struct VkInstance;
struct VkPhysicalDevice;

constexpr uint32_t kVersion11 = 1u << 22 | 1u << 12;
constexpr uint32_t kUntold = 0xffffffff;

struct ApplicationInfo {
  int32_t type = 0;
  const void* next = nullptr;
  const char* application = "gsel";
  uint32_t application_version = 0;
  const char* engine = nullptr;
  uint32_t engine_version = 0, api_version = kVersion11;
};
struct InstanceInfo {
  int32_t type = 1;
  const void* next = nullptr;
  uint32_t flags = 0;
  const ApplicationInfo* application = nullptr;
  uint32_t n_layers = 0;
  const char* const* layers = nullptr;
  uint32_t n_extensions = 0;
  const char* const* extensions = nullptr;
};
struct PciInfo {
  int32_t type = 1000212000;
  void* next = nullptr;
  uint32_t domain = kUntold, bus = 0, device = 0, function = 0;
};
struct DriverProperties {
  int32_t type = 1000196000;
  void* next = nullptr;
  int32_t id = 0;
  char name[256] = {}, info[256] = {};
  uint8_t conformance[4] = {};
};
struct IdProperties {
  int32_t type = 1000071004;
  void* next = nullptr;
  uint8_t device[16] = {}, driver[16] = {}, luid[8] = {};
  uint32_t node_mask = 0, luid_valid = 0;
};
struct VulkanProperties {
  int32_t type = 1000059001;
  void* next = nullptr;
  uint32_t api_version = 0, driver_version = 0, vendor = 0, device = 0;
  int32_t kind = 0;
  char name[256] = {};
  uint8_t cache[16] = {};
  alignas(8) uint8_t limits[1024] = {};  // more than there are
};
struct Storage16 {
  int32_t type = 1000083000;
  void* next = nullptr;
  uint32_t buffer = 0, uniform = 0, push_constant = 0, input_output = 0;
};
struct Features {
  int32_t type = 1000059000;
  void* next = nullptr;
  uint32_t features[64] = {};  // more than there are
};

struct Vulkan {
  int32_t (*create)(const InstanceInfo*, const void*, VkInstance**) = nullptr;
  void (*destroy)(VkInstance*, const void*) = nullptr;
  int32_t (*enumerate)(VkInstance*, uint32_t*, VkPhysicalDevice**) = nullptr;
  void (*properties)(VkPhysicalDevice*, VulkanProperties*) = nullptr;
  void (*features)(VkPhysicalDevice*, Features*) = nullptr;
};

std::string vulkan_uuid_text(const uint8_t* bytes) {
  std::string out;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += fmt::format("{:02x}", bytes[i]);
  }
  return out;
}

// Some drivers fill in the bus address without announcing the extension, so that it is asked of all.
VulkanDevice describe_vulkan(const Vulkan& vulkan, VkPhysicalDevice* handle) {
  PciInfo pci;
  DriverProperties driver;
  IdProperties id;
  VulkanProperties properties;
  driver.next = &pci;
  id.next = &driver;
  properties.next = &id;
  vulkan.properties(handle, &properties);
  Storage16 storage;
  Features features;
  features.next = &storage;
  vulkan.features(handle, &features);
  properties.name[sizeof properties.name - 1] = driver.name[sizeof driver.name - 1] = '\0';
  VulkanDevice out;
  out.name = properties.name;
  out.kind = kVulkanKinds[properties.kind < 0 || properties.kind > 4 ? 0 : properties.kind];
  if (pci.domain != kUntold)
    out.pci = fmt::format("{:08x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus & 0xff, pci.device & 0x1f, pci.function & 7);
  out.uuid = vulkan_uuid_text(id.device);
  out.driver = driver.name;
  out.driver_id = driver.id;
  out.vendor_id = properties.vendor;
  out.device_id = properties.device;
  out.storage16 = storage.buffer != 0;
  return out;
}

bool open_vulkan(const FileTree& files, Vulkan& vulkan) {
  const Library library(files, "GSEL_VULKAN_LIBRARY", {"libvulkan.so.1"});
  return library.find(vulkan.create, "vkCreateInstance") && library.find(vulkan.destroy, "vkDestroyInstance") &&
         library.find(vulkan.enumerate, "vkEnumeratePhysicalDevices") &&
         library.find(vulkan.properties, "vkGetPhysicalDeviceProperties2") &&
         library.find(vulkan.features, "vkGetPhysicalDeviceFeatures2");
}

}  // namespace

std::optional<std::vector<VulkanDevice>> ask_vulkan(const FileTree& files, std::vector<std::string>& notes) {
  const char* select = secure_getenv("MESA_VK_DEVICE_SELECT");
  if (select && strcmp(select, "list") == 0) {
    notes.push_back("Vulkan: MESA_VK_DEVICE_SELECT=list makes Mesa's layer end the process that enumerates; unset it");
    return {};
  }
  Vulkan vulkan;
  if (!open_vulkan(files, vulkan)) {
    notes.push_back("Vulkan: libvulkan.so.1 of version 1.1 or newer not found: nothing enumerates Vulkan devices");
    return {};
  }
  ApplicationInfo application;
  InstanceInfo info;
  info.application = &application;
  VkInstance* instance = nullptr;
  if (const int32_t status = vulkan.create(&info, nullptr, &instance)) {
    notes.push_back(fmt::format("Vulkan: vkCreateInstance gave {}{}", status,
                                status == -9 ? ": no driver is installed, or VK_DRIVER_FILES names none" : ""));
    return {};
  }
  constexpr uint32_t kMost = 4096;
  constexpr int32_t kIncomplete = 5;  // there are more than were asked for
  uint32_t count = 0;
  int32_t status = vulkan.enumerate(instance, &count, nullptr);
  std::vector<VkPhysicalDevice*> handles(std::min(count, kMost));
  count = static_cast<uint32_t>(handles.size());
  if (status == 0 && count) status = vulkan.enumerate(instance, &count, handles.data());
  const bool told = status == 0 || status == kIncomplete;
  handles.resize(told ? std::min<size_t>(count, handles.size()) : 0);
  std::vector<VulkanDevice> out;
  for (VkPhysicalDevice* handle : handles) out.push_back(describe_vulkan(vulkan, handle));
  vulkan.destroy(instance, nullptr);
  if (told) return out;
  notes.push_back(fmt::format("Vulkan: vkEnumeratePhysicalDevices gave {}", status));
  return {};
}

}  // namespace gsel
