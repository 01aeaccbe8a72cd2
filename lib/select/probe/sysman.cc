// select/probe/sysman.cc: reads uuid, name and memory of Intel devices in DRM's list from Level Zero Sysman. Sysman
// ignores masks and starts no context; its library is opened at run time, and only if there are such devices. This file
// declares what it uses. Source: oneAPI Level Zero specification, Sysman; struct layouts are those of version 1.0.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "select/probe/library.h"
#include "select/probe/probes.h"

namespace gsel {
namespace {

struct ZesHandle;

struct CoreProperties {
  int32_t type = 0x3;
  void* next = nullptr;
  int32_t kind = 0;
  uint32_t vendor_id = 0, device_id = 0, flags = 0, subdevice_id = 0, clock_mhz = 0;
  uint64_t largest_allocation = 0;
  uint32_t contexts = 0, priorities = 0, threads_per_eu = 0, simd_width = 0, eus = 0, subslices = 0, slices = 0;
  uint64_t timer_resolution = 0;
  uint32_t timestamp_bits = 0, kernel_timestamp_bits = 0;
  uint8_t uuid[16] = {};
  char name[256] = {};
};
struct DeviceProperties {
  int32_t type = 0x1;
  void* next = nullptr;
  CoreProperties core;
  uint32_t subdevices = 0;
  char texts[6][64] = {};
};
struct PciProperties {
  int32_t type = 0x2;
  void* next = nullptr;
  uint32_t domain = 0, bus = 0, device = 0, function = 0;
  int32_t generation = 0, width = 0;
  int64_t bandwidth = 0;
  uint8_t counters[4] = {};
};
struct MemoryState {
  int32_t type = 0x1e;
  const void* next = nullptr;
  int32_t health = 0;
  uint64_t free = 0, size = 0;
};

struct Sysman {
  int (*init)(uint32_t) = nullptr;
  int (*drivers)(uint32_t*, ZesHandle**) = nullptr;
  int (*devices)(ZesHandle*, uint32_t*, ZesHandle**) = nullptr;
  int (*properties)(ZesHandle*, DeviceProperties*) = nullptr;
  int (*pci)(ZesHandle*, PciProperties*) = nullptr;
  int (*memory_modules)(ZesHandle*, uint32_t*, ZesHandle**) = nullptr;
  int (*memory_state)(ZesHandle*, MemoryState*) = nullptr;
};

bool open_sysman(const FileTree& files, Sysman& sysman) {
  const Library library(files, "GSEL_ZE_LIBRARY", {"libze_loader.so.1"});
  return library.find(sysman.init, "zesInit") && library.find(sysman.drivers, "zesDriverGet") &&
         library.find(sysman.devices, "zesDeviceGet") && library.find(sysman.properties, "zesDeviceGetProperties") &&
         library.find(sysman.pci, "zesDevicePciGetProperties") &&
         library.find(sysman.memory_modules, "zesDeviceEnumMemoryModules") &&
         library.find(sysman.memory_state, "zesMemoryGetState");
}

// A list that takes two calls: first the number, then the entries.
template <class Ask>
std::vector<ZesHandle*> list(Ask ask) {
  constexpr uint32_t kMost = 4096;
  uint32_t count = 0;
  if (ask(&count, nullptr) != 0 || count == 0 || count > kMost) return {};
  std::vector<ZesHandle*> out(count);
  if (ask(&count, out.data()) != 0) return {};
  out.resize(std::min<size_t>(count, out.size()));
  return out;
}

std::string sysman_uuid_text(const uint8_t* bytes) {
  std::string out;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += fmt::format("{:02x}", bytes[i]);
  }
  return out;
}

void learn_by_sysman(const Sysman& sysman, ZesHandle* handle, Device& device) {
  const auto properties = std::make_unique<DeviceProperties>();
  if (sysman.properties(handle, properties.get()) == 0) {
    device.uuid = sysman_uuid_text(properties->core.uuid);
    properties->core.name[sizeof properties->core.name - 1] = '\0';
    if (properties->core.name[0]) device.name = properties->core.name;
    if (properties->core.clock_mhz) device.clock_khz = int64_t{properties->core.clock_mhz} * 1000;
  }
  uint64_t size = 0, free = 0;
  for (ZesHandle* module : list([&](uint32_t*n, ZesHandle**out) { return sysman.memory_modules(handle, n, out); })) {
    MemoryState state;
    if (sysman.memory_state(module, &state) != 0) continue;
    size += state.size;
    free += std::min(state.free, state.size);
  }
  if (!size) return;
  device.memory_bytes = size;
  device.free_bytes = free;
}

}  // namespace

void ask_sysman(const FileTree& files, Found& found) {
  if (found.devices.empty()) return;
  Sysman sysman;
  if (!open_sysman(files, sysman) || sysman.init(0) != 0) {
    found.notes.push_back("Level Zero: Sysman is not available: Intel devices have no uuid, their memory is nominal");
    return;
  }
  for (ZesHandle* driver : list([&](uint32_t*n, ZesHandle**out) { return sysman.drivers(n, out); }))
    for (ZesHandle* handle : list([&](uint32_t*n, ZesHandle**out) { return sysman.devices(driver, n, out); })) {
      PciProperties at;
      if (sysman.pci(handle, &at) != 0) continue;
      const std::string pci =
          fmt::format("{:08x}:{:02x}:{:02x}.{:x}", at.domain, at.bus & 0xff, at.device & 0x1f, at.function & 0x7);
      for (Device& device : found.devices)
        if (device.pci == pci) learn_by_sysman(sysman, handle, device);
    }
}

}  // namespace gsel
