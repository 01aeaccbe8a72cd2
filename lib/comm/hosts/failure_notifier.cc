// comm/hosts/failure_notifier.cc: see failure_notifier.h.
#include "comm/hosts/failure_notifier.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "comm/shm/members/membership.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kNoticeNs = 200'000'000;
constexpr useconds_t kLookUs = 20;
constexpr double kLeastSilence = 1, kMostSilence = 86400;

}  // namespace

int64_t host_timeout_ns() {
  const char* given = secure_getenv("GSEL_HOST_TIMEOUT");
  if (!given || !*given) return static_cast<int64_t>(kDefaultSilence * 1e9);
  double seconds = 0;
  const char* end = given + std::strlen(given);
  const auto parsed = std::from_chars(given, end, seconds);
  if (parsed.ec != std::errc() || parsed.ptr != end || !(seconds >= kLeastSilence && seconds <= kMostSilence))
    throw Error(GSEL_ERR_CONFIG, fmt::format("GSEL_HOST_TIMEOUT is {}; expected seconds from {} to {}, after which a "
                                             "silent host counts as lost",
                                             in_quotes(given), kLeastSilence, kMostSilence))
        .at(Place{.file = "", .token = "GSEL_HOST_TIMEOUT"});
  return static_cast<int64_t>(seconds * 1e9);
}

FailureNotifier::FailureNotifier(const Roster& roster, Control& local, std::vector<std::optional<Line>>& lines,
                                 int64_t silence_ns, const os::Fd& wake)
    : roster_(roster),
      local_(local),
      lines_(lines),
      silence_ns_(silence_ns),
      wake_(wake),
      stop_(eventfd(0, EFD_CLOEXEC)),
      peers_(lines.size(), {os::now_ns(), false}) {
  if (!stop_) fail(GSEL_ERR_IO, "no descriptor to stop a thread with: {}", errno_text(errno));
  sending_ = quiet_thread([this] { send_notices(); });
  receiving_ = quiet_thread([this] { receive_notices(); });
}

FailureNotifier::~FailureNotifier() {
  stopping_.store(true, std::memory_order_release);
  local_.stop_awaiting_break();
  eventfd_write(stop_.get(), 1);
  sending_.join();
  receiving_.join();
  if (!is_notified_ && local_.is_broken()) notify_of_failure();
  notify_all({Kind::leaves, GSEL_OK, -1, 0}, {});
}

void FailureNotifier::begin_inquiries(const ShrinkSeries& series, const Secret& secret) {
  inquiries_.emplace(roster_, series, secret, silence_ns_);
  inquires_.store(true, std::memory_order_release);
}

// Sends notice and text in one write, since this rank may be killed in between.
void FailureNotifier::notify_all(const Notice& notice, const std::string& text) noexcept {
  std::array<char, sizeof notice + kMostNoticeText> both;
  std::memcpy(both.data(), &notice, sizeof notice);
  text.copy(both.data() + sizeof notice, kMostNoticeText);
  for (auto& line : lines_)
    if (line) line->watch.send(both.data(), sizeof notice + text.size(), os::now_ns() + kNoticeNs);
}

void FailureNotifier::notify_of_failure() noexcept {
  is_notified_ = true;
  eventfd_write(wake_.get(), 1);
  try {
    local_.throw_break_reason();
  } catch (...) {
    const Error error = current_error();
    const std::string text = error.message().substr(0, kMostNoticeText);
    notify_all({Kind::broken, error.code(), error.rank(), static_cast<uint32_t>(text.size())}, text);
  }
  all_notified_.store(true, std::memory_order_release);
}

void FailureNotifier::await_notified() const noexcept {
  const int64_t end = os::now_ns() + kNoticeNs;
  while (!all_notified_.load(std::memory_order_acquire) && os::now_ns() < end) usleep(kLookUs);
}

void FailureNotifier::send_notices() {
  const int64_t beat = silence_ns_ / kBeats;
  int64_t next = os::now_ns() + beat;
  while (!stopping_.load(std::memory_order_acquire)) {
    if (local_.await_break(std::max<int64_t>(next - os::now_ns(), 0))) return notify_of_failure();
    if (os::now_ns() < next) continue;  // woken for another reason
    notify_all({Kind::beat, GSEL_OK, -1, 0}, {});
    next = os::now_ns() + beat;
  }
}

