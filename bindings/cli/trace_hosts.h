// trace_hosts.h: merges the recordings of a communicator on several hosts into one: with the ranks' numbers in that
// communicator, and the time of one clock. Does not know where recordings come from.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace gsel::cli {

// Merges parts that belong together. Parts that were not read are named in "missing"; while there are any, only ranks
// that have died are said to hold up the others. Recordings that are no parts stay unchanged.
std::vector<nlohmann::ordered_json> join_parts(std::vector<nlohmann::ordered_json> communicators);

}  // namespace gsel::cli
