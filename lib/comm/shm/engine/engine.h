// comm/shm/engine/engine.h: the calls of one rank: one at a time, asynchronous ones, and groups. Does not know what the
// calls do: Collectives and Mailbox run them.
//
// One thread at a time drives both: it starts the calls that were given, runs the collectives in the order given, and
// advances the messages. A caller that waits for a call is this thread; the engine's own thread drives only while
// no caller waits. So a wait costs no change of threads. The engine's thread starts with the first call that its caller
// does not wait for at once.
//
// Nor does the start of a message or of a small collective. While calls are started now and then, the thread sleeps in
// the arena, where other ranks wake it once the rank listens. Whoever starts a message lets it advance, listens on
// behalf of the thread if the message has not ended, and goes on; whoever waits stops listening until he leaves.
// Whoever starts a small collective posts its header, and the call ends when somebody asks for its end, or when another
// rank is about to sleep for a call behind it. A large collective begins at once, on the thread. Between listening and
// a message that comes at the same moment is no barrier, so a wake-up may be missed: the thread looks after kRestNs at
// the latest. After such a time without a start it sleeps on a condition variable, until it is woken.
//
// A blocking call with nothing else under way does not come here: its caller drives without saying so. Such a call
// would not notice a call of another thread. So it asks busy() first, which is also true once calls of this rank may
// overlap.
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

bool is_small(const gsel_collective& call);  // so that nobody overlaps it with anything

// Some calls, to be run together: messages in any order of arrival, collectives in order; or a task that is made of
// collectives. The engine does not touch it
// once it is done.
struct EngineRequest final : BackendRequest {
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
  const std::function<void()> task;    // instead of calls: what has its place among the collectives
  std::vector<Transfer> transfers;     // of its messages
  const bool is_open;                  // what its receives wait for may come from outside of the communicator
  uint64_t open;                       // calls that have not ended
  uint64_t collectives;                // of them
  std::optional<Error> failure;        // the first
  std::shared_ptr<Listener> listener;  // of its end; changed under the engine's lock
  std::atomic<bool> done{false};
  // Somebody waits for its end: the time of its messages runs from here on, so that one may be posted long before.
  std::atomic<bool> awaited{false};
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

  // One call, to its end.
  void call(const gsel_collective& given) {
    if (busy() || operating_.load(std::memory_order_relaxed)) return call_beside_others(given);
    make(given);
  }
  void group(std::span<const gsel_collective> calls);  // as gsel_group_run
  // The same asynchronously. promptly: small collectives begin now as well.
  std::unique_ptr<BackendRequest> start(std::span<const gsel_collective> calls, bool promptly, bool is_open = false);
  std::unique_ptr<BackendRequest> start(std::function<void()> task);
  void require_threads() const;  // for requests

  // Whether anything is under way, a driver still at work, or may come at any time.
  bool busy() const override { return busy_.load(std::memory_order_acquire); }
  bool blocks_caller() const override {
    return !on_thread_ || waiting_.load(std::memory_order_relaxed) > 0 ||
           lookers_.load(std::memory_order_relaxed) > 0 ||
           (running_ && running_->awaited.load(std::memory_order_relaxed));
  }
  bool under_way();
  // An operation of the caller's runs on this thread, in a collective of this engine.
  bool in_operation() const;
  // From now on other threads may come while a call is made; as often as this was said, until the other is.
  void allow_overlap();
  void end_overlap();

  // To have the rank to oneself: the collectives started before are done then, and no other thread runs any;
  // messages go on where this one waits. The engine's thread may sleep in the arena unless that is to change.
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

  void stop();  // once nothing is under way that does not end by itself
  void start(EngineRequest& request, bool promptly);
  void run(EngineRequest& request);  // start and wait; throws what failed
  void wait(EngineRequest& request);
  bool wait_for(EngineRequest& request, double seconds);  // whether it is done
  void tell(EngineRequest& request, const std::shared_ptr<Listener>& listener);
  bool cancel(EngineRequest& request);  // whether nobody had met it; it is done then
  // To the end, though nobody will ask for the result: a message that nobody has met in its time is cancelled.
  void wait_or_cancel(EngineRequest& request);

  // For the driver, at any point where it waits.
  bool has_news() const override { return news_.load(std::memory_order_seq_cst); }
  void admit();
  void end_call(EngineRequest& request, const Error* failure) noexcept override;
  bool go_on_beside() override {
    admit();
    return !mailbox_.is_empty() && mailbox_.progress();
  }
  void attend_beside() override {
    mailbox_.attend();
    if (outer_) outer_->attend();
  }
  const Outer* outer() const override { return outer_; }
  bool is_alone() const override { return mailbox_.is_empty(); }
  bool is_awaited(const EngineRequest& request) const override {
    return request.awaited.load(std::memory_order_relaxed);
  }

 private:
  struct Collective {
    EngineRequest* request;
    const gsel_collective* call;  // nullptr: the work's task
  };
  struct Cancel {
    EngineRequest* request;
    bool answered = false, cancelled = false;
  };
  class InOperation;
  void require_outside_operation() const;
  void make(const gsel_collective& given, bool grouped = false);
  void call_beside_others(const gsel_collective& given);
  void submit(EngineRequest& request);
  bool postpone(const EngineRequest& request);
  void begin_postponed() noexcept;
  bool look_once(EngineRequest& request);
  bool look_for(EngineRequest& request, double seconds);
  bool try_cancel(EngineRequest& request);
  bool cancel_collective(EngineRequest& request);

  // engine_thread.cc; each under the lock, or by the driver.
  void start_thread();
  void run_thread();
  void rest(std::unique_lock<std::mutex>& lock);
  void sleep_in_arena(std::unique_lock<std::mutex>& lock, uint32_t word, int64_t most_ns);
  void wake_thread() noexcept;
  void advance(std::unique_lock<std::mutex>& lock);  // as far as it goes; the thread hears of what comes next
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
  std::atomic<const char*> operating_{nullptr};  // the thread that runs a collective with an operation of the caller's
  std::atomic<int> waiting_{0};                  // size of waiters_ and turns_, for the driver
  std::atomic<int> turns_{0};                    // waited for; changed under the lock
  std::atomic<int> lookers_{0};                  // threads that wait for a while, and do not drive

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<EngineRequest*> inbox_;    // given, not looked at by the driver
  std::vector<Cancel*> cancels_;         // the same
  std::vector<EngineRequest*> waiters_;  // what others wait for and would drive
  uint64_t open_requests_ = 0;           // not done
  uint64_t queued_ = 0;                  // collectives not begun
  int overlaps_ = 0;
  bool driven_ = false;
  bool closing_ = false;
  std::thread thread_;
  bool asleep_ = false;               // the thread, in the arena
  std::atomic<bool> listens_{false};  // the rank, on behalf of the thread while it sleeps there
  bool recent_ = false;               // a message was started since the thread has begun to rest
  int awake_turns_ = 0;               // that may change the arena
  bool postponed_ = false;            // all collectives that have not begun are small, and nobody asks for them

  // The driver's.
  std::deque<Collective> queue_;
  const EngineRequest* running_ = nullptr;  // whose collective it is in
  bool on_thread_ = false;                  // the driver is the engine's thread
};

}  // namespace gsel::shm
