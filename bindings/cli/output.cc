// output.cc: see output.h.
#include "output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace gsel::cli {
namespace {

constexpr size_t kMaxLine = 1 << 20;     // longer lines are passed on in parts
constexpr size_t kMaxPending = 1 << 20;  // if more waits for our reader, the ranks wait too

}  // namespace

// ---- pipes ----

RankPipes::~RankPipes() {
  for (const Source& source : sources_) close(source.fd);
}

int RankPipes::open(int rank, int to) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  sources_.push_back({ends[0], rank, to, {}});
  return ends[1];
}

void RankPipes::add_to(std::vector<pollfd>& polls, const std::function<bool(int to)>& is_full) const {
  for (const Source& source : sources_)
    if (!is_full(source.to)) polls.push_back({source.fd, POLLIN, 0});
}

void RankPipes::serve(const std::vector<pollfd>& polls) {
  for (const pollfd& poll : polls) {
    if (!poll.revents || poll.events != POLLIN) continue;
    const auto source =
        std::find_if(sources_.begin(), sources_.end(), [&](const Source& s) { return s.fd == poll.fd; });
    if (source != sources_.end()) read_from(*source);
  }
  std::erase_if(sources_, [](const Source& source) { return source.fd < 0; });
}

void RankPipes::read_from(Source& source) {
  char buffer[1 << 14];
  const ssize_t n = read(source.fd, buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) source.partial.append(buffer, static_cast<size_t>(n));
  pass_on(source, n <= 0);
  if (n > 0) return;
  close(source.fd);
  source.fd = -1;
}

void RankPipes::pass_on(Source& source, bool all) {
  const size_t newline = source.partial.rfind('\n');
  const bool whole = all || (newline == std::string::npos && source.partial.size() >= kMaxLine);
  const size_t n = whole ? source.partial.size() : newline == std::string::npos ? 0 : newline + 1;
  if (n > 0) take_(source.rank, source.to, std::string_view(source.partial).substr(0, n));
  source.partial.erase(0, n);
}

void RankPipes::close_all(int to) {
  for (const Source& source : sources_)
    if (source.to == to) close(source.fd);
  std::erase_if(sources_, [to](const Source& source) { return source.to == to; });
}

// ---- our descriptors ----

void Printer::add(int rank, int to, std::string_view lines) {
  if (broken_[to]) return;
  std::string& out = pending_[to];
  if (!tags_) {
    out.append(lines);
    return;
  }
  const std::string tag = "[" + std::to_string(rank) + "] ";
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, std::min(lines.find('\n'), lines.size()));
    out.append(tag).append(line).append("\n");
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
  }
}

bool Printer::is_full(int to) const {
  return pending_[to].size() >= kMaxPending;
}

void Printer::add_to(std::vector<pollfd>& polls) const {
  for (int to : {1, 2})
    if (!pending_[to].empty()) polls.push_back({to, POLLOUT, 0});
}

void Printer::serve(const std::vector<pollfd>& polls) {
  for (const pollfd& poll : polls)
    if (poll.revents && poll.events == POLLOUT && (poll.fd == 1 || poll.fd == 2)) write_to(poll.fd);
}

// A pipe that is ready for writing takes PIPE_BUF bytes without blocking.
void Printer::write_to(int to) {
  const ssize_t n = write(to, pending_[to].data(), std::min<size_t>(pending_[to].size(), PIPE_BUF));
  if (n >= 0) {
    pending_[to].erase(0, static_cast<size_t>(n));
  } else if (errno != EAGAIN && errno != EINTR) {
    pending_[to].clear();
    broken_[to] = true;
  }
}

}  // namespace gsel::cli
