// trace_calls.h: recordings of the calls of ranks (docs/trace.md): merges those of one communicator, and shows as text
// which rank waits for which. Does not know where recordings come from.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gsel::cli {

// The latest recording of each communicator, with its readers' errors.
std::vector<nlohmann::ordered_json> merge_recordings(const std::vector<nlohmann::ordered_json>& documents);

// As text with the last `last` calls of each rank.
std::string communicator_text(const nlohmann::ordered_json& communicator, size_t last);

}  // namespace gsel::cli
