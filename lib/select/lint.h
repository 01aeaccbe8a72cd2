// select/lint.h: finds variables whose names nearly equal that of a variable about devices, and that nothing reads.
#pragma once

#include "select/rules/rules.h"
#include "select/trace.h"

namespace gsel {

// Warns of each, such as CUDA_VISIBLE_DEVICE, with the name that was meant.
void warn_of_misspelt(const Environment& environment, Trace& trace);

}  // namespace gsel
