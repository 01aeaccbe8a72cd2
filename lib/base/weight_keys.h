// base/weight_keys.h: the one table of the keys of [[weights.map]], and the rule that the entries of one row are.
// docs/config.md follows from the table. Does not know TOML.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config_keys.h"
#include "base/weight_rules.h"

namespace gsel {

// An entry of a row: a value, or a list of values.
struct WeightEntry {
  std::string key;  // "transpose"
  Place place;
  bool is_list = false;
  std::string kind;  // for messages, of what is neither: "a section"
  std::vector<Scalar> values;
};

struct WeightKey {
  std::string_view name;                   // "transpose"
  std::string_view accepts, absent, help;  // as in docs/config.md
  void (*store)(WeightRule& rule, const WeightEntry& entry);
};
std::span<const WeightKey> weight_keys();

// place: of the row. GSEL_ERR_CONFIG.
WeightRule weight_rule_of(const std::vector<WeightEntry>& entries, const Place& place);

}  // namespace gsel
