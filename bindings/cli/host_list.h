// host_list.h: parses lists of hosts: "a:2,b:2" as in mpirun, or "2x4" for two hosts with four slots each. Ranks fill
// the slots in the written order. Does not know whether the hosts exist.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gsel::cli {

constexpr int32_t kMostSlots = 1 << 16;  // of all hosts of a list together

struct HostSlots {
  std::string name;
  int32_t slots = 1;
  std::string token;   // as written
  int32_t column = 1;  // of the token
};

// The hosts of a list, in its order.
struct HostList {
  std::string input;  // the option and its value, for messages
  std::vector<HostSlots> hosts;
  std::vector<int32_t> host_of_rank;  // one for each slot

  int32_t slots() const { return static_cast<int32_t>(host_of_rank.size()); }
  const std::string& name_of(int32_t rank) const;
};

// GSEL_ERR_SYNTAX, GSEL_ERR_OUT_OF_RANGE (no slots or too many) and GSEL_ERR_DUPLICATE name token and column.
HostList parse_hosts(const std::string& option, const std::string& text);

// Whether a list has the form "2x4", whose hosts have no names.
bool is_grid(std::string_view text);

// GSEL_ERR_OUT_OF_RANGE unless there is one slot for each rank; names the host where slots or ranks end.
void check_slots(const HostList& list, int32_t ranks);

// Parses "1024x8" as two numbers from 1 to `most`; `column` is that of its first character in `input`.
struct HostGrid {
  int64_t hosts, each;
};
HostGrid parse_grid(const std::string& input, const std::string& text, int32_t column, int64_t most);

}  // namespace gsel::cli
