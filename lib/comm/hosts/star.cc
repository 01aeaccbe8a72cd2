// comm/hosts/star.cc: see star.h.
#include "comm/hosts/star.h"

#include <poll.h>

#include <cstring>
#include <utility>

#include "base/error.h"

namespace gsel::hosts {
namespace {

constexpr uint64_t kMostBlockBytes = uint64_t{1} << 34;
constexpr int64_t kForCauseNs = 300'000'000;  // a host knows who of its ranks is late, the first one which host is

struct Frame {
  uint64_t number = 0, bytes = 0;
};

void append(Block& to, const Block& block) {
  const uint64_t bytes = block.size();
  const char* at = reinterpret_cast<const char*>(&bytes);
  to.insert(to.end(), at, at + sizeof bytes);
  to.insert(to.end(), block.begin(), block.end());
}

std::vector<Block> split_up(const Block& joined, size_t n) {
  std::vector<Block> blocks;
  size_t at = 0;
  for (size_t h = 0; h < n; ++h) {
    uint64_t bytes = 0;
    if (joined.size() - at < sizeof bytes) break;
    std::memcpy(&bytes, joined.data() + at, sizeof bytes);
    at += sizeof bytes;
    if (joined.size() - at < bytes) break;
    const auto begin = joined.begin() + static_cast<std::ptrdiff_t>(at);
    blocks.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(bytes));
    at += bytes;
  }
  if (blocks.size() != n)
    fail(GSEL_ERR_INTERNAL, "the first host sent blocks of {} hosts, expected {}", blocks.size(), n);
  return blocks;
}

}  // namespace

bool Star::send(size_t host, const Block& block, int64_t deadline_ns) {
  const Frame frame{number_, block.size()};
  message_.resize(sizeof frame + block.size());  // one piece, which wakes the other side once
  std::memcpy(message_.data(), &frame, sizeof frame);
  if (!block.empty()) std::memcpy(message_.data() + sizeof frame, block.data(), block.size());
  return lines_[host]->calls.send(message_.data(), message_.size(), deadline_ns);
}

std::optional<Block> Star::receive(size_t host, int64_t deadline_ns, const char* asked) {
  Stream& stream = lines_[host]->calls;
  const int32_t first = roster_.on(host).front(), shown = roster_.shown(first);
  Frame frame;
  Block block;
  Stream::Came came = stream.await(&frame, sizeof frame, deadline_ns, wake_fd_);
  if (came == Stream::Came::all) {
    if (frame.number != number_ || frame.bytes > kMostBlockBytes)
      throw Error(GSEL_ERR_INTERNAL,
                  fmt::format("{} is at exchange {}, this host at {}", roster_.host_text(host), frame.number, number_))
          .about_rank(shown);
    block.resize(frame.bytes);
    if (frame.bytes > 0) came = stream.await(block.data(), block.size(), deadline_ns, wake_fd_);
  }
  if (came == Stream::Came::end && is_broken_soon()) return {};
  if (came == Stream::Came::woken) return {};
  if (came == Stream::Came::nothing)
    throw Error(GSEL_ERR_TIMEOUT, fmt::format("timed out: {} is late for {}", roster_.host_text(host), asked))
        .about_rank(shown);
  if (came == Stream::Came::end)
    throw Error(GSEL_ERR_PEER, fmt::format("{} left before {}", roster_.named(first), asked)).about_rank(shown);
  return block;
}

// Who watches the lines hears whether the other side has left or ended.
bool Star::is_broken_soon() const {
  pollfd item{.fd = wake_fd_, .events = POLLIN, .revents = 0};
  return poll(&item, 1, kForCauseNs / 1'000'000) > 0;
}

std::optional<std::vector<Block>> Star::swap(Block own, int64_t deadline_ns, const char* asked) {
  ++number_;
  const size_t hosts = roster_.hosts(), here = roster_.own_host();
  if (here != 0) {
    if (!send(0, own, deadline_ns)) {  // why is told by who watches the line, or by what comes
      own.clear();
    }
    auto joined = receive(0, deadline_ns + 2 * kForCauseNs, asked);
    if (!joined) return {};
    return split_up(*joined, hosts);
  }
  std::vector<Block> blocks(hosts);
  blocks[0] = std::move(own);
  for (size_t h = 1; h < hosts; ++h) {
    auto block = receive(h, deadline_ns + kForCauseNs, asked);
    if (!block) return {};
    blocks[h] = std::move(*block);
  }
  Block joined;
  for (const Block& block : blocks) append(joined, block);
  for (size_t h = 1; h < hosts; ++h) send(h, joined, deadline_ns);
  return blocks;
}

}  // namespace gsel::hosts
