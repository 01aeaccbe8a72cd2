// local_ranks.cc: see local_ranks.h.
#include "local_ranks.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "endings.h"
#include "job_end.h"
#include "spawn.h"

namespace gsel::cli {

Ranks::Ranks() {
  for (int fd = 0; fd <= 2; ++fd)
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", O_RDWR);
}

LocalRanks::LocalRanks(LocalJob job, Streams streams)
    : job_(std::move(job)), streams_(std::move(streams)), endings_(job_.job), pipes_(streams_.take) {
  sigprocmask(SIG_BLOCK, nullptr, &signals_);
}

std::vector<int32_t> LocalRanks::numbers() const {
  std::vector<int32_t> numbers(job_.environments.size());
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<int32_t>(job_.first_rank) + static_cast<int32_t>(i);
  return numbers;
}

void LocalRanks::start() {
  for (size_t index = 0; index < job_.environments.size(); ++index)
    if (!start_one(index)) return;
}

// Standard input goes to rank 0 unless it is a terminal: a background process group is stopped when it reads one.
int LocalRanks::input_of(int32_t rank) const {
  const int input = streams_.input;
  if (rank == 0 && !isatty(input) && fcntl(input, F_GETFD) >= 0) return fcntl(input, F_DUPFD_CLOEXEC, 3);
  return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool LocalRanks::start_one(size_t index) {
  const int32_t rank = numbers()[index];
  Spawn what{job_.program,
             job_.environments[index],
             input_of(rank),
             1,
             2,
             signals_,
             job_.places.empty() ? Place{} : job_.places[index]};
  std::vector<int> ours{what.in};
  if (streams_.take) {
    ours.push_back(what.out = pipes_.open(rank, 1));
    ours.push_back(what.err = pipes_.open(rank, 2));
  }
  const bool opened = std::none_of(ours.begin(), ours.end(), [](int fd) { return fd < 0; });
  const Spawned spawned = opened ? spawn(what) : Spawned{-1, errno};
  for (int fd : ours)
    if (fd >= 0) close(fd);
  if (spawned.error) {
    events_.push_back(not_started(rank, spawned.pid, spawned.error));
    return false;
  }
  running_.push_back({rank, spawned.pid});
  events_.push_back({.what = RankEvent::What::started, .rank = rank, .pid = spawned.pid});
  return true;
}

RankEvent LocalRanks::not_started(int32_t rank, pid_t pid, int error) const {
  std::string text = "cannot start " + job_.program.front() + ": " + std::strerror(error);
  const bool is_file = access(job_.program.front().c_str(), F_OK) == 0;
  if (error == ENOENT && job_.program.front().find('/') != std::string::npos && is_file)
    text += ", the interpreter its first line names";
  return {.what = RankEvent::What::not_started, .rank = rank, .status = pid < 0 ? -error : error, .text = text};
}

void LocalRanks::send(int signal) {
  for (const Running& one : running_) kill(-one.pid, signal);  // the group exists: its leader is not reaped yet
}

void LocalRanks::add_to(std::vector<pollfd>& polls) {
  pipes_.add_to(polls, streams_.is_full);
  endings_.add_to(polls);
}

void LocalRanks::serve(const std::vector<pollfd>& polls) {
  pipes_.serve(polls);
  endings_.serve(polls);
}

// Among ranks that ended since the last call, those killed by a signal come first: the others may have failed because
// of them.
std::vector<RankEvent> LocalRanks::take_events() {
  std::vector<RankEvent> ended;
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto one = std::ranges::find(running_, pid, &Running::pid);
    if (one == running_.end()) continue;  // an orphan of a rank
    ended.push_back({.what = RankEvent::What::ended, .rank = one->rank, .pid = pid, .status = status});
    running_.erase(one);
  }
  std::ranges::stable_partition(ended, [](const RankEvent& event) { return WIFSIGNALED(event.status); });
  for (const RankEvent& event : ended)
    endings_.tell("rank " + std::to_string(event.rank) + " of " + std::to_string(job_.world_size) +
                  ending_text(event.pid, event.status));
  std::vector<RankEvent> events = std::move(events_);
  events_.clear();
  events.insert(events.end(), ended.begin(), ended.end());
  if (!running_.empty() || has_ended_) return events;
  has_ended_ = true;
  if (const int left = descendants_.end_all()) events.push_back({.what = RankEvent::What::left, .count = left});
  return events;
}

bool LocalRanks::is_finished() const {
  return has_ended_ && pipes_.finished();
}

// ---- PrintedRanks ----

PrintedRanks::PrintedRanks(LocalJob job, bool tags)
    : PrintedRanks(std::move(job), std::make_shared<Printer>(tags), tags) {}

PrintedRanks::PrintedRanks(LocalJob job, std::shared_ptr<Printer> printer, bool tags)
    : LocalRanks(std::move(job),
                 {.take = tags ? RankPipes::Take([p = printer.get()](int rank, int to, std::string_view lines) {
                    p->add(rank, to, lines);
                  })
                               : RankPipes::Take(),
                  .is_full = [p = printer.get()](int to) { return p->is_full(to); }}),
      printer_(std::move(printer)) {}

void PrintedRanks::add_to(std::vector<pollfd>& polls) {
  LocalRanks::add_to(polls);
  printer_->add_to(polls);
}

void PrintedRanks::serve(const std::vector<pollfd>& polls) {
  LocalRanks::serve(polls);
  printer_->serve(polls);
  for (int to : {1, 2})
    if (printer_->is_broken(to)) close_output(to);
}

}  // namespace gsel::cli
