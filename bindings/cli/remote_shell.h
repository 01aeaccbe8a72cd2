// remote_shell.h: starts a command on another host, with ssh or another program with the same calling convention. Does
// not know what the command does.
#pragma once

#include <string>
#include <vector>

namespace gsel::cli {

struct RemoteShell {
  std::vector<std::string> words;  // command line before the host
  std::string gsel;                // the command's path on other hosts

  // The whole command line that runs gsel there. Arguments that a shell would change are quoted for it.
  std::vector<std::string> on(const std::string& host, const std::vector<std::string>& arguments) const;
  // That starts our agent.
  std::vector<std::string> agent_on(const std::string& host) const;
  const std::string& name() const { return words.front(); }
};

// From --rsh, else GSEL_RSH, else ssh; from --remote-gsel, else the path of this command. Empty: not given.
RemoteShell remote_shell_of(const std::string& rsh, const std::string& gsel);

// The last line of `output` that is not empty, without its newline.
std::string last_line(const std::string& output);

}  // namespace gsel::cli
