// select/rules/ze_devices.cc: see ze_devices.h.
// Sources: Level Zero specification, "Device Hierarchy" and "Affinity Mask"; intel/compute-runtime,
// shared/source/execution_environment/execution_environment.cpp.
#include "select/rules/ze_devices.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "select/words/tokens.h"

namespace gsel {
namespace {

bool is_xe_hpc(const Device& device) {
  const std::string architecture = lower_case(device.architecture), name = lower_case(device.name);
  return architecture == "xe-hpc" || architecture == "xe_hpc" || architecture == "pvc" ||
         name.find("data center gpu max") != name.npos || name.find("ponte vecchio") != name.npos;
}

size_t tile_count(const Device& device) {
  return static_cast<size_t>(std::max(1, device.tiles));
}

}  // namespace

std::vector<int32_t> ze_order(const Group& group, bool by_pci) {
  std::vector<int32_t> order = group.devices;
  if (!by_pci)
    std::stable_partition(order.begin(), order.end(), [&](int32_t device) {
      return !group.inventory.devices[static_cast<size_t>(device)].integrated;
    });
  return order;
}

ZeHierarchy ze_default_hierarchy(const Inventory& inventory, const std::vector<int32_t>& cards) {
  const bool hpc = !cards.empty() && is_xe_hpc(inventory.devices[static_cast<size_t>(cards.front())]);
  return hpc ? ZeHierarchy::flat : ZeHierarchy::composite;
}

const char* hierarchy_name(ZeHierarchy hierarchy) {
  static constexpr const char* kNames[] = {"COMPOSITE", "FLAT", "COMBINED"};
  return kNames[static_cast<size_t>(hierarchy)];
}

ZeCards::ZeCards(const Inventory& inventory, std::vector<int32_t> cards, ZeHierarchy hierarchy)
    : inventory_(inventory), cards_(std::move(cards)), hierarchy_(hierarchy) {
  for (size_t card = 0; card < cards_.size(); ++card) {
    const size_t tiles = tile_count(inventory_.devices[static_cast<size_t>(cards_[card])]);
    enabled_.emplace_back(tiles);
    const size_t places = tiles_are_devices() ? tiles : 1;
    for (size_t tile = 0; tile < places; ++tile) {
      devices_.push_back({cards_[card], -1, places > 1 ? static_cast<int32_t>(tile) : -1});
      card_of_.push_back(card);
    }
  }
}

int32_t ZeCards::tiles_at(size_t index) const {
  return devices_[index].tile >= 0 ? 1 : static_cast<int32_t>(enabled_[card_of(index)].size());
}

void ZeCards::enable(size_t index) {
  auto& tiles = enabled_[card_of(index)];
  if (devices_[index].tile >= 0)
    tiles[static_cast<size_t>(devices_[index].tile)] = true;
  else
    tiles.assign(tiles.size(), true);
}

void ZeCards::enable_tile(size_t index, int32_t tile) {
  enabled_[card_of(index)][static_cast<size_t>(tile)] = true;
}

void ZeCards::enable_all() {
  for (auto& tiles : enabled_) tiles.assign(tiles.size(), true);
}

bool ZeCards::is_enabled(size_t index, int32_t tile) const {
  const auto& tiles = enabled_[card_of(index)];
  if (devices_[index].tile >= 0) tile = devices_[index].tile;
  return tile < 0 ? std::find(tiles.begin(), tiles.end(), true) != tiles.end() : tiles[static_cast<size_t>(tile)];
}

std::vector<ZeRoot> ZeCards::roots() const {
  std::vector<ZeRoot> out;
  for (size_t card = 0; card < cards_.size(); ++card) {
    const auto& tiles = enabled_[card];
    std::vector<Unit> units;
    for (size_t tile = 0; tile < tiles.size(); ++tile)
      if (tiles[tile]) units.push_back({cards_[card], -1, tiles.size() > 1 ? static_cast<int32_t>(tile) : -1});
    if (units.empty()) continue;
    if (tiles_are_devices()) {
      for (const Unit& unit : units) out.push_back({{unit}, {}});
    } else if (units.size() == 1) {
      out.push_back({units, {}});
    } else {
      const bool whole = units.size() == tiles.size();
      out.push_back({whole ? std::vector<Unit>{{cards_[card], -1, -1}} : units, units});
    }
  }
  return out;
}

// ---- ONEAPI_DEVICE_SELECTOR -----------------------------------------------------------------------------------------

namespace {

constexpr std::array<std::string_view, 7> kBackends = {"*",   "level_zero", "opencl", "cuda",
                                                       "hip", "native_cpu", "host"};
constexpr std::array<std::string_view, 6> kTypes = {"*", "gpu", "cpu", "fpga", "acc", "host"};

template <size_t N>
bool is_one_of(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class Parser {
 public:
  explicit Parser(const Input& input) : input_(input), text_(lower_case(input.value)) {}

  std::vector<SelectorTarget> parse() {
    for (const Token& term : split({text_, 1, false}, ';', false)) parse_term(term);
    if (!targets_.empty() && all_discard()) {  // "!*:cpu" alone accepts all other devices
      SelectorTarget any;
      any.level_zero = true;
      any.type = "*";
      targets_.push_back(any);
    }
    return std::move(targets_);
  }

 private:
  // The parts of a token, each with its column; empty parts are dropped or refused.
  std::vector<Token> split(const Token& whole, char separator, bool refuse_empty) const {
    std::vector<Token> parts;
    for (size_t from = 0;;) {
      const size_t end = std::min(whole.text.find(separator, from), whole.text.size());
      if (end > from)
        parts.push_back({whole.text.substr(from, end - from), whole.column + static_cast<int32_t>(from), false});
      else if (refuse_empty)
        fail_at(whole, fmt::format("one side of a '{}' is empty", separator));
      if (end == whole.text.size()) return parts;
      from = end + 1;
    }
  }

  void parse_term(const Token& term) {
    const std::vector<Token> pair = split(term, ':', true);
    if (pair.size() == 1) fail_at(term, fmt::format("incomplete selector, try {}:*", printable(pair[0].text)));
    if (pair.size() > 2) fail_at(term, "too many colons");
    Token backend = pair[0];
    const bool discards = backend.text[0] == '!';
    if (discards) {
      backend.text.erase(0, 1);
      ++backend.column;
    }
    if (!is_one_of(kBackends, backend.text))
      fail_at(term, "a backend is required: level_zero, opencl, cuda, hip, native_cpu or *");
    discarding_ = discarding_ || discards;
    if (discarding_ && !discards) fail_at(term, "all discarding terms must come after all accepting ones");
    for (const Token& device : split(pair[1], ',', false)) {
      SelectorTarget target;
      target.token = device;
      target.discards = discards;
      target.level_zero = backend.text == "*" || backend.text == "level_zero";
      parse_device(device, target);
      targets_.push_back(std::move(target));
    }
  }

  void parse_device(const Token& device, SelectorTarget& target) {
    const std::vector<Token> levels = split(device, '.', true);
    if (levels.size() > 3) fail_at(device, "only two levels of sub-devices exist");
    if (is_one_of(kTypes, levels[0].text))
      target.type = levels[0].text;
    else
      target.number = number(levels[0], target);
    if (levels.size() == 1) return;
    target.of_parts = true;
    if (!target.type.empty() && target.type != "*")
      fail_at(device, "sub-devices are those of a device given by number or *, not by type");
    if (levels[1].text[0] != '*') {
      if (target.type == "*") fail_at(device, "a sub-device by number needs a device by number");
      target.part = number(levels[1], target);
    }
    if (levels.size() == 2 || levels[2].text[0] == '*') return;
    if (!target.part) fail_at(device, "a sub-sub-device by number needs a sub-device by number");
    number(levels[2], target);
  }

  // Like std::stoi: leading digits after blanks and a sign.
  int32_t number(const Token& level, SelectorTarget& target) const {
    char* end = nullptr;
    const long value = std::strtol(level.text.c_str(), &end, 10);
    if (end == level.text.c_str() || value > std::numeric_limits<int32_t>::max() ||
        value < std::numeric_limits<int32_t>::min())
      fail_at(level, "not a device type, a number or *");
    target.as_written.push_back(level.text);
    return static_cast<int32_t>(value);
  }

  bool all_discard() const {
    return std::all_of(targets_.begin(), targets_.end(), [](const auto& target) { return target.discards; });
  }

  [[noreturn]] void fail_at(const Token& token, const std::string& what) const {
    // The text as written, not in lower case.
    const Token as_given{input_.value.substr(static_cast<size_t>(token.column) - 1, token.text.size()), token.column,
                         false};
    refuse(GSEL_ERR_SYNTAX, input_, as_given, "sycl::exception: " + what);
  }

  const Input& input_;
  std::string text_;
  std::vector<SelectorTarget> targets_;
  bool discarding_ = false;  // an earlier term discards
};

bool means_device(const SelectorTarget& target, size_t index) {
  if (!target.level_zero) return false;
  if (target.number) return *target.number >= 0 && static_cast<size_t>(*target.number) == index;
  return target.type == "*" || target.type == "gpu";
}

// The units of one device that a target means.
std::vector<Unit> meant(const SelectorTarget& target, const ZeRoot& root, size_t index) {
  if (!means_device(target, index)) return {};
  if (!target.of_parts) return root.units;
  if (!target.part) return root.parts;
  if (*target.part < 0 || static_cast<size_t>(*target.part) >= root.parts.size()) return {};
  return {root.parts[static_cast<size_t>(*target.part)]};
}

std::string units_text(const Inventory& inventory, const std::vector<Unit>& units) {
  if (units.empty()) return "nothing";
  const std::string first = unit_text(inventory, units.front());
  return units.size() == 1 ? first : fmt::format("{} and {} more", first, units.size() - 1);
}

const char* rule_of(const SelectorTarget& target) {
  if (target.discards) return "a term that begins with ! discards";
  if (!target.level_zero) return "a term for another backend names no Level Zero device";
  return target.of_parts ? "sub-devices that the device can be parted into" : "a filter over what Level Zero shows";
}

}  // namespace

std::vector<SelectorTarget> parse_selector(const Input& input) {
  return Parser(input).parse();
}

std::vector<Unit> select_by(const std::vector<SelectorTarget>& targets, const std::vector<ZeRoot>& roots,
                            const Input& input, const Inventory& inventory, Trace& trace) {
  std::vector<std::vector<Unit>> meant_by(targets.size());
  std::vector<Unit> out;
  for (size_t index = 0; index < roots.size(); ++index) {
    std::vector<Unit> of_root, discarded;
    for (size_t t = 0; t < targets.size(); ++t) {
      const std::vector<Unit> units = meant(targets[t], roots[index], index);
      meant_by[t].insert(meant_by[t].end(), units.begin(), units.end());
      auto& side = targets[t].discards ? discarded : of_root;
      for (const Unit& unit : units)
        if (std::find(side.begin(), side.end(), unit) == side.end()) side.push_back(unit);
    }
    for (const Unit& unit : of_root)
      if (std::find(discarded.begin(), discarded.end(), unit) == discarded.end()) out.push_back(unit);
  }
  for (size_t t = 0; t < targets.size(); ++t)
    if (!targets[t].token.text.empty())
      trace.add("SYCL", input, targets[t].token, units_text(inventory, meant_by[t]), rule_of(targets[t]));
  return out;
}

}  // namespace gsel
