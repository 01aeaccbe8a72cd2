// comm/shm/engine/engine.h: schedules the calls of one rank: blocking calls, asynchronous calls and groups. Does not
// know what the calls do: Collectives and Mailbox run them.
//
// One thread at a time is the driver: it admits new calls, runs the collectives in the order given and advances the
// messages. A caller that waits for a call drives; the engine's own thread drives only while no caller waits. So a wait
// costs no thread switch. The engine's thread is created with the first asynchronous call.
//
// Starting a message or a small collective costs no thread switch either. While such calls are started from time to
// time, the engine's thread sleeps on a futex in the arena, and other ranks wake it if this rank listens. The caller
// that starts a message advances it, listens on behalf of the thread if the message has not ended, and returns. A
// caller that waits stops listening while it drives. The caller that starts a small collective posts its header. The
// call ends when a caller asks for its end, or when another rank is about to sleep for a later call. A large collective
// begins immediately, on the engine's thread. There is no barrier between listening and a message that arrives at that
// moment, so a wake-up may be missed: the thread polls after at most kRestNs. After kRestNs without a start it sleeps
// on a condition variable.
//
// A blocking call with nothing else under way bypasses all this: its caller drives without taking the lock. Such a call
// would not notice a call of another thread, so it checks busy() first, which is also true after allow_overlap().
#pragma once

#include <gsel/comm.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/os.h"
#include "comm/interface/backend.h"
#include "comm/shm/collective/collectives.h"
#include "comm/shm/message/mailbox.h"
#include "comm/shm/wait/driver.h"

namespace gsel::shm {

class Engine;

bool is_small(const gsel_collective& call);  // too short to be worth overlapping

// Calls that run together, messages in any order and collectives in the order given; or a task made of collectives. The
// engine does not touch a request after it is done.
struct EngineRequest final : DrivenRequest {
  EngineRequest(Engine& engine, const gsel_collective* calls, uint64_t n, bool is_open = false);
  EngineRequest(Engine& engine, std::function<void()> task);
  bool wait(double seconds) override;
  bool waits_for_itself() const override;
  bool tell(const std::shared_ptr<Listener>& listener) override;
  bool cancel() override;
  void wait_or_cancel() override;

  Engine& engine;
  const uint64_t fork_generation = os::fork_generation();
  const std::vector<gsel_collective> calls;
  const std::function<void()> task;    // instead of calls; ordered among the collectives
  std::vector<Transfer> transfers;     // one per message
  uint64_t open;                       // calls that have not ended
  uint64_t collectives;                // collectives that have not ended
  std::optional<Error> failure;        // the first
  std::shared_ptr<Listener> listener;  // notified at the end; guarded by the engine's lock
  std::atomic<bool> done{false};
};

class Engine final : public Driver {
 public:
  Engine(const Membership& members, Signals& signals, Collectives& collectives, Mailbox& mailbox, bool threads_allowed)
      : at_(members),
        signals_(signals),
        collectives_(collectives),
        mailbox_(mailbox),
        threads_allowed_(threads_allowed) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Makes one blocking call.
  void call(const gsel_collective& given) {
    if (busy() || operating_.load(std::memory_order_relaxed)) return call_concurrently(given);
    make(given);
  }
  void group(std::span<const gsel_collective> calls);  // as gsel_group_run
  // The same asynchronously. promptly: small collectives begin immediately, too.
  std::unique_ptr<BackendRequest> start(std::span<const gsel_collective> calls, bool promptly, bool is_open = false);
  std::unique_ptr<BackendRequest> start(std::function<void()> task);
  void require_threads() const;  // for requests

  // Whether calls are under way, a thread drives, or another thread may make calls at any time.
  bool busy() const override { return busy_.load(std::memory_order_acquire); }
  bool blocks_caller() const override {
    return !on_thread_ || waiting_.load(std::memory_order_relaxed) > 0 ||
           lookers_.load(std::memory_order_relaxed) > 0 ||
           (running_ && running_->awaited.load(std::memory_order_relaxed));
  }
  bool under_way();
  // Whether this thread runs a caller's reduction operation in a collective of this engine.
  bool in_operation() const;
  // Between allow_overlap and end_overlap, other threads may make calls during a call. Nests.
  void allow_overlap();
  void end_overlap();

  // Exclusive use of the rank: collectives started before have ended, and no other thread runs one. Messages advance
  // while this thread waits. Thread::awake: the engine's thread does not sleep in the arena, which may be replaced.
  enum class Thread { may_sleep, awake };
  class Turn {
   public:
    explicit Turn(Engine& engine, Thread thread = Thread::awake);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Engine& engine_;
    const Thread thread_;
  };

