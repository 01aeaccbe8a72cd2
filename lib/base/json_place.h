// base/json_place.h: on which line of JSON text something stands that a parsed tree no longer tells the place of. Does
// not check the text: it has been parsed.
#pragma once

#include <cstdint>
#include <string_view>

namespace gsel {

// path: as JsonObject writes it, "hosts[0].devices[2].name". Where a field or an item is missing, the line of the
// object or array that it is missing in. From 1.
int32_t json_line_of(std::string_view text, std::string_view path);

}  // namespace gsel
