// select/rules.h: what a vendor's software does with its variables, one file rules_<x>.cc per system, one row per
// system in rules(). A further vendor is a further file and row. Refuses to know: requests.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "select/candidates.h"

namespace gsel {

using Environment = std::map<std::string, std::string, std::less<>>;
using EnvLines = std::vector<std::pair<std::string, std::string>>;

struct Rules {
  const char* accelerator;             // how a request names it: "cuda"
  const char* vendor;                  // whose devices: "nvidia"
  const char* label;                   // for messages: "NVIDIA"
  std::vector<const char*> variables;  // what is read of the environment
  // Drops what the environment hides from this vendor's devices, and orders the rest as it says.
  void (*narrow)(Candidates& candidates, const Environment& environment, std::vector<std::string>& warnings);
  // Variables that make a child see these devices alone, in this order; none of them when the list is empty.
  EnvLines (*emit)(const std::vector<const Device*>& devices);
};

const std::vector<Rules>& rules();

// The rules for a vendor; nullptr when there are none.
const Rules* rules_for(std::string_view vendor);

void narrow_cuda(Candidates& candidates, const Environment& environment, std::vector<std::string>& warnings);
EnvLines emit_cuda(const std::vector<const Device*>& devices);

}  // namespace gsel
