// plugins/transport/gloo/thread.cc: see thread.h.
#include "thread.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace gsel_gloo {
namespace {

namespace tcp = gloo::transport::tcp;

// It takes no signals of the program's.
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
    : device_(make_device(address)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  device_->registerDescriptor(wake_, EPOLLIN, this);
}

Thread::~Thread() {
  device_->unregisterDescriptor(wake_, this);
  close(wake_);
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
