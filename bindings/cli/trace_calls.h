// trace_calls.h: recordings of the calls of ranks (docs/trace.md): those of one communicator taken together, and as
// text: who waits for whom. Does not know: where they come from.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gsel::cli {

// Of each communicator the latest recording, with the errors that its readers met.
std::vector<nlohmann::ordered_json> merge_recordings(const std::vector<nlohmann::ordered_json>& documents);

// As text, with the `last` calls of each rank.
std::string communicator_text(const nlohmann::ordered_json& communicator, size_t last);

}  // namespace gsel::cli
