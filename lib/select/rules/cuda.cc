// select/rules_cuda.cc: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, read strictly. Where the driver would silently
// end the list, void it or drop an entry, this refuses and names the entry.
// Source: CUDA C++ programming guide, section on environment variables.
#include <fmt/ranges.h>

#include <algorithm>

#include "select/rules.h"
#include "select/tokens.h"

namespace gsel {
namespace {

constexpr const char* kMask = "CUDA_VISIBLE_DEVICES";
constexpr const char* kOrder = "CUDA_DEVICE_ORDER";

std::vector<int32_t> nvidia_devices(const Candidates& candidates) {
  std::vector<int32_t> out;
  for (int32_t index : candidates.kept())
    if (candidates.device(index).vendor == "nvidia") out.push_back(index);
  return out;
}

// FASTEST_FIRST is the driver's default and its rule is not published.
bool pci_order(const Environment& environment) {
  const auto it = environment.find(kOrder);
  if (it == environment.end() || it->second == "FASTEST_FIRST") return false;
  if (it->second != "PCI_BUS_ID")
    refuse(GSEL_ERR_SYNTAX, {kOrder, it->second}, {it->second, 1, false}, "PCI_BUS_ID or FASTEST_FIRST is needed");
  return true;
}

bool alike(const Device& a, const Device& b) {
  return a.name == b.name && a.capability_major == b.capability_major && a.capability_minor == b.capability_minor &&
         a.compute_units == b.compute_units && a.memory_bytes == b.memory_bytes;
}

// Reads the entries of one mask.
class MaskReader {
 public:
  MaskReader(const Candidates& candidates, Input input, bool by_bus, std::vector<std::string>& warnings)
      : inventory_(candidates.inventory()),
        devices_(nvidia_devices(candidates)),
        input_(std::move(input)),
        by_bus_(by_bus),
        warnings_(warnings) {}

  std::vector<int32_t> read() {
    std::vector<int32_t> order;
    const std::vector<Token> tokens = split_list(input_);
    const bool by_uuid = is_uuid_form(tokens.front().text);
    for (const Token& token : tokens) {
      check_form(token, by_uuid);
      const int32_t index = by_uuid ? by_identity(token) : by_position(token);
      if (std::find(order.begin(), order.end(), index) != order.end())
        refuse(GSEL_ERR_DUPLICATE, input_, token, "this device stands in the list before, for which CUDA hides all");
      order.push_back(index);
    }
    return order;
  }

 private:
  void check_form(const Token& token, bool by_uuid) const {
    if (token.text.empty()) refuse(GSEL_ERR_SYNTAX, input_, token, "an entry of the list is empty");
    const bool uuid = is_uuid_form(token.text);
    if (!uuid && !is_number(token.text))
      refuse(GSEL_ERR_SYNTAX, input_, token,
             "an index in decimal digits or GPU- and a uuid is needed; an empty value hides all devices");
    if (uuid != by_uuid) refuse(GSEL_ERR_TYPE, input_, token, "indexes and uuids do not mix: CUDA ends the list here");
  }

  int32_t by_position(const Token& token) const {
    const int64_t position = number_of(token.text);
    if (position >= static_cast<int64_t>(devices_.size())) {
      if (devices_.empty()) refuse(GSEL_ERR_OUT_OF_RANGE, input_, token, "this machine has no NVIDIA device");
      refuse(GSEL_ERR_OUT_OF_RANGE, input_, token,
             fmt::format("this machine has {} NVIDIA device{}, 0 to {}", devices_.size(),
                         devices_.size() == 1 ? "" : "s", devices_.size() - 1));
    }
    const Device& first = inventory_.devices[devices_.front()];
    for (int32_t other : devices_)
      if (!by_bus_ && !alike(first, inventory_.devices[other]))
        refuse(
            GSEL_ERR_AMBIGUOUS, input_, token,
            fmt::format("this machine has unlike devices ({} and {}), which CUDA numbers by speed; set {}=PCI_BUS_ID "
                        "or give uuids",
                        first.name, inventory_.devices[other].name, kOrder));
    return devices_[static_cast<size_t>(position)];
  }

  int32_t by_identity(const Token& token) const {
    const int32_t index = find_uuid(inventory_, input_, token);
    if (std::find(devices_.begin(), devices_.end(), index) == devices_.end())
      refuse(GSEL_ERR_UNKNOWN_DEVICE, input_, token, "no NVIDIA device of this machine has such a uuid");
    const bool same_case = inventory_.devices[index].uuid.starts_with(token.text);
    if (token.blank_before || !same_case)
      warnings_.push_back(fmt::format("{}: \"{}\" at column {}: some CUDA programs do not read {}", input_.shown(),
                                      token.text, token.column,
                                      same_case ? "a uuid after a blank" : "a uuid in another case"));
    return index;
  }

  const Inventory& inventory_;
  std::vector<int32_t> devices_;
  Input input_;
  bool by_bus_;
  std::vector<std::string>& warnings_;
};

}  // namespace

void narrow_cuda(Candidates& candidates, const Environment& environment, std::vector<std::string>& warnings) {
  const bool by_bus = pci_order(environment);
  const auto mask = environment.find(kMask);
  if (mask == environment.end()) return;
  const Input input{kMask, mask->second};
  std::vector<int32_t> order;
  if (!mask->second.empty()) order = MaskReader(candidates, input, by_bus, warnings).read();
  const std::string hidden =
      order.empty() ? fmt::format("hidden: {} is empty", kMask) : fmt::format("hidden by {}", input.shown());
  candidates.narrow(
      order, [](const Device& device) { return device.vendor == "nvidia"; }, hidden);
  for (size_t i = 0; i < order.size(); ++i) candidates.note(order[i], fmt::format("place {} of {}", i, input.shown()));
}

EnvLines emit_cuda(const std::vector<const Device*>& devices) {
  std::vector<std::string> uuids;
  for (const Device* device : devices) uuids.push_back(device->uuid);
  EnvLines lines{{kMask, fmt::format("{}", fmt::join(uuids, ","))}};
  if (!devices.empty()) lines.emplace_back(kOrder, "PCI_BUS_ID");
  return lines;
}

}  // namespace gsel
