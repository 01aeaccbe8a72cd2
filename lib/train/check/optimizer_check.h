// train/check/optimizer_check.h: runs the embedder's optimizer on guarded memory, on whole parameters and on the same
// elements in pieces, as strategies that divide parameters call it. Does not know layers and ranks.
#pragma once

#include "train/check/findings.h"

namespace gsel::check {

// On each trained parameter, on some thousand elements of it at most where it takes pieces. GSEL_ERR_CALLBACK when it
// fails.
void check_optimizer(const Model& model, const gsel_optimizer_options& optimizer, uint64_t seed, bool checks_pieces,
                     Findings& findings);

}  // namespace gsel::check
