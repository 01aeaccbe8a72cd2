// fake/cuda/callbacks.cc: see callbacks.h.
#include "callbacks.h"

#include "driver.h"

using namespace fake_cuda;

namespace fake_cuda {
namespace {

// Memory that was lent since it was allocated.
struct Lent {
  uintptr_t end;
  std::string to;  // name and number of the last callback that had it
  int number;
  bool is_lent;  // now
};
std::map<uintptr_t, Lent>& all_lent() {
  static auto* const all = new std::map<uintptr_t, Lent>;  // by begin; what overlaps is replaced
  return *all;
}

bool watches = false;  // a callback has begun

const Lent* find_lent(uintptr_t begin, uintptr_t end) {
  for (const auto& [from, lent] : all_lent())
    if (from < end && begin < lent.end) return &lent;
  return nullptr;
}

// To this callback.
bool is_lent_to(const Callback* callback, uintptr_t begin, uintptr_t end) {
  for (const auto& [from, lent] : all_lent())
    if (callback && lent.is_lent && lent.number == callback->number && from <= begin && end <= lent.end) return true;
  return false;
}

}  // namespace

CallbackState& callback_state() {
  thread_local CallbackState state;
  return state;
}

bool is_left_to_library() {
  return watches && !callback_state().is_library;
}

void look_at_wait(Machine& machine, const char* call) {
  const CallbackState& state = callback_state();
  if (state.callback && !state.is_library)
    machine.violation(state.callback->name + " calls " + call +
                      ", which may wait for the device; a callback only enqueues");
}

bool look_at_free(Machine& machine, uintptr_t address) {
  const CallbackState& state = callback_state();
  const Allocation* a = machine.find(address);
  if (!a) return true;
  const Lent* lent = find_lent(a->begin, a->end);
  if (lent && !state.is_library) {
    const std::string who = state.callback ? state.callback->name : "the program";
    machine.violation(who + " frees allocation " + std::to_string(a->number) + ", of which memory was lent to " +
                      lent->to);
    return false;
  }
  std::erase_if(all_lent(), [&](const auto& entry) { return entry.first < a->end && a->begin < entry.second.end; });
  return true;
}

bool watch(Machine& machine, const Stream& stream, Operation& operation) {
  const CallbackState& state = callback_state();
  if (state.is_library || (!state.callback && all_lent().empty())) return false;
  if (state.callback) operation.name += " of " + state.callback->name;
  bool is_lent = false;
  for (const Access& access : operation.accesses) {
    const Lent* lent = find_lent(access.begin, access.end);
    if (!lent) continue;
    is_lent = true;
    if (!is_lent_to(state.callback.get(), access.begin, access.end))
      machine.violation(operation.name + " on stream " + std::to_string(stream.id) +
                        " touches memory that was lent to " + lent->to +
                        ", which has returned; a callback enqueues all its work before it returns");
  }
  return state.callback && is_lent;
}

void enqueue_watched(Machine& machine, Stream& stream, Operation operation) {
  const bool is_lent = watch(machine, stream, operation);
  const std::string name = operation.name;
  machine.enqueue(stream, std::move(operation));
  const CallbackState& state = callback_state();
  if (is_lent && &stream != state.callback->stream)
    state.callback->elsewhere.push_back({&stream, stream.enqueued, name});
}

}  // namespace fake_cuda

// ---- what tests tell ------------------------------------------------------------------------------------------------

// A callback of the program begins on this thread. stream: its call's.
EXPORT void fake_cuda_callback_begin(const char* name, Any stream) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex());
  auto callback = std::make_unique<Callback>();
  watches = true;
  static int number = 0;
  callback->number = ++number;
  callback->name = name;
  callback->stream = static_cast<Stream*>(stream);
  callback_state().callback = std::move(callback);
}

// It is lent so many bytes.
EXPORT void fake_cuda_callback_lend(const void* memory, size_t bytes) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex());
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  if (!begin || bytes == 0) return;
  const uintptr_t end = begin + bytes;
  std::erase_if(all_lent(), [&](const auto& entry) {
    return !entry.second.is_lent && entry.first < end && begin < entry.second.end;
  });
  Lent& lent = all_lent()[begin];
  const Callback& callback = *callback_state().callback;
  lent = {std::max(end, lent.end), callback.name, callback.number, true};
}

EXPORT void fake_cuda_callback_end() {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex());
  const std::unique_ptr<Callback> callback = std::move(callback_state().callback);
  for (const Callback::Work& work : callback->elsewhere)
    if (callback->stream->clock.of(work.stream->id) < work.number)
      machine.violation(callback->name + " returns and its stream does not wait for " + work.name + " on stream " +
                        std::to_string(work.stream->id) + "; wait for an event behind it");
  for (auto& [begin, lent] : all_lent())
    if (lent.number == callback->number) lent.is_lent = false;
}
