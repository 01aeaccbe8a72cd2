// base/json_object.h: strict reading of one JSON object. Each field is read by name and type, a field that was never
// read is an error, and every error names the field by its path. The tree and the source text must outlive the object.
// The JSON library is not visible here; json.h writes JSON. Does not know what the fields mean.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace gsel {

// Where JSON text comes from. Messages use `what`, such as "inventory", for the document. With `text`, which must
// outlive the objects, messages name the line of a field.
struct JsonSource {
  std::string what, file;
  std::string_view text = {};
};

// Parses JSON text. Syntax errors and repeated fields are GSEL_ERR_PARSE with line and column.
std::shared_ptr<const nlohmann::json> parse_json(std::string_view text, const JsonSource& source);

// "line 3: ", for messages; empty where the line is not known.
std::string line_text(const Place& place);

class JsonArray;

class JsonObject {
 public:
  // The whole document.
  JsonObject(const nlohmann::json& value, const JsonSource& source) : JsonObject(value, {}, &source) {}

  // A field's value: the default when it is absent, an error when its type or range is wrong.
  std::string text(const char* name, std::string absent = {});
  uint64_t number(const char* name, uint64_t minimum, uint64_t maximum, uint64_t absent);
  int32_t whole(const char* name, int32_t maximum, int32_t absent);  // 0 or more
  double amount(const char* name, double absent);                    // 0 or more, may have a fraction
  double real(const char* name, double minimum, double maximum, double absent);
  bool flag(const char* name, bool absent);
  JsonArray array(const char* name);    // an empty one when it is absent
  JsonObject object(const char* name);  // an empty one when it is absent
  std::vector<std::string> texts(const char* name);
  std::string any_text(const char* name);  // may have control characters
  bool has(const char* name) const;
  bool is_null(const char* name) const;
  bool is_text(const char* name) const;

  // Throws unless every field was read.
  void finish() const;

  std::string path_of(std::string_view field) const;
  Place place_of(std::string_view field) const;  // without line and column when the source has no text
  std::string require_text(const char* name);
  [[noreturn]] void refuse(std::string_view field, const std::string& why) const;

 private:
  friend class JsonArray;
  JsonObject(const nlohmann::json& value, std::string path, const JsonSource* source);
  std::string plain_text(std::string_view field, const nlohmann::json& value) const;
  const nlohmann::json* find(const char* name);

  const nlohmann::json& value_;
  std::string path_;
  const JsonSource* source_;
  std::vector<std::string_view> known_;  // names of the fields that were read; string literals
};

// An array inside an object. An item of the wrong type is an error when it is read.
class JsonArray {
 public:
  size_t size() const;
  bool empty() const { return size() == 0; }
  JsonObject object(size_t i) const;
  JsonArray array(size_t i) const;
  std::optional<double> number(size_t i) const;  // nothing when the item is missing or no number

  // Calls read(JsonObject) for each item.
  template <class Read>
  void each(Read&& read) const {
    for (size_t i = 0; i < size(); ++i) read(object(i));
  }

 private:
  friend class JsonObject;
  JsonArray(const nlohmann::json& value, std::string path, const JsonSource* source);
  std::string path_of(size_t i) const;

  const nlohmann::json& value_;
  std::string path_;
  const JsonSource* source_;
};

}  // namespace gsel
