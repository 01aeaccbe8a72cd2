// base/json_place.h: where in JSON text something stands that a parsed tree no longer tells the place of. Does
// not check the text: it has been parsed.
#pragma once

#include <cstdint>
#include <string_view>

namespace gsel {

struct JsonSpot {
  int32_t line = 0, column = 0;  // from 1, of the name of a field or the first character of an item
};

// path: as JsonObject writes it, "hosts[0].devices[2].name". Where a field or an item is missing, that of the object or
// array that it is missing in.
JsonSpot json_spot_of(std::string_view text, std::string_view path);

}  // namespace gsel
