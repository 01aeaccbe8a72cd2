// plan/breakdown_svg.h: the candidates of a plan as a picture: a bar for each step, in the colours of its parts. Does
// not know where the numbers come from.
#pragma once

#include <string>

#include "plan/plan.h"

namespace gsel::plan {

// An SVG that needs nothing else, readable on light and dark. As many candidates as the text shows.
std::string breakdown_svg(const Plan& plan);

}  // namespace gsel::plan
