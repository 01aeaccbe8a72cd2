// checkpoint/rounds.cc: see rounds.h. A round is a collective in which each rank says whether it still works. The last
// one is that in which nobody does, or somebody has failed.
#include "checkpoint/rounds.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>

#include "base/os.h"
#include "base/threads.h"
#include "checkpoint/idle_wait.h"
#include "train/ranks/agree.h"

namespace gsel::checkpoint {
namespace {

constexpr double kMostSeconds = 1, kOfTimeout = 4;

}  // namespace

Rounds::Rounds(Communicator& comm)
    : comm_(comm), every_s_(std::min(kMostSeconds, comm.timeout_s() / kOfTimeout)), began_(os::now_seconds()) {}

void Rounds::run(std::string_view made, const std::function<void()>& work) {
  std::optional<Error> failure;
  began_ = os::now_seconds();
  try {
    work();
  } catch (...) {
    failure = current_error();
  }
  if (is_ended_)
    failure.reset();  // it is another rank's
  else
    while (!end_round(failure ? State::failed : State::done)) {
    }
  is_ended_ = false;
  check_all_succeeded(comm_, failure, made);
}

bool Rounds::end_round(State mine) {
  const auto all = gather_numbers(comm_, {static_cast<uint64_t>(mine)});
  began_ = os::now_seconds();
  const auto has = [&all](State state) { return std::ranges::find(all, static_cast<uint64_t>(state)) != all.end(); };
  return has(State::failed) || !has(State::working);
}

void Rounds::go_on() {
  if (is_ended_) fail(GSEL_ERR_PEER, "another rank has failed");
  if (comm_.world_size() == 1 || os::now_seconds() - began_ < every_s_) return;
  is_ended_ = end_round(State::working);
  if (is_ended_) go_on();
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
  std::exception_ptr ended_by;
  try {
    std::unique_lock lock(mutex);
    idle_wait(changed, lock, idle(), [&] { return has_ended; });
  } catch (...) {
    ended_by = std::current_exception();
  }
  thread.join();
  if (ended_by) std::rethrow_exception(ended_by);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace gsel::checkpoint
