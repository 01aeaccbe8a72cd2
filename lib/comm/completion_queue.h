// comm/completion_queue.h: a queue of ended requests, in the order of their ends, with a file descriptor for event
// loops. Does not know what a request does, or which thread runs it.
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
  // A request that cannot notify a listener and must be polled.
  class Polled {
   public:
    virtual ~Polled() = default;
    virtual bool has_ended() noexcept = 0;
  };
  // A request's entry, queued at each end of the request. user: what next() returns. Keeps the queue alive.
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
  // The next ended request, after at most `seconds`; negative: no limit.
  std::optional<void*> next(double seconds);
  void close();  // no request is returned from now on

  // Polls a request on a thread of the queue until it ends. If it is polled already, reports the end of its last start.
  void poll(Polled& polled, Ticket& ticket);
  // For a request that is freed: stops polling it and removes it from the queue.
  void forget(const Polled& polled, Ticket& ticket) noexcept;

 private:
  struct Entry {
    Polled* polled;
    Ticket* ticket;
  };
  bool is_forked() const { return os::fork_generation() != fork_generation_; }  // locks may be held by lost threads
  void push(Ticket& ticket) noexcept;
  void run_thread();
  bool poll_all();

  const uint64_t fork_generation_ = os::fork_generation();
  const os::Fd descriptor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Ticket *first_ = nullptr, *last_ = nullptr;
  bool closed_ = false;

  std::mutex polling_;  // taken before mutex_
  std::condition_variable has_entries_;
  std::vector<Entry> entries_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace gsel
