// select/compat/cuda.cc: how the CUDA driver reads CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. It reports no errors: an
// entry that it cannot read ends the list, a repeated entry voids it.
// Sources: CUDA C++ programming guide, "CUDA environment variables"; torch/cuda/__init__.py and test_cuda.py of
// PyTorch, whose table was matched to driver 525.60.13; nvitop/api/device.py for MIG. Where none of these says (case of
// a uuid, a blank before one, an empty field), the code follows PyTorch, and the rule says so.
#include <algorithm>
#include <optional>

#include "select/compat/compat.h"
#include "select/compat/numbers.h"
#include "select/inventory/identity.h"
#include "select/rules/rules.h"

namespace gsel {
namespace {

constexpr const char* kCudaLayer = "CUDA";

class Mask {
 public:
  Mask(const Group& group, const std::vector<int32_t>& order, Input input, Trace& trace)
      : inventory_(group.inventory), order_(order), input_(std::move(input)), trace_(trace) {}

  bool by_uuid() const { return input_.value.starts_with("GPU-") || input_.value.starts_with("MIG-"); }

  std::vector<Unit> read() {
    const bool uuids = by_uuid();
    const bool valid = read_fields(kCudaLayer, input_, split_fields(input_.value, ','), trace_,
                                   [&](const Token& field) { return uuids ? identity(field) : position(field); });
    if (!valid) units_.clear();
    return units_;
  }

 private:
  Fate position(const Token& field) {
    const Leading number = leading_number(stripped(field.text));
    if (field.text.find_first_not_of(" \t") == std::string::npos)
      return ends("an empty field; what the driver does is not documented, PyTorch ends the list");
    if (field.text.starts_with("GPU-") || field.text.starts_with("MIG-"))
      return ends("the first entry is an index, and a uuid ends such a list");
    if (number.kind != Leading::Kind::number)
      return ends("the entry does not begin with a number, which ends the list");
    if (number.negative) return ends("a negative index ends the list (programming guide)");
    if (number.value >= static_cast<int64_t>(order_.size()))
      return ends("an index past the last device ends the list (programming guide)");
    return take({order_[static_cast<size_t>(number.value)], -1, -1}, "the leading digits are an index");
  }

  Fate identity(const Token& field) {
    const std::string_view text = field.text;
    if (text.starts_with("MIG-GPU-")) return instance(text);
    if (!text.starts_with("GPU-") && !text.starts_with("MIG-"))
      return ends(stripped(text).starts_with("GPU-") || stripped(text).starts_with("MIG-")
                      ? "a blank before a uuid; what the driver does is not documented, PyTorch ends the list"
                      : "the first entry is a uuid, and anything else ends such a list");
    const auto [first, last] = uuids().find(text);
    if (first == last) return ends("no device has a uuid that begins so (in this case), which ends the list");
    if (last - first > 1) return ends("several devices have a uuid that begins so, which ends the list");
    return take(first->second, "the one uuid that begins so");
  }

  const PrefixIndex<Unit>& uuids() {
    if (uuids_) return *uuids_;
    PrefixIndex<Unit>::Entries entries;
    for (const int32_t index : order_) {
      const Device& device = inventory_.devices[static_cast<size_t>(index)];
      entries.emplace_back(device.uuid, Unit{index, -1, -1});
      for (size_t p = 0; p < device.partitions.size(); ++p)
        entries.emplace_back(device.partitions[p].uuid, Unit{index, static_cast<int32_t>(p), -1});
    }
    return uuids_.emplace(std::move(entries));
  }

  // MIG-GPU-<uuid>/<gi>/<ci>, the form of drivers before 470.42.01.
  Fate instance(std::string_view text) {
    const std::vector<Token> parts = split_fields(text.substr(4), '/');
    if (parts.size() != 3 || !is_number(parts[1].text) || !is_number(parts[2].text))
      return ends("not of the form MIG-GPU-<uuid>/<gi>/<ci>, which ends the list");
    const int64_t gi = number_of(parts[1].text), ci = number_of(parts[2].text);
    std::vector<Unit> fitting;
    for (const int32_t index : order_) {
      const Device& device = inventory_.devices[static_cast<size_t>(index)];
      if (!device.uuid.starts_with(parts[0].text)) continue;
      for (size_t p = 0; p < device.partitions.size(); ++p)
        if (device.partitions[p].gi == gi && device.partitions[p].ci == ci)
          fitting.push_back({index, static_cast<int32_t>(p), -1});
    }
    if (fitting.size() != 1) return ends("no one instance is meant, which ends the list");
    return take(fitting.front(), "the instance of that GPU by its GPU and compute instance ids");
  }

