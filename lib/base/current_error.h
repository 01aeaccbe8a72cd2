// base/current_error.h: converts the exception being handled, of any class, to an Error of gsel that can be kept and
// thrown elsewhere.
#pragma once

#include "base/error.h"

namespace gsel {

Error current_error();

}  // namespace gsel
