// fake/cuda/callbacks.h: what a callback of a trainer may do. A test says when a callback of the program begins and
// ends and what it is lent; in between, calls that wait for the device or free what is lent are violations, and so is
// work on lent memory that its call's stream does not wait for. Afterwards, what was lent is no longer the program's.
// Calls of the plugin, which asks for functions by cuGetProcAddress, are the library's; others are the program's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "machine.h"

namespace fake_cuda {

struct Callback {
  int number = 0;
  std::string name;  // "layer "fc1" forward"
  Stream* stream = nullptr;
  struct Work {
    const Stream* stream;
    uint64_t number;
    std::string name;
  };
  std::vector<Work> elsewhere;  // on lent memory, on other streams
};

// Of this thread.
struct CallbackState {
  std::unique_ptr<Callback> callback;
  bool is_library = false;
};
CallbackState& callback_state();
// Whether a violation of this call is the error of the library's next call, and not the program's: tests watch
// callbacks.
bool is_left_to_library();

// Before a call that waits for the device, or may.
void look_at_wait(Machine& machine, const char* call);
// False: the memory is lent, and is not freed.
bool look_at_free(Machine& machine, uintptr_t address);
// Looks at work of the program or the library, and adds to its name whose it is. Whether a callback works on lent
// memory.
bool watch(Machine& machine, const Stream& stream, Operation& operation);
// Enqueues such work.
void enqueue_watched(Machine& machine, Stream& stream, Operation operation);

// A call of the library in this scope.
class OfLibrary {
 public:
  OfLibrary() : was_(callback_state().is_library) { callback_state().is_library = true; }
  ~OfLibrary() { callback_state().is_library = was_; }
  OfLibrary(const OfLibrary&) = delete;
  OfLibrary& operator=(const OfLibrary&) = delete;

 private:
  const bool was_;
};

}  // namespace fake_cuda
