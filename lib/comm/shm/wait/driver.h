// comm/shm/wait/driver.h: what runs the calls of a rank, as far as those have to know it who wait inside of one. The
// engine is one.
#pragma once

#include <string>

#include "base/error.h"

namespace gsel::shm {

struct EngineRequest;

// What makes calls of this communicator as steps of a call of its own, if anything does.
class Outer {
 public:
  virtual void attend() noexcept = 0;         // from a step that waits long, on its thread, before each of its sleeps
  virtual std::string call_text() const = 0;  // of the call, from one of its steps; empty: this is no step

 protected:
  ~Outer() = default;
};

class Driver {
 public:
  // In a collective, between two looks: what else is under way goes on; whether any of it moved.
  virtual bool go_on_beside() = 0;
  // The same before a sleep: are those alive that it waits for, and is there time left.
  virtual void attend_beside() = 0;
  virtual bool is_alone() const = 0;       // nothing else is under way
  virtual const Outer* outer() const = 0;  // nullptr: calls are the caller's own
  // Whether other calls are under way, or may come at any time.
  virtual bool busy() const = 0;
  // Whether a thread of the caller is blocked until what is done now has ended.
  virtual bool blocks_caller() const = 0;
  virtual bool is_awaited(const EngineRequest& request) const = 0;  // somebody waits for its end
  virtual bool has_news() const = 0;                                // something to look at before a sleep
  virtual void end_call(EngineRequest& request, const Error* failure) noexcept = 0;

 protected:
  ~Driver() = default;
};

}  // namespace gsel::shm
