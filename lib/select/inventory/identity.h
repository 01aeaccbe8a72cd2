// select/inventory/identity.h: finds devices and their parts by uuid: any unique prefix, in any case. Does not know
// what is visible.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "select/inventory/unit.h"
#include "select/words/tokens.h"

namespace gsel {

// Finds texts by a prefix, for uuids that may be abbreviated.
template <class Value>
class PrefixIndex {
 public:
  using Entries = std::vector<std::pair<std::string, Value>>;

  PrefixIndex() = default;
  explicit PrefixIndex(Entries entries) : entries_(std::move(entries)) { std::sort(entries_.begin(), entries_.end()); }

  // The entries that begin with the prefix.
  std::pair<typename Entries::const_iterator, typename Entries::const_iterator> find(std::string_view prefix) const {
    const auto first = std::partition_point(entries_.begin(), entries_.end(),
                                            [&](const auto& entry) { return std::string_view(entry.first) < prefix; });
    const auto last = std::partition_point(
        first, entries_.end(), [&](const auto& entry) { return std::string_view(entry.first).starts_with(prefix); });
    return {first, last};
  }

 private:
  Entries entries_;
};

class Identities {
 public:
  explicit Identities(const Inventory& inventory);

  // The one device or partition that the token names: GPU-<hex>, MIG-<hex>, MIG-GPU-<hex>/<gi>/<ci>, or another
  // vendor's uuid. GSEL_ERR_SYNTAX, GSEL_ERR_UNKNOWN_DEVICE, GSEL_ERR_AMBIGUOUS.
  Unit find(const Input& input, const Token& token) const;

 private:
  Unit only(const std::string& prefix, const Input& input, const Token& token) const;
  Unit find_instance(const std::string& text, const Input& input, const Token& token) const;

  const Inventory& inventory_;
  PrefixIndex<Unit> uuids_;
};

// For a divided device, which can only be used through its instances: its instance if it has exactly one, else
// GSEL_ERR_AMBIGUOUS or GSEL_ERR_NO_DEVICES. Other units are returned unchanged.
Unit settle(const Inventory& inventory, const Unit& unit, const Input& input, const Token& token);

}  // namespace gsel
