// launch.cc: see launch.h. One thread and one poll: signals arrive through a descriptor, so that nothing happens at a
// moment of its own. Ranks are process groups: what is sent to one reaches what it started.
#include "launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>

#include "client.h"
#include "colour.h"
#include "descendants.h"
#include "endings.h"
#include "output.h"
#include "spawn.h"

namespace gsel::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTimedOut = 124, kNotExecutable = 126, kNotFound = 127, kFailed = 2;
constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGCONT, SIGTSTP};

bool asks_to_end(int number) {
  return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
}

void say(const std::string& line) {
  std::fprintf(stderr, "%s%s\n", error_prefix().c_str(), line.c_str());
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return std::to_string(number) + (name ? " (SIG" + std::string(name) + ")" : "");
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

// " (pid 4711) exited with status 3"
std::string ending_text(pid_t pid, int status) {
  return " (pid " + std::to_string(pid) + ") " +
         (WIFSIGNALED(status) ? "was killed by signal " + signal_name(WTERMSIG(status))
                              : "exited with status " + std::to_string(WEXITSTATUS(status)));
}

class Launcher {
 public:
  explicit Launcher(const Launch& what) : what_(what), endings_(what.job) { take_signals(); }
  ~Launcher() {
    if (signals_ >= 0) close(signals_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  JobEnd run() {
    if (what_.timeout_s > 0) timeout_ = after(what_.timeout_s);
    for (size_t rank = 0; rank < what_.environments.size() && status_ == 0; ++rank) start(static_cast<int>(rank));
    while (running() > 0) turn();
    const int left = descendants_.end_all();
    if (left) say("ended " + with_noun(left, "process") + " that the ranks left behind");
    interrupted_ = false;
    while (!output_.finished() && !interrupted_) turn();
    end_.status = status_;
    end_.seconds = seconds_since_start();
    for (const Rank& rank : ranks_) end_.ranks.push_back(rank.end);
    return std::move(end_);
  }

 private:
  struct Rank {
    pid_t pid = -1;
    bool running = false;
    RankEnd end;
  };

  // ---- start ----

  void take_signals() {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    for (int number : kForwarded) sigaddset(&wanted, number);
    sigprocmask(SIG_BLOCK, &wanted, &before_);
    // A SIGCHLD that was ignored when we were started would never be told.
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    signals_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) refuse(GSEL_ERR_IO, std::string("signalfd failed: ") + std::strerror(errno));
  }

  // Standard input goes to rank 0, but not a terminal: a group in the background would be stopped reading it.
  int input_of(int rank) const {
    if (what_.first_rank == 0 && rank == 0 && !isatty(0) && fcntl(0, F_GETFD) >= 0) return fcntl(0, F_DUPFD_CLOEXEC, 3);
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
  }

  void start(int rank) {
    const auto index = static_cast<size_t>(rank);
    const Place anywhere;
    Spawn spawn_what{what_.program,
                     what_.environments[index],
                     input_of(rank),
                     1,
                     2,
                     before_,
                     what_.places.empty() ? anywhere : what_.places[index]};
    std::vector<int> ours{spawn_what.in};
    if (what_.tag_output) {
      ours.push_back(spawn_what.out = output_.open(number_of(index), 1));
      ours.push_back(spawn_what.err = output_.open(number_of(index), 2));
    }
    const bool opened = std::none_of(ours.begin(), ours.end(), [](int fd) { return fd < 0; });
    const Spawned spawned = opened ? spawn(spawn_what) : Spawned{-1, errno};
    for (int fd : ours)
      if (fd >= 0) close(fd);
    if (spawned.error)
      start_failed(rank, spawned);
    else
      ranks_.push_back({spawned.pid, true, {.pid = spawned.pid}});
  }

  void start_failed(int rank, const Spawned& spawned) {
    std::string text = "rank " + std::to_string(number_of(static_cast<size_t>(rank))) + ": cannot start " +
                       what_.program.front() + ": " + std::strerror(spawned.error);
    const bool is_file = access(what_.program.front().c_str(), F_OK) == 0;
    if (spawned.error == ENOENT && what_.program.front().find('/') != std::string::npos && is_file)
      text += ", the interpreter its first line names";
    say(text);
    end_.reason = "not started";
    end_.message = text;
    if (spawned.pid < 0)
      status_ = kFailed;
    else
      status_ = spawned.error == ENOENT ? kNotFound : kNotExecutable;
    end_ranks();
  }

  int number_of(size_t index) const { return static_cast<int>(what_.first_rank) + static_cast<int>(index); }

  // ---- life ----

  double seconds_since_start() const { return std::chrono::duration<double>(Clock::now() - started_).count(); }

  size_t running() const {
    return static_cast<size_t>(std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.running; }));
  }

  // Waits for the next thing to happen and deals with it.
  void turn() {
    std::vector<pollfd> polls{{signals_, POLLIN, 0}};
    output_.add_to(polls);
    endings_.add_to(polls);
    if (poll(polls.data(), polls.size(), wait_ms()) < 0) return;  // interrupted
    if (polls.front().revents) read_signals();
    polls.erase(polls.begin());
    output_.serve(polls);
    endings_.serve(polls);
    reap();
    if (Clock::now() >= timeout_) time_out();
    if (Clock::now() >= ask_) end_ranks();
    if (Clock::now() >= kill_) grace_over();
  }

  int wait_ms() const {
    const Clock::time_point next = std::min({timeout_, ask_, kill_});
    if (next == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, std::numeric_limits<int>::max()));
  }

  void read_signals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) continue;
      const int number = static_cast<int>(info.ssi_signo);
      interrupted_ = interrupted_ || asks_to_end(number);
      send(number);
      if (number == SIGINT) interrupt();
      if (number == SIGTSTP) raise(SIGSTOP);  // the ranks first; the SIGCONT that wakes us is passed on like the rest
    }
  }

  // The first Ctrl-C is the ranks' own business. Who repeats it wants the job to end.
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

  // Of ranks that ended since we last looked, those that a signal killed come first: the others may have failed for it.
  void reap() {
    std::vector<size_t> ended;
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto rank = std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& r) { return r.pid == pid; });
      if (rank == ranks_.end()) continue;  // an orphan of a rank
      rank->running = false;
      rank->end = {rank->pid, status, seconds_since_start(), ended_++, ending_};
      ended.push_back(static_cast<size_t>(rank - ranks_.begin()));
    }
    std::stable_partition(ended.begin(), ended.end(), [&](size_t r) { return WIFSIGNALED(ranks_[r].end.status); });
    for (const size_t rank : ended) tell_of(rank);
  }

  void tell_of(size_t rank) {
    const int status = ranks_[rank].end.status;
    const std::string ending = ending_text(ranks_[rank].pid, status);
    const std::string name = "rank " + std::to_string(number_of(rank));
    endings_.tell(name + " of " + std::to_string(what_.world_size) + ending);
    if (status == 0) return;
    if (end_.first_failed < 0 && !ending_) end_.first_failed = number_of(rank);
    failed(name + ending, status);
  }

  // The first failure decides what becomes of the others, and the status; what comes of it is told by the others.
  void failed(std::string text, int status) {
    if (ending_ || (status_ != 0 && !what_.keep_going)) return;
    if (status_ == 0) {
      status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      end_.reason = "rank failed";
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

  void send(int number) {
    for (const Rank& rank : ranks_)
      if (rank.running) kill(-rank.pid, number);
  }

  void end_ranks() {
    ask_ = Clock::time_point::max();
    ending_ = true;
    send(SIGTERM);
    send(SIGCONT);  // one that is stopped must run to end
    kill_ = std::min(kill_, after(what_.grace_s));
  }

  void grace_over() {
    if (running()) say(ranks_text() + " did not end within " + seconds_text(what_.grace_s) + ": killed");
    kill_ranks();
  }

  void kill_ranks() {
    kill_ = Clock::time_point::max();
    send(SIGKILL);
  }

  // Those that run: "rank 0", "ranks 0, 2".
  std::string ranks_text() const {
    std::string list;
    for (size_t i = 0; i < ranks_.size(); ++i)
      if (ranks_[i].running) list += (list.empty() ? "" : ", ") + std::to_string(number_of(i));
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
  Descendants descendants_;
  Endings endings_;
  TaggedOutput output_;
  std::vector<Rank> ranks_;
  JobEnd end_;
  int ended_ = 0;
  const Clock::time_point started_ = Clock::now();
  sigset_t before_{};
  int signals_ = -1;
  int status_ = 0;
  bool interrupted_ = false;
  int interrupts_ = 0;   // by Ctrl-C
  bool ending_ = false;  // the ranks were asked to end
  Clock::time_point timeout_ = Clock::time_point::max();
  Clock::time_point ask_ = Clock::time_point::max();  // the ranks to end, then
  Clock::time_point kill_ = Clock::time_point::max();
};

}  // namespace

JobEnd launch(const Launch& what) {
  // Were one of these closed, the next descriptor opened would be taken for it.
  for (int fd = 0; fd <= 2; ++fd)
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", O_RDWR);
  return Launcher(what).run();
}

}  // namespace gsel::cli
