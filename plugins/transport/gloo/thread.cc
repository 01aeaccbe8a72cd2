// plugins/transport/gloo/thread.cc: see thread.h.
#include "thread.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace gsel_gloo {
namespace {

namespace tcp = gloo::transport::tcp;

// The thread blocks all signals of the program.
std::shared_ptr<tcp::Device> make_device(const std::string& address) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    auto device = std::static_pointer_cast<tcp::Device>(tcp::CreateDevice(tcp::attr(address.c_str())));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return device;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

}  // namespace

Thread::Thread(const std::string& address)
    : device_(make_device(address)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (wake_ < 0 || timer_ < 0) {
    const int failure = errno;
    if (wake_ >= 0) close(wake_);
    throw std::system_error(failure, std::generic_category(), "a descriptor to wake gloo's thread with");
  }
  ticks_ = std::make_unique<Ticks>(timer_);
  device_->registerDescriptor(wake_, EPOLLIN, this);
  device_->registerDescriptor(timer_, EPOLLIN, ticks_.get());
}

Thread::~Thread() {
  hurry(1);
  device_->unregisterDescriptor(wake_, this);
  device_->unregisterDescriptor(timer_, ticks_.get());
  await_pause();
  ticks_->await_pause();
  close(wake_);
  close(timer_);
}

void Thread::hurry(int more) {
  const std::lock_guard lock(hurried_);
  in_a_hurry_ += more;
  const long every = in_a_hurry_ > 0 ? kTickNs : 0;
  const itimerspec ticks{{0, every}, {0, every}};
  timerfd_settime(timer_, 0, &ticks, nullptr);
}

void Thread::Ticks::handleEvents(int) {
  const std::lock_guard running(running_);
  uint64_t number = 0;
  if (read(timer_, &number, sizeof number) < 0) return;  // stopped meanwhile
}

void Thread::run(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (tasks_.size() == 1) eventfd_write(wake_, 1);
}

void Thread::handleEvents(int) {
  const std::lock_guard running(running_);
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    eventfd_t number;
    eventfd_read(wake_, &number);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

}  // namespace gsel_gloo
