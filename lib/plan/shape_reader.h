// plan/shape_reader.h: reads numbers of a config.json by the names that different families use. The first name in the
// file counts; agree() checks that all names of one number have the same value. Does not know what the numbers mean.
#pragma once

#include <cmath>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>

#include "base/error.h"
#include "base/json_object.h"

namespace gsel::plan {

inline constexpr uint64_t kMostOfShape = 1'000'000'000;

class ShapeReader {
 public:
  explicit ShapeReader(JsonObject& object) : object_(object) {}

  using Names = std::initializer_list<const char*>;

  const char* present(Names names) const {
    for (const char* name : names)
      if (object_.has(name) && !object_.is_null(name)) return name;
    return nullptr;
  }
  int64_t number(Names names, int64_t absent) const {
    const char* name = present(names);
    return name ? static_cast<int64_t>(object_.number(name, 0, kMostOfShape, 0)) : absent;
  }
  // Requires that all names in the file have the same value.
  void agree(Names names) const {
    const char* name = present(names);
    if (!name) return;
    const int64_t found = number({name}, 0);
    for (const char* other : names)
      if (object_.has(other) && !object_.is_null(other) && number({other}, 0) != found)
        refuse(other, fmt::format("is {}, and {} is {}; both mean one number, which is needed once", number({other}, 0),
                                  object_.path_of(name), found));
  }
  int64_t agreed(Names names, int64_t absent) const {
    agree(names);
    return number(names, absent);
  }
  int64_t required(Names names) const {
    if (present(names)) {
      const int64_t found = positive(names, 0);
      agree(names);
      return found;
    }
    std::string known;
    for (const char* name : names) known += (known.empty() ? "\"" : "\", \"") + std::string(name);
    const Place place = object_.place_of(*names.begin());
    throw Error(GSEL_ERR_CONFIG, fmt::format("{}: {}none of {}\" is there; a transformer needs one of them", place.file,
                                             line_text(place), known))
        .at(place);
  }
  int64_t positive(Names names, int64_t absent) const {
    const int64_t found = number(names, absent);
    if (found < 1) refuse(present(names), "is 0; a number from 1 is needed");
    return found;
  }
  // A list of layer numbers; nullopt if the file has none.
  std::optional<std::set<int64_t>> layer_list(const char* name, int64_t layers) const {
    if (!present({name})) return std::nullopt;
    const JsonArray list = object_.array(name);
    std::set<int64_t> out;
    for (size_t i = 0; i < list.size(); ++i) {
      const auto layer = list.number(i);
      if (!layer || !(*layer >= 0) || !(*layer < static_cast<double>(layers)) || *layer != std::floor(*layer))
        refuse(fmt::format("{}[{}]", name, i), fmt::format("is no layer; a number from 0 to {} is needed", layers - 1));
      out.insert(static_cast<int64_t>(*layer));
    }
    return out;
  }
  bool flag(Names names, bool absent) const {
    const char* name = present(names);
    return name ? object_.flag(name, absent) : absent;
  }
  double real(Names names, double absent) const {
    const char* name = present(names);
    return name ? object_.real(name, 0, 1e9, absent) : absent;
  }
  std::string text(Names names) const {
    const char* name = present(names);
    return name && object_.is_text(name) ? object_.text(name) : std::string();
  }
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    const Place place = object_.place_of(key);
    throw Error(GSEL_ERR_CONFIG, fmt::format("{}: {}{} {}", place.file, line_text(place), place.token, why)).at(place);
  }

 private:
  JsonObject& object_;
};

}  // namespace gsel::plan