void FailureNotifier::suspect(size_t host) {
  if (peers_[host].is_suspected) return;
  peers_[host].is_suspected = true;
  if (inquires_.load(std::memory_order_acquire)) return inquiries_->begin(host);
  judge({host, Inquiries::Finding::unknown, host});
}

// A host that has sent a message meanwhile is not lost.
void FailureNotifier::judge(const Inquiries::Found& found) {
  Peer& peer = peers_[found.about];
  peer.is_suspected = false;
  if (peer.has_left || os::now_ns() - peer.last_ns <= silence_ns_) return;
  const std::string silent = "is silent for " + seconds_text(static_cast<double>(silence_ns_) * 1e-9);
  const std::string witness = roster_.named(roster_.on(found.witness).front());
  using Finding = Inquiries::Finding;
  switch (found.finding) {
    case Finding::unknown:
      return lose(found.about, silent);
    case Finding::alone:
      return lose(found.about, silent + ", and other hosts that were asked about it do not answer either");
    case Finding::silent:
      return lose(found.about, fmt::format("{}, to {} as well", silent, witness));
    case Finding::ended:
      return lose(found.about, fmt::format("{}, and has ended, as {} finds", silent, witness));
    case Finding::answers:
      return lose(found.about,
                  fmt::format("{} to {}, and answers {}: the network between {} and {} is cut", silent,
                              roster_.named(roster_.rank()), witness, roster_.table().names[roster_.own_host()],
                              roster_.table().names[found.about]));
  }
}

void FailureNotifier::lose(size_t host, const std::string& how) noexcept {
  peers_[host].has_left = true;  // so that it is reported once
  const int32_t first = roster_.on(host).front();
  try {
    local_.break_with(
        Error(GSEL_ERR_PEER, fmt::format("{} {}", roster_.named(first), how)).about_rank(roster_.shown(first)));
  } catch (...) {
    local_.break_with(Error(GSEL_ERR_PEER, {}).about_rank(roster_.shown(first)));  // no memory for the text
  }
}

void FailureNotifier::receive_from(size_t host) {
  Stream& watch = lines_[host]->watch;
  const bool goes_on = watch.fill(sizeof(Notice) + kMostNoticeText);
  while (const auto notice = watch.take<Notice>()) {
    peers_[host].last_ns = os::now_ns();
    if (notice->kind == Kind::leaves) peers_[host].has_left = true;
    if (notice->kind != Kind::broken) continue;
    std::string text(std::min(notice->bytes, kMostNoticeText), '\0');
    const Stream::Wait result = watch.await(text.data(), text.size(), os::now_ns() + kNoticeNs);
    if (result == Stream::Wait::end) return lose(host, shm::kEnded);
    if (result != Stream::Wait::all)
      text = roster_.named(roster_.on(host).front()) + " reports a failure without its cause";
    peers_[host].has_left = true;  // it may end after that
    local_.break_with(Error(notice->code, one_line(text)).about_rank(notice->about));
  }
  if (!goes_on && !peers_[host].has_left) lose(host, shm::kEnded);
}

// Time for which this thread itself was late does not count as silence of others.
void FailureNotifier::receive_notices() {
  const int64_t beat = silence_ns_ / kBeats;
  int64_t looked = os::now_ns();
  while (!stopping_.load(std::memory_order_acquire)) {
    std::vector<pollfd> items{{stop_.get(), POLLIN, 0}};
    std::vector<size_t> hosts{0};
    for (size_t h = 0; h < lines_.size(); ++h)
      if (lines_[h] && !peers_[h].has_left) {
        items.push_back({lines_[h]->watch.fd(), POLLIN, 0});
        hosts.push_back(h);
      }
    const size_t watched = items.size();
    if (inquires_.load(std::memory_order_acquire)) inquiries_->add_to(items);
    poll(items.data(), items.size(), static_cast<int>(beat / 2'000'000));
    const int64_t now = os::now_ns(), late = now - looked - beat;
    looked = now;
    for (size_t i = 1; i < watched; ++i) {
      const size_t h = hosts[i];
      if (late > 0) peers_[h].last_ns += late;
      if (items[i].revents != 0) receive_from(h);
      if (!peers_[h].has_left && now - peers_[h].last_ns > silence_ns_) suspect(h);
    }
    if (!inquires_.load(std::memory_order_acquire)) continue;
    inquiries_->progress();
    while (const auto found = inquiries_->take()) judge(*found);
  }
}

}  // namespace gsel::hosts
