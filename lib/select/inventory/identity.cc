// select/inventory/identity.cc: see identity.h.
#include "select/inventory/identity.h"

#include "base/text.h"

namespace gsel {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";
constexpr std::string_view kUuidDigits = "0123456789abcdef-";

// Whether at least one hexadecimal digit follows GPU- or MIG-.
bool has_digits(const std::string& text, size_t from) {
  return text.size() > from && text.find_first_not_of(kUuidDigits, from) == text.npos &&
         text.find_first_of(kHex, from) != text.npos;
}

}  // namespace

Identities::Identities(const Inventory& inventory) : inventory_(inventory) {
  PrefixIndex<Unit>::Entries entries;
  entries.reserve(inventory.devices.size());
  for (size_t i = 0; i < inventory.devices.size(); ++i) {
    const Device& device = inventory.devices[i];
    const auto index = static_cast<int32_t>(i);
    if (!device.uuid.empty()) entries.emplace_back(lower_case(device.uuid), Unit{index, -1, -1});
    for (size_t p = 0; p < device.partitions.size(); ++p)
      entries.emplace_back(lower_case(device.partitions[p].uuid), Unit{index, static_cast<int32_t>(p), -1});
  }
  uuids_ = PrefixIndex<Unit>(std::move(entries));
}

Unit Identities::only(const std::string& prefix, const Input& input, const Token& token) const {
  const auto [first, last] = uuids_.find(prefix);
  if (first == last) refuse(GSEL_ERR_UNKNOWN_DEVICE, input, token, "no device of this machine has such a uuid");
  // A whole uuid may also be the prefix of a longer one.
  if (last - first > 1 && first->first != prefix)
    refuse(GSEL_ERR_AMBIGUOUS, input, token,
           fmt::format("{} have such a uuid, {} and {} among them; give more digits", with_noun(last - first, "device"),
                       uuid_of(inventory_, first->second), uuid_of(inventory_, std::next(first)->second)));
  return first->second;
}

// MIG-GPU-<uuid>/<gi>/<ci>, the form of drivers before 470.42.01; the GPU's uuid may be abbreviated.
Unit Identities::find_instance(const std::string& text, const Input& input, const Token& token) const {
  const size_t slash = text.find('/'), second = slash == text.npos ? text.npos : text.find('/', slash + 1);
  const std::string gpu = text.substr(4, slash - 4);
  if (second == text.npos || !has_digits(gpu, 4) || !is_number(text.substr(slash + 1, second - slash - 1)) ||
      !is_number(text.substr(second + 1)))
    refuse(GSEL_ERR_SYNTAX, input, token, "an instance is MIG- and a uuid, or MIG-GPU-<uuid>/<gi>/<ci>");
  const Unit device = only(gpu, input, token);
  const int64_t gi = number_of(text.substr(slash + 1, second - slash - 1)), ci = number_of(text.substr(second + 1));
  const auto& partitions = inventory_.devices[static_cast<size_t>(device.device)].partitions;
  for (size_t p = 0; p < partitions.size(); ++p)
    if (partitions[p].gi == gi && partitions[p].ci == ci) return {device.device, static_cast<int32_t>(p), -1};
  refuse(GSEL_ERR_UNKNOWN_DEVICE, input, token,
         fmt::format("{} has no instance {}/{}", unit_text(inventory_, device), gi, ci));
}

Unit Identities::find(const Input& input, const Token& token) const {
  const std::string text = lower_case(token.text);
  if (text.starts_with("mig-gpu-")) return find_instance(text, input, token);
  if (text.starts_with("gpu-") || text.starts_with("mig-")) {
    if (!has_digits(text, 4))
      refuse(GSEL_ERR_SYNTAX, input, token, "a uuid is GPU- or MIG- and at least one hexadecimal digit");
    return only(text, input, token);
  }
  if (!has_digits(text, 0)) refuse(GSEL_ERR_SYNTAX, input, token, "a uuid is GPU- and at least one hexadecimal digit");
  const auto [first, last] = uuids_.find(text);  // for vendors whose uuids have no prefix
  return only(first == last ? "gpu-" + text : text, input, token);
}

Unit settle(const Inventory& inventory, const Unit& unit, const Input& input, const Token& token) {
  const Device& device = inventory.devices[static_cast<size_t>(unit.device)];
  if (!device.divided || unit.partition >= 0) return unit;
  if (device.partitions.empty())
    refuse(
        GSEL_ERR_NO_DEVICES, input, token,
        fmt::format("{} is in MIG mode and has no instance; create one or turn MIG off", unit_text(inventory, unit)));
  if (device.partitions.size() > 1)
    refuse(GSEL_ERR_AMBIGUOUS, input, token,
           fmt::format("{} is divided by MIG into {} instances; name one, such as {}", unit_text(inventory, unit),
                       device.partitions.size(), device.partitions.front().uuid));
  return {unit.device, 0, -1};
}

}  // namespace gsel
