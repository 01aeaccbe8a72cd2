// comm/hosts/serial.cc: see serial.h.
#include "comm/hosts/serial.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/os.h"
#include "base/threads.h"

namespace gsel::hosts {
struct Serial::Task {
  std::function<void()> body;
  bool done = false;
  std::optional<Error> failure = {};
  std::shared_ptr<gsel::Listener> listener = {};
};

// Shared with requests, which may outlive their communicator.
struct Serial::Core {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Task>> queue;
  bool busy = false;  // a task runs
  std::thread::id runs_on;
  bool is_awaited = false;  // the task runs on its caller's thread
  bool closing = false;

  void require_outside_of_task() const {
    if (runs_on == std::this_thread::get_id())
      fail(
          GSEL_ERR_STATE,
          "this call was made inside a reduction operation of another call on the same communicator and would wait for "
          "itself; make it after that call");
  }
  void run(Task& task) noexcept {  // without the lock, busy
    std::optional<Error> failure;
    try {
      task.body();
    } catch (...) {
      failure = current_error();
    }
    const std::lock_guard lock(mutex);
    task.failure = std::move(failure);
    task.done = true;
    busy = is_awaited = false;
    runs_on = {};
    if (task.listener) task.listener->ended();
    changed.notify_all();
  }
};

class Serial::Started final : public BackendRequest {
 public:
  Started(std::shared_ptr<Core> core, std::shared_ptr<Task> task) : core_(std::move(core)), task_(std::move(task)) {}

  bool wait(double seconds) override {
    require_own_process(fork_generation_, "request");
    std::unique_lock lock(core_->mutex);
    const auto done = [this] { return task_->done; };
    if (seconds < 0)
      core_->changed.wait(lock, done);
    else if (!core_->changed.wait_for(lock, std::chrono::duration<double>(seconds), done))
      return false;
    if (task_->failure) throw Error(*task_->failure);
    return true;
  }
  bool waits_for_itself() const override {
    if (os::fork_generation() != fork_generation_) return false;  // the lock may be held by a thread of the parent
    const std::lock_guard lock(core_->mutex);
    return !task_->done && core_->runs_on == std::this_thread::get_id();
  }
  // Only a task that is not the next one: no other rank can have begun it, since this rank has not begun the one
  // before.
  bool cancel() override {
    require_own_process(fork_generation_, "request");
    const std::lock_guard lock(core_->mutex);
    core_->require_outside_of_task();
    const auto place = std::ranges::find(core_->queue, task_);
    if (place == core_->queue.end() || place == core_->queue.begin()) return false;
    core_->queue.erase(place);
    task_->done = true;
    return true;
  }
  bool tell(const std::shared_ptr<gsel::Listener>& listener) override {
    const std::lock_guard lock(core_->mutex);
    if (task_->done)
      listener->ended();
    else
      task_->listener = listener;
    return true;
  }

 private:
  const uint64_t fork_generation_ = os::fork_generation();
  const std::shared_ptr<Core> core_;
  const std::shared_ptr<Task> task_;
};

Serial::Serial() : core_(std::make_shared<Core>()) {}

void Serial::stop() {
  {
    const std::lock_guard lock(core_->mutex);
    core_->closing = true;
    core_->changed.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Serial::run_queue(Core& core) {
  std::unique_lock lock(core.mutex);
  for (;;) {
    core.changed.wait(lock, [&] { return !core.busy && (core.closing || !core.queue.empty()); });
    if (core.queue.empty()) return;
    const std::shared_ptr<Task> task = std::move(core.queue.front());
    core.queue.pop_front();
    core.busy = true;
    core.runs_on = std::this_thread::get_id();
    lock.unlock();
    core.run(*task);
    lock.lock();
  }
}

void Serial::run(const std::function<void()>& body) {
  Task own{body};
  {
    std::unique_lock lock(core_->mutex);
    core_->require_outside_of_task();
    core_->changed.wait(lock, [this] { return !core_->busy && core_->queue.empty(); });
    core_->busy = core_->is_awaited = true;
    core_->runs_on = std::this_thread::get_id();
  }
  core_->run(own);
  if (own.failure) throw Error(*own.failure);
}

std::unique_ptr<BackendRequest> Serial::start(std::function<void()> body) {
  auto task = std::make_shared<Task>(Task{std::move(body)});
  auto started = std::make_unique<Started>(core_, task);
  const std::lock_guard lock(core_->mutex);
  if (!thread_.joinable()) thread_ = request_thread([core = core_] { run_queue(*core); });
  core_->queue.push_back(std::move(task));
  core_->changed.notify_all();
  return started;
}

bool Serial::under_way() const {
  const std::lock_guard lock(core_->mutex);
  return core_->busy || !core_->queue.empty();
}

bool Serial::on_this_thread() const {
  const std::lock_guard lock(core_->mutex);
  return core_->runs_on == std::this_thread::get_id();
}

bool Serial::is_alone_here() const {
  const std::lock_guard lock(core_->mutex);
  return core_->is_awaited && core_->runs_on == std::this_thread::get_id() && core_->queue.empty();
}

}  // namespace gsel::hosts
