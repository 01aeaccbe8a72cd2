// agent.h: `gsel run --agent`, which `gsel run` on another host starts on each host of its job: starts the ranks of
// this host and reports on them until they have ended or the launcher is gone. Does not know the other hosts.
#pragma once

#include <string>

namespace gsel::cli {

// `protocol`: the launcher's version of the protocol. Standard input and output are the connection to the launcher.
int run_agent(const std::string& protocol);

}  // namespace gsel::cli
