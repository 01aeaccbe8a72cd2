// select/inventory/inventory.h: the devices of machines as data, detected by the probes or read from a file, so that
// any machine can be replayed. The order identifies devices: within a host, accelerators stand in PCI bus order, then
// the CPU. Does not know visibility, requests and selections.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

// Who may compute on an NVIDIA device, as nvidia-smi -c sets it.
enum class ComputeMode : int8_t { standard, exclusive_process, prohibited };
// As the text forms of an inventory spell it: "default", "exclusive_process", "prohibited".
const char* compute_mode_name(ComputeMode mode);
std::optional<ComputeMode> compute_mode_of(std::string_view name);

// A MIG instance.
struct Partition {
  std::string uuid;  // "MIG-..."
  int32_t gi = -1;   // GPU instance, -1: not told
  int32_t ci = -1;   // compute instance, -1: not told
  uint64_t memory_bytes = 0;
  int32_t reserved_by = 0;  // process that holds a reservation of it, 0: none
};

// How fast a device is, as its list says. Plans alone go by it; without, they know the devices of their own catalogue.
// Per second, in one direction; 0: not told, or it has no such units.
struct Speed {
  double bf16_flop = 0, tf32_flop = 0, f32_flop = 0, fp8_flop = 0;  // dense peaks; fp16 is as bf16; 8 bits of any kind
  double memory_bytes = 0;
  double link_bytes = 0;     // to its neighbours; 0: over PCI
  double host_bytes = 0;     // to the memory of the host
  double network_bytes = 0;  // its share of the network of the host

  bool is_told() const { return bf16_flop > 0; }
  bool operator==(const Speed&) const = default;
};

struct Device {
  int32_t host = 0;    // in Inventory::hosts
  int32_t index = 0;   // in bus order within the host
  std::string vendor;  // "nvidia", "amd", "intel", "habana", "ascend", "apple", "cpu", or another
  std::string name;
  std::string uuid;          // "GPU-..."; empty for a CPU
  std::string pci;           // "00000000:3b:00.0"; empty for a CPU
  std::string architecture;  // "gfx942", "xe-hpc"; empty: not told (NVIDIA tells the compute capability)
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;
  int32_t capability_major = 0;
  int32_t capability_minor = 0;
  int32_t compute_units = 0;   // multiprocessors, or cores of a CPU
  int64_t clock_khz = 0;       // highest clock of the compute units
  int32_t process_count = -1;  // processes computing on it, -1: not told
  int32_t numa = -1;           // -1: unknown, or several
  int32_t tiles = 0;           // of an Intel card; 0: not told
  int32_t ordinal = -1;        // place in its driver's own enumeration without masks, -1: not told
  int32_t module = -1;         // Gaudi: stable module id, -1: not told
  int32_t reserved_by = 0;     // process that holds a gsel reservation, 0: none
  ComputeMode compute_mode = ComputeMode::standard;
  bool integrated = false;
  bool accessible = true;  // false: the driver lists it, and this user may not open it
  bool divided = false;    // in MIG mode: only its partitions can be used
  std::vector<Partition> partitions;
  Speed speed;

  bool is_cpu() const { return vendor == "cpu"; }
};

// A way between two devices of one host.
struct Link {
  int32_t a = 0, b = 0;         // Device::index
  std::string kind;             // "NV4", "PIX", "PXB", "PHB", "NODE", "SYS", or another
  double bytes_per_second = 0;  // 0: not told
  double latency_s = 0;         // 0: not told
};

struct Host {
  std::string name;
  int32_t first = 0;  // its devices are Inventory::devices[first .. first + count)
  int32_t count = 0;
  std::vector<Link> links;
};

struct Inventory {
  std::vector<Host> hosts;
  std::vector<Device> devices;     // host after host
  std::vector<std::string> notes;  // what was looked for and not found

  const Host& host_of(const Device& device) const { return hosts[static_cast<size_t>(device.host)]; }
  // Appends a host; sets host and index of its devices, which stand in bus order.
  void add(Host host, std::vector<Device> devices_of_host);
};

// GSEL_ERR_IO when the file cannot be read, GSEL_ERR_PARSE with line and column, or the path of the field.
Inventory load_inventory(const std::string& path);
Inventory parse_inventory(std::string_view text, const std::string& file);

// This machine, by all probes.
Inventory detect_inventory();

std::string inventory_json(const Inventory& inventory);
std::string inventory_text(const Inventory& inventory);

// "0000:3B:00.0" as "00000000:3b:00.0", whose order as text is bus order; empty when it is no PCI address.
std::string normalise_pci(std::string_view text);

}  // namespace gsel
