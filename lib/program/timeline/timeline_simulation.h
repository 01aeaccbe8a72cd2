// program/timeline/timeline_simulation.h: the document of a simulated schedule (docs/pipeline.md), read strictly.
#pragma once

#include <cstddef>

#include "program/timeline/timeline_chart.h"

namespace gsel {

class JsonObject;

// At most `n_actions` of them. GSEL_ERR_PARSE.
Chart simulated_chart(JsonObject& root, size_t n_actions);

}  // namespace gsel
