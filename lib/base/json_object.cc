// base/json_object.cc: see json_object.h.
#include "base/json_object.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace gsel {
namespace {

// ---- line and column of a value, since a parsed tree does not keep them ---------------------------------------------
// One pass over the text, which skips everything outside the path. The text has been parsed without an error.

struct JsonSpot {
  int32_t line = 0, column = 0;  // from 1, of the name of a field or the first character of an item
};

// `path` is in the notation of JsonObject: "hosts[0].devices[2].name". For a missing field or item, the result is the
// place of the object or array that should have it.
JsonSpot json_spot_of(std::string_view text, std::string_view path);

class PathWalk {
 public:
  PathWalk(std::string_view text, std::string_view path) : text_(text), path_(path) {}

  size_t run() {
    skip_space();
    size_t found = at_;
    while (!path_.empty() && enter(found)) {
    }
    return found;
  }

 private:
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n,:").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  std::string_view skip_text() {
    const size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    const size_t end = std::min(at_, text_.size());
    at_ = std::min(end + 1, text_.size());
    return text_.substr(begin, end - begin);
  }

  void skip_value() {
    int32_t depth = 0;
    do {
      skip_space();
      const char c = now();
      if (c == '"') {
        skip_text();
        continue;
      }
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      ++at_;
      if (depth == 0)  // a number or a word: skip to its end
        while (at_ < text_.size() && std::string_view(" \t\r\n,:{}[]\"").find(text_[at_]) == std::string_view::npos)
          ++at_;
    } while (depth > 0 && at_ < text_.size());
  }

  // Enters the value that the next step of the path names, and sets `found` to the step's position. Returns false when
  // there is no such value.
  bool enter(size_t& found) {
    const char kind = now();
    if (kind != '{' && kind != '[') return false;
    ++at_;
    for (size_t i = 0;; ++i) {
      skip_space();
      if (at_ >= text_.size() || now() == '}' || now() == ']') return false;
      const size_t place = at_;
      if (kind == '{' ? take_name(skip_text()) : take_index(i)) {
        skip_space();
        found = place;
        return true;
      }
      skip_space();
      skip_value();
    }
  }

  bool take_name(std::string_view name) {
    if (!path_.starts_with(name)) return false;
    const std::string_view rest = path_.substr(name.size());
    if (!rest.empty() && rest[0] != '.' && rest[0] != '[') return false;
    path_ = rest.starts_with('.') ? rest.substr(1) : rest;
    return true;
  }

  bool take_index(size_t i) {
    size_t index = 0;
    if (!path_.starts_with('[')) return false;
    const auto read = std::from_chars(path_.data() + 1, path_.data() + path_.size(), index);
    if (read.ec != std::errc() || index != i) return false;
    path_.remove_prefix(std::min(path_.find(']'), path_.size() - 1) + 1);
    if (path_.starts_with('.')) path_.remove_prefix(1);
    return true;
  }

  std::string_view text_, path_;
  size_t at_ = 0;
};

JsonSpot json_spot_of(std::string_view text, std::string_view path) {
  const std::string_view before = text.substr(0, std::min(PathWalk(text, path).run(), text.size()));
  const size_t line = before.rfind('\n') + 1;  // 0 on the first line
  return {1 + static_cast<int32_t>(std::ranges::count(before, '\n')), 1 + static_cast<int32_t>(before.size() - line)};
}

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

// The part of nlohmann's message after "[json.exception...] parse error at line 1, column 2: ".
std::string reason_of(const json::parse_error& e) {
  std::string_view text = e.what();
  const auto colon = text.find(": ");
  if (colon != text.npos) text.remove_prefix(colon + 2);
  return one_line(text);
}

constexpr size_t kMaxDepth = 32;

// Rejects a repeated name in an object, which would silently drop a value, and deep nesting, which would later exhaust
// the stack. A separate pass, since the parser's callback takes quadratic time.
class Watch : public nlohmann::json_sax<json> {
 public:
  explicit Watch(const JsonSource& source) : source_(source) {}

