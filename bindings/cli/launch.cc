// launch.cc: see launch.h. One thread and one poll: signals arrive through a descriptor, so that nothing runs
// asynchronously.
#include "launch.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <limits>

#include "client.h"
#include "colour.h"

namespace gsel::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTimedOut = 124, kNotExecutable = 126, kNotFound = 127, kHostLost = 255, kFailed = 2;
constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGCONT, SIGTSTP};

void say(const std::string& line) {
  std::fprintf(stderr, "%s%s\n", error_prefix().c_str(), line.c_str());
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

class Launcher {
 public:
  Launcher(const Launch& what, Ranks& ranks) : what_(what), ranks_(ranks) {
    for (const int32_t number : ranks_.numbers())
      end_.ranks.push_back({.rank = number, .host = ranks_.host_of(number)});
    states_.resize(end_.ranks.size());
  }

  JobEnd run() {
    if (what_.timeout_s > 0) timeout_ = after(what_.timeout_s);
    ranks_.start();
    handle_events();
    while (running() > 0) turn();
    interrupted_ = false;
    while (!ranks_.is_finished() && !interrupted_) turn();
    end_.status = status_;
    end_.seconds = seconds_since_start();
    std::erase_if(end_.ranks, [](const RankEnd& rank) { return rank.pid < 0; });
    return std::move(end_);
  }

 private:
  enum class State { starting, running, ended };

  // ---- main loop ----

  double seconds_since_start() const { return std::chrono::duration<double>(Clock::now() - started_).count(); }

  size_t running() const { return static_cast<size_t>(std::ranges::count_if(states_, is_running)); }
  static bool is_running(State state) { return state != State::ended; }

  size_t index_of(int32_t rank) const {
    return static_cast<size_t>(std::ranges::find(end_.ranks, rank, &RankEnd::rank) - end_.ranks.begin());
  }
  std::string name_of(int32_t rank) const { return "rank " + std::to_string(rank) + ranks_.place_of(rank); }

  // Waits for the next events and handles them.
  void turn() {
    std::vector<pollfd> polls{{signals_.fd(), POLLIN, 0}};
    ranks_.add_to(polls);
    if (poll(polls.data(), polls.size(), wait_ms()) < 0) return;  // interrupted
    if (polls.front().revents) read_signals();
    polls.erase(polls.begin());
    ranks_.serve(polls);
    handle_events();
    if (Clock::now() >= timeout_) time_out();
    if (Clock::now() >= ask_) end_ranks();
    if (Clock::now() >= kill_) grace_over();
  }

  // Handles events. The message about the first end counts the ranks that still run.
  void handle_events() {
    const std::vector<RankEvent> events = ranks_.take_events();
    for (const RankEvent& event : events)
      if (event.what == RankEvent::What::ended) states_[index_of(event.rank)] = State::ended;
    for (const RankEvent& event : events) on_rank_event(event);
  }

  void on_rank_event(const RankEvent& event) {
    switch (event.what) {
      case RankEvent::What::started:
        end_.ranks[index_of(event.rank)].pid = event.pid;
        if (states_[index_of(event.rank)] == State::starting) states_[index_of(event.rank)] = State::running;
        return;
      case RankEvent::What::not_started:
        return start_failed(event);
      case RankEvent::What::ended:
        return rank_ended(event);
      case RankEvent::What::lost:
        return host_lost(event);
      case RankEvent::What::left:
        return say("ended " + with_noun(event.count, "process") + " that the ranks left behind" + event.text);
    }
  }

  int wait_ms() const {
    const Clock::time_point next = std::min({timeout_, ask_, kill_});
    const int patience = ranks_.patience_ms();
    if (next == Clock::time_point::max()) return patience;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, patience < 0 ? std::numeric_limits<int>::max() : patience));
  }

  void read_signals() {
    for (const int number : signals_.take()) {
      interrupted_ = interrupted_ || asks_to_end(number);
      ranks_.send(number);
      if (number == SIGINT) interrupt();
      if (number == SIGTSTP) raise(SIGSTOP);  // ranks stop first; the SIGCONT that wakes us is passed on as usual
    }
  }

  // The first Ctrl-C is left to the ranks; a second one ends the job.
  void interrupt() {
    if (++interrupts_ == 1 || !running()) return;
    if (status_ == 0) status_ = 128 + SIGINT, end_.reason = "interrupted";
    if (interrupts_ == 2) {
      say("interrupted again; ending " + with_noun(running(), "rank") + ", killing what is left after " +
          seconds_text(what_.grace_s));
      end_ranks();
    } else {
      say("interrupted " + std::to_string(interrupts_) + " times; killing " + ranks_text());
      kill_ranks();
    }
  }

  // ---- failures ----

  void start_failed(const RankEvent& event) {
    for (size_t i = index_of(event.rank); i < states_.size(); ++i)  // later ranks of that host do not start either
      if (states_[i] == State::starting && end_.ranks[i].host == end_.ranks[index_of(event.rank)].host)
        states_[i] = State::ended;
    if (status_ != 0) return;
    say(end_.message = name_of(event.rank) + ": " + event.text);
    end_.reason = "not started";
    status_ = event.status < 0 ? kFailed : event.status == ENOENT ? kNotFound : kNotExecutable;
    end_ranks();
  }

  void rank_ended(const RankEvent& event) {
    RankEnd& end = end_.ranks[index_of(event.rank)];
    end = {.rank = end.rank,
           .host = end.host,
           .pid = event.pid,
           .status = event.status,
           .seconds = seconds_since_start(),
           .order = ended_++,
           .asked_to_end = ending_};
    if (event.status == 0) return;
    if (end_.first_failed < 0 && !ending_) end_.first_failed = event.rank;
    failed(name_of(event.rank) + ending_text(event.pid, event.status),
           WIFSIGNALED(event.status) ? 128 + WTERMSIG(event.status) : WEXITSTATUS(event.status), "rank failed");
  }

  void host_lost(const RankEvent& event) {
    const std::string host = ranks_.host_of(event.rank);
    for (size_t i = 0; i < states_.size(); ++i) {
      if (end_.ranks[i].host != host || states_[i] == State::ended) continue;
      states_[i] = State::ended;
      end_.ranks[i].is_lost = true;
      end_.ranks[i].seconds = seconds_since_start();
      end_.ranks[i].order = ended_++;
      end_.ranks[i].asked_to_end = ending_;
    }
    failed(event.text, kHostLost, "host lost");
  }

  // The first failure determines the status and what happens to the other ranks.
  void failed(std::string text, int status, const char* reason) {
    if (ending_ || (status_ != 0 && !what_.keep_going)) return;
    if (status_ == 0) {
      status_ = status;
      end_.reason = reason;
      end_.message = text;
    }
    if (running() && what_.keep_going)
      text += "; going on with " + with_noun(running(), "rank");
    else if (running())
      text += "; ending the other " + (running() == 1 ? "rank" : with_noun(running(), "rank")) +
              (what_.wait_s > 0 ? " in " + seconds_text(what_.wait_s) : "");
    say(text);
    if (!what_.keep_going) ask_ = after(what_.wait_s);
  }

  // ---- end ----

  void end_ranks() {
    ask_ = Clock::time_point::max();
    ending_ = true;
    ranks_.send(SIGTERM);
    ranks_.send(SIGCONT);  // a stopped rank must run to end
    kill_ = std::min(kill_, after(what_.grace_s));
  }

  void grace_over() {
    if (running()) say(ranks_text() + " did not end within " + seconds_text(what_.grace_s) + ": killed");
    kill_ranks();
  }

  void kill_ranks() {
    kill_ = Clock::time_point::max();
    ranks_.send(SIGKILL);
  }

  // The running ranks: "rank 0", "ranks 0, 2".
  std::string ranks_text() const {
    std::string list;
    for (size_t i = 0; i < states_.size(); ++i)
      if (is_running(states_[i])) list += (list.empty() ? "" : ", ") + std::to_string(end_.ranks[i].rank);
    return (running() == 1 ? "rank " : "ranks ") + list;
  }

  void time_out() {
    timeout_ = Clock::time_point::max();
    if (!running() || ending_) return;
    if (status_ == 0) status_ = kTimedOut, end_.reason = "timed out";
    say("not finished after " + seconds_text(what_.timeout_s) + "; ending " + with_noun(running(), "rank"));
    end_ranks();
  }

  const Launch& what_;
  Ranks& ranks_;
  const Signals signals_;
  std::vector<State> states_;  // by index in end_.ranks
  JobEnd end_;
  int ended_ = 0;
  const Clock::time_point started_ = Clock::now();
  int status_ = 0;
  bool interrupted_ = false;
  int interrupts_ = 0;   // by Ctrl-C
  bool ending_ = false;  // the ranks were asked to end
  Clock::time_point timeout_ = Clock::time_point::max();
  Clock::time_point ask_ = Clock::time_point::max();  // when to ask the ranks to end
  Clock::time_point kill_ = Clock::time_point::max();
};

}  // namespace

// ---- signals ----

Signals::Signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  for (int number : kForwarded) sigaddset(&wanted, number);
  sigprocmask(SIG_BLOCK, &wanted, &before_);
  // An inherited SIG_IGN for SIGCHLD would suppress the signal.
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  fd_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) refuse(GSEL_ERR_IO, std::string("signalfd failed: ") + std::strerror(errno));
}

Signals::~Signals() {
  if (fd_ >= 0) close(fd_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> Signals::take() const {
  std::vector<int> signals;
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof info) == sizeof info)
    if (info.ssi_signo != SIGCHLD) signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

bool asks_to_end(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

JobEnd launch(const Launch& what, Ranks& ranks) {
  return Launcher(what, ranks).run();
}

}  // namespace gsel::cli
