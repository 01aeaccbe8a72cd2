// select/inventory.h: what a machine has, as data: found by the probes or read from a file, so that any machine can be
// replayed. Refuses to know: visibility, requests, selections. Order is identity: accelerators in PCI bus order, then
// the CPU of the host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

struct Device {
  std::string host;
  std::string vendor;  // "nvidia", "cpu", ...
  std::string name;
  std::string uuid;  // "GPU-..."; empty for a CPU
  std::string pci;   // "00000000:3b:00.0"; empty for a CPU
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;
  int32_t capability_major = 0;
  int32_t capability_minor = 0;
  int32_t compute_units = 0;   // multiprocessors, or cores of a CPU
  int32_t process_count = -1;  // -1: not told
  int32_t numa = -1;           // -1: unknown, or several

  bool is_cpu() const { return vendor == "cpu"; }
};

struct Inventory {
  std::vector<Device> devices;
  std::vector<std::string> notes;  // what was looked for and not found
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
