// remote_host.h: one other host: the remote shell to it, and the agent's first message. Does not know the other hosts,
// or when the job ends.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frames.h"
#include "remote_shell.h"

namespace gsel::cli {

// The agent's first output.
extern const char* const kAgentMark;
struct Hello {
  int64_t protocol = 0;
  std::string version;
  std::string reached;  // the address at which the launcher reached it; empty: unknown
  std::string address;  // of an interface
  int64_t port = 0;     // reserved there for the rendezvous
};

class RemoteHost {
 public:
  enum class State { idle, connecting, greeted, ready, running, done, lost };

  RemoteHost(std::string name, int32_t first_rank, int32_t ranks)
      : name_(std::move(name)), first_rank_(first_rank), ranks_(ranks) {}
  ~RemoteHost();
  RemoteHost(const RemoteHost&) = delete;
  RemoteHost& operator=(const RemoteHost&) = delete;

  const std::string& name() const { return name_; }
  int32_t first_rank() const { return first_rank_; }
  int32_t ranks() const { return ranks_; }
  State state() const { return state_; }
  void set_state(State state) { state_ = state; }
  // The rendezvous if the first rank is on this host: an address at which other hosts reach it, and the reserved port.
  std::string rendezvous() const;
  pid_t shell() const { return shell_status_ ? -1 : pid_; }  // its pid; -1: ended or not yet started
  bool shell_is(pid_t pid) const { return pid_ == pid; }
  bool is_alive() const { return state_ != State::idle && state_ != State::lost && state_ != State::done; }
  double age_s() const;  // of the connection

  void connect(const RemoteShell& shell);  // starts connecting
  void receive_hello(const Frame& frame);  // refuses another version
  void shell_ended(int status) { shell_status_ = status; }
  bool has_ended() const { return ended_.has_value(); }  // the agent sends nothing more
  // Whether the connection has ended and the reason is known.
  bool is_gone() const;
  // "ssh ended with status 255: Connection refused"
  std::string why_gone() const;
  // Throws with the name of the host and the reason why its agent did not start.
  [[noreturn]] void refuse_gone() const;

  bool is_recording = false;  // it was asked for recordings and has not sent all

  Channel& channel() { return *channel_; }
  void add_to(std::vector<pollfd>& polls, bool reads) const;
  void serve(const std::vector<pollfd>& polls);
  // Output of the remote shell that was not passed on yet.
  std::string take_stderr();
  void end();  // closes the connection, whereupon the agent ends its ranks

 private:
  using Clock = std::chrono::steady_clock;

  std::string name_;
  int32_t first_rank_, ranks_;
  State state_ = State::idle;
  Hello hello_;
  std::string shell_name_;
  pid_t pid_ = -1;
  std::optional<int> shell_status_;
  std::unique_ptr<Channel> channel_;
  int errors_ = -1;
  std::string stderr_;  // standard error of the remote shell
  size_t passed_on_ = 0;
  Clock::time_point since_{};
  std::optional<Clock::time_point> ended_;
};

}  // namespace gsel::cli
