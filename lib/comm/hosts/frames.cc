// comm/hosts/frames.cc: see frames.h.
#include "comm/hosts/frames.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/error.h"
#include "base/os.h"

namespace gsel::hosts {
namespace {

constexpr uint32_t kFrameTag = 2, kRestTag = 3;
constexpr double kFrameLookS = 0.02;            // interval of checks for a broken communicator and for hosts that left
constexpr int64_t kFrameCauseNs = 300'000'000;  // wait for the late rank's own host, which can name the rank
constexpr uint64_t kMostFrameBytes = uint64_t{1} << 34;

}  // namespace

Frames::Frames(const Roster& roster, HostTransport& host_transport, Relay* relay)
    : roster_(roster), host_transport_(host_transport), relay_(relay), peers_(roster.hosts()) {
  for (size_t h = 0; h < peers_.size(); ++h) {
    if (h == roster.own_host()) continue;
    peers_[h].reset(new Peer{roster.on(h)[static_cast<size_t>(roster.local_rank())]});
    for (const uint64_t number : {1, 2}) post_receive(*peers_[h], number);
  }
  for (Sent& said : sent_) {
    said.rests.resize(peers_.size());
    for (const auto& peer : peers_) said.frames.push_back(peer ? std::make_unique<Frame>() : nullptr);
  }
}

void Frames::post_receive(Peer& peer, uint64_t number) {
  Frame& frame = peer.frames[number % 2];
  peer.next[number % 2].emplace(host_transport_, gsel_transfer{peer.rank, kFrameTag, nullptr, &frame, sizeof frame});
}

void Frames::send(const Word& word, const std::function<Came(size_t host)>& bytes_for) {
  Sent& said = sent_[++number_ % 2];
  said.word = word;
  for (size_t h = 0; h < peers_.size(); ++h) {
    if (!peers_[h]) continue;
    Frame& frame = *said.frames[h];
    const Came given = bytes_for(h);
    frame.number = number_, frame.fingerprint = word.fingerprint, frame.bytes = given.n;
    frame.alike = word.alike, frame.goes_on = word.goes_on;
    const uint64_t begin = std::min(given.n, kShortBytes), length = offsetof(Frame, begin) + begin;
    if (begin > 0) std::memcpy(frame.begin, given.bytes, begin);
    said.posted.emplace_back(host_transport_, gsel_transfer{peers_[h]->rank, kFrameTag, &frame, nullptr, length});
    if (given.n == begin) continue;
    std::vector<char>& rest = said.rests[h];
    rest.assign(given.bytes + begin, given.bytes + given.n);
    said.posted.emplace_back(host_transport_,
                             gsel_transfer{peers_[h]->rank, kRestTag, rest.data(), nullptr, rest.size()});
  }
}

bool Frames::receive(int64_t deadline_ns, const std::function<std::string()>& what) {
  Sent& before = sent_[(number_ + 1) % 2];
  for (HostTransport::Posted& one : before.posted) host_transport_.finish(one, deadline_ns, "a frame");
  before.posted.clear();
  bool all_alike = sent_[number_ % 2].word.alike;
  others_go_on_ = false;
  for (size_t h = 0; h < peers_.size(); ++h) {
    if (!peers_[h]) continue;
    if (number_ > 1) post_receive(*peers_[h], number_ + 1);  // after the awaited one
    if (!receive(h, *peers_[h], deadline_ns, what)) all_alike = false;
  }
  return all_alike;
}

bool Frames::receive(size_t host, Peer& peer, int64_t deadline_ns, const std::function<std::string()>& what) {
  finish(*peer.next[number_ % 2], host, deadline_ns, what);
  const Frame& frame = peer.frames[number_ % 2];
  if (frame.number != number_ || frame.bytes > kMostFrameBytes)
    throw Error(GSEL_ERR_INTERNAL,
                fmt::format("{} is at frame {}, this rank at {}", roster_.named(peer.rank), frame.number, number_))
        .about_rank(roster_.shown(peer.rank));
  if (frame.bytes > kShortBytes) {
    peer.rest.resize(frame.bytes);
    std::memcpy(peer.rest.data(), frame.begin, kShortBytes);
    HostTransport::Posted rest(
        host_transport_, {peer.rank, kRestTag, nullptr, peer.rest.data() + kShortBytes, frame.bytes - kShortBytes});
    finish(rest, host, deadline_ns, what);
  }
  others_go_on_ = others_go_on_ || frame.goes_on != 0;
  return frame.alike != 0 && frame.fingerprint == sent_[number_ % 2].word.fingerprint;
}

Frames::Came Frames::from(size_t host) const {
  const Peer& peer = *peers_[host];
  const Frame& frame = peer.frames[number_ % 2];
  return {frame.bytes > kShortBytes ? peer.rest.data() : frame.begin, frame.bytes};
}

// Errors as in Relay::receive.
void Frames::finish(HostTransport::Posted& posted, size_t host, int64_t deadline_ns,
                    const std::function<std::string()>& what) {
  while (!posted.test(kFrameLookS)) {
    host_transport_.throw_break_reason();
    host_transport_.attend();
    if (relay_ && relay_->has_left(host)) {
      if (posted.test(kFrameLookS)) return;  // it left after it had sent this
      relay_->throw_left(host, what());
    }
    if (os::now_ns() < deadline_ns + kFrameCauseNs) continue;
    throw Error(GSEL_ERR_TIMEOUT, fmt::format("timed out: {} is late for {}", roster_.host_text(host), what()))
        .about_rank(roster_.shown(roster_.on(host).front()));
  }
}

}  // namespace gsel::hosts
