// base/config_parse.cc: from TOML text to a Config, with a place for every error. config_keys.cc says what a key
// accepts; this file walks the tree and reports errors.
// Hostile text trips assertions of the parser, so they are off, as in its release builds; the parser then reports an
// error.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>

#include <algorithm>

#include "base/config_keys.h"
#include "base/text.h"
#include "base/toml_scan.h"
#include "base/types.h"
#include "base/weight_keys.h"

namespace gsel {
namespace {

// Limits how deep a hostile text can make the parser nest; a real file has a few hundred bytes.
constexpr size_t kMostBytes = size_t{64} << 10;

// Stands for the file name when a call set the key.
constexpr const char* kSet = "gsel_config_set";

// Longest key that a call can set: more than "strategy.pipeline." and the longest name of an option.
constexpr size_t kMostKeyBytes = 512;

struct Entry {
  const toml::key* key;
  const toml::node* node;
};

// Entries in the order of the file, so that the first mistake is the one reported.
std::vector<Entry> entries_of(const toml::table& table) {
  std::vector<Entry> entries;
  for (auto&& [key, node] : table) entries.push_back({&key, &node});
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    const auto x = a.key->source().begin, y = b.key->source().begin;
    return x.line != y.line ? x.line < y.line : x.column < y.column;
  });
  return entries;
}

// The value of a scalar; nothing for arrays, tables, dates and times.
std::optional<Scalar> scalar_of(const toml::node& node) {
  Scalar value;
  if (const auto* text = node.as_string()) {
    value.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    value.type = ConfigValue::Type::integer;
    value.integer = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    value.type = ConfigValue::Type::number;
    value.number = number->get();
  } else if (const auto* boolean = node.as_boolean()) {
    value.type = ConfigValue::Type::boolean;
    value.boolean = boolean->get();
  } else {
    return std::nullopt;
  }
  return value;
}

std::string shown(const Scalar& value) {
  return value.type == ConfigValue::Type::text ? in_quotes(value.text) : as_text(value);
}

std::string_view kind_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::array:
      return "an array";
    case toml::node_type::table:
      return "a section";
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a decimal number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

// Whether `name` can be the name of a plugin or of a plugin's option.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

class Reader {
 public:
  explicit Reader(const std::string& file) : config_(default_config()) { config_.file = file; }

  Config read(const toml::table& root) {
    for (const Entry& entry : entries_of(root)) read_section(entry);
    check_auto();
    check_microbatches();
    check_device();
    return std::move(config_);
  }

 private:
  template <class... Args>
  [[noreturn]] void reject(const Place& place, fmt::format_string<Args...> text, Args&&... args) const {
    const std::string where = place.line > 0 ? fmt::format("{}:{}", place.file, place.line) : kSet;
    throw Error(GSEL_ERR_CONFIG, fmt::format("{}: {}", where, fmt::format(text, std::forward<Args>(args)...)))
        .at(place);
  }

  Place place_of(const Entry& entry, std::string dotted) const {
    return place_at(entry.key->source().begin, std::move(dotted));
  }

  Place place_at(const toml::source_position& begin, std::string dotted) const {
    return {begin.line > 0 ? config_.file : kSet, static_cast<int32_t>(begin.line), static_cast<int32_t>(begin.column),
            std::move(dotted)};
  }

  static std::vector<std::string_view> sections() {
    std::vector<std::string_view> names{"strategy"};
    for (const ConfigKey& key : config_keys()) {
      const std::string_view section = key.name.substr(0, key.name.find('.'));
      if (std::find(names.begin(), names.end(), section) == names.end()) names.push_back(section);
    }
    return names;
  }

