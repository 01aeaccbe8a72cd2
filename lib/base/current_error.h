// base/current_error.h: the exception now being handled, whatever it is, as one of ours: to keep, and throw elsewhere.
#pragma once

#include "base/error.h"

namespace gsel {

Error current_error();

}  // namespace gsel
