// base/weight_keys.cc: see weight_keys.h. A new key is one row here, one field in WeightRule and one row in
// docs/config.md (a test compares the two).
#include "base/weight_keys.h"

#include <algorithm>

#include "base/text.h"
#include "base/types.h"

namespace gsel {
namespace {

constexpr int64_t kMostDimension = 63;  // of the format
constexpr size_t kMostInList = 256;

template <class... Args>
[[noreturn]] void reject_rule(const Place& place, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(GSEL_ERR_CONFIG, place_prefix(place) + fmt::format(text, std::forward<Args>(args)...)).at(place);
}

[[noreturn]] void reject_entry(const WeightEntry& entry, std::string_view expected) {
  std::string found = entry.kind;
  if (found.empty() && entry.is_list) found = with_noun(entry.values.size(), "item") + " in a list";
  if (found.empty()) {
    const Scalar& value = entry.values.front();
    found = value.type == ConfigValue::Type::text ? in_quotes(value.text) : as_text(value);
  }
  reject_rule(entry.place, "{} is {}; expected {}", entry.place.token, found, expected);
}

std::vector<NamePattern> patterns_of(const WeightEntry& entry) {
  constexpr std::string_view kExpected = "a name in quotes, or a list of such names";
  if (entry.values.empty() || entry.values.size() > kMostInList) reject_entry(entry, kExpected);
  std::vector<NamePattern> patterns;
  for (const Scalar& value : entry.values) try {
      if (value.type != ConfigValue::Type::text) reject_entry(entry, kExpected);
      patterns.emplace_back(value.text);
    } catch (const Error& e) {
      if (e.code() != GSEL_ERR_ARG) throw;
      reject_rule(entry.place, "{}: {}", entry.place.token, e.message());
    }
  return patterns;
}

bool flag_of(const WeightEntry& entry) {
  if (entry.is_list || entry.values.size() != 1 || entry.values[0].type != ConfigValue::Type::boolean)
    reject_entry(entry, "true or false");
  return entry.values[0].boolean;
}

int32_t dim_of(const WeightEntry& entry) {
  if (entry.is_list || entry.values.size() != 1 || entry.values[0].type != ConfigValue::Type::integer ||
      entry.values[0].integer < 0 || entry.values[0].integer > kMostDimension)
    reject_entry(entry, fmt::format("a dimension from 0 to {}", kMostDimension));
  return static_cast<int32_t>(entry.values[0].integer);
}

std::vector<int64_t> counts_of(const WeightEntry& entry, int64_t minimum, std::string_view expected) {
  std::vector<int64_t> counts;
  for (const Scalar& value : entry.values) {
    if (value.type != ConfigValue::Type::integer || value.integer < minimum || value.integer > INT32_MAX)
      reject_entry(entry, expected);
    counts.push_back(value.integer);
  }
  if (counts.empty() || counts.size() > kMostInList) reject_entry(entry, expected);
  return counts;
}

// The index of the entry's word.
template <size_t n>
size_t word_of(const WeightEntry& entry, const std::string_view (&words)[n], std::string_view expected) {
  if (!entry.is_list && entry.values.size() == 1 && entry.values[0].type == ConfigValue::Type::text)
    for (size_t i = 0; i < n; ++i)
      if (entry.values[0].text == words[i]) return i;
  reject_entry(entry, expected);
}

constexpr std::string_view kNameOrNames = "text or a list of texts";
constexpr std::string_view kHeadOrders = "\"halves_to_pairs\" or \"pairs_to_halves\"";
constexpr std::string_view kCastTypes = "\"f32\", \"bf16\" or \"f16\"";

constexpr WeightKey kWeightKeys[] = {
    {"source", kNameOrNames, "", "tensors of the file, with captures such as {i}; several with concat or ignore",
     [](WeightRule& rule, const WeightEntry& entry) { rule.sources = patterns_of(entry); }},
    {"target", kNameOrNames, "",
     "parameters of the model, with the same captures; several with split; none with ignore",
     [](WeightRule& rule, const WeightEntry& entry) { rule.targets = patterns_of(entry); }},
    {"alias", kNameOrNames, "",
     "further names of the source: a copy under one of them must be equal, and is never written",
     [](WeightRule& rule, const WeightEntry& entry) { rule.aliases = patterns_of(entry); }},
    {"ignore", "true or false", "false", "true: the tensors are not used",
     [](WeightRule&, const WeightEntry& entry) { flag_of(entry); }},
    {"optional", "true or false", "false", "true: where the file has no source, the parameter stays as it is",
     [](WeightRule& rule, const WeightEntry& entry) { rule.optional = flag_of(entry); }},
    {"transpose", "true or false", "false", "true: the last two dimensions change places",
     [](WeightRule& rule, const WeightEntry& entry) { rule.transpose = flag_of(entry); }},
    {"concat", "an integer from 0 to 63", "",
     "dimension of the file's tensors along which several sources make up the target",
     [](WeightRule& rule, const WeightEntry& entry) { rule.concat_dim = dim_of(entry); }},
    {"split", "an integer from 0 to 63", "", "dimension of the file's tensor along which several targets divide it",
     [](WeightRule& rule, const WeightEntry& entry) { rule.split_dim = dim_of(entry); }},
    {"parts", "a list of integers of at least 1", "",
     "relative sizes of the sources of concat, equal if left out; of the targets of split, their own if left out",
     [](WeightRule& rule, const WeightEntry& entry) {
       rule.parts = counts_of(entry, 1, "a list of integers of at least 1");
     }},
    {"permute", kHeadOrders, "",
     "order of the rows of each head in the file, and in the model: even rows before odd ones, or by turns",
     [](WeightRule& rule, const WeightEntry& entry) {
       constexpr std::string_view words[] = {"halves_to_pairs", "pairs_to_halves"};
       rule.heads_order =
           word_of(entry, words, kHeadOrders) == 0 ? HeadOrder::halves_to_pairs : HeadOrder::pairs_to_halves;
     }},
    {"heads", "an integer of at least 0 or a list of such", "",
     "heads in dimension 0 of the target, for permute; a list has one number for each source or target, 0 where rows "
     "stay",
     [](WeightRule& rule, const WeightEntry& entry) {
       rule.heads = counts_of(entry, 0, "an integer of at least 0 or a list of such");
     }},
    {"cast", kCastTypes, "", "type of the tensor in an export, in place of that of the call",
     [](WeightRule& rule, const WeightEntry& entry) {
       constexpr std::string_view words[] = {"f32", "bf16", "f16"};
       constexpr gsel_dtype types[] = {GSEL_F32, GSEL_BF16, GSEL_F16};
       rule.cast = types[word_of(entry, words, kCastTypes)];
     }},
};

// What several keys say together.
class RuleCheck {
 public:
  RuleCheck(const std::vector<WeightEntry>& entries, WeightRule& rule) : entries_(entries), rule_(rule) {}

