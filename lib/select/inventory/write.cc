// select/inventory/write.cc: an inventory as JSON, which read.cc reads back, and as a table for people.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "select/inventory/inventory.h"
#include "select/table.h"

namespace gsel {
namespace {

nlohmann::ordered_json device_json(const Device& device) {
  nlohmann::ordered_json out;
  out["vendor"] = device.vendor;
  out["name"] = device.name;
  if (!device.uuid.empty()) out["uuid"] = device.uuid;
  if (!device.pci.empty()) out["pci"] = device.pci;
  out["memory_bytes"] = device.memory_bytes;
  out["free_bytes"] = device.free_bytes;
  if (!device.is_cpu())
    out["compute_capability"] = fmt::format("{}.{}", device.capability_major, device.capability_minor);
  out[device.is_cpu() ? "cores" : "multiprocessors"] = device.compute_units;
  if (device.process_count >= 0) out["process_count"] = device.process_count;
  if (device.numa >= 0) out["numa"] = device.numa;
  return out;
}

std::string number_or_dash(int32_t number) {
  return number < 0 ? "-" : std::to_string(number);
}

}  // namespace

std::string inventory_json(const Inventory& inventory) {
  nlohmann::ordered_json root;
  root["gsel_inventory"] = 1;
  root["hosts"] = nlohmann::ordered_json::array();
  for (const Host& host : inventory.hosts) {
    nlohmann::ordered_json out{{"name", host.name}, {"devices", nlohmann::ordered_json::array()}};
    for (int32_t i = 0; i < host.count; ++i)
      out["devices"].push_back(device_json(inventory.devices[static_cast<size_t>(host.first + i)]));
    root["hosts"].push_back(std::move(out));
  }
  if (!inventory.notes.empty()) root["notes"] = inventory.notes;
  return root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string inventory_text(const Inventory& inventory) {
  Table table({"index", "vendor", "name", "memory", "free", "capability", "units", "numa", "processes", "pci", "uuid"});
  for (size_t i = 0; i < inventory.devices.size(); ++i) {
    const Device& d = inventory.devices[i];
    table.add({std::to_string(i), d.vendor, d.name, bytes_text(d.memory_bytes), bytes_text(d.free_bytes),
               d.is_cpu() ? "-" : fmt::format("{}.{}", d.capability_major, d.capability_minor),
               std::to_string(d.compute_units), number_or_dash(d.numa), number_or_dash(d.process_count),
               d.pci.empty() ? "-" : d.pci, d.uuid.empty() ? "-" : d.uuid});
  }
  std::string out = table.text();
  for (const std::string& note : inventory.notes) out += fmt::format("note: {}\n", note);
  return out;
}

}  // namespace gsel
