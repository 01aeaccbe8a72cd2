// output.cc: see output.h.
#include "output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace gsel::cli {
namespace {

constexpr size_t kMaxLine = 1 << 20;     // a longer one is passed on in parts
constexpr size_t kMaxPending = 1 << 20;  // more waiting for our reader: the ranks wait too

}  // namespace

TaggedOutput::~TaggedOutput() {
  for (const Source& source : sources_) close(source.fd);
}

int TaggedOutput::open(int rank, int to) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  sources_.push_back({ends[0], rank, to, {}});
  return ends[1];
}

void TaggedOutput::add_to(std::vector<pollfd>& polls) const {
  for (const Source& source : sources_)
    if (pending_[source.to].size() < kMaxPending) polls.push_back({source.fd, POLLIN, 0});
  for (int to : {1, 2})
    if (!pending_[to].empty()) polls.push_back({to, POLLOUT, 0});
}

void TaggedOutput::serve(const std::vector<pollfd>& polls) {
  for (const pollfd& poll : polls) {
    if (!poll.revents) continue;
    if (poll.events == POLLOUT) {
      write_to(poll.fd);
      continue;
    }
    const auto source =
        std::find_if(sources_.begin(), sources_.end(), [&](const Source& s) { return s.fd == poll.fd; });
    if (source != sources_.end()) read_from(*source);
  }
  std::erase_if(sources_, [](const Source& source) { return source.fd < 0; });
}

bool TaggedOutput::finished() const {
  return sources_.empty() && pending_[1].empty() && pending_[2].empty();
}

void TaggedOutput::read_from(Source& source) {
  char buffer[1 << 14];
  const ssize_t n = read(source.fd, buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) source.partial.append(buffer, static_cast<size_t>(n));
  pass_on(source, n <= 0);
  if (n > 0) return;
  close(source.fd);
  source.fd = -1;
}

// Whole lines; at the end, or when a line is too long, also what has no newline yet.
void TaggedOutput::pass_on(Source& source, bool all) {
  std::string& out = pending_[source.to];
  const std::string tag = "[" + std::to_string(source.rank) + "] ";
  size_t from = 0;
  for (size_t newline; (newline = source.partial.find('\n', from)) != std::string::npos; from = newline + 1)
    out.append(tag).append(source.partial, from, newline - from + 1);
  source.partial.erase(0, from);
  if (source.partial.empty() || (!all && source.partial.size() < kMaxLine)) return;
  out.append(tag).append(source.partial).append("\n");
  source.partial.clear();
}

// A pipe that polls writable takes PIPE_BUF bytes without blocking.
void TaggedOutput::write_to(int to) {
  const ssize_t n = write(to, pending_[to].data(), std::min<size_t>(pending_[to].size(), PIPE_BUF));
  if (n >= 0) {
    pending_[to].erase(0, static_cast<size_t>(n));
  } else if (errno != EAGAIN && errno != EINTR) {
    close_sources(to);
  }
}

// Nobody reads us any more: the ranks get the broken pipe that they would have had without us.
void TaggedOutput::close_sources(int to) {
  pending_[to].clear();
  for (Source& source : sources_) {
    if (source.to != to || source.fd < 0) continue;
    close(source.fd);
    source.fd = -1;
  }
}

}  // namespace gsel::cli
