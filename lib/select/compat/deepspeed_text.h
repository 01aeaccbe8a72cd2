// select/compat/deepspeed_text.h: reads hostfiles and filters of hosts and slots as DeepSpeed does. hosts.h reads the
// same forms strictly. Does not know machines.
#pragma once

#include <map>

#include "select/request/hosts.h"

namespace gsel {

// Lines that match "^(\S+)\s+slots=(\d+)"; text after the number is ignored.
std::vector<HostSlots> read_deepspeed_hostfile(const std::string& text, const std::string& file);

// A filter as parse_node_config_list leaves it: hosts in the order of their first mention, slots sorted and merged.
struct DeepspeedFilter {
  struct Node {
    Token host;
    std::map<int64_t, Token> slots;  // empty: the whole host
  };
  Input input;
  std::vector<Node> nodes;
};

DeepspeedFilter read_deepspeed_filter(const Input& input, Trace& trace);

}  // namespace gsel
