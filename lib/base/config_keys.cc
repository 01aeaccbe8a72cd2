// base/config_keys.cc: see config_keys.h. A new key is one row here, one field in Config and one row in
// docs/config.md (a test compares the two).
#include "base/config_keys.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace gsel {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Bounds at_least(double minimum) {
  return {minimum, kInfinity, false, false};
}
constexpr Bounds above(double minimum) {
  return {minimum, kInfinity, true, false};
}
constexpr Bounds kFraction{0, 1, false, true};
constexpr Bounds kAny{-kInfinity, kInfinity, false, false};

constexpr std::string_view accelerators[] = {"auto", "cuda", "hip", "ze", "habana", "ascend", "mps", "cpu"};
constexpr std::string_view orders[] = {"visible", "pci", "fastest", "most_free", "near"};
constexpr std::string_view optimizers[] = {"adamw", "sgd", "sign_sgd"};

template <gsel_axis axis>
void store_size(Config& config, const Scalar& value) {
  config.mesh[axis] = value.type == ConfigValue::Type::text ? 0 : value.integer;
}

constexpr ConfigKey keys[] = {
    {"select.accelerator", KeyType::word, "auto", kAny, accelerators,
     "kind of device; auto takes the accelerators there are, else the CPU",
     [](Config& c, const Scalar& v) { c.select.accelerator = v.text; }},
    {"select.devices",
     KeyType::text,
     "",
     kAny,
     {},
     "which devices, as gsel_resolve reads it, such as count:2; empty means auto",
     [](Config& c, const Scalar& v) { c.select.devices = v.text; }},
    {"select.order", KeyType::word, "visible", kAny, orders,
     "order in which devices are counted; visible is as the environment orders them, else by bus",
     [](Config& c, const Scalar& v) { c.select.order = v.text; }},
    {"comm.timeout_s",
     KeyType::number,
     "60.0",
     above(0),
     {},
     "bound on each communication call, seconds",
     [](Config& c, const Scalar& v) { c.comm.timeout_s = v.number; }},
    {"comm.trace",
     KeyType::text,
     "",
     kAny,
     {},
     "folder to which each rank that meets a failure writes the last calls of all ranks; empty means none",
     [](Config& c, const Scalar& v) { c.comm.trace = v.text; }},
    {"mesh.tensor",
     KeyType::size,
     "1",
     at_least(1),
     {},
     "ranks that share one layer's computation",
     store_size<GSEL_AXIS_TENSOR>},
    {"mesh.data",
     KeyType::size,
     "auto",
     at_least(1),
     {},
     "ranks that work on different samples; 1 instead of auto when another size is auto",
     store_size<GSEL_AXIS_DATA>},
    {"mesh.pipeline",
     KeyType::size,
     "1",
     at_least(1),
     {},
     "ranks that hold different layers",
     store_size<GSEL_AXIS_PIPELINE>},
    {"train.optimizer", KeyType::word, "adamw", kAny, optimizers, "rule of the optimizer step",
     [](Config& c, const Scalar& v) { c.train.optimizer = v.text; }},
    {"train.learning_rate",
     KeyType::number,
     "0.001",
     at_least(0),
     {},
     "size of the optimizer step",
     [](Config& c, const Scalar& v) { c.train.learning_rate = v.number; }},
    {"train.weight_decay",
     KeyType::number,
     "0.01",
     at_least(0),
     {},
     "decay of parameters that are not marked otherwise; decoupled, but sgd adds it to the gradient",
     [](Config& c, const Scalar& v) { c.train.weight_decay = v.number; }},
    {"train.momentum",
     KeyType::number,
     "0.0",
     kFraction,
     {},
     "momentum of sgd",
     [](Config& c, const Scalar& v) { c.train.momentum = v.number; }},
    {"train.beta1",
     KeyType::number,
     "0.9",
     kFraction,
     {},
     "decay of adamw's first moment",
     [](Config& c, const Scalar& v) { c.train.beta1 = v.number; }},
    {"train.beta2",
     KeyType::number,
     "0.999",
     kFraction,
     {},
     "decay of adamw's second moment",
     [](Config& c, const Scalar& v) { c.train.beta2 = v.number; }},
    {"train.epsilon",
     KeyType::number,
     "1e-08",
     above(0),
     {},
     "added to adamw's denominator",
     [](Config& c, const Scalar& v) { c.train.epsilon = v.number; }},
    {"train.clip_norm",
     KeyType::number,
     "0.0",
     at_least(0),
     {},
     "largest norm of the whole mean gradient; 0 means no clipping",
     [](Config& c, const Scalar& v) { c.train.clip_norm = v.number; }},
    {"train.batch",
     KeyType::integer,
     "8",
     at_least(1),
     {},
     "samples per step over all ranks",
     [](Config& c, const Scalar& v) { c.train.batch = v.integer; }},
    {"train.microbatch",
     KeyType::integer,
     "0",
     at_least(0),
     {},
     "samples per micro-batch of one rank; 0 means the rank's whole share",
     [](Config& c, const Scalar& v) { c.train.microbatch = v.integer; }},
    {"train.seed",
     KeyType::integer,
     "1",
     at_least(0),
     {},
     "seed of initial parameters and of noise",
     [](Config& c, const Scalar& v) { c.train.seed = v.integer; }},
};

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
  return keys;
}

const ConfigKey* find_config_key(std::string_view name) {
  for (const ConfigKey& key : keys)
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

// from_chars and not strtod: the embedder's locale must not matter.
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
