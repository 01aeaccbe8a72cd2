// fake/cuda/machine.cc: see machine.h.
#include "machine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace fake_cuda {
namespace {

constexpr uint64_t kArena = uint64_t{4} << 30;
constexpr uint64_t kAlignment = 512, kGuard = 4096;
constexpr int kHost = 0;

std::string setting(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value ? value : otherwise;
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

void merge(Clock& into, const Clock& from) {
  for (const auto& [stream, number] : from) into[stream] = std::max(into[stream], number);
}

uintptr_t the_arena;
struct sigaction earlier;

// Only what a handler may do.
void report_host_access(int number, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (the_arena && address >= the_arena && address < the_arena + kArena) {
    static const char text[] = "fake cuda: the host touched device memory\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
  }
  if (earlier.sa_flags & SA_SIGINFO && earlier.sa_sigaction) return earlier.sa_sigaction(number, info, context);
  signal(number, SIG_DFL);
}

// Device memory is open while work runs.
class Opened {
 public:
  explicit Opened(uintptr_t arena) : arena_(arena) {
    mprotect(reinterpret_cast<void*>(arena_), kArena, PROT_READ | PROT_WRITE);
  }
  ~Opened() { mprotect(reinterpret_cast<void*>(arena_), kArena, PROT_NONE); }

 private:
  uintptr_t arena_;
};

}  // namespace

Machine& Machine::get() {
  static Machine* const machine = new Machine;
  return *machine;
}

Machine::Machine() : random_(static_cast<uint64_t>(atoll(setting("GSEL_FAKE_CUDA_SEED", "1").c_str()))) {
  void* arena = mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) abort();
  arena_ = the_arena = reinterpret_cast<uintptr_t>(arena);
  struct sigaction action {};
  action.sa_sigaction = report_host_access;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &earlier);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

uintptr_t Machine::alloc(uint64_t bytes, uintptr_t context) {
  ++allocations;
  if (allocations == atoi(setting("GSEL_FAKE_CUDA_OOM", "0").c_str())) return 0;
  if (bytes > free_bytes()) return 0;
  const uintptr_t begin = arena_ + used_;
  const Opened opened(arena_);
  memset(reinterpret_cast<void*>(begin), 0xff, bytes);
  used_ += (bytes + kGuard + kAlignment - 1) / kAlignment * kAlignment;
  Allocation& made = allocations_[begin];
  made.begin = begin;
  made.end = begin + bytes;
  made.number = allocations;
  made.context = context;
  return begin;
}

void* Machine::alloc_pinned(uint64_t bytes) {
  void* memory = aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (!memory) return nullptr;
  memset(memory, 0xff, bytes);
  Allocation& made = allocations_[reinterpret_cast<uintptr_t>(memory)];
  made = {};
  made.begin = reinterpret_cast<uintptr_t>(memory);
  made.end = made.begin + bytes;
  made.pinned = true;
  made.number = ++allocations;
  return memory;
}

// The address is never given out again; the pages are.
bool Machine::free(uintptr_t address) {
  const auto at = allocations_.find(address);
  if (at == allocations_.end() || at->second.freed) return false;
  Allocation& a = at->second;
  for (const auto& [handle, stream] : streams_)
    for (const Operation& operation : stream.queue)
      for (const Access& access : operation.accesses)
        if (access.begin < a.end && a.begin < access.end)
          violation("allocation " + std::to_string(a.number) + " is freed while " + operation.name + " on stream " +
                    std::to_string(stream.id) + " has not run");
  if (a.pinned) {
    ::free(reinterpret_cast<void*>(a.begin));
    allocations_.erase(at);
    return true;
  }
  const uintptr_t first = (a.begin + 4095) & ~uintptr_t{4095}, last = a.end & ~uintptr_t{4095};
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  a.freed = true;
  a.past.clear();
  return true;
}

const Allocation* Machine::find(uintptr_t address) const {
  auto at = allocations_.upper_bound(address);
  if (at == allocations_.begin()) return nullptr;
  --at;
  return address < at->second.end ? &at->second : nullptr;
}

uint64_t Machine::free_bytes() const {
  return kArena - used_ > kGuard ? kArena - used_ - kGuard : 0;
}

// ---- streams
// ----------------------------------------------------------------------------------------------------------

Stream* Machine::make_stream(uintptr_t context) {
  const int id = next_stream_++;
  Stream& made = streams_[0x10000 + static_cast<uintptr_t>(id)];
  made.id = id;
  made.context = context;
  return &made;
}

Stream* Machine::stream(void* handle, uintptr_t context) {
  if (reinterpret_cast<uintptr_t>(handle) <= 2) {
    Stream& made = streams_[context];
    if (made.id == 0) made.id = next_stream_++;
    made.context = context;
    return &made;
  }
  for (auto& [known, stream] : streams_)
    if (&stream == handle) return &stream;
  return nullptr;
}

