// checkpoint/rounds.cc: see rounds.h. A round is a collective in which each rank says whether it still works. The last
// one is that in which nobody does.
#include "checkpoint/rounds.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>

#include "base/os.h"
#include "base/threads.h"
#include "checkpoint/idle_wait.h"
#include "train/ranks/agree.h"

namespace gsel::checkpoint {
namespace {

constexpr double kMostSeconds = 1, kOfTimeout = 4;

}  // namespace

Rounds::Rounds(Communicator& comm) : comm_(comm), every_s_(std::min(kMostSeconds, comm.timeout_s() / kOfTimeout)) {}

void Rounds::run(std::string_view made, const std::function<void()>& work) {
  std::optional<Error> failure;
  began_ = os::now_seconds();
  has_failed_ = is_stopped_ = false;
  try {
    work();
  } catch (...) {
    failure = current_error();
  }
  if (is_stopped_) failure.reset();  // it is another rank's
  while (hold(failure ? State::failed : State::done)) {
  }
  check_all_succeeded(comm_, failure, made);
}

// Whether some rank still works.
bool Rounds::hold(State mine) {
  const auto all = gather_numbers(comm_, {static_cast<uint64_t>(mine)});
  began_ = os::now_seconds();
  const auto has = [&all](State state) { return std::ranges::find(all, static_cast<uint64_t>(state)) != all.end(); };
  has_failed_ = has_failed_ || has(State::failed);
  return has(State::working);
}

void Rounds::answer() {
  if (std::this_thread::get_id() != thread_ || comm_.world_size() == 1) return;
  if (os::now_seconds() - began_ >= every_s_) hold(State::working);
}

void Rounds::stop_after_failure() {
  if (!has_failed_) return;
  is_stopped_ = true;
  fail(GSEL_ERR_PEER, "another rank has failed");
}

void Rounds::go_on() {
  if (std::this_thread::get_id() != thread_) return;
  answer();
  stop_after_failure();
}

void Rounds::aside(const std::function<void()>& call) {
  if (comm_.world_size() == 1) return call();
  std::mutex mutex;
  std::condition_variable changed;
  bool has_ended = false;
  std::exception_ptr failure;
  std::thread thread = request_thread([&] {
    try {
      call();
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    has_ended = true;
    changed.notify_all();
  });
  std::exception_ptr broken;  // the communicator
  try {
    std::unique_lock lock(mutex);
    idle_wait(changed, lock, idle(), [&] { return has_ended; });
  } catch (...) {
    broken = std::current_exception();
  }
  thread.join();
  if (broken) std::rethrow_exception(broken);
  if (failure) std::rethrow_exception(failure);
  stop_after_failure();
}

}  // namespace gsel::checkpoint
