// plan/breakdown_svg.h: the candidates of a plan as a chart: a bar for each candidate's step, coloured by parts. Does
// not know where the numbers come from.
#pragma once

#include <string>

#include "plan/plan.h"

namespace gsel::plan {

// A self-contained SVG, readable on light and dark backgrounds, with as many candidates as the text.
std::string breakdown_svg(const Plan& plan);

}  // namespace gsel::plan
