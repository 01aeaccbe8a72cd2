// select/inventory/read.cc: the JSON form of an inventory. Whatever could be read two ways is refused: unknown fields,
// devices out of bus order, one identity for two devices.
#include "select/inventory/inventory.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/read_file.h"
#include "select/inventory/json_object.h"

namespace gsel {
namespace {

constexpr size_t kMaxFileBytes = 16 << 20;
constexpr uint64_t kMaxBytes = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kMaxInt = std::numeric_limits<int32_t>::max();

// "9.0" as two numbers.
void read_capability(JsonObject& object, Device& device) {
  const std::string text = object.text("compute_capability", "0.0");
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, device.capability_major);
  const bool dot = major.ec == std::errc() && major.ptr != end && *major.ptr == '.';
  const auto minor =
      dot ? std::from_chars(major.ptr + 1, end, device.capability_minor) : std::from_chars_result{end, std::errc()};
  if (!dot || minor.ec != std::errc() || minor.ptr != end || device.capability_major < 0 || device.capability_minor < 0)
    object.refuse("compute_capability", fmt::format("is \"{}\", text such as \"9.0\" is needed", text));
}

Device read_device(JsonObject object) {
  Device device;
  device.vendor = object.require_text("vendor");
  device.name = object.require_text("name");
  device.uuid = object.text("uuid");
  const std::string pci = object.text("pci");
  device.pci = normalise_pci(pci);
  device.memory_bytes = object.number("memory_bytes", 0, kMaxBytes, 0);
  device.free_bytes = object.number("free_bytes", 0, kMaxBytes, 0);
  read_capability(object, device);
  device.compute_units =
      static_cast<int32_t>(object.number(device.is_cpu() ? "cores" : "multiprocessors", 0, kMaxInt, 0));
  if (object.has("process_count"))
    device.process_count = static_cast<int32_t>(object.number("process_count", 0, kMaxInt, 0));
  if (object.has("numa")) device.numa = static_cast<int32_t>(object.number("numa", 0, kMaxInt, 0));
  object.finish();

  if (!pci.empty() && device.pci.empty())
    object.refuse("pci", fmt::format("is \"{}\", an address such as \"00000000:3b:00.0\" is needed", pci));
  if (device.uuid.empty() && !device.is_cpu()) object.refuse("uuid", "is missing; only a CPU has none");
  if (device.vendor == "nvidia" && device.uuid.compare(0, 4, "GPU-") != 0)
    object.refuse("uuid", fmt::format("is \"{}\", an NVIDIA device's begins with GPU-", device.uuid));
  if (device.free_bytes > device.memory_bytes)
    object.refuse("free_bytes",
                  fmt::format("is {}, more than memory_bytes {}", device.free_bytes, device.memory_bytes));
  return device;
}

// The order stated by the format: accelerators by bus address, then at most one CPU.
void check_order(const JsonObject& host, const std::vector<Device>& devices) {
  for (size_t i = 0; i + 1 < devices.size(); ++i) {
    const Device &here = devices[i], &next = devices[i + 1];
    if (here.is_cpu()) host.refuse(fmt::format("devices[{}]", i), "is a CPU, which stands last and once");
    if (!next.pci.empty() && next.pci <= here.pci)
      host.refuse(fmt::format("devices[{}].pci", i + 1),
                  fmt::format("is {} and stands after {}; devices stand in bus order, each once", next.pci, here.pci));
  }
}

void read_host(JsonObject host, const std::string& file, Inventory& inventory) {
  const std::string name = host.require_text("name");
  const auto& list = host.array("devices");
  host.finish();
  std::vector<Device> devices;
  for (size_t i = 0; i < list.size(); ++i)
    devices.push_back(read_device(JsonObject(list[i], host.path_of(fmt::format("devices[{}]", i)), file)));
  check_order(host, devices);
  for (const Host& before : inventory.hosts)
    if (before.name == name) host.refuse("name", fmt::format("is \"{}\", as of a host before it", name));
  inventory.add({name, 0, 0, {}}, std::move(devices));
}

void check_identities(const JsonObject& root, const Inventory& inventory) {
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < inventory.devices.size(); ++i) {
    const std::string& uuid = inventory.devices[i].uuid;
    if (uuid.empty()) continue;
    const auto [first, fresh] = seen.emplace(uuid, i);
    if (!fresh) root.refuse("hosts", fmt::format("have uuid {} twice: devices {} and {}", uuid, first->second, i));
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

std::string normalise_pci(std::string_view text) {
  const auto hex = [&](size_t from, size_t count) {
    for (size_t i = from; i < from + count; ++i)
      if (!std::isxdigit(static_cast<unsigned char>(text[i]))) return false;
    return true;
  };
  const size_t domain = text.find(':');
  if (domain == text.npos || domain < 4 || domain > 8 || text.size() != domain + 8) return {};
  if (text[domain + 3] != ':' || text[domain + 6] != '.') return {};
  if (!hex(0, domain) || !hex(domain + 1, 2) || !hex(domain + 4, 2) || !hex(domain + 7, 1)) return {};
  std::string out = std::string(8 - domain, '0') + std::string(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

Inventory parse_inventory(std::string_view text, const std::string& file) {
  const nlohmann::json tree = parse_json(text, file);
  JsonObject root(tree, "", file);
  if (!root.has("gsel_inventory")) root.refuse("gsel_inventory", "is missing; 1 is needed");
  root.number("gsel_inventory", 1, 1, 1);
  Inventory inventory;
  const auto& hosts = root.array("hosts");
  inventory.notes = root.texts("notes");
  root.finish();
  if (hosts.empty()) root.refuse("hosts", root.has("hosts") ? "is empty, a host is needed" : "is missing");
  for (size_t i = 0; i < hosts.size(); ++i)
    read_host(JsonObject(hosts[i], fmt::format("hosts[{}]", i), file), file, inventory);
  check_identities(root, inventory);
  return inventory;
}

Inventory load_inventory(const std::string& path) {
  const std::string absolute = absolute_path("inventory", path);
  return parse_inventory(read_file("inventory", absolute, kMaxFileBytes), absolute);
}

}  // namespace gsel
