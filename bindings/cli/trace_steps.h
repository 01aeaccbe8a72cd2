// trace_steps.h: steps of a trainer's ranks (docs/step.md) as tables: where the time went, which communication was
// hidden by computation, what was sent. Does not know where the steps come from.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gsel::cli {

// The steps of all documents, by rank; a step that is in several documents appears once.
std::vector<nlohmann::ordered_json> merge_steps(const std::vector<nlohmann::ordered_json>& documents);

std::string steps_text(const std::vector<nlohmann::ordered_json>& steps);

}  // namespace gsel::cli
