// device/host/low_rank_kernels.h: low-rank steps over host memory (gsel_low_rank_step). Does not know streams and
// errors: the caller has checked the arguments. No result depends on the vector width.
#pragma once

#include <gsel/device.h>

namespace gsel::host {

void low_rank_step(const gsel_low_rank_step& step);

// Makes n_columns columns of n elements orthonormal, as GSEL_LOW_RANK_LEFT does.
void make_orthonormal(float* columns, int64_t n, int64_t n_columns, uint64_t key);

}  // namespace gsel::host
