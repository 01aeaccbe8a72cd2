// comm/request.h: a request: one call or a group of calls that runs while its caller computes. It can be started again
// when it has ended. Does not know who runs it.
#pragma once

#include <gsel/comm.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/forked.h"
#include "base/text.h"
#include "comm/communicator.h"
#include "comm/completion_queue.h"

namespace gsel {

class CallRequest final : public CompletionQueue::Asked {
 public:
  // Of a persistent one: other threads run it while calls are made.
  enum class Use { started, persistent };
  // Checks the calls, which are one but for a group that is started.
  CallRequest(Communicator& communicator, std::vector<gsel_collective> calls, Use use = Use::started);
  CallRequest(Communicator& communicator, const gsel_collective& call, Use use = Use::started)
      : CallRequest(communicator, std::vector{call}, use) {}
  // A communicator in the making.
  CallRequest(Communicator& communicator, Making making);
  ~CallRequest() override;  // waits; a message that nobody has met in its time is cancelled
  CallRequest(const CallRequest&) = delete;
  CallRequest& operator=(const CallRequest&) = delete;

  void start();
  void run();
  // *done: whether the call has ended; if so, throws what it failed with.
  void test(int32_t* done);
  void wait();
  // The same, for so long at most; several threads at the same time.
  bool wait_for(double seconds);
  // See gsel_request_notify.
  void notify(const std::shared_ptr<CompletionQueue>& queue, void* user);
  bool has_ended() noexcept override;
  // This thread is in an operation that runs before its end.
  bool waits_for_itself();
  // See gsel_request_event.
  void* event();
  // Whether nobody had met the call; it is then as one that was never started.
  bool cancel();
  // The communicator that it has made; nullopt: none for this rank. GSEL_ERR_STATE before its end.
  std::optional<Communicator> take();
  // Of several: the place of one that has ended, as *index; throws what it failed with.
  static void wait_any(std::span<CallRequest* const> requests, size_t* index);

 private:
  bool look(double seconds);
  bool look_alone(double seconds);
  void tell();
  void forget() noexcept;
  const char* name() const;
  void require_ended();
  void report();

  Communicator& communicator_;
  const uint64_t fork_generation_ = communicator_.fork_generation();
  std::vector<gsel_collective> calls_;
  const Use use_;
  std::vector<std::string> labels_;  // of the calls: the caller's may be gone by the time they are shown
  const std::optional<Making> making_;
  std::shared_ptr<std::optional<Communicator>> made_;
  std::unique_ptr<BackendRequest> work_;  // while under way
  std::optional<Error> failure_;
  std::atomic<bool> reported_{true};
  std::mutex mutex_;  // of threads that look
  std::condition_variable looked_;
  bool is_looked_at_ = false;
  std::shared_ptr<CompletionQueue> queue_;
  std::shared_ptr<CompletionQueue::Ticket> ticket_;
};

}  // namespace gsel
