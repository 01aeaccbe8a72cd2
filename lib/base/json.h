// base/json.h: a JSON value for printing. The JSON library is hidden: only json.cc and json_object.cc include its full
// headers. json_object.h reads JSON.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

struct JsonField;

class Json {
 public:
  Json() noexcept;  // null
  Json(bool value);
  Json(int32_t value) : Json(int64_t{value}) {}
  Json(uint32_t value) : Json(uint64_t{value}) {}
  Json(int64_t value);
  Json(uint64_t value);
  Json(double value);
  Json(const char* text) : Json(std::string_view(text)) {}
  Json(const std::string& text) : Json(std::string_view(text)) {}
  Json(std::string_view text);  // bytes that are not UTF-8 are printed as U+FFFD
  Json(const void*) = delete;   // would convert to bool
  Json(std::initializer_list<JsonField> fields);
  template <class Item>
  Json(const std::vector<Item>& items) : Json(array()) {
    for (const Item& item : items) push(item);
  }
  Json(const Json& from);
  Json(Json&& from) noexcept;
  Json& operator=(Json from) noexcept;
  ~Json();

  static Json object();
  static Json array();

  // Sets a field of an object; null becomes an object. Fields are printed in the order in which they were set.
  void set(std::string_view name, Json value);
  void push(Json item);
  bool empty() const;  // no fields, no items, or null

  std::string on_one_line() const;
  std::string on_lines(int indent) const;  // one line per field and item, ends with a newline

 private:
  explicit Json(nlohmann::ordered_json value);

  std::unique_ptr<nlohmann::ordered_json> value_;  // null if null
};

// For Json{{"rank", 0}, {"name", text}}.
struct JsonField {
  std::string_view name;
  mutable Json value;  // moved into the object
};

}  // namespace gsel