  void read_section(const Entry& entry) {
    const std::string name(entry.key->str());
    const Place place = place_of(entry, name);
    const auto known = sections();
    const toml::table* table = entry.node->as_table();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      if (table) reject_unknown("section", place, known);
      reject_unknown("key", place, {});
    }
    if (!table) reject(place, "{} is {}; expected a section [{}]", name, kind_of(*entry.node), name);
    for (const Entry& inner : entries_of(*table)) {
      if (name == "strategy")
        read_strategy(inner);
      else if (name == "weights" && inner.key->str() == "map")
        read_weight_rules(inner);
      else
        read_key(inner, name);
    }
  }

  void read_key(const Entry& entry, const std::string& section) {
    const Place place = place_of(entry, section + "." + std::string(entry.key->str()));
    const ConfigKey* key = find_config_key(place.token);
    if (!key) reject_unknown("key", place, {});
    const auto value = scalar_of(*entry.node);
    if (!value) reject(place, "{} is {}; expected {}", key->name, kind_of(*entry.node), expectation(*key));
    if (const std::string wrong = objection(*key, *value); !wrong.empty())
      reject(place, "{} = {} {}; expected {}", key->name, shown(*value), wrong, expectation(*key));
    store_value(config_, *key, *value);
    config_.places[place.token] = place;
  }

  // [[weights.map]]
  void read_weight_rules(const Entry& entry) {
    const Place place = place_of(entry, "weights.map");
    const toml::array* const rules = entry.node->as_array();
    if (!rules) reject(place, "{} is {}; expected sections [[{}]]", place.token, kind_of(*entry.node), place.token);
    for (const toml::node& node : *rules) {
      const toml::table* const table = node.as_table();
      const Place rule = place_at(node.source().begin, place.token);
      if (!table) reject(rule, "{} has {}; expected sections [[{}]]", place.token, kind_of(node), place.token);
      std::vector<WeightEntry> entries;
      for (const Entry& inner : entries_of(*table)) entries.push_back(weight_entry(inner, place.token));
      config_.weights.rules.push_back(weight_rule_of(entries, rule));
    }
    config_.places[place.token] = place;
  }

  WeightEntry weight_entry(const Entry& entry, const std::string& section) const {
    WeightEntry out;
    out.key = entry.key->str();
    out.place = place_of(entry, section + "." + out.key);
    if (const auto value = scalar_of(*entry.node)) {
      out.values.push_back(*value);
    } else if (const toml::array* list = entry.node->as_array()) {
      out.is_list = true;
      for (const toml::node& item : *list) {
        const auto one = scalar_of(item);
        if (!one)
          reject(place_at(item.source().begin, out.place.token), "{} has {} in its list; expected single values",
                 out.place.token, kind_of(item));
        out.values.push_back(*one);
      }
    } else {
      out.kind = kind_of(*entry.node);
    }
    return out;
  }

  // Names the nearest known word, and for a key also the same key in another section.
  [[noreturn]] void reject_unknown(std::string_view what, const Place& place,
                                   std::vector<std::string_view> known) const {
    const std::string& name = place.token;
    const std::string section = name.substr(0, name.find('.'));
    if (known.empty())
      for (const ConfigKey& key : config_keys()) known.push_back(key.name);
    std::string meant = nearest(name, known);
    const std::string last = name.substr(name.rfind('.') + 1);
    for (std::string_view candidate : known)
      if (candidate.substr(candidate.rfind('.') + 1) == last) meant = candidate;
    if (!meant.empty()) reject(place, "unknown {} {}; did you mean \"{}\"?", what, in_quotes(name), meant);
    std::string all;
    for (std::string_view candidate : known)
      if (what == "section" || candidate.starts_with(section + "."))
        all += fmt::format("{}{}", all.empty() ? "" : ", ", candidate);
    if (all.empty()) reject(place, "unknown key {}; expected a key of a section such as train.batch", in_quotes(name));
    reject(place, "unknown {} {}; there are {}", what, in_quotes(name), all);
  }

  void read_strategy(const Entry& entry) {
    if (!entry.node->is_table() && find_config_key("strategy." + std::string(entry.key->str())))
      return read_key(entry, "strategy");
    const Place place = place_of(entry, "strategy." + std::string(entry.key->str()));
    const toml::table* table = entry.node->as_table();
    for (gsel_axis axis = 0; axis < kAxes; ++axis) {
      if (entry.key->str() != axis_name(axis)) continue;
      if (!table) reject(place, "{} is {}; expected a section [{}]", place.token, kind_of(*entry.node), place.token);
      config_.strategy[axis] = read_plugin(*table, place);
      return;
    }
    std::vector<std::string> names;
    for (gsel_axis axis : kInnerToOuter) names.push_back(fmt::format("strategy.{}", axis_name(axis)));
    reject_unknown(table ? "section" : "key", place, {names.begin(), names.end()});
  }

  // The weights of the coordinates of an axis: [2, 1].
  void read_weights(const toml::node& node, const Place& key) {
    constexpr double kMostWeight = 1e9;
    const auto* array = node.as_array();
    const auto one = array ? std::nullopt : scalar_of(node);
    if (!array)
      reject(key, "{} is {}; expected a list of numbers such as [2, 1]", key.token,
             one ? shown(*one) : std::string(kind_of(node)));
    if (array->empty()) reject(key, "{} is empty; expected a number for each rank of the axis", key.token);
    std::string text;
    int position = 0;
    for (const toml::node& item : *array) {
      const Place place = place_at(item.source().begin, key.token);
      const auto value = scalar_of(item);
      const auto given = item.value<double>();
      if (!given || !(*given > 0 && *given <= kMostWeight))
        reject(place, "{} has {} at position {}; expected a number above 0 and at most {}", key.token,
               value ? shown(*value) : std::string(kind_of(item)), position, kMostWeight);
      ++position;
      text += (text.empty() ? "" : ", ") + as_text(*value);
    }
    config_.texts[key.token] = "[" + text + "]";
    config_.places[key.token] = key;
  }

  StrategySection read_plugin(const toml::table& table, const Place& section) {
    StrategySection out;
    for (const Entry& entry : entries_of(table)) {
      const std::string name(entry.key->str());
      const Place place = place_of(entry, section.token + "." + name);
      if (name == "weights") {
        read_weights(*entry.node, place);
        continue;
      }
      if (!is_plain_name(name))
        reject(place, "unknown key {}; expected lower case letters, digits and '_'", in_quotes(place.token));
      const auto value = scalar_of(*entry.node);
      if (!value)
        reject(place, "{} is {}; expected an integer, a number, a boolean or text", place.token, kind_of(*entry.node));
      if (name == "plugin")
        out.plugin = plugin_name(*value, place), out.place = place;
      else
        out.options[name] = {value->type, as_text(*value), place};
      config_.texts[place.token] = as_text(*value);
      config_.places[place.token] = place;
    }
    if (out.plugin.empty())
      reject(section, "[{}] names no plugin; set plugin = \"{}\"", section.token,
             OwnStrategies::of(section.token.substr(section.token.rfind('.') + 1)));
    return out;
  }

  std::string plugin_name(const Scalar& value, const Place& place) const {
    if (value.type != ConfigValue::Type::text || !is_plain_name(value.text))
      reject(place, "{} = {} is not a plugin's name; expected lower case letters, digits and '_' in quotes",
             place.token, shown(value));
    return value.text;
  }

  // At most one size is "auto": that of the data axis unless the file names another.
  void check_auto() {
    const ConfigKey* found = nullptr;
    auto axes = kInnerToOuter;
    std::stable_partition(axes.begin(), axes.end(), [](gsel_axis axis) { return axis != GSEL_AXIS_DATA; });
    for (gsel_axis axis : axes) {
      const std::string name = fmt::format("mesh.{}", axis_name(axis));
      if (config_.texts.find(name)->second != "auto") continue;
      const ConfigKey* key = find_config_key(name);
      const Place place = config_.place_of(name);
      if (!found) {
        found = key;
      } else if (place.line == 0) {
        Scalar one;
        one.type = ConfigValue::Type::integer;
        one.integer = 1;
        store_value(config_, *key, one);
      } else {
        reject(place, "{} = \"auto\", but {} is \"auto\" as well; expected an integer of at least 1 for one of them",
               name, found->name);
      }
    }
  }

  void check_microbatches() const {
    if (config_.train.microbatch == 0 || config_.train.microbatches == 0) return;
    reject(config_.place_of("train.microbatches"),
           "train.microbatches = {} says how many micro-batches there are and train.microbatch = {} how large they "
           "are; use one of the two",
           config_.train.microbatches, config_.train.microbatch);
  }

  void check_device() const {
    const std::string_view device = device_wish(config_.train.device).device;
    const size_t colon = device.find(':');
    const std::string_view kind = device.substr(0, colon);
    const std::string_view index = colon == device.npos ? "0" : device.substr(colon + 1);
    const bool has_index = !index.empty() && index.find_first_not_of("0123456789") == index.npos;
    if (is_plain_name(kind) && has_index && index.size() < 10) return;
    reject(config_.place_of("train.device"),
           "train.device = {} is no device; expected \"auto\", \"cpu\", a device such as \"cuda\" or \"cuda:1\", or "
           "\"cuda | cpu\" for the host where there is none",
           in_quotes(config_.train.device));
  }

  Config config_;
};