  void run(bool ignores) {
    if (rule_.sources.empty()) reject_rule(rule_.place, "{} has no source", rule_.place.token);
    if (ignores) return only("ignore", {"source", "ignore"});
    if (rule_.targets.empty())
      reject_rule(rule_.place, "{} has no target; name a parameter, or set ignore = true", rule_.place.token);
    check_counts();
    check_captures();
    check_heads();
  }

 private:
  const WeightEntry* entry(std::string_view key) const {
    const auto found = std::ranges::find(entries_, key, &WeightEntry::key);
    return found == entries_.end() ? nullptr : &*found;
  }
  const Place& place(std::string_view key) const { return entry(key) ? entry(key)->place : rule_.place; }

  void only(std::string_view what, std::initializer_list<std::string_view> allowed) const {
    for (const WeightEntry& e : entries_)
      if (std::ranges::find(allowed, e.key) == allowed.end())
        reject_rule(e.place, "{} beside {}; with {} there is a source and nothing else", e.place.token, what, what);
  }

  size_t n_parts() const { return std::max(rule_.sources.size(), rule_.targets.size()); }

  void check_counts() const {
    const auto several = [&](const char* key, size_t n, const char* with, int32_t dim) {
      if (n > 1 && dim < 0)
        reject_rule(place(key), "{} has {} names; several need {} = DIMENSION", place(key).token, n, with);
      if (n == 1 && dim >= 0)
        reject_rule(place(with), "{} needs several names in {}, and there is one", place(with).token, key);
    };
    several("source", rule_.sources.size(), "concat", rule_.concat_dim);
    several("target", rule_.targets.size(), "split", rule_.split_dim);
    if (rule_.concat_dim >= 0 && rule_.split_dim >= 0)
      reject_rule(place("split"), "{} and concat in one rule; make two rules", place("split").token);
    if (!rule_.aliases.empty() && rule_.sources.size() > 1)
      reject_rule(place("alias"), "{} needs one source, and there are {}", place("alias").token, rule_.sources.size());
    if (!rule_.parts.empty() && (n_parts() == 1 || rule_.parts.size() != n_parts()))
      reject_rule(place("parts"), "{} has {}, and the rule has {}", place("parts").token,
                  with_noun(rule_.parts.size(), "number"), with_noun(n_parts(), "part"));
  }

