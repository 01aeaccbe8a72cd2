// select/inventory/json_object.cc: see json_object.h.
#include "select/inventory/json_object.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"

namespace gsel {
namespace {

using nlohmann::json;

Place place_at(std::string_view text, size_t byte, const std::string& file) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto newline = before.rfind('\n');
  Place place;
  place.file = file;
  place.line = 1 + static_cast<int32_t>(std::count(before.begin(), before.end(), '\n'));
  place.column = static_cast<int32_t>(newline == before.npos ? before.size() : before.size() - newline - 1) + 1;
  return place;
}

// What nlohmann says after "[json.exception...] parse error at line 1, column 2: ".
std::string reason_of(const json::parse_error& e) {
  std::string_view text = e.what();
  const auto colon = text.find(": ");
  if (colon != text.npos) text.remove_prefix(colon + 2);
  return one_line(text);
}

constexpr int kMaxDepth = 32;

// The same name twice in one object would silently drop a value; a tower of brackets would exhaust the stack later.
class Watch {
 public:
  explicit Watch(const std::string& file) : file_(file) {}

  bool operator()(int depth, json::parse_event_t event, const json& value) {
    if (depth > kMaxDepth)
      throw Error(GSEL_ERR_PARSE, fmt::format("inventory {}: nested more than {} deep", file_, kMaxDepth))
          .at({file_, 0, 0, {}});
    if (event == json::parse_event_t::object_start) names_.emplace_back();
    if (event == json::parse_event_t::object_end) names_.pop_back();
    if (event == json::parse_event_t::key && !names_.back().insert(value.get<std::string>()).second) {
      Place place{file_, 0, 0, value.get<std::string>()};
      throw Error(GSEL_ERR_PARSE,
                  fmt::format("inventory {}: field {} stands twice in one object", file_, in_quotes(place.token)))
          .at(place);
    }
    return true;
  }

 private:
  const std::string& file_;
  std::vector<std::set<std::string>> names_;
};

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

// A name that somebody gave a field, for a path in a message.
std::string field_text(const std::string& name) {
  const bool plain = name.size() <= 60 &&
                     std::all_of(name.begin(), name.end(), [](unsigned char c) { return c == '_' || std::isalnum(c); });
  return plain ? name : in_quotes(name);
}

}  // namespace

json parse_json(std::string_view text, const std::string& file) {
  Watch watch(file);
  try {
    return json::parse(text,
                       [&](int depth, json::parse_event_t event, json& value) { return watch(depth, event, value); });
  } catch (const json::parse_error& e) {
    Place place = place_at(text, e.byte ? e.byte - 1 : 0, file);
    throw Error(GSEL_ERR_PARSE, fmt::format("inventory {}: line {}, column {}: not JSON: {}", file, place.line,
                                            place.column, reason_of(e)))
        .at(place);
  } catch (const json::out_of_range& e) {
    throw Error(GSEL_ERR_PARSE, fmt::format("inventory {}: a number is too large", file)).at({file, 0, 0, {}});
  }
}

JsonObject::JsonObject(const json& value, std::string path, std::string file)
    : value_(value), path_(std::move(path)), file_(std::move(file)) {
  if (!value.is_object()) refuse({}, fmt::format("is {} ({}), an object is needed", shown(value), value.type_name()));
}

std::string JsonObject::path_of(std::string_view field) const {
  if (path_.empty() || field.empty()) return path_.empty() ? std::string(field) : path_;
  return fmt::format("{}.{}", path_, field);
}

void JsonObject::refuse(std::string_view field, const std::string& why) const {
  const std::string path = path_of(field);
  throw Error(GSEL_ERR_PARSE, fmt::format("inventory {}: {} {}", file_, path.empty() ? "the document" : path, why))
      .at({file_, 0, 0, path});
}

const json* JsonObject::find(const char* name) {
  known_.push_back(name);
  const auto it = value_.find(name);
  return it == value_.end() ? nullptr : &*it;
}

std::string JsonObject::text(const char* name, std::string absent) {
  const json* field = find(name);
  if (!field) return absent;
  return plain_text(name, *field);
}

std::string JsonObject::plain_text(std::string_view field, const json& value) const {
  if (!value.is_string()) refuse(field, fmt::format("is {} ({}), text is needed", shown(value), value.type_name()));
  const auto& text = value.get_ref<const std::string&>();
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    refuse(field, fmt::format("is {}, which holds a control character", shown(value)));
  return text;
}

std::vector<std::string> JsonObject::texts(const char* name) {
  std::vector<std::string> out;
  for (const json& value : array(name)) out.push_back(plain_text(fmt::format("{}[{}]", name, out.size()), value));
  return out;
}

std::string JsonObject::require_text(const char* name) {
  std::string value = text(name);
  if (value.empty()) refuse(name, has(name) ? "is empty" : "is missing");
  return value;
}

uint64_t JsonObject::number(const char* name, uint64_t minimum, uint64_t maximum, uint64_t absent) {
  const json* field = find(name);
  if (!field) return absent;
  const bool whole = field->is_number_unsigned() || (field->is_number_integer() && field->get<int64_t>() >= 0);
  if (!whole)
    refuse(name, fmt::format("is {} ({}), a whole number from {} to {} is needed", shown(*field), field->type_name(),
                             minimum, maximum));
  const uint64_t value = field->get<uint64_t>();
  if (value < minimum || value > maximum)
    refuse(name, fmt::format("is {}, a whole number from {} to {} is needed", value, minimum, maximum));
  return value;
}

int32_t JsonObject::whole(const char* name, int32_t maximum, int32_t absent) {
  if (!has(name)) return find(name), absent;
  return static_cast<int32_t>(number(name, 0, static_cast<uint64_t>(maximum), 0));
}

double JsonObject::amount(const char* name, double absent) {
  const json* field = find(name);
  if (!field) return absent;
  const double value = field->is_number() ? field->get<double>() : -1;
  if (!(value >= 0))
    refuse(name, fmt::format("is {} ({}), a number from 0 is needed", shown(*field), field->type_name()));
  return value;
}

bool JsonObject::flag(const char* name, bool absent) {
  const json* field = find(name);
  if (!field) return absent;
  if (!field->is_boolean())
    refuse(name, fmt::format("is {} ({}), true or false is needed", shown(*field), field->type_name()));
  return field->get<bool>();
}

const json::array_t& JsonObject::array(const char* name) {
  static const json::array_t none;
  const json* field = find(name);
  if (!field) return none;
  if (!field->is_array())
    refuse(name, fmt::format("is {} ({}), an array is needed", shown(*field), field->type_name()));
  return field->get_ref<const json::array_t&>();
}

void JsonObject::finish() const {
  for (const auto& [name, value] : value_.items()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    std::vector<std::string_view> known = known_;
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    const std::string meant = nearest(name, known);
    refuse(field_text(name),
           fmt::format("is not a known field; {}known are {}",
                       meant.empty() ? "" : fmt::format("did you mean {}? ", meant), fmt::join(known, ", ")));
  }
}

}  // namespace gsel
