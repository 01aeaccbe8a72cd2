// trace_remote.cc: see trace_remote.h.
#include "trace_remote.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "client.h"
#include "job.h"
#include "spawn.h"

namespace gsel::cli {
namespace {

constexpr int kNotFoundThere = 127;

// `gsel trace` on one host.
class RemoteTrace {
 public:
  RemoteTrace(const RemoteShell& shell, const SourcesOfHost& what) : host_(what.host), shell_(shell.name()) {
    std::vector<std::string> words{"trace", "--json", "--parts", "--"};
    words.insert(words.end(), what.sources.begin(), what.sources.end());
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
      refuse(GSEL_ERR_IO, "no pipe to host " + host_ + ": " + std::strerror(errno) + "; raise ulimit -n");
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    Spawn spawned{shell.on(host_, words), lines(own_environment()), in, out[1], err[1], {}, {}};
    sigprocmask(SIG_BLOCK, nullptr, &spawned.signals);
    const Spawned begun = spawn(spawned);
    for (const int fd : {in, out[1], err[1]}) close(fd);
    fds_[0] = out[0], fds_[1] = err[0];
    if (begun.error)
      refuse(begun.error == ENOENT ? GSEL_ERR_NOT_FOUND : GSEL_ERR_IO,
             "host " + host_ + ": the remote shell " + shell_ + " cannot be started: " + std::strerror(begun.error) +
                 "; install it, or name another one by --rsh");
    pid_ = begun.pid;
  }
  ~RemoteTrace() {
    for (const int fd : fds_)
      if (fd >= 0) close(fd);
    if (pid_ > 0) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  RemoteTrace(const RemoteTrace&) = delete;
  RemoteTrace& operator=(const RemoteTrace&) = delete;

  void add_to(std::vector<pollfd>& polls) const {
    for (const int fd : fds_)
      if (fd >= 0) polls.push_back({fd, POLLIN, 0});
  }
  void take(int ready) {
    for (size_t i = 0; i < 2; ++i) {
      if (fds_[i] != ready) continue;
      char bytes[65536];
      const ssize_t n = ::read(ready, bytes, sizeof bytes);
      if (n > 0) output_[i].append(bytes, static_cast<size_t>(n));
      if (n > 0 || (n < 0 && errno == EINTR)) return;
      close(fds_[i]);
      fds_[i] = -1;
    }
  }

  // When its output has ended.
  std::string answer() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    if (status == 0) return std::move(output_[0]);
    refuse_as_there();
    const std::string why = last_line(output_[1]);
    const bool lacks_gsel = WIFEXITED(status) && WEXITSTATUS(status) == kNotFoundThere;
    const std::string end = WIFSIGNALED(status) ? " was killed by signal " + std::to_string(WTERMSIG(status))
                                                : " ended with status " + std::to_string(WEXITSTATUS(status));
    refuse(lacks_gsel ? GSEL_ERR_NOT_FOUND : GSEL_ERR_IO,
           "host " + host_ + ": " + shell_ + end + (why.empty() ? "" : ": " + why) +
               (lacks_gsel ? "; name the path of gsel there by --remote-gsel" : ""));
  }

 private:
  // The error of gsel there, if it was that which failed.
  void refuse_as_there() const {
    const auto error = nlohmann::json::parse(output_[0], nullptr, false);
    if (!error.is_object() || !error.contains("code") || !error.contains("message")) return;
    gsel_status code = GSEL_ERR_IO;
#define GSEL_TAKE_CODE(constant, number, text) \
  if (error["code"] == #constant) code = constant;
    GSEL_ERROR_LIST(GSEL_TAKE_CODE)
#undef GSEL_TAKE_CODE
    refuse(code, "host " + host_ + ": " + error["message"].get<std::string>());
  }

  const std::string host_, shell_;
  pid_t pid_ = -1;
  int fds_[2] = {-1, -1};  // output, errors
  std::string output_[2];
};

}  // namespace

std::optional<std::pair<std::string, std::string>> on_other_host(const std::string& source) {
  const size_t from = source.starts_with('[') ? source.find(']') : 0;  // IPv6 address
  const size_t colon = from == source.npos ? source.npos : source.find_first_of(":/", from);
  if (colon == source.npos || colon == 0 || source[colon] == '/' || source.starts_with('-')) return {};
  if (colon + 1 == source.size())
    refuse(GSEL_ERR_ARG, source + ": nothing of that host; expected HOST:PID, HOST:FILE or HOST:FOLDER");
  return std::pair(source.substr(0, colon), source.substr(colon + 1));
}

std::vector<std::string> trace_on_hosts(const RemoteShell& shell, const std::vector<SourcesOfHost>& hosts) {
  std::vector<std::unique_ptr<RemoteTrace>> traces;
  for (const SourcesOfHost& host : hosts) traces.push_back(std::make_unique<RemoteTrace>(shell, host));
  for (;;) {
    std::vector<pollfd> polls;
    for (const auto& one : traces) one->add_to(polls);
    if (polls.empty()) break;
    poll(polls.data(), polls.size(), -1);
    for (const pollfd& ready : polls)
      if (ready.revents != 0)
        for (const auto& one : traces) one->take(ready.fd);
  }
  std::vector<std::string> answers;
  for (const auto& one : traces) answers.push_back(one->answer());
  return answers;
}

}  // namespace gsel::cli
