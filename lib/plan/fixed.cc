// plan/fixed.cc: parses the caller's decisions about a plan: "tensor=2, zero=1, recompute=all".
#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "plan/search.h"

namespace gsel::plan {
namespace {

struct NumberKey {
  std::string_view name;
  std::optional<int64_t> Fixed::*field;
  int64_t least, most;
};
constexpr NumberKey kNumbers[] = {
    {"tensor", &Fixed::tensor, 1, 1'000'000}, {"context", &Fixed::context, 1, 1'000'000},
    {"data", &Fixed::data, 1, 1'000'000},     {"pipeline", &Fixed::pipeline, 1, 1'000'000},
    {"zero", &Fixed::zero_stage, 0, 3},       {"microbatch", &Fixed::microbatch, 1, 1'000'000'000},
    {"chunks", &Fixed::chunks, 1, 65536},     {"devices", &Fixed::devices, 1, 1'000'000},
};
constexpr std::string_view kWords[] = {"recompute", "offload", "schedule", "sequence_parallel"};

std::string known_keys() {
  std::string all;
  for (const NumberKey& key : kNumbers) all += std::string(key.name) + ", ";
  for (const std::string_view word : kWords) all += std::string(word) + (word == std::end(kWords)[-1] ? "" : ", ");
  return all;
}

[[noreturn]] void refuse_fixed(std::string_view key, std::string_view value, const std::string& accepted) {
  throw Error(GSEL_ERR_ARG, fmt::format("{}={} is not accepted; accepted: {}", key, one_line(value), accepted))
      .at({"", 0, 0, std::string(key)});
}

template <class Enum, size_t N>
Enum word_of(std::string_view key, std::string_view value, const Enum (&all)[N]) {
  std::string accepted;
  for (const Enum one : all) {
    if (value == name_of(one)) return one;
    accepted += (accepted.empty() ? "" : ", ") + std::string(name_of(one));
  }
  refuse_fixed(key, value, accepted);
}

void set_fixed_word(Fixed& fixed, std::string_view key, std::string_view value) {
  if (key == "recompute") {
    fixed.recompute = word_of(key, value, {Recompute::none, Recompute::selective, Recompute::full});
  } else if (key == "offload") {
    fixed.offload = word_of(key, value, {Offload::none, Offload::state, Offload::all});
  } else if (key == "schedule") {
    fixed.schedule = word_of(
        key, value, {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1});
  } else {
    if (value != "true" && value != "false") refuse_fixed(key, value, "true, false");
    fixed.sequence_parallel = value == "true";
  }
}

void set_fixed(Fixed& fixed, std::string_view key, std::string_view value) {
  for (const NumberKey& number : kNumbers) {
    if (key != number.name) continue;
    int64_t n = 0;
    const auto result = std::from_chars(value.data(), value.data() + value.size(), n);
    if (result.ec != std::errc() || result.ptr != value.data() + value.size() || n < number.least || n > number.most)
      refuse_fixed(key, value, fmt::format("a whole number from {} to {}", number.least, number.most));
    fixed.*number.field = n;
    return;
  }
  if (std::ranges::find(kWords, key) != std::end(kWords)) return set_fixed_word(fixed, key, value);
  std::vector<std::string_view> known(std::begin(kWords), std::end(kWords));
  for (const NumberKey& number : kNumbers) known.push_back(number.name);
  const std::string near = nearest(key, known);
  throw Error(GSEL_ERR_ARG, fmt::format("{} cannot be fixed{}; accepted: {}", in_quotes(key),
                                        near.empty() ? "" : fmt::format("; did you mean {}?", near), known_keys()))
      .at({"", 0, 0, std::string(key)});
}

}  // namespace

Fixed parse_fixed(std::string_view text) {
  Fixed fixed;
  std::set<std::string_view> seen;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = trimmed(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (part.empty()) continue;
    const size_t equal = part.find('=');
    if (equal == part.npos)
      throw Error(GSEL_ERR_ARG, fmt::format("{} has no value; KEY=VALUE is needed, such as tensor=2", in_quotes(part)))
          .at({"", 0, 0, std::string(part)});
    const std::string_view key = trimmed(part.substr(0, equal));
    if (!seen.insert(key).second)
      throw Error(GSEL_ERR_ARG, fmt::format("{} is fixed twice; give it one value", in_quotes(key)))
          .at({"", 0, 0, std::string(key)});
    set_fixed(fixed, key, trimmed(part.substr(equal + 1)));
  }
  return fixed;
}

}  // namespace gsel::plan
