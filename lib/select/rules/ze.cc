// select/rules/ze.cc: the variables of Level Zero and SYCL for Intel cards, read strictly. Level Zero's mask is a set:
// devices keep the driver's order, and a list in another order causes a warning.
// Source: Level Zero specification, "Environment Variables"; intel/compute-runtime for its defaults.
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "select/rules/rules.h"
#include "select/rules/ze_devices.h"

namespace gsel {
namespace {

constexpr const char* kZeLayer = "Level Zero";

std::optional<ZeHierarchy> hierarchy_of(const Environment& environment) {
  const std::string* value = find_variable(environment, kZeHierarchy);
  if (!value) return std::nullopt;
  for (const ZeHierarchy known : {ZeHierarchy::composite, ZeHierarchy::flat, ZeHierarchy::combined})
    if (*value == hierarchy_name(known)) return known;
  refuse(GSEL_ERR_SYNTAX, {kZeHierarchy, *value}, {*value, 1, false}, "COMPOSITE, FLAT or COMBINED is needed");
}

bool by_pci(const Environment& environment) {
  const std::string* value = find_variable(environment, kZeOrder);
  if (!value || *value == "0") return false;
  if (*value != "1") refuse(GSEL_ERR_SYNTAX, {kZeOrder, *value}, {*value, 1, false}, "0 or 1 is needed");
  return true;
}

// ---- ZE_AFFINITY_MASK ----

class Mask {
 public:
  Mask(const Inventory& inventory, ZeCards& cards, Input input, Trace& trace)
      : inventory_(inventory), cards_(cards), input_(std::move(input)), trace_(trace) {}

  void read() {
    Unit before;
    bool ascending = true;
    for (const Token& token : split_list(input_)) {
      const Unit unit = read_entry(token);
      ascending = ascending && before < unit;
      before = unit;
      trace_.add(kZeLayer, input_, token, unit_text(inventory_, unit),
                 fmt::format("{} in the {} hierarchy", unit.tile < 0 ? "a card" : "a tile",
                             hierarchy_name(cards_.hierarchy())));
    }
    if (!ascending)
      trace_.warn(fmt::format("{}: Level Zero takes a set, devices keep the driver's order", input_.shown()));
  }

 private:
  Unit read_entry(const Token& token) {
    if (token.text.empty()) refuse(GSEL_ERR_SYNTAX, input_, token, "an entry of the list is empty");
    const size_t dot = token.text.find('.');
    const std::string device = token.text.substr(0, dot),
                      tile = dot == token.text.npos ? "" : token.text.substr(dot + 1);
    if (!is_number(device) || (dot != token.text.npos && !is_number(tile)))
      refuse(GSEL_ERR_SYNTAX, input_, token, "a device or device.tile in decimal digits is needed");
    const int64_t index = number_of(device);
    if (index >= static_cast<int64_t>(cards_.size())) refuse(GSEL_ERR_OUT_OF_RANGE, input_, token, count_text());
    return dot == token.text.npos ? whole(static_cast<size_t>(index), token)
                                  : part(static_cast<size_t>(index), number_of(tile), token);
  }

  Unit whole(size_t index, const Token& token) {
    if (cards_.is_enabled(index, -1)) refuse_again(cards_.at(index), token);
    cards_.enable(index);
    return cards_.at(index);
  }

  Unit part(size_t index, int64_t tile, const Token& token) {
    if (cards_.tiles_are_devices())
      refuse(GSEL_ERR_TYPE, input_, token,
             fmt::format("device.tile is not read in the {} hierarchy, where tiles are devices: give a tile's index or "
                         "set {}=COMPOSITE",
                         hierarchy_name(cards_.hierarchy()), kZeHierarchy));
    if (tile >= cards_.tiles_at(index))
      refuse(
          GSEL_ERR_OUT_OF_RANGE, input_, token,
          fmt::format("{} has {}", unit_text(inventory_, cards_.at(index)), with_noun(cards_.tiles_at(index), "tile")));
    const Unit unit{cards_.at(index).device, -1, static_cast<int32_t>(tile)};
    if (cards_.is_enabled(index, unit.tile)) refuse_again(unit, token);
    cards_.enable_tile(index, unit.tile);
    return unit;
  }

  [[noreturn]] void refuse_again(const Unit& unit, const Token& token) const {
    refuse(GSEL_ERR_DUPLICATE, input_, token,
           fmt::format("{} or a part of it is already in the list", unit_text(inventory_, unit)));
  }

  std::string count_text() const {
    if (cards_.size() == 0) return "this machine has no Intel device";
    return fmt::format("this machine has {} in the {} hierarchy, {}", with_noun(cards_.size(), "Intel device"),
                       hierarchy_name(cards_.hierarchy()),
                       cards_.size() == 1 ? "0 alone" : fmt::format("0 to {}", cards_.size() - 1));
  }

