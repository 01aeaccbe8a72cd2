// comm/hosts/announcer.cc: see announcer.h.
#include "comm/hosts/announcer.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/os.h"

namespace gsel::hosts {
namespace {

constexpr size_t kMostTaken = 1 << 13;    // bytes at a time
constexpr size_t kMostWaiting = 1 << 20;  // unsent bytes of announcements
constexpr int64_t kRestNs = 1'000'000;    // between polls while calls follow each other
constexpr int64_t kPartingNs = 200'000'000;
constexpr useconds_t kFullPauseUs = 50;

const char* bytes_at(const void* object) {
  return static_cast<const char*>(object);
}

}  // namespace

Announcer::Announcer(const Roster& roster, Control& local, std::optional<Stream> up, std::vector<Stream> down)
    : roster_(roster), local_(local), up_(std::move(up)) {
  for (Stream& stream : down) down_.push_back({std::move(stream)});
  if (!up_) matcher_.emplace(roster);
  own_.rank = roster.rank();
}

Announcer::~Announcer() {
  const std::lock_guard lock(mutex_);
  if (is_abandoned_ || local_.is_broken()) return;
  try {
    own_.what = Announcement::What::leaves;
    move_on();
    take(own_, {});
    if (up_) up_->send(out_.data(), out_.size(), os::now_ns() + kPartingNs);
    for (Down& down : down_) down.stream.send(own_, os::now_ns() + kPartingNs);
  } catch (...) {
    local_.break_with(current_error());
  }
}

void Announcer::announce(Announcement call, std::span<const uint64_t> counts) {
  std::unique_lock lock(mutex_);
  call.rank = own_.rank;
  call.number = own_.number + 1;
  call.collectives = own_.collectives + call.collectives;
  call.counts = static_cast<uint32_t>(counts.size());
  own_ = call;
  take(call, counts);
  if (os::now_ns() - moved_ns_ > kRestNs) move_on();
  while (out_.size() > kMostWaiting && !local_.is_broken()) {
    lock.unlock();
    usleep(kFullPauseUs);
    lock.lock();
    move_on();
  }
}

void Announcer::progress() {
  const std::lock_guard lock(mutex_);
  move_on();
}

void Announcer::move_on() {
  if (local_.is_broken()) return out_.clear();
  for (Down& down : down_) receive(down);
  if (up_) {
    receive_above();
    flush();
  } else if (const auto error = matcher_->find_late(os::now_ns())) {
    local_.break_with(*error);
  }
  moved_ns_ = os::now_ns();
}

// A connection that ends without an announcement is ignored: the failure_notifier or the watcher notices the rank's
// end.
void Announcer::receive(Down& down) {
  const size_t ranks = roster_.ranks();
  std::vector<uint64_t> counts;
  for (bool goes_on = true, took = true; goes_on && took;) {
    took = false;
    goes_on = down.stream.fill(std::max(kMostTaken, sizeof(Announcement) + 2 * ranks * sizeof(uint64_t)));
    for (;;) {
      if (!down.head) down.head = down.stream.take<Announcement>();
      if (!down.head) break;
      const Announcement& head = *down.head;
      const auto is_rank = [&](int32_t q) { return q >= 0 && static_cast<size_t>(q) < ranks; };
      const auto is_rank_or_none = [&](int32_t q) { return q == -1 || is_rank(q); };
      if (!is_rank(head.rank) || !is_rank_or_none(head.head.root) || !is_rank_or_none(head.source) ||
          (head.counts != 0 && head.counts != 2 * ranks))
        fail(GSEL_ERR_INTERNAL, "an announcement of rank {} with {} counts, of {} ranks", head.rank, head.counts,
             ranks);
      counts.resize(head.counts);
      if (head.counts > 0 && !down.stream.take(counts.data(), counts.size() * sizeof counts[0])) break;
      take(head, counts);
      down.head.reset();
      took = true;
    }
  }
}

void Announcer::take(const Announcement& announcement, std::span<const uint64_t> counts) {
  if (matcher_) {
    if (const auto error = matcher_->take(announcement, counts, os::now_ns())) local_.break_with(*error);
    return;
  }
  if (!furthest_ || announcement.collectives > furthest_->collectives) furthest_ = announcement;
  put(announcement, counts);
  flush();
  notice_who_waits_above();
}

// After the rank above has left, no rank compares: a collective that the rank above has not announced never ends.
void Announcer::notice_who_waits_above() {
  if (!left_above_ || !furthest_ || furthest_->collectives <= left_above_->collectives) return;
  const int32_t rank = left_above_->rank;
  local_.break_with(
      Error(GSEL_ERR_PEER, fmt::format("{} left while {} waited for it in {} (call {})", roster_.named(rank),
                                       roster_.named(furthest_->rank), text_of(roster_, *furthest_), furthest_->number))
          .about_rank(roster_.shown(rank)));
}

void Announcer::receive_above() {
  up_->fill(sizeof(Announcement));
  if (const auto left = up_->take<Announcement>()) left_above_ = *left;
  notice_who_waits_above();
}

void Announcer::put(const Announcement& announcement, std::span<const uint64_t> counts) {
  out_.insert(out_.end(), bytes_at(&announcement), bytes_at(&announcement) + sizeof announcement);
  out_.insert(out_.end(), bytes_at(counts.data()), bytes_at(counts.data()) + counts.size_bytes());
}

void Announcer::flush() {
  const size_t sent = up_->send_some(out_.data(), out_.size());
  out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(sent));
}

}  // namespace gsel::hosts