  void check_captures() const {
    const std::vector<std::string> expected = rule_.targets.front().captures();
    for (const auto& [key, patterns] :
         {std::pair("source", &rule_.sources), std::pair("target", &rule_.targets), std::pair("alias", &rule_.aliases)})
      for (const NamePattern& pattern : *patterns)
        if (pattern.captures() != expected)
          reject_rule(place(key), "{}: {} and {} capture different names; expected the same in all names of a rule",
                      place(key).token, in_quotes(pattern.text()), in_quotes(rule_.targets.front().text()));
  }

  void check_heads() {
    const bool permutes = rule_.heads_order != HeadOrder::same;
    if (permutes && rule_.heads.empty())
      reject_rule(place("permute"), "{} needs heads, the number of heads", place("permute").token);
    if (!permutes && !rule_.heads.empty())
      reject_rule(place("heads"), "{} needs permute, which says how rows go", place("heads").token);
    if (rule_.heads.size() == 1) rule_.heads.resize(n_parts(), rule_.heads.front());
    if (permutes && rule_.heads.size() != n_parts())
      reject_rule(place("heads"), "{} has {}, and the rule has {}", place("heads").token,
                  with_noun(rule_.heads.size(), "number"), with_noun(n_parts(), "part"));
  }

  const std::vector<WeightEntry>& entries_;
  WeightRule& rule_;
};

std::string texts_of(const std::vector<NamePattern>& patterns) {
  std::string text;
  for (const NamePattern& pattern : patterns) text += in_quotes(pattern.text(), pattern.text().size()) + " ";
  return text;
}

}  // namespace

std::span<const WeightKey> weight_keys() {
  return kWeightKeys;
}

WeightRule weight_rule_of(const std::vector<WeightEntry>& entries, const Place& place) {
  WeightRule rule;
  rule.place = place;
  bool ignores = false;
  for (const WeightEntry& entry : entries) {
    const auto key = std::ranges::find(kWeightKeys, entry.key, &WeightKey::name);
    if (key == std::end(kWeightKeys)) {
      std::vector<std::string_view> names;
      for (const WeightKey& known : kWeightKeys) names.push_back(known.name);
      const std::string meant = nearest(entry.key, names);
      reject_rule(entry.place, "unknown key {}; {}", in_quotes(entry.place.token),
                  meant.empty() ? fmt::format("there are {}", fmt::join(names, ", "))
                                : fmt::format("did you mean \"weights.map.{}\"?", meant));
    }
    key->store(rule, entry);
    if (entry.key == "ignore") ignores = entry.values.front().boolean;
  }
  RuleCheck(entries, rule).run(ignores);
  return rule;
}

std::string WeightRule::text() const {
  return fmt::format("{}-> {}alias {}concat {} split {} parts {} transpose {} optional {} permute {} heads {} cast {}",
                     texts_of(sources), texts_of(targets), texts_of(aliases), concat_dim, split_dim,
                     fmt::join(parts, ","), transpose, optional, static_cast<int>(heads_order), fmt::join(heads, ","),
                     cast);
}

}  // namespace gsel
