// base/config_keys.h: the one table of the keys the core knows. Parsing, defaults, messages and docs/config.md follow
// from it. Does not know TOML or files.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/config.h"

namespace gsel {

// A scalar value, from a file or a default.
struct Scalar {
  ConfigValue::Type type = ConfigValue::Type::text;
  int64_t integer = 0;
  double number = 0;
  bool boolean = false;
  std::string text;
};

enum class KeyType {
  integer,
  number,  // an integer is accepted as well
  text,
  word,  // one of `words`
  size,  // an integer or "auto"
};

// Allowed numbers; an infinite bound is no bound.
struct Bounds {
  double minimum = 0;
  double maximum = 0;
  bool above = false;  // the minimum itself is not allowed
  bool below = false;  // the maximum itself is not allowed
  bool hold(double value) const;
};

struct ConfigKey {
  std::string_view name;  // dotted
  KeyType type;
  std::string_view default_text;  // as written in a file, text without its quotes
  Bounds bounds;
  std::span<const std::string_view> words;
  std::string_view help;
  void (*store)(Config& config, const Scalar& value);
};

std::span<const ConfigKey> config_keys();
const ConfigKey* find_config_key(std::string_view name);

// What the key accepts, for messages: "an integer of at least 1 or \"auto\"".
std::string expectation(const ConfigKey& key);

// Empty when the key accepts the value, else the reason why not: "is text", "is out of bounds".
std::string objection(const ConfigKey& key, const Scalar& value);

// The key's default as a value.
Scalar default_value(const ConfigKey& key);

// A value as gsel_config_get returns it: 25000000, 1.0, true, adamw.
std::string as_text(const Scalar& value);

// Stores an accepted value in the field and in config.texts.
void store_value(Config& config, const ConfigKey& key, const Scalar& value);

}  // namespace gsel
