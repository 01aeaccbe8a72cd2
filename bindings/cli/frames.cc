// frames.cc: see frames.h.
#include "frames.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "client.h"

namespace gsel::cli {
namespace {

constexpr size_t kHeadBytes = 5, kMostBytes = 256 << 20;
constexpr size_t kMostNoise = 4096;

void put(std::string& to, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to.push_back(static_cast<char>(value >> 8 * i));
}

uint64_t get(std::string_view from, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<unsigned char>(from[i])} << 8 * i;
  return value;
}

}  // namespace

// ---- contents of a frame ----

FrameText& FrameText::number(int64_t value) {
  put(bytes_, static_cast<uint64_t>(value), 8);
  return *this;
}

FrameText& FrameText::text(std::string_view value) {
  put(bytes_, value.size(), 8);
  bytes_.append(value);
  return *this;
}

FrameText& FrameText::texts(const std::vector<std::string>& values) {
  number(static_cast<int64_t>(values.size()));
  for (const std::string& value : values) text(value);
  return *this;
}

FrameText& FrameText::raw(std::string_view bytes) {
  bytes_.append(bytes);
  return *this;
}

std::string_view FrameReader::take(size_t n) {
  if (n > left_.size()) refuse(GSEL_ERR_VERSION, "a message of another gsel run is shorter than expected");
  const std::string_view taken = left_.substr(0, n);
  left_.remove_prefix(n);
  return taken;
}

int64_t FrameReader::number() {
  return static_cast<int64_t>(get(take(8), 8));
}

std::string FrameReader::text() {
  return std::string(take(static_cast<size_t>(number())));
}

std::vector<std::string> FrameReader::texts() {
  std::vector<std::string> values;
  for (int64_t n = number(); n > 0; --n) values.push_back(text());
  return values;
}

// ---- both directions ----

Channel::Channel(int in, int out, std::string mark) : in_(in), out_(out), mark_(std::move(mark)) {
  for (const int fd : {in_, out_}) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

Channel::~Channel() {
  close_in();
  close_out();
}

void Channel::close_in() {
  if (in_ >= 0) close(in_);
  in_ = -1;
}

void Channel::close_out() {
  if (out_ >= 0) close(out_);
  out_ = -1;
  out_bytes_.clear();
}

void Channel::send(FrameKind kind, const FrameText& text) {
  if (out_ < 0) return;
  put(out_bytes_, text.bytes().size(), 4);
  out_bytes_.push_back(static_cast<char>(kind));
  out_bytes_.append(text.bytes());
  write_some();
}

void Channel::send_mark(const std::string& mark) {
  out_bytes_.append(mark);
}

void Channel::add_to(std::vector<pollfd>& polls, bool reads) const {
  if (in_ >= 0 && reads) polls.push_back({in_, POLLIN, 0});
  if (out_ >= 0 && !out_bytes_.empty()) polls.push_back({out_, POLLOUT, 0});
}

void Channel::serve(const std::vector<pollfd>& polls) {
  for (const pollfd& poll : polls) {
    if (!poll.revents) continue;
    if (poll.fd == in_ && poll.events == POLLIN) read_some();
    if (poll.fd == out_ && poll.events == POLLOUT) write_some();
  }
}

void Channel::read_some() {
  char buffer[1 << 16];
  const ssize_t n = read(in_, buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return close_in();
  in_bytes_.append(buffer, static_cast<size_t>(n));
  if (!mark_.empty()) find_mark();
  if (!mark_.empty()) return;
  size_t at = 0;
  while (in_bytes_.size() - at >= kHeadBytes) {
    const std::string_view rest = std::string_view(in_bytes_).substr(at);
    const size_t length = get(rest, 4);
    if (length > kMostBytes) return close_in();  // not sent by gsel
    if (rest.size() < kHeadBytes + length) break;
    frames_.push_back({static_cast<FrameKind>(rest[4]), std::string(rest.substr(kHeadBytes, length))});
    at += kHeadBytes + length;
  }
  in_bytes_.erase(0, at);
}

void Channel::find_mark() {
  const size_t found = in_bytes_.find(mark_);
  const size_t noise = found != std::string::npos        ? found
                       : in_bytes_.size() < mark_.size() ? 0
                                                         : in_bytes_.size() - mark_.size();
  noise_.append(in_bytes_, 0, noise);
  if (noise_.size() > kMostNoise) noise_.erase(0, noise_.size() - kMostNoise);
  in_bytes_.erase(0, found == std::string::npos ? noise : found + mark_.size());
  if (found != std::string::npos) mark_.clear();
}

void Channel::write_some() {
  while (!out_bytes_.empty()) {
    const ssize_t n = write(out_, out_bytes_.data(), out_bytes_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return close_out();
    out_bytes_.erase(0, static_cast<size_t>(n));
  }
}

std::optional<Frame> Channel::take() {
  if (frames_.empty()) return {};
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

}  // namespace gsel::cli