  const Inventory& inventory_;
  ZeCards& cards_;
  Input input_;
  Trace& trace_;
};

void apply_mask(const Inventory& inventory, ZeCards& cards, const std::string* mask, Trace& trace) {
  if (mask && !mask->empty()) return Mask(inventory, cards, {kZeMask, *mask}, trace).read();
  if (mask) {
    trace.add(kZeLayer, {kZeMask, ""}, {"", 1, false}, "every device", "an empty value is as if unset");
    trace.warn(fmt::format("{} is empty, which hides no device, the opposite of CUDA", kZeMask));
  }
  cards.enable_all();
}

// ---- ONEAPI_DEVICE_SELECTOR ----

std::vector<Unit> apply_selector(const Inventory& inventory, const std::vector<ZeRoot>& roots, const Input& input,
                                 const std::string* mask, Trace& trace) {
  const std::vector<SelectorTarget> targets = parse_selector(input);
  const bool masked = mask && !mask->empty();
  const std::string left = fmt::format("{}{}",
                                       masked              ? Input{kZeMask, *mask}.shown() + " left "
                                       : roots.size() == 1 ? "there is "
                                                           : "there are ",
                                       with_noun(roots.size(), "device"));
  for (const SelectorTarget& target : targets) {
    for (const std::string& number : target.as_written)
      if (!is_number(number)) refuse(GSEL_ERR_SYNTAX, input, target.token, "decimal digits are needed for a number");
    if (!target.level_zero || !target.number) continue;
    const auto index = static_cast<size_t>(*target.number);
    if (index >= roots.size()) refuse(masked ? GSEL_ERR_CONFLICT : GSEL_ERR_OUT_OF_RANGE, input, target.token, left);
    if (target.part && static_cast<size_t>(*target.part) >= roots[index].parts.size())
      refuse(GSEL_ERR_OUT_OF_RANGE, input, target.token,
             fmt::format("device {} can be parted into {}", index, with_noun(roots[index].parts.size(), "sub-device")));
  }
  std::vector<Unit> out = select_by(targets, roots, input, inventory, trace);
  if (out.empty() && !roots.empty()) trace.warn(fmt::format("{} leaves SYCL no Level Zero device", input.shown()));
  return out;
}

// ---- emission ----

bool has_tiles(const Device& device) {
  return device.tiles > 1;
}

// Whether several tiles of one card are separate devices.
bool splits_a_card(const std::vector<Unit>& units) {
  for (size_t i = 1; i < units.size(); ++i)
    if (units[i].device == units[i - 1].device) return true;
  return false;
}

// The entries of units: "card" or "card.tile", or, if flat, tile numbers over all cards.
std::vector<std::string> entries_of(const Group& cards, const std::vector<Unit>& units, bool flat) {
  std::vector<int32_t> first_tile{0};
  for (size_t i = 0; i < cards.size(); ++i) first_tile.push_back(first_tile.back() + std::max(1, cards.at(i).tiles));
  const Places in_order(cards, cards.devices);
  std::vector<std::string> out;
  for (const Unit& unit : units) {
    const int32_t card = in_order.of(unit.device);
    if (card < 0) continue;  // may not be opened, so no index refers to it
    if (flat)
      out.push_back(std::to_string(first_tile[static_cast<size_t>(card)] + std::max(0, unit.tile)));
    else
      out.push_back(unit.tile < 0 ? std::to_string(card) : fmt::format("{}.{}", card, unit.tile));
  }
  return out;
}

}  // namespace

Visible visible_ze(const Group& group, const Environment& environment, Trace& trace) {
  const std::optional<ZeHierarchy> hierarchy = hierarchy_of(environment);
  const bool pci = by_pci(environment);
  const std::string *mask = find_variable(environment, kZeMask),
                    *selector = find_variable(environment, kOneapiSelector);
  const bool selects = selector && !selector->empty();
  if (!hierarchy && !mask && !selects) return {units_of(group), {}};

  const std::vector<int32_t> order = ze_order(accessible_part(group, trace), pci);
  ZeCards cards(group.inventory, order, hierarchy.value_or(ze_default_hierarchy(group.inventory, order)));
  apply_mask(group.inventory, cards, mask, trace);
  const std::vector<ZeRoot> roots = cards.roots();
  Visible out;
  std::vector<std::string> hiding;
  if (mask && !mask->empty()) hiding.push_back(Input{kZeMask, *mask}.shown());
  if (selects) {
    const Input input{kOneapiSelector, *selector};
    out.units = apply_selector(group.inventory, roots, input, mask, trace);
    hiding.push_back(input.shown());
  } else {
    for (const ZeRoot& root : roots) out.units.insert(out.units.end(), root.units.begin(), root.units.end());
  }
  if (!hiding.empty()) out.hidden_by = fmt::format("hidden by {}", fmt::join(hiding, " and "));
  return out;
}

// Lists cards in bus order, tiles by card. Tiles are devices only if two of one card are selected. Also sets a
// selector, since one that the child inherits would filter the remaining devices again.
Emission emit_ze(const Group& group, const std::vector<Unit>& units) {
  Trace unheard;
  const Group cards = accessible_part(group, unheard);
  std::vector<Unit> set = units;
  std::sort(set.begin(), set.end());
  const bool whole_cards = std::any_of(set.begin(), set.end(), [&](const Unit& unit) {
    return unit.tile < 0 && has_tiles(group.inventory.devices[static_cast<size_t>(unit.device)]);
  });
  const bool flat = splits_a_card(set) && !whole_cards;
  Emission out;
  std::vector<std::string> entries = entries_of(cards, set, flat);
  if (entries.empty())
    entries.push_back(std::to_string(group.size()));  // a card that does not exist; an empty mask would hide nothing
  out.lines.emplace_back(kZeOrder, "1");
  out.lines.emplace_back(kZeHierarchy, flat ? "FLAT" : "COMPOSITE");
  out.lines.emplace_back(kZeMask, fmt::format("{}", fmt::join(entries, ",")));
  if (!set.empty()) out.lines.emplace_back(kOneapiSelector, "level_zero:gpu");
  if (set != units)
    out.warnings.push_back(
        fmt::format("{} is a set: the child numbers these devices in bus order, not as selected", kZeMask));
  if (splits_a_card(set) && whole_cards)
    out.warnings.push_back(
        "whole cards and single tiles of another card cannot be told apart by Level Zero: tiles of "
        "one card become one device with sub-devices");
  return out;
}

}  // namespace gsel
