// select/probe/detect.cc: detects this machine: calls all probes, then sorts devices in inventory order. Does not know
// the sources. A source that fails does not hide the results of the others.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "select/inventory/known.h"
#include "select/probe/probes.h"

namespace gsel {
namespace {

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || !name[0]) return "localhost";
  return name;
}

void append(Found part, Found& found) {
  std::move(part.devices.begin(), part.devices.end(), std::back_inserter(found.devices));
  std::move(part.links.begin(), part.links.end(), std::back_inserter(found.links));
  std::move(part.notes.begin(), part.notes.end(), std::back_inserter(found.notes));
}

void probe_nvidia(const FileTree& files, Found& found) {
  if (probe_nvml(files, found)) return;
  Found listed;
  probe_nvidia_driver(files, listed);
  if (!listed.devices.empty()) found.notes.clear();  // the missing NVML is reported with the devices
  append(std::move(listed), found);
}

void probe_intel(const FileTree& files, Found& found) {
  probe_drm(files, found);
  ask_sysman(files, found);
}

void probe_gaudi(const FileTree& files, Found& found) {
  probe_habana(files, found);
  ask_hlml(files, found);
}

void probe_huawei(const FileTree& files, Found& found) {
  probe_ascend(files, found);
  ask_dcmi(files, found);
}

// A driver that fails is an error if there is no other device, else a note.
void probe_accelerators(const FileTree& files, Found& found) {
  std::optional<Error> failure;
  for (const auto probe : {probe_nvidia, probe_kfd, probe_intel, probe_gaudi, probe_huawei}) {
    Found part;
    try {
      probe(files, part);
    } catch (const Error& e) {
      if (e.code() != GSEL_ERR_IO) throw;
      found.notes.push_back(e.message());
      if (!failure) failure = e;
      continue;
    }
    append(std::move(part), found);
  }
  if (failure && found.devices.empty()) throw *failure;
}

// Sorts by bus address. Two devices at one address would be the same device found twice.
void set_in_order(Found& found) {
  std::stable_sort(found.devices.begin(), found.devices.end(),
                   [](const Device& a, const Device& b) { return a.pci < b.pci; });
  for (size_t i = 1; i < found.devices.size();) {
    if (found.devices[i].pci != found.devices[i - 1].pci) {
      ++i;
      continue;
    }
    found.notes.push_back(fmt::format("{} was told twice; the first is kept", found.devices[i].pci));
    found.devices.erase(found.devices.begin() + static_cast<ptrdiff_t>(i));
  }
}

std::vector<Link> place_links(const Found& found) {
  std::unordered_map<std::string_view, int32_t> places;
  for (size_t i = 0; i < found.devices.size(); ++i) places.emplace(found.devices[i].pci, static_cast<int32_t>(i));
  std::vector<Link> links;
  for (const FoundLink& link : found.links) {
    const auto a = places.find(link.a), b = places.find(link.b);
    if (a == places.end() || b == places.end() || a->second == b->second) continue;
    const auto [low, high] = std::minmax(a->second, b->second);
    const LinkFigures typical = typical_link(link.kind, found.devices[static_cast<size_t>(low)]);
    links.push_back({low, high, link.kind, link.bytes_per_second > 0 ? link.bytes_per_second : typical.bytes_per_second,
                     link.latency_s > 0 ? link.latency_s : typical.latency_s});
  }
  const auto ends = [](const Link& link) { return std::pair(link.a, link.b); };
  std::stable_sort(links.begin(), links.end(), [&](const Link& x, const Link& y) { return ends(x) < ends(y); });
  links.erase(std::unique(links.begin(), links.end(), [&](const Link& x, const Link& y) { return ends(x) == ends(y); }),
              links.end());
  return links;
}

}  // namespace

void fill_from_product(Device& device) {
  const Known& known = known_accelerator(device.vendor, device.name);
  if (!device.memory_bytes) device.memory_bytes = known.memory_bytes;
  if (!device.capability_major) {
    device.capability_major = known.capability_major;
    device.capability_minor = known.capability_minor;
  }
  if (device.architecture.empty()) device.architecture = known.architecture;
  if (!device.compute_units) device.compute_units = known.compute_units;
  if (!device.clock_khz) device.clock_khz = known.clock_khz;
  if (!device.tiles) device.tiles = known.tiles;
  device.integrated = device.integrated || known.integrated;
}

namespace {

Inventory detect(bool with_vulkan) {
  const FileTree files = FileTree::of_this_machine();
  Found found;
  probe_accelerators(files, found);
  set_in_order(found);
  Host host{host_name(), 0, 0, place_links(found)};
  if (with_vulkan) host.vulkan = ask_vulkan(files, found.notes);
  found.devices.push_back(probe_cpu());
  Inventory inventory;
  inventory.notes = std::move(found.notes);
  inventory.add(std::move(host), std::move(found.devices));
  return inventory;
}

}  // namespace

Inventory detect_inventory() {
  return detect(false);
}

Inventory detect_inventory_with_vulkan() {
  return detect(true);
}

}  // namespace gsel
