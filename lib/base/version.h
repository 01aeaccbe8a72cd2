// base/version.h: the version of the library as text.
#pragma once

#include <gsel/types.h>

#define GSEL_TEXT_(x) #x
#define GSEL_TEXT(x) GSEL_TEXT_(x)

namespace gsel {

inline constexpr const char* kVersionText =
    GSEL_TEXT(GSEL_VERSION_MAJOR) "." GSEL_TEXT(GSEL_VERSION_MINOR) "." GSEL_TEXT(GSEL_VERSION_PATCH);

}  // namespace gsel

#undef GSEL_TEXT
#undef GSEL_TEXT_
