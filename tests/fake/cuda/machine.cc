// fake/cuda/machine.cc: streams, events and the order of their work; see machine.h.
#include "machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace fake_cuda {
namespace {

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

}  // namespace

std::string setting(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value && *value ? value : otherwise;
}

int number_in(const char* name, int otherwise) {
  return atoi(setting(name, std::to_string(otherwise).c_str()).c_str());
}

Machine& Machine::get() {
  static Machine* const machine = new Machine;
  return *machine;
}

// A new thread knows what was waited for before it was made.
Clock& Machine::host() {
  thread_local Clock own = waited_;
  return setting("GSEL_FAKE_CUDA_CLOCKS", "") == "one" ? waited_ : own;
}

void Machine::has_waited(const Clock& clock) {
  host().merge(clock);
  waited_.merge(clock);
}

// ---- streams

Stream* Machine::make_stream(uintptr_t context) {
  const int id = next_stream_++;
  Stream& made = streams_[0x10000 + static_cast<uintptr_t>(id)];
  made.id = id;
  made.context = context;
  return &made;
}

bool Machine::is_default(const Stream& stream) const {
  const auto found = streams_.find(stream.context);
  return found != streams_.end() && &found->second == &stream;
}

Stream* Machine::stream(void* handle, uintptr_t context) {
  if (reinterpret_cast<uintptr_t>(handle) <= 2) {  // one for each context
    Stream& made = streams_[context];
    if (made.id == 0) made.id = next_stream_++;
    made.context = context;
    return &made;
  }
  for (auto& [known, stream] : streams_)
    if (&stream == handle) return stream.is_destroyed ? nullptr : &stream;
  return nullptr;
}

// Work that is still enqueued goes on.
void Machine::destroy_stream(Stream& stream) {
  stream.is_destroyed = true;
  if (stream.queue.empty()) gone_streams_.push_back(streams_.extract(0x10000 + static_cast<uintptr_t>(stream.id)));
}

// What still runs on its streams is lost.
void Machine::drop_context(uintptr_t context) {
  for (auto& [key, stream] : streams_) {
    if (stream.context != context) continue;
    if (!stream.queue.empty())
      violation("a context ends while " + stream.queue.front().name + " on stream " + std::to_string(stream.id) +
                " has not run");
    stream.queue.clear();
    stream.writes = 0;
    stream.is_destroyed = true;
  }
  for (auto& [begin, a] : allocations_)
    if (a.context == context && !a.pinned) a.freed = true;
}

void Machine::enqueue(Stream& stream, Operation operation) {
  const bool is_behind_late = !stream.queue.empty() && stream.queue.back().is_late;
  operation.is_late =
      is_behind_late || operation.awaits_word.at || (operation.awaits && operation.mark && operation.mark->is_late);
  stream.clock.merge(host());
  stream.clock.merge(stream.learned);
  operation.number = ++stream.enqueued;
  check_places(stream, operation);
  if (!operation.is_late) check_order(stream, operation, stream.clock);
  stream.clock.set(stream.id, operation.number);
  if (operation.is_late || operation.writes_word.at) operation.clock = stream.clock;
  if (operation.writes_word.at) {
    ++stream.writes;
    keep_writing();
  }
  stream.queue.push_back(std::move(operation));
}

void Machine::record(Stream& stream, Event& event) {
  Operation operation;
  operation.name = "the record of an event";
  operation.records = &event;
  operation.record = ++event.recorded;
  operation.mark = event.mark = std::make_shared<Mark>();
  enqueue(stream, std::move(operation));
  event.mark->is_late = stream.queue.back().is_late;
  event.clock = stream.clock;
}

// Of an event that was never recorded: nothing to wait for.
void Machine::await(Stream& stream, Event& event) {
  if (event.recorded == 0) return;
  Operation operation;
  operation.name = "the wait for an event";
  operation.awaits = &event;
  operation.record = event.recorded;
  operation.mark = event.mark;
  stream.clock.merge(event.clock);
  if (!event.mark->is_late) stream.clock.merge(event.mark->learned);
  enqueue(stream, std::move(operation));
}

// ---- order
// ------------------------------------------------------------------------------------------------------------

bool Machine::is_ready(const Stream& stream) const {
  if (stream.queue.empty()) return false;
  const Operation& head = stream.queue.front();
  if (head.joint) return head.joint->can_go();
  if (hangs(stream)) return false;
  if (head.awaits_word.at) return is_met(head.awaits_word);
  return !head.awaits || head.awaits->reached >= head.record;
}

bool Machine::hangs(const Stream& stream) const {
  return !is_released_ && !stream.queue.empty() && stream.queue.front().hangs;
}

void Machine::release() {
  is_released_ = true;
}

void Machine::run_head(Stream& stream) {
  if (const std::shared_ptr<Joint> joint = stream.queue.front().joint) {
    begin_late(stream, stream.queue.front());
    if (joint->go()) stream.queue.pop_front();
    return;
  }
  Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  learn(stream, operation);
  begin_late(stream, operation);
  if (operation.work) operation.work();
  if (operation.writes_word.at) {
    --stream.writes;
    operation.clock.merge(stream.learned);
    write(operation.writes_word, operation.clock);
  }
  if (operation.records) {
    operation.mark->is_late = false;
    operation.mark->learned = stream.learned;
    operation.records->reached = std::max(operation.records->reached, operation.record);
    operation.records->time_ns = now_ns();
  }
}

