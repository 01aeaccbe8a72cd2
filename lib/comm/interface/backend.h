// comm/interface/backend.h: the interface of a backend, which moves the bytes of a communicator for one kind of memory.
// The arguments of its calls have been checked. Does not know how a communicator found it.
#pragma once

#include <gsel/comm.h>
#include <gsel/device.h>

#include <cstdint>
#include <memory>
#include <span>

namespace gsel {

// ended() is called on any thread, with locks held: it must be brief and must not call back into its caller.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void ended() noexcept = 0;
};

// One or several asynchronous calls. Released after they have ended.
class BackendRequest {
 public:
  BackendRequest() = default;
  virtual ~BackendRequest() = default;
  BackendRequest(const BackendRequest&) = delete;
  BackendRequest& operator=(const BackendRequest&) = delete;
  // Waits at most `seconds` and returns whether the calls have ended. 0 polls and does not start the timeout of a
  // message; a negative value waits until the end. Throws the failure of a call.
  virtual bool wait(double seconds) = 0;
  // This thread runs a caller's operation that must return before the calls can end: a wait would deadlock.
  virtual bool waits_for_itself() const { return false; }
  // Notifies the listener when the calls end, possibly before this returns. Starts the timeout of a message, as a wait
  // does. false: not supported, poll instead.
  virtual bool tell(const std::shared_ptr<Listener>& listener) {
    static_cast<void>(listener);
    return false;
  }
  // Cancels the call if no peer has matched it, and returns whether it did; a cancelled call has ended.
  virtual bool cancel() { return false; }
  // The native device event recorded after the call; nullptr: none.
  virtual void* event() { return nullptr; }
  // Waits until the end and discards the result. A message that no peer matches before its timeout is cancelled.
  virtual void wait_or_cancel() { wait(-1); }
};

// Eager limits for messages from one rank to another: a send does not wait for its receive while at most this many
// messages are unreceived and each has at most this many bytes.
constexpr uint64_t kBufferedMessages = 4, kBufferedBytes = 4096;

class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Makes one call. With a NULL stream it runs on the calling thread, or on the backend's own stream.
  virtual void run(const gsel_collective& checked, gsel_stream* stream) = 0;
  // Makes several calls together, as gsel_group_run does for one communicator. start() does the same asynchronously.
  virtual void group(std::span<const gsel_collective> checked) = 0;
  // promptly: the calls begin now, even while nobody waits for them.
  virtual std::unique_ptr<BackendRequest> start(std::span<const gsel_collective> checked, bool promptly = false) = 0;
  // From now on other threads may run requests during a call.
  virtual void allow_overlap() = 0;
  // Whether this thread runs a caller's reduction operation inside a call of this backend.
  virtual bool in_operation() const { return false; }
  virtual gsel_comm_explanation explain(const gsel_collective& checked) = 0;

  // Memory that all ranks can access; see gsel_mem_alloc and the functions after it.
  virtual void* alloc(uint64_t bytes) = 0;
  virtual void free(void* memory) = 0;
  virtual void register_memory(void* memory, uint64_t bytes) = 0;
  virtual void unregister_memory(void* memory) = 0;

  // See gsel_comm_set_stream, gsel_comm_synchronize and gsel_comm_get_async_error.
  virtual void set_stream(void* native) = 0;
  virtual void synchronize() = 0;
  virtual void throw_async_error() = 0;
};

}  // namespace gsel
