// base/weights.cc: see weights.h. The list was checked when the file was read.
#include "base/weights.h"

#include <charconv>

#include "base/axis.h"
#include "base/text.h"

namespace gsel {
namespace {

// The numbers of a list such as [2, 1.5].
std::vector<double> numbers_of(const std::string& list) {
  std::vector<double> result;
  for (size_t at = 0; (at = list.find_first_not_of("[, ", at)) < list.size() && list[at] != ']';) {
    double number = 0;
    const auto read = std::from_chars(list.data() + at, list.data() + list.size(), number);
    result.push_back(number);
    at = static_cast<size_t>(read.ptr - list.data());
  }
  return result;
}

}  // namespace

std::vector<double> axis_weights(const Config& config, gsel_axis axis, int32_t ranks) {
  const std::string key = fmt::format("strategy.{}.weights", axis_name(axis));
  const std::string* list = config.get(key);
  if (!list) return std::vector<double>(static_cast<size_t>(ranks), 1.0);
  std::vector<double> weights = numbers_of(*list);
  if (weights.size() == static_cast<size_t>(ranks)) return weights;
  const Place place = config.place_of(key);
  throw Error(GSEL_ERR_CONFIG, fmt::format("{}{} = {} has {}, and the {} axis has {}; give one number for each rank",
                                           place_prefix(place), key, *list, with_noun(weights.size(), "number"),
                                           axis_name(axis), with_noun(ranks, "rank")))
      .at(place);
}

}  // namespace gsel
