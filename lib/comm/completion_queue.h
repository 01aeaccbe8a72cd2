// comm/completion_queue.h: requests that have ended, in the order in which they did, behind a file descriptor that an
// event loop waits for. Does not know what a request does, or who runs it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/os.h"
#include "comm/interface/backend.h"

namespace gsel {

class CompletionQueue : public std::enable_shared_from_this<CompletionQueue> {
 public:
  // A request that somebody must ask whether it has ended, since nobody is told.
  class Asked {
   public:
    virtual ~Asked() = default;
    virtual bool has_ended() noexcept = 0;
  };
  // One request in the queue, once for each end; user: what the caller gets back then. It keeps the queue.
  class Ticket final : public Listener {
   public:
    Ticket(std::shared_ptr<CompletionQueue> queue, void* user) : queue_(std::move(queue)), user_(user) {}
    void ended() noexcept override { queue_->push(*this); }

   private:
    friend CompletionQueue;
    const std::shared_ptr<CompletionQueue> queue_;
    void* const user_;
    int n_ended_ = 0;
    bool is_forgotten_ = false;
    Ticket* next_ = nullptr;
  };

  CompletionQueue();
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  uint64_t fork_generation() const { return fork_generation_; }
  int descriptor() const { return descriptor_.get(); }  // readable while something has ended
  // The first that has ended, within so long; negative: whenever it does.
  std::optional<void*> next(double seconds);
  void close();  // nothing comes from now on

  // Asks from time to time, on a thread of the queue's, until it has ended; an earlier question has been answered.
  void ask(Asked& asked, Ticket& ticket);
  // For a request that is freed: it is not asked any more, and not given out.
  void forget(const Asked& asked, Ticket& ticket) noexcept;

 private:
  struct Question {
    Asked* asked;
    Ticket* ticket;
  };
  bool is_forked() const { return os::fork_generation() != fork_generation_; }  // locks may be held by nobody
  void push(Ticket& ticket) noexcept;
  void run_thread();
  bool look_at_all();

  const uint64_t fork_generation_ = os::fork_generation();
  const os::Fd descriptor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Ticket *first_ = nullptr, *last_ = nullptr;
  bool closed_ = false;

  std::mutex asking_;  // taken before mutex_
  std::condition_variable has_questions_;
  std::vector<Question> questions_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace gsel
