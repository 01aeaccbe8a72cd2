// select/inventory/inventory.h: the devices of machines as data, detected by the probes or read from a file, so that
// any machine can be replayed. The order identifies devices: within a host, accelerators are in PCI bus order, followed
// by the CPU. Does not know visibility, requests or selections.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

// Which processes may compute on an NVIDIA device, as set by nvidia-smi -c.
enum class ComputeMode : int8_t { standard, exclusive_process, prohibited };
// The spelling in inventory files: "default", "exclusive_process", "prohibited".
const char* compute_mode_name(ComputeMode mode);
std::optional<ComputeMode> compute_mode_of(std::string_view name);

// A MIG instance.
struct Partition {
  std::string uuid;  // "MIG-..."
  int32_t gi = -1;   // GPU instance, -1: unknown
  int32_t ci = -1;   // compute instance, -1: unknown
  uint64_t memory_bytes = 0;
  int32_t reserved_by = 0;  // process that has reserved it, 0: none
};

// Peak rates of a device from an inventory file. Only plans use them; without them, plans use their own catalogue. Per
// second, in one direction; 0: unknown, or no such units.
struct Speed {
  double bf16_flop = 0, tf32_flop = 0, f32_flop = 0, fp8_flop = 0;  // dense; fp16 equals bf16; fp8 is any 8-bit type
  double memory_bytes = 0;
  double link_bytes = 0;     // to neighbouring devices; 0: over PCI
  double host_bytes = 0;     // to host memory
  double network_bytes = 0;  // its share of the host's network

  bool is_told() const { return bf16_flop > 0; }
  bool operator==(const Speed&) const = default;
};

struct Device {
  int32_t host = 0;    // index in Inventory::hosts
  int32_t index = 0;   // bus order within the host
  std::string vendor;  // "nvidia", "amd", "intel", "habana", "ascend", "apple", "cpu", or another
  std::string name;
  std::string uuid;          // "GPU-..."; empty for a CPU
  std::string pci;           // "00000000:3b:00.0"; empty for a CPU
  std::string architecture;  // "gfx942", "xe-hpc"; empty: unknown (NVIDIA has the compute capability)
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;
  int32_t capability_major = 0;
  int32_t capability_minor = 0;
  int32_t compute_units = 0;   // multiprocessors, or cores of a CPU
  int64_t clock_khz = 0;       // highest clock of the compute units
  int32_t process_count = -1;  // processes computing on it, -1: unknown
  int32_t numa = -1;           // -1: unknown, or several
  int32_t tiles = 0;           // of an Intel card; 0: unknown
  int32_t ordinal = -1;        // number in the driver's own enumeration without masks, -1: unknown
  int32_t module = -1;         // Gaudi: stable module id, -1: unknown
  int32_t reserved_by = 0;     // process that has a gsel reservation, 0: none
  ComputeMode compute_mode = ComputeMode::standard;
  bool integrated = false;
  bool accessible = true;  // false: the driver lists it, but this user may not open it
  bool divided = false;    // in MIG mode: only its partitions can be used
  std::vector<Partition> partitions;
  Speed speed;

  bool is_cpu() const { return vendor == "cpu"; }
};

// A connection between two devices of one host.
struct Link {
  int32_t a = 0, b = 0;         // Device::index
  std::string kind;             // "NV4", "PIX", "PXB", "PHB", "NODE", "SYS", or another
  double bytes_per_second = 0;  // 0: unknown
  double latency_s = 0;         // 0: unknown
};

// A physical device of Vulkan, which is a card under one driver.
struct VulkanDevice {
  std::string name;
  std::string kind;       // "discrete", "integrated", "virtual", "cpu", "other"
  std::string pci;        // as Device::pci; empty: not told
  std::string uuid;       // VkPhysicalDeviceIDProperties::deviceUUID, without a prefix; empty: not told
  std::string driver;     // "radv", "NVIDIA"
  int32_t driver_id = 0;  // VkDriverId, 0: not told
  uint32_t vendor_id = 0, device_id = 0;
  bool storage16 = true;  // has the feature storageBuffer16BitAccess
};

struct Host {
  std::string name;
  int32_t first = 0;  // its devices are Inventory::devices[first .. first + count)
  int32_t count = 0;
  std::vector<Link> links;
  std::optional<std::vector<VulkanDevice>> vulkan{};  // in the order of vkEnumeratePhysicalDevices; nullopt: not told
};

struct Inventory {
  std::vector<Host> hosts;
  std::vector<Device> devices;     // grouped by host
  std::vector<std::string> notes;  // what was searched and not found

  const Host& host_of(const Device& device) const { return hosts[static_cast<size_t>(device.host)]; }
  // Appends a host; sets host and index of its devices, which are in bus order.
  void add(Host host, std::vector<Device> devices_of_host);
};

// Throws GSEL_ERR_IO when the file cannot be read, GSEL_ERR_PARSE with line and column or with the path of the field.
Inventory load_inventory(const std::string& path);
Inventory parse_inventory(std::string_view text, const std::string& file);

// The inventory of this machine, from all probes; the second also enumerates Vulkan devices, which starts drivers.
Inventory detect_inventory();
Inventory detect_inventory_with_vulkan();

std::string inventory_json(const Inventory& inventory);
std::string inventory_text(const Inventory& inventory);

// Converts "0000:3B:00.0" to "00000000:3b:00.0", whose text order is bus order; empty when it is no PCI address.
std::string normalise_pci(std::string_view text);

}  // namespace gsel
