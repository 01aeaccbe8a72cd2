// comm/shm/wait/driver.h: the driver of a rank's calls as code that waits inside a call sees it. The engine implements
// it.
#pragma once

#include <atomic>
#include <string>

#include "base/error.h"
#include "comm/interface/backend.h"

namespace gsel::shm {

// A request as its messages know it.
struct DrivenRequest : BackendRequest {
  explicit DrivenRequest(bool messages_from_outside) : is_open(messages_from_outside) {}

  const bool is_open;  // messages may come from outside of the communicator
  // A caller waits for the end. The timeout of messages starts here, so that they may be posted long before.
  std::atomic<bool> awaited{false};
};

// Implemented by code that makes calls of this communicator as steps of its own calls.
class Outer {
 public:
  virtual void attend() noexcept = 0;         // called on the thread of a step that waits long, before each sleep
  virtual std::string call_text() const = 0;  // of the outer call of the current step; empty: it is no step

 protected:
  ~Outer() = default;
};

class Driver {
 public:
  // Called while a collective polls: advances other calls under way; whether any of them moved.
  virtual bool advance_other_calls() = 0;
  // Called before a collective sleeps: checks other calls for dead ranks and timeouts.
  virtual void check_other_calls() = 0;
  virtual bool is_alone() const = 0;       // nothing else is under way
  virtual const Outer* outer() const = 0;  // nullptr: calls are no steps
  // Whether other calls are under way or may start at any time.
  virtual bool busy() const = 0;
  // Whether a thread of the caller is blocked until the current call ends.
  virtual bool blocks_caller() const = 0;
  virtual bool has_news() const = 0;  // new calls: do not sleep
  virtual void end_call(DrivenRequest& request, const Error* failure) noexcept = 0;

 protected:
  ~Driver() = default;
};

}  // namespace gsel::shm
