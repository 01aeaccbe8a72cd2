// remote_shell.h: how a command is started on another host: ssh, or another program that is called as it is. Does not
// know: what the command does.
#pragma once

#include <string>
#include <vector>

namespace gsel::cli {

struct RemoteShell {
  std::vector<std::string> words;  // before the host
  std::string gsel;                // the command of the other hosts

  // The whole command line: our agent on that host.
  std::vector<std::string> agent_on(const std::string& host) const;
  const std::string& name() const { return words.front(); }
};

// As --rsh, else GSEL_RSH, else ssh; --remote-gsel, else the path of this command. Empty: not given.
RemoteShell remote_shell_of(const std::string& rsh, const std::string& gsel);

// The last line of `said` that says something, and no line's end.
std::string last_line(const std::string& said);

}  // namespace gsel::cli
