// base/json.cc: see json.h.
#include "base/json.h"

#include <nlohmann/json.hpp>

namespace gsel {
namespace {

using Value = nlohmann::ordered_json;

Value taken(std::unique_ptr<Value> value) {
  return value ? std::move(*value) : Value();
}

std::string printed(const std::unique_ptr<Value>& value, int indent) {
  return value ? value->dump(indent, ' ', false, Value::error_handler_t::replace) : "null";
}

}  // namespace

Json::Json() noexcept = default;
Json::Json(Value value) : value_(std::make_unique<Value>(std::move(value))) {}
Json::Json(bool value) : Json(Value(value)) {}
Json::Json(int64_t value) : Json(Value(value)) {}
Json::Json(uint64_t value) : Json(Value(value)) {}
Json::Json(double value) : Json(Value(value)) {}
Json::Json(std::string_view text) : Json(Value(text)) {}
Json::Json(std::initializer_list<JsonField> fields) : Json(object()) {
  for (const JsonField& field : fields) set(field.name, std::move(field.value));
}
Json::Json(const Json& from) : value_(from.value_ ? std::make_unique<Value>(*from.value_) : nullptr) {}
Json::Json(Json&& from) noexcept = default;
Json::~Json() = default;

Json& Json::operator=(Json from) noexcept {
  value_ = std::move(from.value_);
  return *this;
}

Json Json::object() {
  return Json(Value(Value::value_t::object));
}

Json Json::array() {
  return Json(Value(Value::value_t::array));
}

void Json::set(std::string_view name, Json value) {
  if (!value_) *this = object();
  (*value_)[std::string(name)] = taken(std::move(value.value_));
}

void Json::push(Json item) {
  value_->push_back(taken(std::move(item.value_)));
}

bool Json::empty() const {
  return !value_ || value_->empty();
}

std::string Json::on_one_line() const {
  return printed(value_, -1);
}

std::string Json::on_lines(int indent) const {
  return printed(value_, indent) + "\n";
}

}  // namespace gsel