// The stream whose head must run next for the record to be reached; nullptr: there is none.
Stream* Machine::who_leads_to(const Event& event, uint64_t record, Seen& seen) {
  for (auto& [key, stream] : streams_)
    for (const Operation& operation : stream.queue)
      if (operation.records == &event && operation.record == record) return who_lets_go_on(stream, seen);
  return nullptr;
}

// The same for the head of a stream.
Stream* Machine::who_lets_go_on(Stream& stream, Seen& seen) {
  if (stream.queue.empty() || !seen.insert(&stream).second) return nullptr;
  if (is_ready(stream)) return &stream;
  const Operation& head = stream.queue.front();
  if (head.awaits) return who_leads_to(*head.awaits, head.record, seen);
  if (head.awaits_word.at) return who_writes(head.awaits_word, seen);
  if (!head.joint) return nullptr;
  for (Stream* other : head.joint->awaited())
    if (Stream* found = who_lets_go_on(*other, seen)) return found;
  return nullptr;
}

Stream* Machine::who_leads_to(const Event& event, uint64_t record) {
  Seen seen;
  return who_leads_to(event, record, seen);
}
Stream* Machine::who_lets_go_on(Stream& stream) {
  Seen seen;
  return who_lets_go_on(stream, seen);
}

// Whether some stream may go on once another thread or process has enqueued its part, or written a word.
bool Machine::waits_for_others() const {
  return std::ranges::any_of(streams_, [](const auto& entry) {
    const auto& queue = entry.second.queue;
    return !queue.empty() && (queue.front().joint || queue.front().awaits_word.at);
  });
}

Stream* Machine::pick(Stream* wanted) {
  const std::string order = setting("GSEL_FAKE_CUDA_ORDER", "least");
  std::vector<Stream*> ready;
  for (auto& [handle, stream] : streams_)
    if (is_ready(stream)) ready.push_back(&stream);
  if (ready.empty()) return nullptr;
  if (order == "random") return ready[random_() % ready.size()];
  if (order == "others") {
    for (Stream* stream : ready)
      if (stream != wanted) return stream;
    return wanted;
  }
  if (order == "newest") return *std::ranges::max_element(ready, {}, [](const Stream* s) { return s->id; });
  return wanted;
}

// Where a kernel hangs on the device of what is waited for, that is for good.
void Machine::run_until(uintptr_t context, const std::function<bool()>& done, const std::function<Stream*()>& wanted) {
  while (!done() && !ended_by) {
    if (Stream* stream = pick(wanted())) {
      run_head(*stream);
    } else if (std::ranges::any_of(streams_,
                                   [&](const auto& s) { return s.second.context == context && hangs(s.second); })) {
      fprintf(stderr, "fake cuda: a call waits without an end for a device on which a kernel does not end\n");
      fflush(nullptr);
      abort();
    } else if (waits_for_others()) {
      mutex_.unlock();
      usleep(50);
      mutex_.lock();
    } else {
      violation("a wait that nothing will end: an event waits for work that was never enqueued");
      return;
    }
  }
}

void Machine::finish(Stream& stream) {
  run_until(
      stream.context, [&] { return stream.queue.empty(); }, [&] { return who_lets_go_on(stream); });
  has_waited(stream.clock);
  has_waited(stream.learned);
}

void Machine::finish_device(uintptr_t context) {
  for (auto& [key, stream] : streams_)
    if (stream.context == context) finish(stream);
}

void Machine::finish(Event& event) {
  const uint64_t record = event.recorded;
  const std::shared_ptr<Mark> mark = event.mark;
  run_until(
      event.context, [&] { return event.reached >= record; }, [&] { return who_leads_to(event, record); });
  has_waited(event.clock);
  if (mark) has_waited(mark->learned);
}

// Work goes on a little at each look, or nobody who looks would ever see the end.
bool Machine::look(Event& event, int most) {
  for (int turn = 0; turn < most && event.reached < event.recorded; ++turn) {
    Stream* stream = pick(who_leads_to(event, event.recorded));
    if (!stream) break;
    run_head(*stream);
  }
  if (event.reached < event.recorded) return false;
  has_waited(event.clock);
  if (event.mark) has_waited(event.mark->learned);
  return true;
}

bool Machine::look(Stream& stream, int most) {
  for (int turn = 0; turn < most && nudge(&stream); ++turn) {
  }
  if (!stream.queue.empty()) return false;
  has_waited(stream.clock);
  has_waited(stream.learned);
  return true;
}

int Machine::unfinished(const std::string& begin) const {
  int n = 0;
  for (const auto& [number, stream] : streams_)
    n += static_cast<int>(std::ranges::count_if(
        stream.queue, [&](const Operation& operation) { return operation.name.starts_with(begin); }));
  return n;
}

bool Machine::nudge(Stream* stream) {
  Stream* next = pick(who_lets_go_on(*stream));
  if (!next) return false;
  run_head(*next);
  return true;
}

// ---- violations
// ---------------------------------------------------------------------------------------------------------

void Machine::violation(const std::string& text) {
  violations_.push_back(text);
  fprintf(stderr, "fake cuda: %s\n", text.c_str());
}

std::string Machine::take_violation() {
  return reported_ < violations_.size() ? violations_[reported_++] : std::string();
}

}  // namespace fake_cuda
