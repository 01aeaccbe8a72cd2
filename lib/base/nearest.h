// base/nearest.h: for "did you mean" messages: the known word nearest to a mistyped one, by edit distance.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gsel {

// The number of insertions, deletions and replacements that turn a into b.
int edit_distance(std::string_view a, std::string_view b);

// The nearest of `known`, the first among equals; empty when none is near enough.
std::string nearest(std::string_view word, const std::vector<std::string_view>& known);

}  // namespace gsel
