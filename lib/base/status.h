// base/status.h: the names and the texts of status codes.
#pragma once

#include <gsel/error.h>

namespace gsel {

const char* status_text(gsel_status status);  // "invalid argument"
const char* status_name(gsel_status status);  // "GSEL_ERR_ARG"

}  // namespace gsel
