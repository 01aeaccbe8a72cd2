// select/inventory/write.cc: writes an inventory as JSON that read.cc reads back unchanged. A field is omitted only
// where the reader would use the same value without it.
#include <fmt/format.h>

#include "base/json.h"
#include "select/inventory/inventory.h"
#include "select/inventory/known.h"

namespace gsel {
namespace {

template <class Value>
void put_unless(Json& out, const char* name, const Value& value, const Value& absent) {
  if (value != absent) out.set(name, value);
}

// A field that the reader fills in for known products: written unless both the value and the filled-in value are empty.
template <class Value>
void put_known(Json& out, const char* name, const Value& value, const Value& filled) {
  if (value != Value{} || filled != Value{}) out.set(name, value);
}

Json partitions_json(const Device& device) {
  Json out = Json::array();
  for (const Partition& partition : device.partitions) {
    Json one{{"uuid", partition.uuid}};
    put_unless(one, "gi", partition.gi, -1);
    put_unless(one, "ci", partition.ci, -1);
    put_unless(one, "memory_bytes", partition.memory_bytes, uint64_t{0});
    put_unless(one, "reserved_by", std::max(partition.reserved_by, 0), 0);
    out.push(std::move(one));
  }
  return out;
}

Json speed_json(const Speed& speed) {
  Json out;
  const auto put = [&](const char* name, double rate) { put_unless(out, name, rate, 0.0); };
  put("bf16_flop_per_second", speed.bf16_flop);
  put("tf32_flop_per_second", speed.tf32_flop);
  put("f32_flop_per_second", speed.f32_flop);
  put("fp8_flop_per_second", speed.fp8_flop);
  put("memory_bytes_per_second", speed.memory_bytes);
  put("link_bytes_per_second", speed.link_bytes);
  put("host_bytes_per_second", speed.host_bytes);
  put("network_bytes_per_second", speed.network_bytes);
  return out;
}

Json device_json(const Device& device) {
  const Known& known = known_accelerator(device.vendor, device.name);
  Json out;
  out.set("vendor", device.vendor);
  put_unless(out, "name", device.name, {});
  put_unless(out, "uuid", device.uuid, {});
  put_unless(out, "pci", device.pci, {});
  out.set("memory_bytes", device.memory_bytes);
  out.set("free_bytes", device.free_bytes);
  put_known(out, "architecture", device.architecture, std::string(known.architecture));
  if (device.capability_major || device.capability_minor || device.vendor == "nvidia")
    out.set("compute_capability", fmt::format("{}.{}", device.capability_major, device.capability_minor));
  out.set(device.is_cpu() ? "cores" : "multiprocessors", device.compute_units);
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
  if (device.divided) out.set("partitions", partitions_json(device));
  if (device.speed.is_told()) out.set("speed", speed_json(device.speed));
  return out;
}

Json link_json(const Link& link, const Device& a) {
  const LinkFigures typical = typical_link(link.kind, a);
  Json out{{"a", link.a}, {"b", link.b}, {"class", link.kind}};
  put_known(out, "bytes_per_second", link.bytes_per_second, typical.bytes_per_second);
  put_known(out, "latency_s", link.latency_s, typical.latency_s);
  return out;
}

Json vulkan_json(const VulkanDevice& vulkan) {
  Json out{{"name", vulkan.name}, {"kind", vulkan.kind}};
  put_unless(out, "pci", vulkan.pci, {});
  put_unless(out, "uuid", vulkan.uuid, {});
  put_unless(out, "driver", vulkan.driver, {});
  put_unless(out, "driver_id", vulkan.driver_id, 0);
  put_unless(out, "vendor_id", vulkan.vendor_id, 0u);
  put_unless(out, "device_id", vulkan.device_id, 0u);
  put_unless(out, "storage16", vulkan.storage16, true);
  return out;
}

Json host_json(const Inventory& inventory, const Host& host) {
  const Device* devices = inventory.devices.data() + host.first;
  Json list = Json::array(), links = Json::array();
  for (int32_t i = 0; i < host.count; ++i) list.push(device_json(devices[i]));
  for (const Link& link : host.links) links.push(link_json(link, devices[link.a]));
  Json out{{"name", host.name}, {"devices", std::move(list)}};
  if (!links.empty()) out.set("links", std::move(links));
  if (host.vulkan) {
    Json vulkan = Json::array();
    for (const VulkanDevice& one : *host.vulkan) vulkan.push(vulkan_json(one));
    out.set("vulkan", std::move(vulkan));
  }
  return out;
}

}  // namespace

std::string inventory_json(const Inventory& inventory) {
  Json hosts = Json::array();
  for (const Host& host : inventory.hosts) hosts.push(host_json(inventory, host));
  Json root{{"gsel_inventory", 1}, {"hosts", std::move(hosts)}};
  if (!inventory.notes.empty()) root.set("notes", inventory.notes);
  return root.on_lines(2);
}

}  // namespace gsel
