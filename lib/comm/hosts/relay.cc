// comm/hosts/relay.cc: see relay.h.
#include "comm/hosts/relay.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/os.h"

namespace gsel::hosts {
namespace {

constexpr uint64_t kMostBlockBytes = uint64_t{1} << 34;
constexpr int64_t kAttendNs = 50'000'000;
constexpr int64_t kForCauseNs = 300'000'000;  // wait for the late rank's own host, which can name the rank

}  // namespace

bool Relay::send(size_t host, const Block& block, int64_t deadline_ns) {
  const Frame frame{number_, block.size()};
  message_.resize(sizeof frame + block.size());  // one write, which wakes the other side once
  std::memcpy(message_.data(), &frame, sizeof frame);
  if (!block.empty()) std::memcpy(message_.data() + sizeof frame, block.data(), block.size());
  return lines_[host]->calls.send(message_.data(), message_.size(), deadline_ns);
}

Stream::Wait Relay::await(Stream& stream, void* bytes, size_t n, int64_t deadline_ns) {
  for (;;) {
    const int64_t until = std::min(deadline_ns, os::now_ns() + kAttendNs);
    const Stream::Wait result = stream.await(bytes, n, until, wake_fd_);
    if (result != Stream::Wait::nothing || until == deadline_ns) return result;
    attend_();
  }
}

std::optional<Block> Relay::receive(size_t host, int64_t deadline_ns, const char* what) {
  Stream& stream = lines_[host]->calls;
  const int32_t first = roster_.on(host).front(), shown = roster_.shown(first);
  Frame frame;
  Block block;
  Stream::Wait result = await(stream, &frame, sizeof frame, deadline_ns);
  if (result == Stream::Wait::all) {
    if (frame.number != number_ || frame.bytes > kMostBlockBytes)
      throw Error(GSEL_ERR_INTERNAL,
                  fmt::format("{} is at exchange {}, this host at {}", roster_.host_text(host), frame.number, number_))
          .about_rank(shown);
    block.resize(frame.bytes);
    if (frame.bytes > 0) result = stream.await(block.data(), block.size(), deadline_ns, wake_fd_);
  }
  if (result == Stream::Wait::end && await_break()) return {};
  if (result == Stream::Wait::woken) return {};
  if (result == Stream::Wait::nothing)
    throw Error(GSEL_ERR_TIMEOUT, fmt::format("timed out: {} is late for {}", roster_.host_text(host), what))
        .about_rank(shown);
  if (result == Stream::Wait::end) throw_left(host, what);
  return block;
}

// Waits for the failure_notifier, which finds out whether the other side has left or ended.
bool Relay::await_break() const {
  pollfd item{.fd = wake_fd_, .events = POLLIN, .revents = 0};
  return poll(&item, 1, kForCauseNs / 1'000'000) > 0;
}

// Each level of the tree waits longer than the level below, so that the lowest level reports a failure first.
std::optional<std::vector<Block>> Relay::receive_below(int64_t deadline_ns, const char* what) {
  ++number_;
  const size_t own = roster_.own_host();
  const auto levels = static_cast<int64_t>(tree_.levels_below(own));
  std::vector<Block> blocks;
  for (size_t h = tree_.first_below(own); h < tree_.end_below(own); ++h) {
    auto block = receive(h, deadline_ns + levels * kForCauseNs, what);
    if (!block) return {};
    blocks.push_back(std::move(*block));
  }
  return blocks;
}

std::optional<Block> Relay::exchange_above(Block block, int64_t deadline_ns, const char* what) {
  const size_t own = roster_.own_host();
  if (own == 0) return block;
  const size_t above = tree_.above(own);
  if (!send(above, block, deadline_ns)) block.clear();  // the failure_notifier or the receive below reports the reason
  return receive(above, deadline_ns + static_cast<int64_t>(tree_.levels_below(0) + 1) * kForCauseNs, what);
}

void Relay::send_below(const Block& answer, int64_t deadline_ns) {
  const size_t own = roster_.own_host();
  for (size_t h = tree_.first_below(own); h < tree_.end_below(own); ++h) send(h, answer, deadline_ns);
}

bool Relay::has_left(size_t host) const {
  if (!lines_[host]) return false;
  pollfd item{.fd = lines_[host]->calls.fd(), .events = POLLRDHUP, .revents = 0};
  return poll(&item, 1, 0) > 0 && !await_break();
}

void Relay::throw_left(size_t host, const std::string& what) const {
  const int32_t first = roster_.on(host).front();
  throw Error(GSEL_ERR_PEER, fmt::format("{} left before {}", roster_.named(first), what))
      .about_rank(roster_.shown(first));
}

}  // namespace gsel::hosts
