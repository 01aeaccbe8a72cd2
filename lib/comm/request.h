// comm/request.h: a request: one call or a group of calls that runs asynchronously. It can be started again when it has
// ended. Does not know which thread runs it.
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

#include "comm/communicator.h"
#include "comm/completion_queue.h"

namespace gsel {

class CallRequest final : public CompletionQueue::Polled {
 public:
  // persistent: other threads may run the request during other calls.
  enum class Use { started, persistent };
  // Checks the calls. Only a group has more than one.
  CallRequest(Communicator& communicator, std::vector<gsel_collective> calls, Use use = Use::started);
  CallRequest(Communicator& communicator, const gsel_collective& call, Use use = Use::started)
      : CallRequest(communicator, std::vector{call}, use) {}
  // A request that makes a communicator.
  CallRequest(Communicator& communicator, Making making);
  ~CallRequest() override;  // waits; cancels a message that no peer matches before its timeout
  CallRequest(const CallRequest&) = delete;
  CallRequest& operator=(const CallRequest&) = delete;

  void start();
  void run();
  // *done: whether the call has ended. If it has ended, throws its failure.
  void test(int32_t* done);
  void wait();
  // Waits at most `seconds`; several threads may wait at the same time.
  bool wait_for(double seconds);
  // See gsel_request_notify.
  void notify(const std::shared_ptr<CompletionQueue>& queue, void* user);
  bool has_ended() noexcept override;
  // This thread runs a caller's operation that must return before the request can end.
  bool waits_for_itself();
  // See gsel_request_event.
  void* event();
  // Cancels the call if no peer has matched it, and returns whether it did; the request is then as if never started.
  bool cancel();
  // The communicator that the request has made; nullopt: this rank is in none. GSEL_ERR_STATE before its end.
  std::optional<Communicator> take();
  // Waits for any of the requests and sets *index to one that has ended; throws its failure.
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
  std::vector<std::string> labels_;  // copies of the calls' labels
  const std::optional<Making> making_;
  std::shared_ptr<std::optional<Communicator>> made_;
  std::unique_ptr<BackendRequest> backend_request_;  // while under way
  std::optional<Error> failure_;
  std::atomic<bool> reported_{true};
  std::mutex mutex_;  // for is_looked_at_
  std::condition_variable looked_;
  bool is_looked_at_ = false;
  std::shared_ptr<CompletionQueue> queue_;
  std::shared_ptr<CompletionQueue::Ticket> ticket_;
};

}  // namespace gsel
