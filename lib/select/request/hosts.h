// select/request/hosts.h: hosts and their slots: a hostfile, and filters NAME[:SLOT[,SLOT]] joined by @, read strictly.
// The written order is kept; input that a launcher would merge, sort or drop silently is refused with its column or
// line. Slot k of a host is its k-th accelerator in bus order. Does not know masks or requests for devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "select/inventory/unit.h"
#include "select/request/request.h"
#include "select/words/tokens.h"

namespace gsel {

// A line of a hostfile.
struct HostSlots {
  std::string name;
  int64_t slots = 0;
  int32_t line = 0;    // from 1
  int32_t column = 1;  // of the name
};

// Lines "NAME slots=N", blank lines and comments from # to the end of a line. GSEL_ERR_SYNTAX, GSEL_ERR_OUT_OF_RANGE
// (no slot) and GSEL_ERR_DUPLICATE name file and line.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& file);

// A term of a filter.
struct HostTerm {
  Token host;
  std::vector<Token> slots;  // decimal numbers; empty: the whole host
};

// GSEL_ERR_SYNTAX for invalid text; does not check that the hosts exist. Warns of a blank around a host's name.
std::vector<HostTerm> parse_filter(const Input& input, Trace& trace);

// Hosts by name.
class HostNames {
 public:
  // here: index of the host on which gsel runs, also named "localhost" and "127.0.0.1"; -1: unknown
  HostNames(const Inventory& inventory, int32_t here);
  // Index in Inventory::hosts, or -1.
  int32_t find(std::string_view name) const;

 private:
  std::unordered_map<std::string_view, int32_t> hosts_;
};

// The units of `visible` that request.hostfile, include and exclude leave; in the order of include, else of the
// hostfile, else of `visible`. All units when no filter is given. Throws GSEL_ERR_UNKNOWN_HOST, GSEL_ERR_OUT_OF_RANGE
// (no such slot), GSEL_ERR_DUPLICATE, GSEL_ERR_CONFLICT (both included and excluded, or included and hidden by a mask)
// and the errors of parsing.
std::vector<Unit> apply_host_filters(const Inventory& inventory, const std::vector<Unit>& visible,
                                     const Request& request, Trace& trace);

}  // namespace gsel
