// trace_hosts.h: recordings of the parts that one communicator has on several hosts, taken together: as one
// communicator, by the numbers that its ranks have there, and in the time of one clock. Does not know: where recordings
// come from.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace gsel::cli {

// Parts that belong together become one; what is no part, or the only one, stays as it is.
std::vector<nlohmann::ordered_json> join_parts(std::vector<nlohmann::ordered_json> communicators);

}  // namespace gsel::cli
