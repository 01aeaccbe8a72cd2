// select/rules/cuda.cc: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, read strictly. Where the driver would silently end
// the list, void it or drop an entry, an error names the entry.
// Source: CUDA C++ programming guide, section on environment variables.
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "select/inventory/identity.h"
#include "select/rules/rules.h"

namespace gsel {
namespace {

constexpr const char* kCudaLayer = "CUDA";

// Reads the entries of one mask.
class MaskReader {
 public:
  MaskReader(const Group& group, const Environment& environment, Input input, Trace& trace)
      : group_(group),
        inventory_(group.inventory),
        numbered_(cuda_order_strict(group, environment)),
        input_(std::move(input)),
        trace_(trace) {}

  std::vector<Unit> read() {
    std::vector<Unit> order;
    const std::vector<Token> tokens = split_list(input_);
    const bool by_uuid = is_uuid_form(tokens.front().text);
    std::vector<bool> seen(group_.inventory.devices.size());
    for (const Token& token : tokens) {
      check_form(token, by_uuid);
      const Unit named = by_uuid ? by_identity(token) : by_position(token);
      const Unit unit = settle(inventory_, named, input_, token);
      const bool again = unit.partition < 0 ? seen[static_cast<size_t>(unit.device)]
                                            : std::find(order.begin(), order.end(), unit) != order.end();
      if (again)
        refuse(GSEL_ERR_DUPLICATE, input_, token, "this device is already in the list; CUDA hides all devices then");
      seen[static_cast<size_t>(unit.device)] = true;
      trace_.add(kCudaLayer, input_, token, unit_text(inventory_, unit), rule_of(by_uuid));
      order.push_back(unit);
    }
    return order;
  }

 private:
  const char* rule_of(bool by_uuid) const {
    if (by_uuid) return "the one device whose uuid begins so";
    return numbered_.by_bus ? "an index in bus order"
                            : "an index; all NVIDIA devices are alike, so bus order is any order";
  }

  void check_form(const Token& token, bool by_uuid) const {
    if (token.text.empty()) refuse(GSEL_ERR_SYNTAX, input_, token, "an entry of the list is empty");
    const bool uuid = is_uuid_form(token.text);
    if (!uuid && !is_number(token.text))
      refuse(GSEL_ERR_SYNTAX, input_, token,
             "an index in decimal digits or GPU- and a uuid is needed; an empty value hides all devices");
    if (uuid != by_uuid) refuse(GSEL_ERR_TYPE, input_, token, "indexes and uuids do not mix: CUDA ends the list here");
  }

  Unit by_position(const Token& token) const {
    const int64_t position = number_of(token.text);
    const size_t count = group_.size();
    if (count == 0) refuse(GSEL_ERR_OUT_OF_RANGE, input_, token, "this machine has no NVIDIA device");
    if (position >= static_cast<int64_t>(count))
      refuse(GSEL_ERR_OUT_OF_RANGE, input_, token,
             fmt::format("this machine has {}, 0 to {}", with_noun(count, "NVIDIA device"), count - 1));
    if (numbered_.order.empty()) refuse(GSEL_ERR_AMBIGUOUS, input_, token, numbered_.why_not);
    return {numbered_.order[static_cast<size_t>(position)], -1, -1};
  }

  Unit by_identity(const Token& token) {
    if (!identities_) identities_.emplace(inventory_);
    const Unit unit = identities_->find(input_, token);
    const Device& device = inventory_.devices[static_cast<size_t>(unit.device)];
    if (device.vendor != "nvidia" || device.host != group_.host)
      refuse(GSEL_ERR_UNKNOWN_DEVICE, input_, token, "no NVIDIA device of this machine has such a uuid");
    const std::string_view whole = token.text;
    const bool same_case = uuid_of(inventory_, unit).starts_with(whole) || whole.find('/') != whole.npos;
    if (token.blank_before || !same_case)
      trace_.warn(fmt::format("{}: \"{}\" at column {}: some CUDA programs do not read {}", input_.shown(), token.text,
                              token.column, same_case ? "a uuid after a blank" : "a uuid in another case"));
    return unit;
  }

  const Group& group_;
  const Inventory& inventory_;
  CudaOrder numbered_;
  Input input_;
  Trace& trace_;
  std::optional<Identities> identities_;
};

bool pci_order(const Environment& environment) {
  const std::string* order = find_variable(environment, kCudaOrder);
  if (!order || *order == "FASTEST_FIRST") return false;
  if (*order != "PCI_BUS_ID")
    refuse(GSEL_ERR_SYNTAX, {kCudaOrder, *order}, {*order, 1, false}, "PCI_BUS_ID or FASTEST_FIRST is needed");
  return true;
}

}  // namespace

// FASTEST_FIRST is the driver's default, but its rule is not published; strict reading does not guess.
CudaOrder cuda_order_strict(const Group& group, const Environment& environment) {
  CudaOrder out;
  out.by_bus = pci_order(environment);
  bool guessed = false;
  out.order = cuda_order(group, environment, &guessed);
  if (!guessed) return out;
  out.order.clear();
  const auto unlike = [&](int32_t device) {
    return group.inventory.devices[static_cast<size_t>(device)].name != group.at(0).name;
  };
  const auto other = std::find_if(group.devices.begin(), group.devices.end(), unlike);
  out.why_not = fmt::format(
      "this machine has unlike devices{}, which CUDA numbers by speed; set {}=PCI_BUS_ID or give uuids",
      other == group.devices.end()
          ? ""
          : fmt::format(" ({} and {})", group.at(0).name, group.inventory.devices[static_cast<size_t>(*other)].name),
      kCudaOrder);
  return out;
}

Visible visible_cuda(const Group& all, const Environment& environment, Trace& trace) {
  note_container(environment, trace);
  const Group group = accessible_part(all, trace);
  const std::string* mask = find_variable(environment, kCudaMask);
  if (!mask) {
    pci_order(environment);  // a misspelt order is an error even where it has no effect
    return {units_of(all), {}};
  }
  if (mask->empty()) {
    trace.add(kCudaLayer, {kCudaMask, ""}, {"", 1, false}, "no device", "an empty value hides all");
    return {{}, fmt::format("hidden: {} is empty", kCudaMask)};
  }
  const Input input{kCudaMask, *mask};
  return {MaskReader(group, environment, input, trace).read(), fmt::format("hidden by {}", input.shown())};
}

Emission emit_cuda(const Group& group, const std::vector<Unit>& units) {
  std::vector<std::string> uuids;
  for (const Unit& unit : units) uuids.push_back(uuid_of(group.inventory, unit));
  Emission out;
  if (std::any_of(uuids.begin(), uuids.end(), [](const std::string& uuid) { return uuid.empty(); })) {
    uuids.clear();  // a hand-written inventory may have none: use bus order
    for (const Unit& unit : units) {
      const auto place = std::find(group.devices.begin(), group.devices.end(), unit.device) - group.devices.begin();
      uuids.push_back(std::to_string(place));
    }
  }
  out.lines.emplace_back(kCudaMask, fmt::format("{}", fmt::join(uuids, ",")));
  if (!units.empty()) out.lines.emplace_back(kCudaOrder, "PCI_BUS_ID");
  return out;
}

}  // namespace gsel
