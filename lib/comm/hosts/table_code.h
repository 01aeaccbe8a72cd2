// comm/hosts/table_code.h: the table of hosts as it travels to each of them. Ranks that are placed in a regular way,
// and names and addresses that count up, take as many bytes for a thousand hosts as for two; others take some bytes
// each. Does not know who sends it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/hosts/roster.h"

namespace gsel::hosts {

// host_of, names and addresses.
std::vector<char> encode_table(const HostTable& table);
// nullopt: no table of so many ranks.
std::optional<HostTable> decode_table(const std::vector<char>& code, size_t ranks);

}  // namespace gsel::hosts
