// comm/hosts/messages.cc: see messages.h.
#include "comm/hosts/messages.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "base/forked.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/call/collective.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kYieldNs = 50'000;
constexpr useconds_t kPauseUs = 20;
constexpr int64_t kLeaveNs = 2'000'000'000;  // for what was sent to arrive

// Looks again and again, soon at first.
class Patience {
 public:
  void pause() const {
    if (os::now_ns() - since_ns_ < kYieldNs)
      sched_yield();
    else
      usleep(kPauseUs);
  }

 private:
  const int64_t since_ns_ = os::now_ns();
};

gsel_collective half_of(const gsel_collective& both, bool sends) {
  gsel_collective half = both;
  half.kind = sends ? GSEL_COLLECTIVE_SEND : GSEL_COLLECTIVE_RECV;
  if (sends) return half;
  half.root = both.source;
  half.count = both.recv_count;
  half.tag = both.recv_tag;
  return half;
}

}  // namespace

class Messages::Started final : public Pending {
 public:
  Started(std::shared_ptr<Messages> messages, std::span<const gsel_collective> calls, int64_t timeout_ns)
      : owner_(std::move(messages)), messages_(*owner_), timeout_ns_(timeout_ns) {
    try {
      messages_.begin(calls, halves_);
    } catch (...) {
      messages_.give_up(halves_);
      throw;
    }
  }
  ~Started() override {
    if (os::fork_generation() == fork_generation_) messages_.give_up(halves_);
  }

  bool wait(double seconds) override {
    require_own_process(fork_generation_, "request");
    const int64_t began = os::now_ns();
    if (seconds != 0 && since_ns_ == 0) since_ns_ = began;
    const Patience patience;
    for (;;) {
      if (messages_.advance(halves_)) return true;
      const int64_t now = os::now_ns();
      if (seconds >= 0 && static_cast<double>(now - began) >= seconds * 1e9) return false;
      const double own = halves_.front().call.timeout_s;
      const double most = own > 0 ? own : static_cast<double>(timeout_ns_) * 1e-9;
      if (static_cast<double>(now - since_ns_) > most * 1e9)
        for (const Half& half : halves_)
          if (!half.done) messages_.fail_late(half, most);
      patience.pause();
    }
  }
  bool cancel() override {
    const std::lock_guard lock(messages_.mutex_);
    if (halves_.size() != 1 || halves_.front().done) return false;
    Half& half = halves_.front();
    if (half.local) return half.local->cancel();
    return !half.is_met && half.call.kind != GSEL_COLLECTIVE_SEND && std::erase(messages_.waiting_, &half) > 0;
  }

 private:
  const uint64_t fork_generation_ = os::fork_generation();
  const std::shared_ptr<Messages> owner_;
  Messages& messages_;
  std::list<Half> halves_;
  const int64_t timeout_ns_;
  int64_t since_ns_ = 0;  // the first wait
};

Messages::Messages(const Roster& roster, shm::Endpoint& local, Carrier& carrier)
    : roster_(roster), local_(local), carrier_(carrier), peers_(roster.ranks()) {
  for (int32_t q = 0; q < static_cast<int32_t>(peers_.size()); ++q) {
    if (roster.is_here(q)) continue;
    auto& peer = peers_[static_cast<size_t>(q)] = std::make_unique<Peer>();
    for (size_t i = 0; i < kFrames; ++i)
      peer->posted[i].emplace(carrier, gsel_transfer{q, kFrameTag, nullptr, &peer->frames[i], sizeof(Frame)});
  }
}

// Bytes of one rank to another arrive in order: whoever has this rank's last word has all of it.
void Messages::leave() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    for (size_t q = 0; q < peers_.size(); ++q)
      if (peers_[q] && !peers_[q]->gone) say(static_cast<int32_t>(q), *peers_[q], Says::leaves);
    const int64_t end = os::now_ns() + kLeaveNs;
    const Patience patience;
    const auto waits = [](const auto& peer) { return peer && !peer->gone && !peer->leave_heard; };
    while (std::ranges::any_of(peers_, waits) && os::now_ns() < end && !local_.is_broken()) {
      take_frames();
      patience.pause();
    }
  } catch (...) {  // whoever waits for this rank is told by the control
  }
}

