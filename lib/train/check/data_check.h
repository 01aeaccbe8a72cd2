// train/check/data_check.h: asks the embedder's data for an input as a trainer does, on guarded memory. Does not know
// layers.
#pragma once

#include "train/check/findings.h"
#include "train/execute/push.h"

namespace gsel::check {

// Several times for the same samples, at other addresses and on other poison. True: `value` has what was written.
// False: a breach was found. GSEL_ERR_CALLBACK when the data fails, or has no samples.
bool ask_for_data(const DataSource& data, std::span<const int64_t> sample_ids, int32_t id, Buffer& value,
                  Findings& findings);

}  // namespace gsel::check
