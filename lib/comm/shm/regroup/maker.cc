// comm/shm/regroup/maker.cc: see maker.h.
#include "comm/shm/regroup/maker.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/os.h"
#include "base/threads.h"

namespace gsel::shm {

Maker::Maker(std::function<void()> make)
    : thread_(std::make_unique<std::thread>(request_thread([this, make = std::move(make)] { run(make); }))) {}

Maker::~Maker() {
  if (os::fork_generation() != fork_generation_)
    static_cast<void>(thread_.release());  // the thread is only in the parent
  else
    join();
}

void Maker::join() {
  if (thread_->joinable()) thread_->join();
}

void Maker::run(const std::function<void()>& make) noexcept {
  std::optional<Error> failure;
  try {
    make();
  } catch (...) {
    failure = current_error();
  }
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  ended_ = true;
  changed_.notify_all();
  if (const auto listener = std::exchange(listener_, nullptr)) listener->ended();
}

bool Maker::has_ended() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

bool Maker::wait(double seconds) {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return ended_; };
  if (seconds < 0)
    changed_.wait(lock, ended);
  else if (!changed_.wait_for(lock, std::chrono::duration<double>(seconds), ended))
    return false;
  if (failure_) throw Error(*failure_);
  return true;
}

void Maker::tell(const std::shared_ptr<Listener>& listener) {
  const std::lock_guard lock(mutex_);
  if (ended_)
    listener->ended();
  else
    listener_ = listener;
}

bool BackgroundCreation::wait(double seconds) {
  require_own_process(maker_->fork_generation(), "request");
  return maker_->wait(seconds);
}

bool BackgroundCreation::tell(const std::shared_ptr<Listener>& listener) {
  require_own_process(maker_->fork_generation(), "request");
  maker_->tell(listener);
  return true;
}

}  // namespace gsel::shm
