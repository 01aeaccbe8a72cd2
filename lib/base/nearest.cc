// base/nearest.cc: see nearest.h.
#include "base/nearest.h"

#include <algorithm>
#include <numeric>

namespace gsel {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string nearest(std::string_view word, const std::vector<std::string_view>& known) {
  constexpr size_t kLongest = 100;  // no misspelling of a known word is longer
  if (word.empty() || word.size() > kLongest) return {};
  std::string_view best;
  int best_distance = 1 + static_cast<int>(std::max<size_t>(word.size() / 4, word.size() > 2 ? 2 : 1));
  for (std::string_view candidate : known) {
    const int distance = edit_distance(word, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return std::string(best);
}

}  // namespace gsel
