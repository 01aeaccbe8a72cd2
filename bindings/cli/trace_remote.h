// trace_remote.h: what `gsel trace` reads on other hosts, through a remote shell. Does not know what it is.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remote_shell.h"

namespace gsel::cli {

// HOST:SOURCE, divided; nullopt: a source of this host, since a '/' comes first or there is no ':'.
std::optional<std::pair<std::string, std::string>> on_other_host(const std::string& source);

// What `gsel trace --json` says on each host of its sources; all hosts are asked at the same time. Throws a Failure
// that names the host.
struct SourcesOfHost {
  std::string host;
  std::vector<std::string> sources;
};
std::vector<std::string> trace_on_hosts(const RemoteShell& shell, const std::vector<SourcesOfHost>& hosts);

}  // namespace gsel::cli
