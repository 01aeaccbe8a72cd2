// select/inventory/read.cc: reads the JSON form of an inventory. Ambiguous input is refused: unknown fields, devices
// out of bus order, one identity for two devices. Missing fields are filled in from known.h where it knows the product.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "base/json_object.h"
#include "base/text.h"
#include "select/inventory/inventory.h"
#include "select/inventory/known.h"
#include "select/inventory/vulkan.h"

namespace gsel {
namespace {

constexpr size_t kMaxFileBytes = 16 << 20;
constexpr uint64_t kMaxBytes = std::numeric_limits<uint64_t>::max();
constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int32_t kMaxTiles = 64;

// Splits "9.0" into two numbers.
void read_capability(JsonObject& object, const Known& known, Device& device) {
  device.capability_major = known.capability_major;
  device.capability_minor = known.capability_minor;
  const std::string text = object.text("compute_capability");
  if (!object.has("compute_capability")) return;
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, device.capability_major);
  const bool dot = major.ec == std::errc() && major.ptr != end && *major.ptr == '.';
  const auto minor =
      dot ? std::from_chars(major.ptr + 1, end, device.capability_minor) : std::from_chars_result{end, std::errc()};
  if (!dot || minor.ec != std::errc() || minor.ptr != end || device.capability_major < 0 || device.capability_minor < 0)
    object.refuse("compute_capability", fmt::format("is \"{}\", text such as \"9.0\" is needed", text));
}

void read_vendor(JsonObject& object, Device& device) {
  device.vendor = object.require_text("vendor");
  for (const char c : device.vendor)
    if (std::isupper(static_cast<unsigned char>(c)))
      object.refuse("vendor", fmt::format("is \"{}\"; vendors are written in lower case, such as nvidia, amd, intel",
                                          device.vendor));
}

// A device has a name or a uuid or both. A hand-written inventory may omit uuids.
void read_identity(JsonObject& object, Device& device) {
  device.name = object.text("name");
  device.uuid = object.text("uuid");
  if (device.name.empty() && device.uuid.empty())
    object.refuse("name", object.has("name") ? "is empty, and there is no uuid" : "is missing, and so is uuid");
  if (device.vendor == "nvidia" && !device.uuid.empty() && !device.uuid.starts_with("GPU-"))
    object.refuse("uuid", fmt::format("is \"{}\", an NVIDIA device's begins with GPU-", device.uuid));
  const std::string pci = object.text("pci");
  device.pci = normalise_pci(pci);
  if (!pci.empty() && device.pci.empty())
    object.refuse("pci", fmt::format("is \"{}\", an address such as \"00000000:3b:00.0\" is needed", pci));
}

// Without computing processes, all memory counts as free.
void read_memory(JsonObject& object, const Known& known, Device& device) {
  device.memory_bytes = object.number("memory_bytes", 0, kMaxBytes, known.memory_bytes);
  device.free_bytes = object.number("free_bytes", 0, kMaxBytes, device.process_count > 0 ? 0 : device.memory_bytes);
  if (device.free_bytes > device.memory_bytes)
    object.refuse("free_bytes",
                  fmt::format("is {}, more than memory_bytes {}", device.free_bytes, device.memory_bytes));
}

void read_compute_mode(JsonObject& object, Device& device) {
  const std::string text = object.text("compute_mode", compute_mode_name(ComputeMode::standard));
  const auto mode = compute_mode_of(text);
  if (!mode)
    object.refuse("compute_mode", fmt::format("is \"{}\"; it is default, exclusive_process or prohibited", text));
  device.compute_mode = *mode;
}

Partition read_partition(JsonObject object) {
  Partition partition;
  partition.uuid = object.require_text("uuid");
  partition.gi = object.whole("gi", kMaxInt, -1);
  partition.ci = object.whole("ci", kMaxInt, -1);
  partition.memory_bytes = object.number("memory_bytes", 0, kMaxBytes, 0);
  partition.reserved_by = object.whole("reserved_by", kMaxInt, 0);
  object.finish();
  if (!partition.uuid.starts_with("MIG-"))
    object.refuse("uuid", fmt::format("is \"{}\", a MIG instance's begins with MIG-", partition.uuid));
  return partition;
}

void read_partitions(JsonObject& object, Device& device) {
  device.divided = object.has("partitions");
  if (device.divided && device.vendor != "nvidia")
    object.refuse("partitions", "are MIG instances, which only an nvidia device has");
  object.array("partitions").each([&](JsonObject one) { device.partitions.push_back(read_partition(std::move(one))); });
}

// Either has all fields that a plan requires, or nothing.
Speed read_speed(JsonObject object, bool told) {
  constexpr double kLeast = 1, kMost = 1e24;
  const auto rate = [&](const char* name) { return object.real(name, kLeast, kMost, 0); };
  const Speed speed{rate("bf16_flop_per_second"),  rate("tf32_flop_per_second"),    rate("f32_flop_per_second"),
                    rate("fp8_flop_per_second"),   rate("memory_bytes_per_second"), rate("link_bytes_per_second"),
                    rate("host_bytes_per_second"), rate("network_bytes_per_second")};
  object.finish();
  for (const char* needed : {"bf16_flop_per_second", "memory_bytes_per_second"})
    if (told && !object.has(needed)) object.refuse(needed, "is missing; a number from 1 is needed");
  return speed;
}

Device read_device(JsonObject object) {
  Device device;
  read_vendor(object, device);
  read_identity(object, device);
  const Known& known = known_accelerator(device.vendor, device.name);
  device.process_count = object.whole("process_count", kMaxInt, -1);
  read_memory(object, known, device);
  device.architecture = object.text("architecture", std::string(known.architecture));
  read_capability(object, known, device);
  device.compute_units = object.whole(device.is_cpu() ? "cores" : "multiprocessors", kMaxInt, known.compute_units);
  device.clock_khz = static_cast<int64_t>(
      object.number("clock_khz", 0, std::numeric_limits<int64_t>::max(), static_cast<uint64_t>(known.clock_khz)));
  device.numa = object.whole("numa", kMaxInt, -1);
  device.tiles = object.whole("tiles", kMaxTiles, known.tiles);
  device.ordinal = object.whole("ordinal", kMaxInt, -1);
  device.module = object.whole("module", kMaxInt, -1);
  read_compute_mode(object, device);
  device.integrated = object.flag("integrated", known.integrated);
  device.accessible = object.flag("accessible", true);
  device.reserved_by = object.whole("reserved_by", kMaxInt, 0);
  read_partitions(object, device);
  device.speed = read_speed(object.object("speed"), object.has("speed"));
  object.finish();
  if (device.speed.is_told() && device.memory_bytes == 0)
    object.refuse("memory_bytes", fmt::format("is {}, and speed is there, of a device whose memory must be known",
                                              object.has("memory_bytes") ? "0" : "missing"));
  return device;
}

// Checks the order that the format requires: accelerators by bus address, then at most one CPU.
void check_order(const JsonObject& host, const std::vector<Device>& devices) {
  std::string_view before;
  for (size_t i = 0; i < devices.size(); ++i) {
    const Device& here = devices[i];
    if (here.is_cpu() && i + 1 < devices.size())
      host.refuse(fmt::format("devices[{}]", i), "is a CPU before another device; list one CPU, as the last device");
    if (here.pci.empty()) continue;
    if (here.pci <= before)
      host.refuse(fmt::format("devices[{}].pci", i),
                  fmt::format("is {} but comes after {}; list devices in bus order, each once", here.pci, before));
    before = here.pci;
  }
}

// Numbers by which drivers identify devices must be unique.
void check_places(const JsonObject& host, const std::vector<Device>& devices, const char* field,
                  int32_t Device::*place) {
  std::set<std::pair<std::string_view, int32_t>> seen;
  for (size_t i = 0; i < devices.size(); ++i)
    if (devices[i].*place >= 0 && !seen.emplace(devices[i].vendor, devices[i].*place).second)
      host.refuse(fmt::format("devices[{}].{}", i, field),
                  fmt::format("is {}, as of another {} device", devices[i].*place, devices[i].vendor));
}

// Finds a device of the host by index, uuid or bus address.
class DeviceNames {
 public:
  explicit DeviceNames(const std::vector<Device>& devices) : count_(devices.size()) {
    for (size_t i = 0; i < devices.size(); ++i) {
      if (!devices[i].uuid.empty()) by_text_.emplace(devices[i].uuid, i);
      if (!devices[i].pci.empty()) by_text_.emplace(devices[i].pci, i);
    }
  }

