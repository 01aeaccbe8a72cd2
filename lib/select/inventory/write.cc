// select/inventory/write.cc: an inventory as JSON, which read.cc reads back as the same. A field is left out only where
// the reader would take the same value without it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "select/inventory/inventory.h"
#include "select/inventory/known.h"
#include "select/inventory/names.h"

namespace gsel {
namespace {

using nlohmann::ordered_json;

template <class Value>
void put_unless(ordered_json& out, const char* name, const Value& value, const Value& absent) {
  if (value != absent) out[name] = value;
}

// A field that the reader fills in for known products: also written when it differs from what would be filled in.
template <class Value>
void put_known(ordered_json& out, const char* name, const Value& value, const Value& filled) {
  if (value != Value{} || filled != Value{}) out[name] = value;
}

ordered_json partitions_json(const Device& device) {
  ordered_json out = ordered_json::array();
  for (const Partition& partition : device.partitions) {
    ordered_json one{{"uuid", partition.uuid}};
    put_unless(one, "gi", partition.gi, -1);
    put_unless(one, "ci", partition.ci, -1);
    put_unless(one, "memory_bytes", partition.memory_bytes, uint64_t{0});
    put_unless(one, "reserved_by", std::max(partition.reserved_by, 0), 0);
    out.push_back(std::move(one));
  }
  return out;
}

ordered_json device_json(const Device& device) {
  const Known& known = known_accelerator(device.vendor, device.name);
  ordered_json out;
  out["vendor"] = device.vendor;
  put_unless(out, "name", device.name, {});
  put_unless(out, "uuid", device.uuid, {});
  put_unless(out, "pci", device.pci, {});
  out["memory_bytes"] = device.memory_bytes;
  out["free_bytes"] = device.free_bytes;
  put_known(out, "architecture", device.architecture, std::string(known.architecture));
  if (device.capability_major || device.capability_minor || device.vendor == "nvidia")
    out["compute_capability"] = fmt::format("{}.{}", device.capability_major, device.capability_minor);
  out[device.is_cpu() ? "cores" : "multiprocessors"] = device.compute_units;
  put_known(out, "clock_khz", device.clock_khz, known.clock_khz);
  put_unless(out, "compute_mode", std::string(compute_mode_name(device.compute_mode)),
             std::string(compute_mode_name(ComputeMode::standard)));
  put_unless(out, "process_count", device.process_count, -1);
  put_unless(out, "numa", device.numa, -1);
  put_known(out, "tiles", device.tiles, known.tiles);
  put_unless(out, "ordinal", device.ordinal, -1);
  put_unless(out, "module", device.module, -1);
  put_known(out, "integrated", device.integrated, known.integrated);
  put_unless(out, "accessible", device.accessible, true);
  put_unless(out, "reserved_by", std::max(device.reserved_by, 0), 0);
  if (device.divided) out["partitions"] = partitions_json(device);
  return out;
}

ordered_json link_json(const Link& link, const Device& a) {
  const LinkFigures typical = typical_link(link.kind, a);
  ordered_json out{{"a", link.a}, {"b", link.b}, {"class", link.kind}};
  put_known(out, "bytes_per_second", link.bytes_per_second, typical.bytes_per_second);
  put_known(out, "latency_s", link.latency_s, typical.latency_s);
  return out;
}

ordered_json host_json(const Inventory& inventory, const Host& host) {
  const Device* devices = inventory.devices.data() + host.first;
  ordered_json out{{"name", host.name}, {"devices", ordered_json::array()}};
  for (int32_t i = 0; i < host.count; ++i) out["devices"].push_back(device_json(devices[i]));
  for (const Link& link : host.links) out["links"].push_back(link_json(link, devices[link.a]));
  return out;
}

}  // namespace

std::string inventory_json(const Inventory& inventory) {
  ordered_json root;
  root["gsel_inventory"] = 1;
  root["hosts"] = ordered_json::array();
  for (const Host& host : inventory.hosts) root["hosts"].push_back(host_json(inventory, host));
  if (!inventory.notes.empty()) root["notes"] = inventory.notes;
  return root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace gsel
