// base/current_error.h: the exception that is being handled, of any class, as an Error of gsel, to be kept and thrown
// elsewhere.
#pragma once

#include "base/error.h"

namespace gsel {

Error current_error();

}  // namespace gsel
