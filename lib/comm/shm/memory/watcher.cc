// comm/shm/memory/watcher.cc: see watcher.h.
#include "comm/shm/memory/watcher.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ranges>
#include <utility>

#include "base/log.h"
#include "base/threads.h"
#include "comm/shm/memory/family.h"

namespace gsel::shm {
namespace {

constexpr int kLookMs = 1000;

struct Slot {
  std::weak_ptr<Watcher> watcher;
  uint64_t generation = 0;  // of forks
};

// Guarded by os::process_mutex. Never destroyed: the thread may still run when the process exits.
Slot& slot() {
  static auto* the_slot = new Slot;
  return *the_slot;
}

}  // namespace

std::shared_ptr<Watcher> Watcher::of_process() {
  const uint64_t generation = os::fork_generation();
  std::lock_guard lock(os::process_mutex());
  Slot& known = slot();
  auto watcher = known.generation == generation ? known.watcher.lock() : nullptr;
  if (!watcher) {
    watcher = std::make_shared<Watcher>();
    known = {watcher, generation};
  }
  return watcher;
}

Watcher::Watcher() : epoll_(epoll_create1(EPOLL_CLOEXEC)), stop_(eventfd(0, EFD_CLOEXEC)) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (!epoll_ || !stop_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_.get(), &event) != 0)
    fail(GSEL_ERR_IO, "epoll for watching ranks failed: {}", errno_text(errno));
  thread_ = quiet_thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "gsel-watcher");
}

Watcher::~Watcher() {
  const uint64_t one = 1;
  while (write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();  // this thread exits the process, see run
  else
    thread_.join();
}

// A process whose main thread has called pthread_exit ends with its last thread, as by exit(0). This thread must not
// keep it alive.
void Watcher::run() {
  const RestingThread resting;
  for (;;) {
    epoll_event event{};
    const int ready = epoll_wait(epoll_.get(), &event, 1, kLookMs);
    if (ready == 0 && only_resting_threads_remain()) std::exit(0);
    if (ready <= 0) continue;  // timeout, or EINTR from a debugger
    if (event.data.u64 == 0) return;
    on_process_exit(event.data.u64);
  }
}

void Watcher::on_process_exit(uint64_t key) {
  std::lock_guard lock(mutex_);
  const auto found = lives_.find(key);
  if (found == lives_.end()) return;  // the family has ended meanwhile
  const Life life = found->second;
  forget(life);
  lives_.erase(found);
  Watched& watched = families_[life.family];
  watched.dead.push_back(life.rank);
  for (const ExitListener* c : watched.communicators) c->on_member_exit(life.rank);
}

// Explicit, since a forked child that shares the descriptor keeps it in the epoll set.
void Watcher::forget(const Life& life) noexcept {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, life.family->member(life.rank).life.get(), nullptr);
}

// The pointer that the family keeps removes the family, even after an incomplete add().
void Watcher::watch(Family& family) {
  const auto has_life = [&](int32_t rank) { return static_cast<bool>(family.member(rank).life); };
  if (std::ranges::none_of(std::views::iota(0, family.size()), has_life)) return;
  try {
    auto watcher = of_process();
    std::shared_ptr<Watcher> kept(watcher.get(), [watcher, &family](Watcher*) { watcher->remove(family); });
    watcher->add(family);
    family.keep(std::move(kept));
  } catch (const std::exception& e) {
    log(GSEL_LOG_WARN, "comm", "no thread watches for deaths, waiting ranks look for themselves: {}", e.what());
  }
}

void Watcher::add(const Family& family) {
  std::lock_guard lock(mutex_);
  families_[&family].dead.reserve(static_cast<size_t>(family.size()));
  for (int32_t r = 0; r < family.size(); ++r) {
    if (!family.member(r).life) continue;
    lives_.emplace(++last_key_, Life{&family, r});
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = last_key_;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, family.member(r).life.get(), &event) != 0)
      fail(GSEL_ERR_IO, "watching rank {} failed: {}", r, errno_text(errno));
  }
}

void Watcher::remove(const Family& family) noexcept {
  std::lock_guard lock(mutex_);
  std::erase_if(lives_, [&](const auto& entry) {
    if (entry.second.family != &family) return false;
    forget(entry.second);
    return true;
  });
  families_.erase(&family);
}

void Watcher::add(const Family& family, const ExitListener& communicator) {
  std::lock_guard lock(mutex_);
  Watched& watched = families_[&family];
  watched.communicators.push_back(&communicator);
  for (const int32_t rank : watched.dead) communicator.on_member_exit(rank);
}

void Watcher::remove(const Family& family, const ExitListener& communicator) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = families_.find(&family);
  if (found != families_.end()) std::erase(found->second.communicators, &communicator);
}

}  // namespace gsel::shm