  int32_t read(JsonObject& link, const char* field) const {
    if (!link.has(field)) link.refuse(field, "is missing");
    if (!link.is_text(field)) {
      const int32_t index = link.whole(field, kMaxInt, 0);
      if (static_cast<size_t>(index) >= count_)
        link.refuse(field, fmt::format("is {}; the host has {}, counted from 0", index, with_noun(count_, "device")));
      return index;
    }
    const std::string text = link.text(field), pci = normalise_pci(text);
    const auto found = by_text_.find(pci.empty() ? text : pci);
    if (found == by_text_.end())
      link.refuse(field, fmt::format("is \"{}\", neither uuid nor pci of a device of the host", text));
    return static_cast<int32_t>(found->second);
  }

 private:
  size_t count_;
  std::unordered_map<std::string, size_t> by_text_;
};

Link read_link(JsonObject object, const DeviceNames& names, const std::vector<Device>& devices) {
  Link link;
  link.a = names.read(object, "a");
  link.b = names.read(object, "b");
  link.kind = object.require_text("class");
  const LinkFigures typical = typical_link(link.kind, devices[static_cast<size_t>(link.a)]);
  link.bytes_per_second = object.amount("bytes_per_second", typical.bytes_per_second);
  link.latency_s = object.amount("latency_s", typical.latency_s);
  object.finish();
  if (link.a == link.b) object.refuse("b", "is the device that a is; a link joins two");
  if (link.a > link.b) std::swap(link.a, link.b);
  return link;
}

std::vector<Link> read_links(JsonObject& host, const std::vector<Device>& devices) {
  const JsonArray list = host.array("links");
  std::vector<Link> links;
  if (list.empty()) return links;
  const DeviceNames names(devices);
  std::unordered_set<uint64_t> seen;
  for (size_t i = 0; i < list.size(); ++i) {
    const Link link = read_link(list.object(i), names, devices);
    if (!seen.insert(uint64_t{static_cast<uint32_t>(link.a)} << 32 | static_cast<uint32_t>(link.b)).second)
      host.refuse(fmt::format("links[{}]", i),
                  fmt::format("joins devices {} and {}, as a link before it", link.a, link.b));
    links.push_back(link);
  }
  return links;
}

VulkanDevice read_vulkan_device(JsonObject object) {
  VulkanDevice out;
  out.name = object.require_text("name");
  out.kind = object.require_text("kind");
  const std::string pci = object.text("pci");
  out.pci = normalise_pci(pci);
  out.uuid = object.text("uuid");
  out.driver = object.text("driver");
  out.driver_id = object.whole("driver_id", kMaxInt, 0);
  out.vendor_id = static_cast<uint32_t>(object.number("vendor_id", 0, std::numeric_limits<uint32_t>::max(), 0));
  out.device_id = static_cast<uint32_t>(object.number("device_id", 0, std::numeric_limits<uint32_t>::max(), 0));
  out.storage16 = object.flag("storage16", true);
  object.finish();
  if (std::find(std::begin(kVulkanKinds), std::end(kVulkanKinds), out.kind) == std::end(kVulkanKinds))
    object.refuse("kind", fmt::format("is \"{}\"; it is discrete, integrated, virtual, cpu or other", out.kind));
  if (!pci.empty() && out.pci.empty())
    object.refuse("pci", fmt::format("is \"{}\", an address such as \"00000000:3b:00.0\" is needed", pci));
  return out;
}

void read_host(JsonObject host, Inventory& inventory) {
  const std::string name = host.require_text("name");
  std::vector<Device> devices;
  host.array("devices").each([&](JsonObject device) { devices.push_back(read_device(std::move(device))); });
  check_order(host, devices);
  check_places(host, devices, "ordinal", &Device::ordinal);
  check_places(host, devices, "module", &Device::module);
  Host made{name, 0, 0, read_links(host, devices)};
  if (host.has("vulkan")) made.vulkan.emplace();
  host.array("vulkan").each([&](JsonObject one) { made.vulkan->push_back(read_vulkan_device(std::move(one))); });
  host.finish();
  inventory.add(std::move(made), std::move(devices));
}

void check_host_names(const JsonObject& root, const std::vector<Host>& hosts) {
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < hosts.size(); ++i)
    if (!seen.insert(hosts[i].name).second)
      root.refuse(fmt::format("hosts[{}].name", i), fmt::format("is \"{}\", as of a host before it", hosts[i].name));
}

