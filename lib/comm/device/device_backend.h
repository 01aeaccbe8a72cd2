// comm/device/device_backend.h: the backend of a communicator with an accelerator: a stream, and a
// transport of the device or the way through host memory. The control link sees every call; a thread watches for what
// goes wrong after a call has returned, and then ends the transport's work. Arguments have been checked. Does not know
// how bytes travel.
#pragma once

#include <gsel/comm.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/os.h"
#include "comm/backend.h"
#include "comm/control.h"
#include "comm/device/accelerator.h"
#include "comm/device/memory_check.h"
#include "comm/device/through_host.h"

namespace gsel {

class DeviceBackend final : public Backend {
 public:
  // Of the ranks of a control; each of them makes one at the same time.
  DeviceBackend(std::shared_ptr<const Accelerator> accelerator, Control& control, const gsel_join& join);
  ~DeviceBackend() override;

  const std::shared_ptr<const Accelerator>& accelerator() const { return accelerator_; }
  gsel_stream* stream() const { return stream_; }
  void set_stream(void* native) override;

  void run(const gsel_collective& checked, gsel_stream* stream) override;
  void group(std::span<const gsel_collective> checked) override;
  std::unique_ptr<Pending> start(std::span<const gsel_collective> checked) override;
  void allow_overlap() override {}
  // Waits until the stream is empty; throws what failed, also while it waits.
  void synchronize() override;
  // Until the event is reached, or for so long; negative: to the end. Throws as synchronize does.
  bool wait(Event& reached, double seconds);
  void throw_async_error() override;
  gsel_comm_explanation explain(const gsel_collective& checked) override;

  void* alloc(uint64_t bytes) override;
  void free(void* memory) override;
  void register_memory(void* memory, uint64_t bytes) override;
  void unregister_memory(void* memory) override;

  // Several calls, of several communicators of this thread.
  struct Enqueued {
    DeviceBackend* link;
    gsel_collective call;
  };
  static void enqueue(std::span<const Enqueued> calls);
  // What a group does with a call: GSEL_ERR_ARG for memory of another kind; then it is either for `enqueue`, or staged
  // for the control link, and `fetch` follows, or `drop` where the calls failed.
  void check_memory(const gsel_collective& call);
  bool takes(const gsel_collective& checked) const;
  gsel_collective stage(const gsel_collective& checked);
  void fetch() { host_.fetch(stream_); }
  void drop() { host_.drop(); }

 private:
  struct Choice;
  void choose(const gsel_join& join);
  std::optional<Error> why_not(std::span<const Choice> all, const Choice& wanted) const;
  void join_transport(const gsel_join& join);
  static void announce(std::span<const Enqueued> calls);
  static void enqueue_together(std::span<const Enqueued> calls);
  static void describe_received(const gsel_collective& call);
  void refuse_untransported_message(const gsel_collective& call) const;
  template <class... Declared, class... Given>
  void call_table(gsel_status (*gsel_transport_v1::*function)(gsel_link*, Declared...), Given... args);
  void watch();
  void end_transport() noexcept;

  std::shared_ptr<const Accelerator> accelerator_;
  Control& control_;
  const uint64_t fork_generation_ = os::fork_generation();
  const gsel_transport_v1* table_ = nullptr;  // nullptr: through host memory
  gsel_link* link_ = nullptr;
  std::string reason_;  // of the choice
  gsel_stream* stream_ = nullptr;
  MemoryCheck memory_;
  ThroughHost host_;
  Event reached_;
  std::atomic_flag in_call_;
  std::atomic<bool> leaving_{false}, watching_done_{false};
  std::thread watching_;
};

}  // namespace gsel
