// bench.h: starts ranks of this command, for the commands that measure.
#pragma once

#include <string>
#include <vector>

#include "job.h"

namespace gsel::cli {

// Starts `ranks` ranks of this command with these arguments and waits until they have ended; their environments get the
// variables in `added`. The exit status is that of `gsel run`.
int launch_own_ranks(int64_t ranks, const std::vector<std::string>& arguments, const Environment& added = {});

}  // namespace gsel::cli
