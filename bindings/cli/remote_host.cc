// remote_host.cc: see remote_host.h.
#include "remote_host.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "client.h"
#include "job.h"
#include "spawn.h"

namespace gsel::cli {
namespace {

constexpr auto kStatusComes = std::chrono::seconds(1);  // after the end of a remote shell's output
constexpr size_t kMaxStderrBytes = 1 << 16;
constexpr int kNotFoundThere = 127, kNotExecutableThere = 126, kUnreachable = 255;

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

std::string status_text(const std::string& shell, std::optional<int> status) {
  if (!status) return shell + " says nothing more";
  if (WIFSIGNALED(*status)) return shell + " was killed by signal " + std::to_string(WTERMSIG(*status));
  return shell + " ended with status " + std::to_string(WEXITSTATUS(*status));
}

}  // namespace

const char* const kAgentMark = "\001gsel agent\001";

RemoteHost::~RemoteHost() {
  end();
  if (errors_ >= 0) close(errors_);
}

void RemoteHost::connect(const RemoteShell& shell) {
  int in[2], out[2], err[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
    refuse(GSEL_ERR_IO, "no pipe to host " + name_ + ": " + std::strerror(errno) + "; raise ulimit -n");
  Spawn what{shell.agent_on(name_), lines(own_environment()), in[0], out[1], err[1], {}, {}};
  sigprocmask(SIG_BLOCK, nullptr, &what.signals);
  const Spawned spawned = spawn(what);
  for (const int fd : {in[0], out[1], err[1]}) close(fd);
  fcntl(err[0], F_SETFL, O_NONBLOCK);
  errors_ = err[0];
  channel_ = std::make_unique<Channel>(out[0], in[1], kAgentMark);
  since_ = Clock::now();
  state_ = State::connecting;
  shell_name_ = shell.name();
  if (spawned.error)
    refuse(spawned.error == ENOENT ? GSEL_ERR_NOT_FOUND : GSEL_ERR_IO,
           "host " + name_ + ": the remote shell " + shell_name_ +
               " cannot be started: " + std::strerror(spawned.error) + "; install it, or name another one by --rsh");
  pid_ = spawned.pid;
}

double RemoteHost::age_s() const {
  return std::chrono::duration<double>(Clock::now() - since_).count();
}

void RemoteHost::receive_hello(const Frame& frame) {
  FrameReader reader(frame.bytes);
  if (frame.kind == FrameKind::hello) {
    hello_.protocol = reader.number();
    hello_.version = reader.text();
  }
  if (hello_.protocol != kAgentProtocol || hello_.version != gsel_version_text())
    refuse(GSEL_ERR_VERSION, "host " + name_ + " has gsel " +
                                 (hello_.version.empty() ? "of another kind" : hello_.version) + ", and this is gsel " +
                                 gsel_version_text() + "; all hosts need the same");
  hello_.reached = reader.text();
  hello_.address = reader.text();
  hello_.port = reader.number();
  state_ = State::greeted;
}

namespace {

// GSEL_INTERFACE is given to all hosts and decides which address they have.
std::string by_interface() {
  const char* name = std::getenv("GSEL_INTERFACE");
  return name && *name ? " on the interface that GSEL_INTERFACE names, \"" + std::string(name) + "\"" : std::string();
}

}  // namespace

// The address through which we reached the host, unless it is loopback; else its own address.
std::string RemoteHost::rendezvous() const {
  std::string address = hello_.reached;
  if (address.empty() || is_loopback(address)) address = hello_.address;
  if (address.empty())
    refuse(GSEL_ERR_NOT_FOUND, "host " + name_ + " has no address that others could reach" + by_interface() +
                                   "; give one by --rendezvous tcp://ADDRESS:PORT");
  const bool is_v6 = address.find(':') != address.npos;
  return "tcp://" + (is_v6 ? "[" + address + "]" : address) + ":" + std::to_string(hello_.port);
}

bool RemoteHost::is_gone() const {
  return ended_ && is_alive() && (shell_status_ || Clock::now() - *ended_ > kStatusComes);
}

std::string RemoteHost::why_gone() const {
  std::string line = last_line(stderr_);
  if (line.empty()) line = last_line(channel_->before_mark());
  return status_text(shell_name_, shell_status_) + (line.empty() ? "" : ": " + line);
}

void RemoteHost::refuse_gone() const {
  const int status = shell_status_ && WIFEXITED(*shell_status_) ? WEXITSTATUS(*shell_status_) : -1;
  if (status == kUnreachable) refuse(GSEL_ERR_IO, "host " + name_ + " cannot be reached: " + why_gone());
  if (status == kNotFoundThere || status == kNotExecutableThere)
    refuse(GSEL_ERR_NOT_FOUND, "host " + name_ + " has no gsel to run: " + why_gone() +
                                   "; install gsel there, or say by --remote-gsel where it is");
  if (last_line(stderr_).find("--agent") != std::string::npos)
    refuse(GSEL_ERR_VERSION, "host " + name_ + " has a gsel that knows no --hosts: " + why_gone() + "; this is gsel " +
                                 gsel_version_text() + ", and all hosts need the same");
  refuse(GSEL_ERR_IO, "host " + name_ + " does not answer as gsel would: " + why_gone());
}

void RemoteHost::add_to(std::vector<pollfd>& polls, bool reads) const {
  if (channel_) channel_->add_to(polls, reads);
  if (errors_ >= 0) polls.push_back({errors_, POLLIN, 0});
}

void RemoteHost::serve(const std::vector<pollfd>& polls) {
  if (!channel_) return;
  channel_->serve(polls);
  if (channel_->has_ended() && !ended_) ended_ = Clock::now();
  for (const pollfd& poll : polls) {
    if (!poll.revents || poll.fd != errors_ || poll.events != POLLIN) continue;
    char buffer[4096];
    const ssize_t n = read(errors_, buffer, sizeof buffer);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n > 0) {
      stderr_.append(buffer, static_cast<size_t>(n));
      const size_t passed =
          std::min(passed_on_, stderr_.size() > kMaxStderrBytes ? stderr_.size() - kMaxStderrBytes : 0);
      stderr_.erase(0, passed);
      passed_on_ -= passed;
    } else {
      close(errors_);
      errors_ = -1;
    }
  }
}

std::string RemoteHost::take_stderr() {
  const size_t newline = errors_ < 0 ? stderr_.size() : stderr_.rfind('\n') + 1;  // npos + 1 is 0
  if (newline <= passed_on_) return {};
  std::string fresh = stderr_.substr(passed_on_, newline - passed_on_);
  passed_on_ = newline;
  return fresh;
}

void RemoteHost::end() {
  if (channel_) channel_->close_out();
}

}  // namespace gsel::cli
