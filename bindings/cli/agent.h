// agent.h: `gsel run --agent`, which another gsel run starts on each host of its job: starts the ranks of this host and
// reports on them, until they have ended or the launcher has gone. Does not know the other hosts.
#pragma once

#include <string>

namespace gsel::cli {

// `protocol`: as the launcher speaks it. Standard input and output are the connection with it.
int run_agent(const std::string& protocol);

}  // namespace gsel::cli
