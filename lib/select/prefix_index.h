// select/prefix_index.h: finds texts by a prefix, for uuids that may be abbreviated. Does not know what the texts name.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gsel {

template <class Value>
class PrefixIndex {
 public:
  using Entries = std::vector<std::pair<std::string, Value>>;

  PrefixIndex() = default;
  explicit PrefixIndex(Entries entries) : entries_(std::move(entries)) { std::sort(entries_.begin(), entries_.end()); }

  // Those that begin with the prefix.
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

}  // namespace gsel