  void serve(Outer& outer) { outer_ = &outer; }  // before the first call

  void stop();  // after all calls under way have ended or will end by themselves
  void start(EngineRequest& request, bool promptly);
  void run(EngineRequest& request);  // start and wait; throws what failed
  void wait(EngineRequest& request);
  bool wait_for(EngineRequest& request, double seconds);  // whether it is done
  void tell(EngineRequest& request, const std::shared_ptr<Listener>& listener);
  bool cancel(EngineRequest& request);  // whether it was cancelled, since no peer had matched it; it is done then
  // Waits for the end without a result; cancels a message that no peer matches before its timeout.
  void wait_or_cancel(EngineRequest& request);

  // For the driver, wherever it waits.
  bool has_news() const override { return news_.load(std::memory_order_seq_cst); }
  void admit();
  void end_call(DrivenRequest& driven, const Error* failure) noexcept override;
  bool advance_other_calls() override {
    admit();
    return !mailbox_.is_empty() && mailbox_.progress();
  }
  void check_other_calls() override {
    mailbox_.attend();
    if (outer_) outer_->attend();
  }
  const Outer* outer() const override { return outer_; }
  bool is_alone() const override { return mailbox_.is_empty(); }

 private:
  struct Collective {
    EngineRequest* request;
    const gsel_collective* call;  // nullptr: the request's task
  };
  struct Cancel {
    EngineRequest* request;
    bool answered = false, cancelled = false;
  };
  class InOperation;
  void require_outside_operation() const;
  void make(const gsel_collective& given, bool grouped = false);
  void call_concurrently(const gsel_collective& given);
  void submit(EngineRequest& request);
  bool postpone(const EngineRequest& request);
  void begin_postponed() noexcept;
  bool look_once(EngineRequest& request);
  bool look_for(EngineRequest& request, double seconds);
  bool try_cancel(EngineRequest& request);
  bool cancel_collective(EngineRequest& request);

  // engine_thread.cc; each under the lock or by the driver.
  void start_thread();
  void run_thread();
  void rest(std::unique_lock<std::mutex>& lock);
  void sleep_in_arena(std::unique_lock<std::mutex>& lock, uint32_t word, int64_t most_ns);
  void wake_thread() noexcept;
  void advance(std::unique_lock<std::mutex>& lock);  // as far as possible without waiting; listens for the rest
  bool advance_alone() noexcept;
  bool advance_collectives();
  void listen() noexcept;
  void stop_listening() noexcept;
  void release() noexcept;

  bool may_drive(const EngineRequest& request) const {
    return request.collectives > 0 || (queued_ == 0 && turns_.load(std::memory_order_relaxed) == 0);
  }
  bool thread_drives() const;
  std::optional<Wakeup> drive(EngineRequest* own);
  void begin_messages(EngineRequest& request);
  void run_collective();

  const Membership& at_;
  Signals& signals_;
  Collectives& collectives_;
  Mailbox& mailbox_;
  const bool threads_allowed_;
  Outer* outer_ = nullptr;
  std::atomic<bool> busy_{false}, news_{false};
  std::atomic<const char*> operating_{nullptr};  // the thread that runs a collective with a caller's operation
  std::atomic<int> waiting_{0};                  // waiters_.size() + turns_, for the driver
  std::atomic<int> turns_{0};                    // threads that wait for a Turn; changed under the lock
  std::atomic<int> lookers_{0};                  // threads that wait with a time limit and do not drive

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<EngineRequest*> inbox_;    // not yet seen by the driver
  std::vector<Cancel*> cancels_;         // not yet seen by the driver
  std::vector<EngineRequest*> waiters_;  // requests whose waiters may drive
  uint64_t open_requests_ = 0;           // not done
  uint64_t queued_ = 0;                  // collectives not begun
  int overlaps_ = 0;
  bool driven_ = false;
  bool closing_ = false;
  std::thread thread_;
  bool asleep_ = false;               // the thread sleeps in the arena
  std::atomic<bool> listens_{false};  // this rank listens on behalf of the sleeping thread
  bool recent_ = false;               // a small call was started since the thread began to rest
  int awake_turns_ = 0;               // turns with Thread::awake, held or waited for
  bool postponed_ = false;            // all collectives that have not begun are small, and no caller waits for them

  // Used by the driver only.
  std::deque<Collective> queue_;
  const EngineRequest* running_ = nullptr;  // its collective runs now
  bool on_thread_ = false;                  // the driver is the engine's thread
};

}  // namespace gsel::shm
