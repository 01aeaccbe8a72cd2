// comm/interface/backend.h: what moves the bytes of a communicator, for one kind of memory. The arguments of its calls
// have been checked. Does not know how a communicator found it.
#pragma once

#include <gsel/comm.h>
#include <gsel/device.h>

#include <cstdint>
#include <memory>
#include <span>

namespace gsel {

// Is told, on any thread, with locks held: it must be brief, and call nothing of what tells it.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void ended() noexcept = 0;
};

// Asynchronous calls; released once they have ended.
class BackendRequest {
 public:
  BackendRequest() = default;
  virtual ~BackendRequest() = default;
  BackendRequest(const BackendRequest&) = delete;
  BackendRequest& operator=(const BackendRequest&) = delete;
  // Whether they have ended, after at most so long; 0: a look, which does not begin the timeout of a message; negative:
  // to the end. Throws what failed.
  virtual bool wait(double seconds) = 0;
  // This thread is in an operation that runs before their end: a wait would be for itself.
  virtual bool waits_for_itself() const { return false; }
  // Has the listener told once they have ended, which may be at once; the time of a message runs from here on, as when
  // it is waited for. false: whoever wants to know must look.
  virtual bool tell(const std::shared_ptr<Listener>& listener) {
    static_cast<void>(listener);
    return false;
  }
  // Whether nobody had met the call; it has ended then. false where it goes on.
  virtual bool cancel() { return false; }
  // The device's own event that its stream has passed the call; nullptr: there is none.
  virtual void* event() { return nullptr; }
  // To the end, without its result; a message that nobody has met in its time is cancelled.
  virtual void wait_or_cancel() { wait(-1); }
};

// Messages of an ordered pair that a communicator takes before the first of them is received, and bytes of each: so far
// a send does not wait.
constexpr uint64_t kBufferedMessages = 4, kBufferedBytes = 4096;

class Backend {
 public:
  Backend() = default;
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // One call; a NULL stream is the calling thread, or the backend's own stream.
  virtual void run(const gsel_collective& checked, gsel_stream* stream) = 0;
  // Several together, as gsel_group_run makes those of one communicator; and the same asynchronously.
  virtual void group(std::span<const gsel_collective> checked) = 0;
  // promptly: they begin now, whether somebody waits for them or not.
  virtual std::unique_ptr<BackendRequest> start(std::span<const gsel_collective> checked, bool promptly = false) = 0;
  // From now on, other threads may run requests while a call is made.
  virtual void allow_overlap() = 0;
  // An operation of the caller's runs on this thread, in one of its calls.
  virtual bool in_operation() const { return false; }
  virtual gsel_comm_explanation explain(const gsel_collective& checked) = 0;

  // Memory that all ranks reach; see gsel_mem_alloc and the functions after it.
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
