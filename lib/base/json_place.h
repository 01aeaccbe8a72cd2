// base/json_place.h: finds line and column of a value in JSON text, since a parsed tree does not keep them. The text
// must have been parsed without an error.
#pragma once

#include <cstdint>
#include <string_view>

namespace gsel {

struct JsonSpot {
  int32_t line = 0, column = 0;  // from 1, of the name of a field or the first character of an item
};

// `path` is in the notation of JsonObject: "hosts[0].devices[2].name". For a missing field or item, the result is the
// place of the object or array that should have it.
JsonSpot json_spot_of(std::string_view text, std::string_view path);

}  // namespace gsel