  Fate take(const Unit& unit, const char* rule) {
    const auto again = [&](const Unit& before) { return before == unit; };
    if (unit.partition < 0 ? !mark(unit.device) : std::any_of(units_.begin(), units_.end(), again))
      return voids("repeats a device, for which the driver shows none");
    units_.push_back(unit);
    return kept(unit_text(inventory_, unit), rule);
  }

  // Returns false when the device was marked before.
  bool mark(int32_t device) {
    seen_.resize(inventory_.devices.size());
    const bool fresh = !seen_[static_cast<size_t>(device)];
    seen_[static_cast<size_t>(device)] = true;
    return fresh;
  }

  const Inventory& inventory_;
  const std::vector<int32_t>& order_;
  Input input_;
  Trace& trace_;
  std::vector<Unit> units_;
  std::vector<bool> seen_;
  std::optional<PrefixIndex<Unit>> uuids_;
};

// A process gets one MIG instance or whole devices: the first instance named, else that of the first divided device.
std::vector<Unit> one_instance(const Inventory& inventory, const std::vector<Unit>& units, Trace& trace) {
  const auto told = [&](const Unit& unit) {
    trace.warn(fmt::format("CUDA gives a process one MIG instance and nothing beside it: {} alone is visible",
                           unit_text(inventory, unit)));
    return std::vector<Unit>{unit};
  };
  for (const Unit& unit : units)
    if (unit.partition >= 0) return units.size() > 1 ? told(unit) : std::vector<Unit>{unit};
  std::vector<Unit> whole;
  for (const Unit& unit : units) {
    const Device& device = inventory.devices[static_cast<size_t>(unit.device)];
    if (device.divided && !device.partitions.empty()) return told({unit.device, 0, -1});
    if (!device.divided) whole.push_back(unit);
  }
  return whole;
}

void warn_of_order(const Group& group, const Environment& environment, bool guessed, bool by_uuid, Trace& trace) {
  const std::string* order = find_variable(environment, kCudaOrder);
  if (order && *order != "PCI_BUS_ID" && *order != "FASTEST_FIRST")
    trace.warn(
        fmt::format("{}={}: the driver knows PCI_BUS_ID and FASTEST_FIRST and takes anything else for the latter",
                    kCudaOrder, printable(*order)));
  if (!guessed || by_uuid) return;
  trace.warn(
      fmt::format("the order of these unlike devices is a guess: the driver numbers them by speed (FASTEST_FIRST, its "
                  "default) by a "
                  "rule that is not published; {}=PCI_BUS_ID or uuids are certain",
                  kCudaOrder));
  trace.add(kCudaLayer, {kCudaOrder, order ? *order : ""}, {order ? *order : "", 1, false},
            fmt::format("{} first", unit_text(group.inventory, {group.devices.front(), -1, -1})),
            "guessed: units times clock, then bus order");
}

}  // namespace

Visible cuda_driver(const Group& group, const Environment& environment, Trace& trace) {
  note_container(environment, trace);
  Group here = accessible_part(group, trace);
  bool guessed = false;
  here.devices = cuda_order(here, environment, &guessed);
  const std::string* value = find_variable(environment, kCudaMask);
  const Input input{kCudaMask, value ? *value : ""};
  Mask mask(here, here.devices, input, trace);
  warn_of_order(here, environment, guessed, mask.by_uuid(), trace);

  Visible out;
  if (!value) {
    for (const int32_t device : here.devices) out.units.push_back({device, -1, -1});
    out.hidden_by = "not among what CUDA gives to one process";
  } else if (value->empty()) {
    trace.add(kCudaLayer, input, {"", 1, false}, "no device", "an empty value hides all (programming guide)");
    out.hidden_by = fmt::format("hidden: {} is empty", kCudaMask);
  } else {
    out.units = mask.read();
    out.hidden_by = fmt::format("hidden by {}", input.shown());
  }
  out.units = one_instance(group.inventory, out.units, trace);
  return out;
}

Reading read_cuda(const Case& asked, Trace& trace) {
  return reading_of(cuda_driver(group_of(asked.inventory, asked.host, "nvidia"), asked.environment, trace),
                    "cuInit returns CUDA_ERROR_NO_DEVICE (100): no device is visible", trace);
}

}  // namespace gsel