  bool start_object(size_t) override { return enter(); }
  bool start_array(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    if (names_.back().insert(name).second) return true;
    throw Error(GSEL_ERR_PARSE,
                fmt::format("{} {}: field {} appears twice in one object", source_.what, source_.file, in_quotes(name)))
        .at({source_.file, 0, 0, name});
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  // The real parse reports syntax errors.
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

 private:
  bool enter() {
    names_.emplace_back();
    if (names_.size() > kMaxDepth)
      throw Error(GSEL_ERR_PARSE, fmt::format("{} {}: nested more than {} deep", source_.what, source_.file, kMaxDepth))
          .at({source_.file, 0, 0, {}});
    return true;
  }
  bool leave() {
    names_.pop_back();
    return true;
  }

  const JsonSource& source_;
  std::vector<std::set<std::string>> names_;  // of the objects being read
};

std::string json_text(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

// The name of a field as part of a path in a message.
std::string field_text(const std::string& name) {
  const bool plain = name.size() <= 60 &&
                     std::all_of(name.begin(), name.end(), [](unsigned char c) { return c == '_' || std::isalnum(c); });
  return plain ? name : in_quotes(name);
}

Place place_in(const JsonSource& source, const std::string& path) {
  const JsonSpot spot = source.text.empty() || path.empty() ? JsonSpot{} : json_spot_of(source.text, path);
  return {source.file, spot.line, spot.column, path};
}

[[noreturn]] void refuse_at(const JsonSource& source, const std::string& path, const std::string& why) {
  const Place place = place_in(source, path);
  throw Error(GSEL_ERR_PARSE, fmt::format("{} {}: {}{} {}", source.what, source.file, line_text(place),
                                          path.empty() ? "the document" : path, why))
      .at(place);
}

}  // namespace

std::string line_text(const Place& place) {
  return place.line > 0 ? fmt::format("line {}: ", place.line) : std::string();
}

std::shared_ptr<const json> parse_json(std::string_view text, const JsonSource& source) {
  Watch watch(source);
  json::sax_parse(text, &watch);
  try {
    return std::make_shared<const json>(json::parse(text));
  } catch (const json::parse_error& e) {
    Place place = place_at(text, e.byte ? e.byte - 1 : 0, source.file);
    throw Error(GSEL_ERR_PARSE, fmt::format("{} {}: line {}, column {}: not JSON: {}", source.what, source.file,
                                            place.line, place.column, reason_of(e)))
        .at(place);
  } catch (const json::out_of_range& e) {
    throw Error(GSEL_ERR_PARSE, fmt::format("{} {}: a number is too large", source.what, source.file))
        .at({source.file, 0, 0, {}});
  }
}

JsonObject::JsonObject(const json& value, std::string path, const JsonSource* source)
    : value_(value), path_(std::move(path)), source_(source) {
  if (!value.is_object())
    refuse({}, fmt::format("is {} ({}), an object is needed", json_text(value), value.type_name()));
}

std::string JsonObject::path_of(std::string_view field) const {
  if (path_.empty() || field.empty()) return path_.empty() ? std::string(field) : path_;
  return fmt::format("{}.{}", path_, field);
}

Place JsonObject::place_of(std::string_view field) const {
  return place_in(*source_, path_of(field));
}

void JsonObject::refuse(std::string_view field, const std::string& why) const {
  refuse_at(*source_, path_of(field), why);
}

bool JsonObject::has(const char* name) const {
  return value_.contains(name);
}

bool JsonObject::is_null(const char* name) const {
  return has(name) && value_.at(name).is_null();
}

bool JsonObject::is_text(const char* name) const {
  return has(name) && value_.at(name).is_string();
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
  if (!value.is_string()) refuse(field, fmt::format("is {} ({}), text is needed", json_text(value), value.type_name()));
  const auto& text = value.get_ref<const std::string&>();
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    refuse(field, fmt::format("is {}, which holds a control character", json_text(value)));
  return text;
}

std::string JsonObject::any_text(const char* name) {
  const json* field = find(name);
  if (!field) return {};
  if (!field->is_string())
    refuse(name, fmt::format("is {} ({}), text is needed", json_text(*field), field->type_name()));
  return field->get<std::string>();
}

std::vector<std::string> JsonObject::texts(const char* name) {
  std::vector<std::string> out;
  for (const json& value : array(name).value_)
    out.push_back(plain_text(fmt::format("{}[{}]", name, out.size()), value));
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
    refuse(name, fmt::format("is {} ({}), a whole number from {} to {} is needed", json_text(*field),
                             field->type_name(), minimum, maximum));
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
    refuse(name, fmt::format("is {} ({}), a number from 0 is needed", json_text(*field), field->type_name()));
  return value;
}

double JsonObject::real(const char* name, double minimum, double maximum, double absent) {
  const json* field = find(name);
  if (!field) return absent;
  const double value = field->is_number() ? field->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(value >= minimum && value <= maximum))
    refuse(name, fmt::format("is {} ({}), a number from {:g} to {:g} is needed", json_text(*field), field->type_name(),
                             minimum, maximum));
  return value;
}

bool JsonObject::flag(const char* name, bool absent) {
  const json* field = find(name);
  if (!field) return absent;
  if (!field->is_boolean())
    refuse(name, fmt::format("is {} ({}), true or false is needed", json_text(*field), field->type_name()));
  return field->get<bool>();
}

JsonArray JsonObject::array(const char* name) {
  static const json none = json::array();
  const json* field = find(name);
  return {field ? *field : none, path_of(name), source_};
}

JsonObject JsonObject::object(const char* name) {
  static const json none = json::object();
  const json* field = find(name);
  return {field ? *field : none, path_of(name), source_};
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

JsonArray::JsonArray(const json& value, std::string path, const JsonSource* source)
    : value_(value), path_(std::move(path)), source_(source) {
  if (!value.is_array())
    refuse_at(*source, path_, fmt::format("is {} ({}), an array is needed", json_text(value), value.type_name()));
}

size_t JsonArray::size() const {
  return value_.size();
}

std::string JsonArray::path_of(size_t i) const {
  return fmt::format("{}[{}]", path_, i);
}

JsonObject JsonArray::object(size_t i) const {
  return {value_[i], path_of(i), source_};
}

JsonArray JsonArray::array(size_t i) const {
  return {value_[i], path_of(i), source_};
}

std::optional<double> JsonArray::number(size_t i) const {
  if (i >= size() || !value_[i].is_number()) return std::nullopt;
  return value_[i].get<double>();
}

}  // namespace gsel