void Messages::say(int32_t rank, Peer& peer, Says says) {
  words_.push_back({{}, {}});
  Word& word = words_.back();
  word.frame.says = says;
  word.posted.emplace(carrier_, gsel_transfer{rank, kFrameTag, &word.frame, nullptr, sizeof word.frame}, &peer.gone);
}

Messages::~Messages() = default;

std::string Messages::message_text(const gsel_collective& call) {
  return describe(call.kind, call.dtype, call.op, call.root, call.count, {}, call.tag);
}

// ---- from the caller ------------------------------------------------------------------------------------------------

void Messages::begin(std::span<const gsel_collective> calls, std::list<Half>& halves) {
  for (const gsel_collective& call : calls) {
    if (call.kind != GSEL_COLLECTIVE_SENDRECV) {
      halves.push_back({call});
      continue;
    }
    halves.push_back({half_of(call, true)});
    halves.push_back({half_of(call, false)});
  }
  const std::lock_guard lock(mutex_);
  started_.push_back(&halves);
  for (Half& half : halves) begin(half);
}

void Messages::begin(Half& half) {
  const bool sends = half.call.kind == GSEL_COLLECTIVE_SEND;
  if (sends && is_remote(half.call.root)) return begin_send(half);
  if (is_remote(half.call.root) || half.call.root == GSEL_ANY_RANK) {
    waiting_.push_back(&half);
    return;
  }
  gsel_collective here = half.call;
  here.root = roster_.local_of(here.root);
  half.local = local_.start({&here, 1});
}

void Messages::begin_send(Half& half) {
  const gsel_collective& call = half.call;
  Peer& peer = *peers_[static_cast<size_t>(call.root)];
  has_sent_ = true;
  half.frame = std::make_unique<Frame>();
  Frame& frame = *half.frame;
  frame.number = ++peer.sent;
  frame.count = call.count;
  frame.bytes = call.count * dtype_bytes(call.dtype);
  frame.tag = call.tag;
  frame.dtype = call.dtype;
  const bool is_short = frame.bytes <= sizeof frame.data;
  if (is_short && frame.bytes > 0) std::memcpy(frame.data, call.send, frame.bytes);
  half.posted.emplace_back(carrier_, gsel_transfer{call.root, kFrameTag, &frame, nullptr, sizeof frame});
  if (!is_short)
    half.posted.emplace_back(carrier_,
                             gsel_transfer{call.root, data_tag(frame.number), call.send, nullptr, frame.bytes});
}

void Messages::run(std::span<const gsel_collective> calls, int64_t timeout_ns) {
  Started(shared_from_this(), calls, timeout_ns).wait(-1);
}

std::unique_ptr<Pending> Messages::start(std::span<const gsel_collective> calls, int64_t timeout_ns) {
  return std::make_unique<Started>(shared_from_this(), calls, timeout_ns);
}

// What was not met is taken back; what is on its way ends with the carrier's work.
void Messages::give_up(std::list<Half>& halves) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(started_, &halves);
  for (Half& half : halves) {
    std::erase(waiting_, &half);
    half.posted.clear();
  }
}

void Messages::close() noexcept {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  waiting_.clear();
  for (std::list<Half>* halves : started_)
    for (Half& half : *halves) {
      half.posted.clear();
      half.local.reset();
    }
  words_.clear();
  peers_.clear();
}

// A rank may leave while others go on; who waits for it hears of it.
void Messages::fail_gone(const Half& half, const Error& why) {
  const int32_t rank = half.call.root;
  local_.await_break(kCauseNs);
  local_.break_with(Error(GSEL_ERR_PEER, fmt::format("{} left or ended before {}: {}", roster_.named(rank),
                                                     message_text(half.call), why.message()))
                        .about_rank(roster_.shown(rank)));
  local_.throw_what_broke();
  throw Error(why);
}

void Messages::fail_late(const Half& half, double seconds) {
  const int32_t peer = half.call.root;
  const std::string who = peer >= 0 ? roster_.named(peer) : std::string("any rank");
  local_.break_with(
      Error(GSEL_ERR_TIMEOUT, fmt::format("timed out: {} waited {} for {} in {}", roster_.named(roster_.rank()),
                                          seconds_text(seconds), who, message_text(half.call)))
          .about_rank(peer >= 0 ? roster_.shown(peer) : -1));
  local_.throw_what_broke();
  fail(GSEL_ERR_TIMEOUT, "timed out");
}

}  // namespace gsel::hosts