void Machine::drop_stream(Stream* stream) {
  finish(*stream);
  for (auto at = streams_.begin(); at != streams_.end(); ++at)
    if (&at->second == stream) {
      streams_.erase(at);
      return;
    }
}

void Machine::enqueue(Stream& stream, Operation operation) {
  merge(stream.clock, host_);
  const uint64_t number = ++stream.enqueued;
  check_access(stream, stream.clock, number, operation);
  stream.clock[stream.id] = number;
  stream.queue.push_back(std::move(operation));
}

void Machine::record(Stream& stream, Event& event) {
  Operation operation;
  operation.name = "the record of an event";
  operation.records = &event;
  operation.record = ++event.recorded;
  enqueue(stream, std::move(operation));
  event.clock = stream.clock;
}

// Of an event that was never recorded: nothing to wait for.
void Machine::await(Stream& stream, Event& event) {
  if (event.recorded == 0) return;
  Operation operation;
  operation.name = "the wait for an event";
  operation.awaits = &event;
  operation.record = event.recorded;
  merge(stream.clock, event.clock);
  enqueue(stream, std::move(operation));
}

// ---- order
// ------------------------------------------------------------------------------------------------------------

bool Machine::is_ready(const Stream& stream) const {
  if (stream.queue.empty()) return false;
  const Operation& head = stream.queue.front();
  if (head.joint) return head.joint->can_go();
  return !head.awaits || head.awaits->reached >= head.record;
}

void Machine::run_head(Stream& stream) {
  if (const std::shared_ptr<Joint> joint = stream.queue.front().joint) {
    if (joint->go()) stream.queue.pop_front();
    return;
  }
  const Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (operation.work) operation.work();
  if (operation.records) {
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

// Whether some stream may go on once another thread or process has enqueued its part.
bool Machine::waits_for_others() const {
  return std::ranges::any_of(
      streams_, [](const auto& entry) { return !entry.second.queue.empty() && entry.second.queue.front().joint; });
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

void Machine::run_until(const std::function<bool()>& done, const std::function<Stream*()>& wanted) {
  std::unique_ptr<Opened> opened;
  while (!done()) {
    if (Stream* stream = pick(wanted())) {
      if (!opened) opened = std::make_unique<Opened>(arena_);
      run_head(*stream);
    } else if (waits_for_others()) {
      opened.reset();
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
  run_until([&] { return stream.queue.empty(); }, [&] { return who_lets_go_on(stream); });
  merge(host_, stream.clock);
}

void Machine::finish(Event& event) {
  const uint64_t record = event.recorded;
  run_until([&] { return event.reached >= record; }, [&] { return who_leads_to(event, record); });
  merge(host_, event.clock);
}

// Work goes on a little at each look, or nobody who looks would ever see the end.
bool Machine::look(Event& event) {
  if (event.reached < event.recorded) {
    const Opened opened(arena_);
    if (Stream* stream = pick(who_leads_to(event, event.recorded))) run_head(*stream);
  }
  if (event.reached < event.recorded) return false;
  merge(host_, event.clock);
  return true;
}

bool Machine::nudge(Stream* stream) {
  Stream* next = pick(who_lets_go_on(*stream));
  if (!next) return false;
  const Opened opened(arena_);
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

void Machine::check_access(const Stream& stream, const Clock& clock, uint64_t number, const Operation& operation) {
  for (const Access& access : operation.accesses) {
    if (access.begin == access.end) continue;
    auto at = allocations_.upper_bound(access.begin);
    const bool is_known = at != allocations_.begin() && (--at, access.begin < at->second.end);
    if (!is_known) {  // other memory of the host, which only copies may touch
      if (access.begin >= arena_ && access.begin < arena_ + kArena)
        violation(operation.name + " on stream " + std::to_string(stream.id) +
                  " touches device memory that is not allocated");
      continue;
    }
    Allocation& a = at->second;
    if (a.freed) violation(operation.name + " on stream " + std::to_string(stream.id) + " touches freed memory");
    if (access.end > a.end)
      violation(operation.name + " on stream " + std::to_string(stream.id) + " goes " +
                std::to_string(access.end - a.end) + " bytes past the end of allocation " + std::to_string(a.number));
    std::erase_if(a.past, [&](const Allocation::Past& past) {
      const bool overlaps = past.access.begin < access.end && access.begin < past.access.end;
      if (!overlaps) return false;
      const auto known = clock.find(past.stream);
      const bool ordered = past.stream == stream.id || (known != clock.end() && known->second >= past.number);
      if (!ordered && (past.access.writes || access.writes))
        violation("no event orders " + past.name + " on stream " + std::to_string(past.stream) + " (" +
                  (past.access.writes ? "writes" : "reads") + ") and " + operation.name + " on stream " +
                  std::to_string(stream.id) + " (" + (access.writes ? "writes" : "reads") + ") in allocation " +
                  std::to_string(a.number));
      return ordered && access.writes && access.begin <= past.access.begin && past.access.end <= access.end;
    });
    a.past.push_back({access, stream.id, number, operation.name});
  }
}

}  // namespace fake_cuda
