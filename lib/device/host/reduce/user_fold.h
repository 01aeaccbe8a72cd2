// device/host/reduce/user_fold.h: reduction by a caller's function. Does not know what the function does.
#pragma once

#include "device/host/reduce/kernels.h"

namespace gsel::host {

// As reduce(), of GSEL_OP_USER.
void fold_by_user(const Fold& fold, void* out, const void* const* in, int n, size_t count, size_t first);

}  // namespace gsel::host