void check_identities(const JsonObject& root, const Inventory& inventory) {
  std::unordered_map<std::string_view, size_t> seen;
  const auto add = [&](const std::string& uuid, size_t i) {
    if (uuid.empty()) return;
    const auto [first, fresh] = seen.emplace(uuid, i);
    if (!fresh) root.refuse("hosts", fmt::format("have uuid {} twice: devices {} and {}", uuid, first->second, i));
  };
  for (size_t i = 0; i < inventory.devices.size(); ++i) {
    add(inventory.devices[i].uuid, i);
    for (const Partition& partition : inventory.devices[i].partitions) add(partition.uuid, i);
  }
}

}  // namespace

void Inventory::add(Host host, std::vector<Device> devices_of_host) {
  host.first = static_cast<int32_t>(devices.size());
  host.count = static_cast<int32_t>(devices_of_host.size());
  for (int32_t i = 0; i < host.count; ++i) {
    Device& device = devices_of_host[static_cast<size_t>(i)];
    device.host = static_cast<int32_t>(hosts.size());
    device.index = i;
    devices.push_back(std::move(device));
  }
  hosts.push_back(std::move(host));
}

Inventory parse_inventory(std::string_view text, const std::string& file) {
  const JsonSource source{"inventory", one_line(file), text};
  const auto tree = parse_json(text, source);
  JsonObject root(*tree, source);
  if (!root.has("gsel_inventory")) root.refuse("gsel_inventory", "is missing; 1 is needed");
  root.number("gsel_inventory", 1, 1, 1);
  Inventory inventory;
  const JsonArray hosts = root.array("hosts");
  inventory.notes = root.texts("notes");
  root.finish();
  if (hosts.empty()) root.refuse("hosts", root.has("hosts") ? "is empty, a host is needed" : "is missing");
  hosts.each([&](JsonObject host) { read_host(std::move(host), inventory); });
  check_host_names(root, inventory.hosts);
  check_identities(root, inventory);
  return inventory;
}

Inventory load_inventory(const std::string& path) {
  const std::string absolute = absolute_path("inventory", path);
  return parse_inventory(read_file("inventory", absolute, kMaxFileBytes), absolute);
}

}  // namespace gsel
