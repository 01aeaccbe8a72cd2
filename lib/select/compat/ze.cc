// select/compat/ze.cc: the Intel cards that Level Zero shows, and those that SYCL leaves. The mask is a set: its order
// has no effect. Indexes that do not exist are skipped; text that is no number causes an exception inside the driver.
// Sources: Level Zero specification, "Environment Variables"; intel/compute-runtime,
// shared/source/execution_environment/execution_environment.cpp; ze_devices.h for SYCL.
#include <cerrno>
#include <cstdlib>

#include "select/compat/compat.h"
#include "select/compat/numbers.h"
#include "select/rules/rules.h"
#include "select/rules/ze_devices.h"

namespace gsel {
namespace {

constexpr const char* kZeLayer = "Level Zero";

// std::stoul with base 0, cut to 32 bits.
uint32_t number(const Input& input, const Token& field, const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const unsigned long value = std::strtoul(text.c_str(), &end, 0);
  if (end == text.c_str())
    refuse(GSEL_ERR_SYNTAX, input, field,
           "std::invalid_argument: stoul finds no number, and the driver fails to start");
  if (errno == ERANGE)
    refuse(GSEL_ERR_SYNTAX, input, field, "std::out_of_range: too large for stoul, and the driver fails to start");
  return static_cast<uint32_t>(value);
}

Fate read_entry(const Inventory& inventory, const Input& input, const Token& field, ZeCards& cards) {
  const std::vector<Token> levels = split_lines(field.text, '.');
  if (levels.empty())
    refuse(GSEL_ERR_SYNTAX, input, field, "undefined behaviour: the driver reads the first part of an empty entry");
  const uint32_t index = number(input, field, levels[0].text);
  if (index >= cards.size()) return skipped("an index that no device has is skipped");
  if (levels.size() == 1) {
    cards.enable(index);
    return kept(unit_text(inventory, cards.at(index)),
                cards.tiles_are_devices() ? "a tile, counted over all cards" : "a card with all its tiles");
  }
  if (cards.tiles_are_devices()) return skipped("tiles are devices in this hierarchy, and an entry d.t is ignored");
  const uint32_t tile = number(input, field, levels[1].text);
  if (tile >= static_cast<uint32_t>(cards.tiles_at(index))) return skipped("a tile that the card lacks is skipped");
  if (levels.size() == 3) return skipped("a third level is ignored");
  if (levels.size() > 3)
    refuse(GSEL_ERR_SYNTAX, input, field, "abort: the driver stops at an entry of more than three levels");
  cards.enable_tile(index, static_cast<int32_t>(tile));
  return kept(unit_text(inventory, {cards.at(index).device, -1, static_cast<int32_t>(tile)}), "one tile of a card");
}

ZeHierarchy hierarchy_of(const Environment& environment, const Inventory& inventory, const std::vector<int32_t>& cards,
                         Trace& trace) {
  const std::string* value = find_variable(environment, kZeHierarchy);
  const Input input{kZeHierarchy, value ? *value : ""};
  for (const ZeHierarchy known : {ZeHierarchy::composite, ZeHierarchy::flat, ZeHierarchy::combined})
    if (value && *value == hierarchy_name(known)) {
      trace.add(kZeLayer, input, {*value, 1, false}, hierarchy_name(known),
                known == ZeHierarchy::composite ? "cards are devices" : "tiles are devices");
      return known;
    }
  const ZeHierarchy by_default = ze_default_hierarchy(inventory, cards);
  trace.add(kZeLayer, input, {input.value, 1, false}, hierarchy_name(by_default),
            "the driver's default for these cards: FLAT on Xe-HPC, COMPOSITE elsewhere");
  return by_default;
}

ZeCards cards_of(const Group& group, const Environment& environment, Trace& trace) {
  const std::string* by_pci = find_variable(environment, kZeOrder);
  const std::vector<int32_t> order =
      ze_order(accessible_part(group, trace), by_pci && leading_number(stripped(*by_pci)).value != 0);
  return ZeCards(group.inventory, order, hierarchy_of(environment, group.inventory, order, trace));
}

std::vector<ZeRoot> roots_of(const Group& group, const Environment& environment, Trace& trace) {
  ZeCards cards = cards_of(group, environment, trace);
  const std::string* mask = find_variable(environment, kZeMask);
  if (!mask || mask->empty() || *mask == "default") {
    if (mask)
      trace.add(kZeLayer, {kZeMask, *mask}, {*mask, 1, false}, "every device", "as if unset (the opposite of CUDA)");
    cards.enable_all();
  } else {
    const Input input{kZeMask, *mask};
    read_fields(kZeLayer, input, split_lines(*mask, ','), trace,
                [&](const Token& field) { return read_entry(group.inventory, input, field, cards); });
  }
  return cards.roots();
}

std::vector<Unit> listed(const std::vector<ZeRoot>& roots, const Inventory& inventory, Trace& trace) {
  std::vector<Unit> out;
  for (const ZeRoot& root : roots) {
    out.insert(out.end(), root.units.begin(), root.units.end());
    if (root.units.size() > 1)
      trace.warn(fmt::format("{} and {} more of its tiles are one device with sub-devices to a program",
                             unit_text(inventory, root.units.front()), root.units.size() - 1));
  }
  return out;
}

std::string hidden_by(const Environment& environment) {
  const std::string *mask = find_variable(environment, kZeMask),
                    *selector = find_variable(environment, kOneapiSelector);
  std::string text;
  if (mask && !mask->empty()) text = Input{kZeMask, *mask}.shown();
  if (selector && !selector->empty()) text += (text.empty() ? "" : " and ") + Input{kOneapiSelector, *selector}.shown();
  return text.empty() ? "" : "hidden by " + text;
}

}  // namespace

Visible ze_driver(const Group& group, const Environment& environment, Trace& trace) {
  const std::vector<ZeRoot> roots = roots_of(group, environment, trace);
  return {listed(roots, group.inventory, trace), hidden_by(environment)};
}

Reading read_ze(const Case& asked, Trace& trace) {
  const Group group = group_of(asked.inventory, asked.host, "intel");
  const std::vector<ZeRoot> roots = roots_of(group, asked.environment, trace);
  Reading out;
  out.hidden_by = hidden_by(asked.environment);
  const std::string* selector = find_variable(asked.environment, kOneapiSelector);
  if (!selector || selector->empty()) {
    out.units = listed(roots, asked.inventory, trace);
  } else {
    const Input input{kOneapiSelector, *selector};
    out.units = select_by(parse_selector(input), roots, input, asked.inventory, trace);
  }
  if (roots.empty())
    trace.warn("zeDeviceGet finds no device");
  else if (out.units.empty())
    trace.warn("SYCL finds no Level Zero device; a program that calls Level Zero itself does not read the selector");
  return out;
}

}  // namespace gsel