// The parser's message in the style of gsel: begins in lower case, no full stop at the end.
std::string our_manner(std::string_view description) {
  std::string text = one_line(description);
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

toml::table parse_toml(std::string_view text, const std::string& file) {
  if (text.size() > kMostBytes)
    throw Error(GSEL_ERR_PARSE, fmt::format("{}: a configuration of {} bytes; expected at most {} bytes", file,
                                            text.size(), kMostBytes))
        .at({file, 0, 0, {}});
  check_toml_text(text, file);
  try {
    return toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& e) {
    const auto begin = e.source().begin;
    throw Error(GSEL_ERR_PARSE,
                fmt::format("{}:{}: column {}: {}", file, begin.line, begin.column, our_manner(e.description())))
        .at({file, static_cast<int32_t>(begin.line), static_cast<int32_t>(begin.column), {}});
  }
}

// Whether a call gives the key's value as plain text; else the value is in TOML notation.
bool is_text(std::string_view key) {
  if (const ConfigKey* known = find_config_key(key))
    return known->type == KeyType::text || known->type == KeyType::word;
  return key.ends_with(".plugin");
}

// Puts the value, as gsel_config_get returns it, under `name` in the table. A value that is not valid TOML is text.
void set_value(toml::table& table, std::string_view key, std::string_view name, const std::string& value) {
  table.erase(name);  // together with its place in the file
  if (!is_text(key) && value.find_first_of("\n\r#") == value.npos) {
    try {
      // The caller's text must not be read as a second key.
      const toml::table read = parse_toml("value = " + value, kSet);
      if (const toml::node* node = read.get("value"); node && read.size() == 1 && !node->is_table()) {
        node->visit([&](const auto& given) { table.insert(name, given); });
        return;
      }
    } catch (const Error&) {
    }
  }
  table.insert(name, value);
}

// Checks a key before it becomes nested tables, one for each part: each takes stack.
void check_key(std::string_view key) {
  const auto refuse = [&](const std::string& why) {
    throw Error(GSEL_ERR_CONFIG, fmt::format("{}: key {} {}", kSet, in_quotes(key), why))
        .at({kSet, 0, 0, std::string(key)});
  };
  if (key.size() > kMostKeyBytes) refuse(fmt::format("has {} bytes; expected at most {}", key.size(), kMostKeyBytes));
  const auto parts = 1 + std::ranges::count(key, '.');
  if (parts > kMostKeyParts)
    refuse(fmt::format("has {}; expected at most {}", with_noun(parts, "part"), kMostKeyParts));
}

void set_key(toml::table& root, const std::string& key, const std::string& value) {
  toml::table* table = &root;
  size_t begin = 0;
  for (size_t dot; (dot = key.find('.', begin)) != key.npos; begin = dot + 1) {
    const std::string section = key.substr(begin, dot - begin);
    if (!table->contains(section)) table->insert(section, toml::table{});
    table = table->get(section)->as_table();
    if (!table)
      throw Error(GSEL_ERR_CONFIG, fmt::format("{}: unknown key {}; {} is a key, and has none of its own", kSet,
                                               in_quotes(key), in_quotes(key.substr(0, dot))))
          .at({kSet, 0, 0, key});
  }
  set_value(*table, key, key.substr(begin), value);
}

}  // namespace

Config parse_config(std::string_view text, const std::string& file) {
  Config config = Reader(file).read(parse_toml(text, file));
  config.source = text;
  return config;
}

Config with_setting(const Config& config, std::string_view key, const std::optional<std::string>& value) {
  check_key(key);
  auto settings = config.settings;
  if (value)
    settings[std::string(key)] = *value;
  else
    settings.erase(std::string(key));
  toml::table root = parse_toml(config.source, config.file);
  for (const auto& [name, text] : settings) set_key(root, name, text);
  Config changed = Reader(config.file).read(root);
  changed.source = config.source;
  changed.settings = std::move(settings);
  return changed;
}

}  // namespace gsel
