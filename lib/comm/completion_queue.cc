// comm/completion_queue.cc: see completion_queue.h.
#include "comm/completion_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/error.h"
#include "base/threads.h"

namespace gsel {
namespace {

constexpr std::chrono::microseconds kFirstPause{20}, kLongestPause{500};

os::Fd new_descriptor() {
  os::Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) fail(GSEL_ERR_IO, "gsel_queue_create: no descriptor for a queue: {}", errno_text(errno));
  return fd;
}

}  // namespace

CompletionQueue::CompletionQueue() : descriptor_(new_descriptor()) {}

CompletionQueue::~CompletionQueue() {
  if (is_forked()) {  // the thread is only in the parent
    if (thread_.joinable()) thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(polling_);
    ending_ = true;
    has_entries_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void CompletionQueue::push(Ticket& ticket) noexcept {
  const std::lock_guard lock(mutex_);
  if (closed_ || ticket.is_forgotten_ || ticket.n_ended_++ > 0) return;
  ticket.next_ = nullptr;
  (first_ ? last_->next_ : first_) = &ticket;
  last_ = &ticket;
  const uint64_t one = 1;
  static_cast<void>(!write(descriptor_.get(), &one, sizeof one));  // cannot fail: the counter is far from full
  changed_.notify_one();
}

std::optional<void*> CompletionQueue::next(double seconds) {
  std::unique_lock lock(mutex_);
  const auto is_there = [this] { return first_ != nullptr || closed_; };
  if (seconds < 0)
    changed_.wait(lock, is_there);
  else if (seconds > 0)
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), is_there);
  if (!first_) return std::nullopt;
  Ticket& ticket = *first_;
  if (--ticket.n_ended_ == 0) first_ = ticket.next_;
  uint64_t count;
  if (!first_) static_cast<void>(!read(descriptor_.get(), &count, sizeof count));
  return ticket.user_;
}

void CompletionQueue::close() {
  if (is_forked()) return;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  first_ = nullptr;
  changed_.notify_all();
}

// ---- requests that must be polled ---------------------------------------------------------------------------------

void CompletionQueue::poll(Polled& polled, Ticket& ticket) {
  const std::lock_guard lock(polling_);
  const auto same = std::ranges::find(entries_, &polled, &Entry::polled);
  if (same != entries_.end())
    ticket.ended();
  else
    entries_.push_back({&polled, &ticket});
  has_entries_.notify_all();
  if (!thread_.joinable()) try {
      thread_ = quiet_thread([this] { run_thread(); });
    } catch (const std::system_error& e) {
      std::erase_if(entries_, [&](const Entry& q) { return q.polled == &polled; });
      fail(GSEL_ERR_NOMEM, "a queue needs a thread for this request and none could be started: {}",
           errno_text(e.code().value()));
    }
}

void CompletionQueue::forget(const Polled& polled, Ticket& ticket) noexcept {
  if (is_forked()) return;
  const std::lock_guard no_polling(polling_);
  std::erase_if(entries_, [&](const Entry& q) { return q.polled == &polled; });
  const std::lock_guard lock(mutex_);
  ticket.is_forgotten_ = true;
  Ticket** at = &first_;
  Ticket* before = nullptr;
  for (; *at && *at != &ticket; at = &(*at)->next_) before = *at;
  if (!*at) return;
  *at = ticket.next_;
  if (last_ == &ticket) last_ = before;
  uint64_t count;
  if (!first_) static_cast<void>(!read(descriptor_.get(), &count, sizeof count));
}

// Whether any request has ended. Under polling_.
bool CompletionQueue::poll_all() {
  return std::erase_if(entries_, [](const Entry& entry) {
           if (!entry.polled->has_ended()) return false;
           entry.ticket->ended();
           return true;
         }) > 0;
}

void CompletionQueue::run_thread() {
  std::unique_lock lock(polling_);
  auto pause = kFirstPause;
  while (!ending_) {
    if (entries_.empty()) {
      has_entries_.wait(lock);
      pause = kFirstPause;
    } else if (poll_all()) {
      pause = kFirstPause;
    } else {
      has_entries_.wait_for(lock, pause);
      pause = std::min(2 * pause, kLongestPause);
    }
  }
}

}  // namespace gsel
