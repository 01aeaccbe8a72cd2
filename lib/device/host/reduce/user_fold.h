// device/host/reduce/user_fold.h: reduction by a caller's function.
#pragma once

#include "device/host/reduce/kernels.h"

namespace gsel::host {

// reduce() for GSEL_OP_USER.
void fold_by_user(const Fold& fold, void* out, const void* const* in, int n, size_t count, size_t first);

}  // namespace gsel::host
