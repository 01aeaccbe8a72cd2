// trace_hosts.h: merges the recordings of a communicator on several hosts into one: with the ranks' numbers in that
// communicator, and the time of one clock. Does not know where recordings come from.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace gsel::cli {

// Merges parts that belong together; a recording without other parts stays unchanged.
std::vector<nlohmann::ordered_json> join_parts(std::vector<nlohmann::ordered_json> communicators);

}  // namespace gsel::cli
