// remote_shell.cc: see remote_shell.h.
#include "remote_shell.h"

#include <cstdlib>
#include <sstream>

#include "client.h"
#include "frames.h"
#include "job.h"

namespace gsel::cli {
namespace {

// Whether a remote shell leaves the text unchanged.
bool is_plain(const std::string& path) {
  return path.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-") == path.npos;
}

std::string shell_quoted(const std::string& word) {
  if (is_plain(word)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::vector<std::string> RemoteShell::on(const std::string& host, const std::vector<std::string>& arguments) const {
  std::vector<std::string> line = words;
  const bool has_brackets = host.starts_with("[");  // IPv6 address
  line.push_back(has_brackets ? host.substr(1, host.size() - 2) : host);
  line.push_back(gsel);
  for (const std::string& argument : arguments) line.push_back(shell_quoted(argument));
  return line;
}

std::vector<std::string> RemoteShell::agent_on(const std::string& host) const {
  return on(host, {"run", "--agent", std::to_string(kAgentProtocol)});
}

RemoteShell remote_shell_of(const std::string& rsh, const std::string& gsel) {
  const char* of_environment = std::getenv("GSEL_RSH");
  std::istringstream given(!rsh.empty() ? rsh : of_environment ? of_environment : "");
  RemoteShell shell;
  for (std::string word; given >> word;) shell.words.push_back(word);
  if (shell.words.empty()) shell.words.push_back("ssh");
  const std::string& program = shell.words.front();
  // After the user's options: ssh uses the first value of an option.
  if (program.substr(program.rfind('/') + 1) == "ssh")
    shell.words.insert(shell.words.end(), {"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o",
                                           "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"});
  shell.gsel = gsel.empty() ? own_path() : gsel;
  if (!is_plain(shell.gsel))
    refuse(GSEL_ERR_ARG, (gsel.empty() ? "this command is " : "--remote-gsel ") + shell.gsel +
                             ": a shell of the other hosts would read it otherwise; a path of letters, digits and "
                             "/ . _ + - is needed, by --remote-gsel");
  return shell;
}

std::string last_line(const std::string& output) {
  const size_t end = output.find_last_not_of(" \t\r\n");
  if (end == output.npos) return {};
  const size_t newline = output.rfind('\n', end);
  const size_t begin = newline == output.npos ? 0 : newline + 1;
  return output.substr(begin, end - begin + 1);
}

}  // namespace gsel::cli
