// select/inventory/json_object.h: strict reading of one JSON object: each field is taken by name and type, what was not
// taken is an error, and every error names the field by its path. Refuses to know what the fields mean.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

// JSON text to a tree. Syntax errors and repeated fields are GSEL_ERR_PARSE with line and column.
nlohmann::json parse_json(std::string_view text, const std::string& file);

class JsonObject {
 public:
  // `path` is how errors call the object, such as hosts[0]; empty for the whole document.
  JsonObject(const nlohmann::json& value, std::string path, std::string file);

  // A field's value: the default when it is absent, an error when its type or range is wrong.
  std::string text(const char* name, std::string absent = {});
  uint64_t number(const char* name, uint64_t minimum, uint64_t maximum, uint64_t absent);
  int32_t whole(const char* name, int32_t maximum, int32_t absent);  // from 0
  double amount(const char* name, double absent);                    // from 0, with or without a fraction
  bool flag(const char* name, bool absent);
  const nlohmann::json::array_t& array(const char* name);
  std::vector<std::string> texts(const char* name);
  bool has(const char* name) const { return value_.contains(name); }
  bool is_text(const char* name) const { return has(name) && value_.at(name).is_string(); }

  // Every field must have been taken.
  void finish() const;

  std::string path_of(std::string_view field) const;
  std::string require_text(const char* name);
  [[noreturn]] void refuse(std::string_view field, const std::string& why) const;

 private:
  std::string plain_text(std::string_view field, const nlohmann::json& value) const;
  const nlohmann::json* find(const char* name);

  const nlohmann::json& value_;
  std::string path_;
  std::string file_;
  std::vector<std::string_view> known_;  // names of the fields that were asked for, which are literals
};

}  // namespace gsel
