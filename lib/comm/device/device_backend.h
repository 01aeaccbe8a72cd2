// comm/device/device_backend.h: the backend of a communicator with an accelerator: enqueues calls on streams, over a
// transport of the device or through host memory (device_calls.cc). Announces every call to the control. A thread
// watches for failures after a call has returned, and then aborts the transport's work. Arguments have been checked.
// Does not know how bytes travel.
#pragma once

#include <gsel/comm.h>

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/os.h"
#include "comm/device/accelerator.h"
#include "comm/device/call_clock.h"
#include "comm/device/through_host.h"
#include "comm/interface/backend.h"
#include "comm/interface/control.h"

namespace gsel {

class DeviceBackend final : public Backend {
 public:
  struct Options {
    double timeout_s, join_timeout_s;
    uint32_t flags;  // GSEL_COMM_*
  };
  // Collective over the ranks of the control.
  DeviceBackend(std::shared_ptr<const Accelerator> accelerator, Control& control, const Options& options);
  ~DeviceBackend() override;

  const std::shared_ptr<const Accelerator>& accelerator() const { return accelerator_; }
  void set_stream(void* native) override;
  void set_timeout(double seconds) { timeout_s_ = seconds; }

  void run(const gsel_collective& checked, gsel_stream* stream) override;
  void group(std::span<const gsel_collective> checked) override;
  // Several calls on a stream of the library's: one group of the transport, in which they go on beside each other.
  void run_together(std::span<const gsel_collective> checked, gsel_stream* stream);
  std::unique_ptr<BackendRequest> start(std::span<const gsel_collective> checked, bool promptly = false) override;
  void allow_overlap() override {}
  bool in_operation() const override { return control_.host().in_operation(); }
  // Waits until the stream is empty; throws a failure even before that.
  void synchronize() override;
  // Waits at most `seconds` until the event is reached and returns whether it is; negative: no limit. Throws as
  // synchronize does.
  bool wait(Event& reached, double seconds) { return wait(reached, seconds, nullptr); }
  void throw_async_error() override;
  // Whether the device is in a call of the transport, whose end has a timeout. Any thread.
  bool is_in_call() { return link_ && clock_.is_in_call(); }
  // From here on, until forget_word, a number in page-locked memory that becomes NaN before the work of the broken
  // communicator is ended: kernels behind that work see that its results are undefined.
  void mark_end_at(double* word);
  void forget_word(double* word) noexcept;
  // Why calls of the library's own streams are not captured; empty: they are.
  std::string why_not_captured() const;
  // Bounds waits for the stream before a call goes through host memory. nullptr: they have the call's timeout, which
  // breaks the communicator. From the thread that makes calls.
  void observe_waits(WaitObserver* observer) noexcept { observer_ = observer; }
  gsel_comm_explanation explain(const gsel_collective& checked) override;

  void* alloc(uint64_t bytes) override;
  void free(void* memory) override;
  void register_memory(void* memory, uint64_t bytes) override;
  void unregister_memory(void* memory) override;

  // For groups. check: GSEL_ERR_ARG for memory of another kind. supports: the transport makes the call.
  void check(const gsel_collective& call);
  bool supports(const gsel_collective& checked) const;
  // Supported calls, possibly of several communicators of this thread.
  struct Enqueued {
    DeviceBackend* backend;
    gsel_collective call;
    CallStream stream;
  };
  static void enqueue(std::span<const Enqueued> calls);
  // Unsupported calls: stage announces them and copies to host memory; the host backend makes them; fetch copies back.
  StagedCalls stage(std::span<const ThroughHost::Call> checked);
  void fetch(StagedCalls staged) { host_.fetch(std::move(staged)); }
  // The stream of a checked call.
  CallStream stream_of(const gsel_collective& call) const { return call.stream ? imported(call.stream) : stream_; }

 private:
  static constexpr int64_t kCauseNs = 1'000'000'000;  // wait for the control to notice a death

  bool wait(Event& reached, double seconds, WaitObserver* observer);
  void wait_before(const gsel_collective& call, Event& reached);
  double timeout_s(const gsel_collective& call) const {
    return call.timeout_s > 0 ? call.timeout_s : timeout_s_.load();
  }
  static void announce(std::span<const Enqueued> calls);
  // stream: of the library's; nullptr: the program orders its calls itself.
  void enqueue_in_order(std::span<const Enqueued> calls, gsel_stream* stream) const;
  static void enqueue_together(std::span<const Enqueued> calls);
  static void describe_received(const gsel_collective& call);
  void announce(const gsel_collective& call) const;
  RegisteredPlace place_of(const gsel_collective& call) const;
  uint64_t place_of(const void* memory, uint64_t bytes) const;
  void note_link();
  void refuse_message_of_host(const gsel_collective& call) const;
  void warn_of_host(const gsel_collective& call);
  CallStream imported(void* native) const;
  CallStream stream_of(const gsel_collective& call, gsel_stream* given) const;
  void watch();
  void end_work() noexcept;
  void look_for_failures();
  void await_cause(const Error& error) const;
  Error with_device(const Error& error) const;
  void drain() noexcept;
  void finish_calls() noexcept;
  bool falls_back(const Error& error) const;
  void require(const char* function) const { require_own_process(fork_generation_, function); }

  std::shared_ptr<const Accelerator> accelerator_;
  Control& control_;
  const uint64_t fork_generation_ = os::fork_generation();
  const uint32_t flags_;
  std::atomic<double> timeout_s_;
  Agreement agreement_;
  std::list<std::string> reasons_;       // of the transport, with its notes so far; the last counts
  std::shared_ptr<TransportLink> link_;  // nullptr: through host memory
  CallStream stream_;                    // nullptr: the device's default stream
  CallClock clock_;
  ThroughHost host_;
  WaitObserver* observer_ = nullptr;
  Event reached_;
  struct Window {
    gsel_window* handle;
    uint64_t bytes;
    uint64_t number;  // of the registrations, from 1; the same on all ranks
  };
  std::map<const void*, Window> windows_;  // by start address
  uint64_t registrations_ = 0;             // so far
  bool warned_of_host_ = false;
  std::mutex words_mutex_;
  std::vector<double*> words_;  // of mark_end_at
  std::atomic_flag in_call_;
  std::atomic<bool> leaving_{false};
  std::thread watching_;
};

}  // namespace gsel
