// agent.cc: see agent.h. One thread and one poll, like the launcher. When the connection ends, the agent ends its
// ranks: the launcher is gone, and nobody else could ask for it.
#include "agent.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "client.h"
#include "frames.h"
#include "host_job.h"
#include "launch.h"
#include "own_address.h"
#include "recordings.h"
#include "remote_host.h"

namespace gsel::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostUnsent = 1 << 20;                // the ranks wait if there is more
constexpr auto kFarewellS = std::chrono::seconds(10);  // for the launcher to read the last frames

// Keeps the token where no other user can read it: in memory, with a path under /proc while this process lives.
void keep_token(const std::string& token) {
  const int fd = memfd_create("gsel token", MFD_CLOEXEC);
  if (fd < 0 || fchmod(fd, 0600) != 0 || write(fd, token.data(), token.size()) != static_cast<ssize_t>(token.size()))
    refuse(GSEL_ERR_IO, std::string("no memory for the token of the job: ") + std::strerror(errno));
  const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd);
  setenv("GSEL_TOKEN_FILE", path.c_str(), 1);
}

// The standard input of rank 0.
class Input {
 public:
  ~Input() {
    close_read();
    close_write();
  }
  // Returns the read end for the rank.
  int open(bool is_given) {
    int ends[2];
    if (!is_given) return read_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (pipe2(ends, O_CLOEXEC) != 0) refuse(GSEL_ERR_IO, std::string("no pipe: ") + std::strerror(errno));
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    read_ = ends[0], write_ = ends[1];
    return read_;
  }
  void close_read() {
    if (read_ >= 0) close(read_);
    read_ = -1;
  }
  void add(std::string bytes) {
    if (bytes.empty()) has_end_ = true;
    pending_ += bytes;
    if (has_end_ && pending_.empty()) close_write();
  }
  void add_to(std::vector<pollfd>& polls) const {
    if (write_ >= 0 && !pending_.empty()) polls.push_back({write_, POLLOUT, 0});
  }
  // Returns how many bytes were taken from the buffer, including bytes that can never be written.
  size_t serve(const std::vector<pollfd>& polls) {
    size_t taken = write_ < 0 ? pending_.size() : 0;
    for (const pollfd& poll : polls) {
      if (!poll.revents || poll.fd != write_ || write_ < 0) continue;
      const ssize_t n = write(write_, pending_.data(), pending_.size());
      if (n < 0 && errno != EAGAIN && errno != EINTR) {
        close_write();
        taken = pending_.size();
      } else if (n > 0) {
        taken = static_cast<size_t>(n);
      }
    }
    pending_.erase(0, taken);
    if (has_end_ && pending_.empty()) close_write();
    return taken;
  }

 private:
  void close_write() {
    if (write_ >= 0) close(write_);
    write_ = -1;
  }
  int read_ = -1, write_ = -1;
  bool has_end_ = false;
  std::string pending_;
};

class Agent {
 public:
  explicit Agent(int in, int out) : channel_(in, out) {
    channel_.send_mark(kAgentMark);
    channel_.send(FrameKind::hello, FrameText()
                                        .number(kAgentProtocol)
                                        .text(gsel_version_text())
                                        .text(address_of_connection())
                                        .text(address_of_interface())
                                        .number(port_.number()));
  }

  int run() {
    const auto asked = await(FrameKind::job);
    if (!asked) return 0;
    std::unique_ptr<LocalRanks> ranks;
    try {
      ranks = prepare(decoded_host_job(asked->bytes));
    } catch (const Failure& failure) {
      channel_.send(FrameKind::refused, FrameText().number(failure.code).text(failure.message));
      await({});
      return kRefused;
    }
    channel_.send(FrameKind::ready);
    const Signals signals;
    if (!await(FrameKind::go)) return 0;
    ranks->start();
    input_.close_read();
    while (report(*ranks), !ranks->is_finished()) turn(*ranks, signals);
    if (!trace_folder_.empty())
      for (const auto& [name, content] : recorded_files(trace_folder_, since_))
        channel_.send(FrameKind::recording, FrameText().text(name).text(content));
    channel_.send(FrameKind::done, FrameText().number(left_));
    const auto end = Clock::now() + kFarewellS;
    while (channel_.can_send() && channel_.unsent() > 0 && Clock::now() < end) {
      std::vector<pollfd> polls;
      channel_.add_to(polls, false);
      poll(polls.data(), polls.size(), 100);
      channel_.serve(polls);
    }
    return 0;
  }

