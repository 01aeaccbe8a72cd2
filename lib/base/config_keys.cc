// base/config_keys.cc: see config_keys.h. A new key is one row in config_keys_*.cc, one field in Config and one row in
// docs/config.md (a test compares the two).
#include "base/config_keys.h"

#include <charconv>
#include <cmath>

#include "base/config_rows.h"

namespace gsel {
namespace {

std::string listed(std::span<const std::string_view> words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += fmt::format("{}\"{}\"", i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  return text;
}

// "a number of at least 0 and below 1"
std::string with_bounds(std::string_view noun, const Bounds& b) {
  std::string text(noun);
  if (std::isfinite(b.minimum)) text += fmt::format(" {} {}", b.above ? "above" : "of at least", b.minimum);
  if (std::isfinite(b.maximum)) text += fmt::format(" and {} {}", b.below ? "below" : "at most", b.maximum);
  return text;
}

std::string_view type_text(ConfigValue::Type type) {
  switch (type) {
    case ConfigValue::Type::integer:
      return "is an integer";
    case ConfigValue::Type::number:
      return "is a decimal number";
    case ConfigValue::Type::boolean:
      return "is a boolean";
    default:
      return "is text";
  }
}

bool accepts_type(const ConfigKey& key, const Scalar& value) {
  using Type = ConfigValue::Type;
  switch (key.type) {
    case KeyType::integer:
      return value.type == Type::integer;
    case KeyType::number:
      return value.type == Type::integer || value.type == Type::number;
    case KeyType::size:
      return value.type == Type::integer || (value.type == Type::text && value.text == "auto");
    default:
      return value.type == Type::text;
  }
}

}  // namespace

bool Bounds::hold(double value) const {
  return std::isfinite(value) && (above ? value > minimum : value >= minimum) &&
         (below ? value < maximum : value <= maximum);
}

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> all = [] {
    std::vector<ConfigKey> joined;
    for (const auto& keys : {host_keys(), train_keys()}) joined.insert(joined.end(), keys.begin(), keys.end());
    return joined;
  }();
  return all;
}

const ConfigKey* find_config_key(std::string_view name) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return &key;
  return nullptr;
}

std::string expectation(const ConfigKey& key) {
  switch (key.type) {
    case KeyType::integer:
      return with_bounds("an integer", key.bounds);
    case KeyType::number:
      return with_bounds("a number", key.bounds);
    case KeyType::size:
      return with_bounds("an integer", key.bounds) + " or \"auto\"";
    case KeyType::word:
      return listed(key.words);
    default:
      return "text";
  }
}

std::string objection(const ConfigKey& key, const Scalar& value) {
  using Type = ConfigValue::Type;
  if (!accepts_type(key, value)) return std::string(type_text(value.type));
  const bool numeric = value.type == Type::integer || value.type == Type::number;
  if (numeric && !key.bounds.hold(value.type == Type::integer ? static_cast<double>(value.integer) : value.number))
    return "is out of bounds";
  if (key.type != KeyType::word) return {};
  for (std::string_view word : key.words)
    if (word == value.text) return {};
  return "is not known";
}

// Uses from_chars and not strtod: the embedder's locale must not matter.
Scalar default_value(const ConfigKey& key) {
  Scalar value;
  value.text = key.default_text;
  if (key.type == KeyType::number) {
    value.type = ConfigValue::Type::number;
    std::from_chars(value.text.data(), value.text.data() + value.text.size(), value.number);
  } else if (key.type == KeyType::integer || (key.type == KeyType::size && value.text != "auto")) {
    value.type = ConfigValue::Type::integer;
    std::from_chars(value.text.data(), value.text.data() + value.text.size(), value.integer);
  }
  return value;
}

std::string as_text(const Scalar& value) {
  switch (value.type) {
    case ConfigValue::Type::integer:
      return std::to_string(value.integer);
    case ConfigValue::Type::boolean:
      return value.boolean ? "true" : "false";
    case ConfigValue::Type::text:
      return value.text;
    default:
      break;
  }
  std::string text = fmt::format("{}", value.number);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

void store_value(Config& config, const ConfigKey& key, const Scalar& given) {
  Scalar value = given;
  if (key.type == KeyType::number && value.type == ConfigValue::Type::integer) {
    value.type = ConfigValue::Type::number;
    value.number = static_cast<double>(value.integer);
  }
  key.store(config, value);
  config.texts[std::string(key.name)] = as_text(value);
}

}  // namespace gsel
