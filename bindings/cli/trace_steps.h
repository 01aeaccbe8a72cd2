// trace_steps.h: steps of a trainer's ranks (docs/step.md) as tables: where the time went, what of the communication
// was hidden behind computing, what was sent. Does not know: where they come from.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gsel::cli {

// The steps of all documents, by rank; one that stands in several is taken once.
std::vector<nlohmann::ordered_json> merge_steps(const std::vector<nlohmann::ordered_json>& documents);

std::string steps_text(const std::vector<nlohmann::ordered_json>& steps);

}  // namespace gsel::cli