 private:
  std::unique_ptr<LocalRanks> prepare(const HostJob& job) {
    grace_s_ = job.grace_s;
    if (chdir(job.folder.c_str()) != 0)
      refuse(GSEL_ERR_NOT_FOUND, job.folder + ", in which the job was started, is no folder here: " +
                                     std::strerror(errno) + "; start it in a folder that all hosts have");
    take_variables(job);
    if (!job.token.empty()) keep_token(job.token);
    check_limits(job.ranks, std::to_string(job.ranks) + " of its ranks", true);
    const Handle<gsel_config> config = load_config(job.config);
    trace_folder_ = trace_folder(config.get());
    clock_gettime(CLOCK_REALTIME_COARSE, &since_);  // the clock of file modification times
    LocalJob local = prepared(job, config.get());
    const auto take = [this](int rank, int to, std::string_view lines) {
      channel_.send(FrameKind::output, FrameText().number(rank).number(to).text(lines));
    };
    return std::make_unique<LocalRanks>(
        std::move(local), Streams{.input = input_.open(job.has_input), .take = take, .is_full = [this](int) {
                                    return channel_.can_send() && channel_.unsent() > kMostUnsent;
                                  }});
  }

  // The next frame of that kind (nullopt: any); nothing once the connection has ended, as it does at the end.
  std::optional<Frame> await(std::optional<FrameKind> kind) {
    for (;;) {
      while (auto frame = channel_.take())
        if (frame->kind == kind) return frame;
      if (channel_.has_ended()) return {};
      std::vector<pollfd> polls;
      channel_.add_to(polls);
      poll(polls.data(), polls.size(), -1);
      channel_.serve(polls);
    }
  }

  void turn(LocalRanks& ranks, const Signals& signals) {
    std::vector<pollfd> polls{{signals.fd(), POLLIN, 0}};
    channel_.add_to(polls);
    ranks.add_to(polls);
    input_.add_to(polls);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(kill_ - Clock::now()).count();
    const int wait_ms = kill_ == Clock::time_point::max() ? -1 : static_cast<int>(std::max<int64_t>(left, 0));
    if (poll(polls.data(), polls.size(), wait_ms) < 0) return;  // interrupted
    for (const int number : signals.take())
      if (asks_to_end(number)) end(ranks);
    polls.erase(polls.begin());
    channel_.serve(polls);
    ranks.serve(polls);
    if (const size_t taken = input_.serve(polls))
      channel_.send(FrameKind::taken, FrameText().number(static_cast<int64_t>(taken)));
    while (const auto frame = channel_.take()) on_frame(ranks, *frame);
    if (channel_.has_ended() || !channel_.can_send()) {
      for (const int to : {1, 2}) ranks.close_output(to);
      end(ranks);
    }
    if (Clock::now() >= kill_) {
      ranks.send(SIGKILL);
      kill_ = Clock::time_point::max();
    }
  }

  void on_frame(LocalRanks& ranks, const Frame& frame) {
    FrameReader reader(frame.bytes);
    switch (frame.kind) {
      case FrameKind::signal:
        ranks.send(static_cast<int>(reader.number()));
        return;
      case FrameKind::close_output:
        ranks.close_output(static_cast<int>(reader.number()));
        return;
      case FrameKind::input:
        input_.add(reader.text());
        return;
      case FrameKind::record:
        for (const std::string& json : recordings_below())
          channel_.send(FrameKind::recording, FrameText().text("").text(json));
        channel_.send(FrameKind::recorded);
        return;
      default:
        return;
    }
  }

  // Asks the ranks to end, once, and sets the time when they are killed.
  void end(LocalRanks& ranks) {
    if (is_ending_) return;
    is_ending_ = true;
    ranks.send(SIGTERM);
    ranks.send(SIGCONT);
    kill_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(grace_s_));
  }

  void report(LocalRanks& ranks) {
    for (const RankEvent& event : ranks.take_events()) {
      switch (event.what) {
        case RankEvent::What::started:
          channel_.send(FrameKind::started, FrameText().number(event.rank).number(event.pid));
          break;
        case RankEvent::What::not_started:
          channel_.send(FrameKind::not_started, FrameText().number(event.rank).number(event.status).text(event.text));
          break;
        case RankEvent::What::ended:
          channel_.send(FrameKind::ended, FrameText().number(event.rank).number(event.pid).number(event.status));
          break;
        case RankEvent::What::left:
          left_ = event.count;
          break;
        case RankEvent::What::lost:
          break;
      }
    }
  }

  HeldPort port_;
  Channel channel_;
  Input input_;
  double grace_s_ = 2;
  std::string trace_folder_;
  timespec since_{};
  int32_t left_ = 0;
  bool is_ending_ = false;
  Clock::time_point kill_ = Clock::time_point::max();
};

}  // namespace

int run_agent(const std::string& protocol) {
  if (protocol != std::to_string(kAgentProtocol))
    refuse(GSEL_ERR_VERSION, "--agent " + protocol + ": this is gsel " + gsel_version_text() + ", whose agents speak " +
                                 std::to_string(kAgentProtocol) + "; all hosts need the same gsel");
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, 0);  // the end of the connection ends us, after the ranks
  // No other code may use these descriptors: output of ranks and libraries must not be taken for frames.
  const int in = fcntl(0, F_DUPFD_CLOEXEC, 3), out = fcntl(1, F_DUPFD_CLOEXEC, 3);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nothing, 0);
  dup2(2, 1);
  close(nothing);
  return Agent(in, out).run();
}

}  // namespace gsel::cli
