// select/rules/before_masks.cc: what takes effect before any mask: the container, the device nodes that a cgroup
// grants, and the order in which a driver enumerates. Shared by strict and compat readings. Does not know masks.
#include <algorithm>

#include "select/rules/rules.h"

namespace gsel {
namespace {

bool told_by_all(const Group& group, int32_t Device::*place) {
  for (size_t i = 0; i < group.size(); ++i)
    if (group.at(i).*place < 0) return false;
  return true;
}

bool alike(const Device& a, const Device& b) {
  return a.name == b.name && a.capability_major == b.capability_major && a.capability_minor == b.capability_minor &&
         a.compute_units == b.compute_units && a.memory_bytes == b.memory_bytes;
}

bool all_alike(const Group& group) {
  for (size_t i = 1; i < group.size(); ++i)
    if (!alike(group.at(0), group.at(i))) return false;
  return true;
}

// A guess of fastest first; bus order if a speed is unknown.
std::vector<int32_t> guessed_order(const Group& group) {
  std::vector<int32_t> order = group.devices;
  const auto speed = [&](int32_t device) {
    const Device& of = group.inventory.devices[static_cast<size_t>(device)];
    return static_cast<double>(of.compute_units) * static_cast<double>(of.clock_khz);
  };
  if (std::any_of(order.begin(), order.end(), [&](int32_t device) { return speed(device) <= 0; })) return order;
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return speed(a) > speed(b); });
  return order;
}

}  // namespace

Group accessible_part(const Group& group, Trace& trace) {
  Group out{group.inventory, group.host, {}};
  for (size_t i = 0; i < group.size(); ++i) {
    const Device& device = group.at(i);
    if (device.accessible) {
      out.devices.push_back(group.devices[i]);
      continue;
    }
    const std::string& identity = device.uuid.empty() ? device.pci : device.uuid;
    trace.add("cgroup", {"device nodes", identity}, {identity, 1, false}, "nothing",
              "this user may not open the device, so its driver leaves it out");
  }
  return out;
}

std::vector<int32_t> driver_order(const Group& group) {
  std::vector<int32_t> order = group.devices;
  if (told_by_all(group, &Device::ordinal))
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const auto ordinal = [&](int32_t device) { return group.inventory.devices[static_cast<size_t>(device)].ordinal; };
      return std::pair(ordinal(a), a) < std::pair(ordinal(b), b);
    });
  return order;
}

Places::Places(const Group& group, const std::vector<int32_t>& order) {
  const Host& host = group.inventory.hosts[static_cast<size_t>(group.host)];
  first_ = host.first;
  places_.resize(static_cast<size_t>(host.count), -1);
  for (size_t i = 0; i < order.size(); ++i) places_[static_cast<size_t>(order[i] - first_)] = static_cast<int32_t>(i);
}

std::vector<int32_t> cuda_order(const Group& group, const Environment& environment, bool* guessed) {
  *guessed = false;
  const std::string* order = find_variable(environment, "CUDA_DEVICE_ORDER");
  if (order && *order == "PCI_BUS_ID") return group.devices;
  if (told_by_all(group, &Device::ordinal)) return driver_order(group);
  if (all_alike(group)) return group.devices;
  *guessed = true;
  return guessed_order(group);
}

void note_container(const Environment& environment, Trace& trace) {
  const std::string* outer = find_variable(environment, "NVIDIA_VISIBLE_DEVICES");
  if (!outer) return;
  const Input input{"NVIDIA_VISIBLE_DEVICES", *outer};
  trace.add("container", input, {*outer, 1, false}, "nothing",
            "acts when the container is created and never inside it (NVIDIA Container Toolkit documentation)");
  const std::string* mask = find_variable(environment, "CUDA_VISIBLE_DEVICES");
  if (mask && !mask->empty() && *mask == *outer && !is_uuid_form(*mask))
    trace.warn(
        fmt::format("CUDA_VISIBLE_DEVICES={} repeats NVIDIA_VISIBLE_DEVICES: inside a container devices are "
                    "numbered from 0 again, so indexes of the host name others",
                    printable(*mask)));
}

}  // namespace gsel
