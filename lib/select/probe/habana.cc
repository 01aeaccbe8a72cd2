// select/probe/habana.cc: Gaudi devices of the habanalabs driver, from files, and their uuids by HLML. Source: the
// kernel's sysfs-driver-habanalabs page; before kernel 6.3 the class was habanalabs.
#include <fmt/format.h>

#include "select/probe/library.h"
#include "select/probe/probes.h"

namespace gsel {
namespace {

// The driver's name of a device type, and the product's name.
constexpr struct {
  const char* type;
  const char* name;
} kTypes[] = {{"GAUDI3", "Intel Gaudi 3"}, {"GAUDI2", "Intel Gaudi 2"}, {"GAUDI", "Intel Gaudi"}};

std::string product_of(const std::string& type) {
  for (const auto& row : kTypes)
    if (type.starts_with(row.type)) return row.name;  // B, C, D or SEC may follow
  return "Habana " + type;
}

// Whether the accelerator accepts work; "operational" in newer drivers, "Operational" in older ones.
bool operational(const FileTree& files, const std::string& folder) {
  const std::string status = files.text(folder + "/status").value_or("operational");
  return status == "operational" || status == "Operational";
}

struct HabanaNode {
  std::string folder;  // the driver's folder
  std::string device;  // name in /dev
};

std::vector<HabanaNode> nodes_of(const FileTree& files) {
  std::vector<HabanaNode> out;
  for (const std::string& name : files.numbered("/sys/class/accel", "accel"))
    out.push_back({fmt::format("/sys/class/accel/{}/device", name), "/dev/accel/" + name});
  for (const std::string& name : files.numbered("/sys/class/habanalabs", "hl"))
    out.push_back({"/sys/class/habanalabs/" + name, "/dev/" + name});
  return out;
}

}  // namespace

void probe_habana(const FileTree& files, Found& found) {
  for (const HabanaNode& node : nodes_of(files)) {
    const std::string pci = normalise_pci(files.text(node.folder + "/pci_addr").value_or(""));
    const auto type = files.text(node.folder + "/device_type");
    if (pci.empty() || !type) continue;  // a device of another driver
    Device device;
    device.vendor = "habana";
    device.pci = pci;
    device.name = product_of(*type);
    const int64_t module = files.number(node.folder + "/module_id").value_or(-1);
    if (module >= 0 && module <= INT32_MAX) device.module = static_cast<int32_t>(module);
    device.ordinal = static_cast<int32_t>(found.devices.size());
    device.numa = pci_numa(files, pci);
    device.accessible = files.usable(node.device) && operational(files, node.folder);
    fill_from_product(device);
    if (!device.accessible)
      found.notes.push_back(fmt::format("Gaudi: {} may not be used: its status is {}, {} {} be opened", pci,
                                        files.text(node.folder + "/status").value_or("not told"), node.device,
                                        files.usable(node.device) ? "can" : "cannot"));
    found.devices.push_back(std::move(device));
  }
}

// ---- HLML -----------------------------------------------------------------------------------------------------------
// Uuids are in no file. HLML is opened at run time, and only if there are such devices. Source: Habana Management
// Library API reference.

namespace {

constexpr unsigned kTextBytes = 64;

struct Hlml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_at)(const char*, void**) = nullptr;
  int (*uuid)(void*, char*, unsigned) = nullptr;
};

bool open_hlml(const FileTree& files, Hlml& hlml) {
  const Library library(files, "GSEL_HLML_LIBRARY", {"libhlml.so"});
  return library.find(hlml.init, "hlml_init") && library.find(hlml.shutdown, "hlml_shutdown") &&
         library.find(hlml.device_at, "hlml_device_get_handle_by_pci_bus_id") &&
         library.find(hlml.uuid, "hlml_device_get_uuid");
}

}  // namespace

void ask_hlml(const FileTree& files, Found& found) {
  Hlml hlml;
  if (found.devices.empty() || !open_hlml(files, hlml) || hlml.init() != 0) return;
  for (Device& device : found.devices) {
    const std::string address = device.pci.substr(device.pci.size() - 12);  // HLML writes four digits of the domain
    void* handle = nullptr;
    char uuid[kTextBytes + 1] = "";
    if (hlml.device_at(address.c_str(), &handle) == 0 && hlml.uuid(handle, uuid, kTextBytes) == 0) device.uuid = uuid;
  }
  hlml.shutdown();
}

}  // namespace gsel
