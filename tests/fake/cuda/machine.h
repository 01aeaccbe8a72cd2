// fake/cuda/machine.h: a test double of GPUs with their driver, for machines without them. Nothing that is enqueued
// runs before somebody must wait for it, and then in an order that streams and events allow but nobody would expect.
// Only work can touch device memory; new memory reads as NaN; and two accesses that no event orders are a violation
// even where the result is right. What a thread of the host has waited for orders what that thread enqueues, and no
// other's.
//
// The environment says what this machine is like, read at each call:
//   GSEL_FAKE_CUDA_ORDER   least (only what a wait needs; the default), random, others (everything else first), newest
//   GSEL_FAKE_CUDA_SEED    of `random`
//   GSEL_FAKE_CUDA_DEVICES how many devices there are: 4; at most 8
//   GSEL_FAKE_CUDA_MIG     CARD:INSTANCE,INSTANCE, by uuid: one card that is divided. A process sees the first instance
//                          that CUDA_VISIBLE_DEVICES names when the driver is first asked, or of all
//   GSEL_FAKE_CUDA_MIG_SHOWS  how many of these instances a process sees: 1
//   GSEL_FAKE_CUDA_HOST    a number: devices of another host have other identities
//   GSEL_FAKE_CUDA_DRIVER  version, such as 12020
//   GSEL_FAKE_CUDA_LACKS   names that the driver does not have, separated by commas; "name(9020)" in that version;
//                          "attribute92": attribute 92 is 0
//   GSEL_FAKE_CUDA_OOM     number of the allocation that finds no memory, from 1
//   GSEL_FAKE_CUDA_STICKY  number of the kernel launch that ends CUDA in this process, from 1; "2:710" with that error
//   GSEL_FAKE_CUDA_HANGS   a kernel that never ends, at its first launch; "name:2" at its second. A call that waits for
//                          it without an end ends the process. fake_cuda_release lets such kernels end
//   GSEL_FAKE_CUDA_EXCLUSIVE  devices are in compute mode EXCLUSIVE_PROCESS: a folder, where a process that holds one
//                          has a lock
//   GSEL_FAKE_CUDA_IMAGE   error of loading kernels: 209 (no image for this GPU), 222 (PTX newer than the driver)
//   GSEL_FAKE_CUDA_REUSE   1: freed addresses are given out again, the last one first
//   GSEL_FAKE_CUDA_PEERS   none: no device reaches another one's memory
//   GSEL_FAKE_CUDA_CLOCKS  one: what one thread has waited for orders what all of them enqueue
//
// Words that streams write and wait for order the two within this process. Other processes and the host may write them
// as well, which orders nothing here; and since they may wait for them, a write that is enqueued runs after a while.
//
// Not modelled: the host's own accesses to page-locked memory, managed memory, pools, peer access of cuMemAlloc memory
// (all devices have it), IPC of events and of cuMemAlloc memory, races between processes, several contexts of one
// device, time. captures.h has what is not modelled of graphs.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace fake_cuda {

constexpr int kMostDevices = 8;

std::string setting(const char* name, const char* otherwise);
int number_in(const char* name, int otherwise);

inline int device_count() {
  return std::clamp(number_in("GSEL_FAKE_CUDA_DEVICES", 4), 1, kMostDevices);
}

// By stream, the last operation that comes before; 0: none.
class Clock {
 public:
  uint64_t of(int stream) const {
    return static_cast<size_t>(stream) < last_.size() ? last_[static_cast<size_t>(stream)] : 0;
  }
  void set(int stream, uint64_t number) {
    make_room(static_cast<size_t>(stream) + 1);
    last_[static_cast<size_t>(stream)] = number;
  }
  void merge(const Clock& from) {
    make_room(from.last_.size());
    for (size_t i = 0; i < from.last_.size(); ++i) last_[i] = std::max(last_[i], from.last_[i]);
  }

 private:
  void make_room(size_t streams) {
    if (last_.size() < streams) last_.resize(streams);
  }
  std::vector<uint64_t> last_;
};

struct Access {
  uintptr_t begin, end;
  bool writes;
  bool is_atomic = false;  // two such never race
};

// What a record of an event passes on beyond the clock that its stream had then: what its stream has learned from words
// when the record runs.
struct Mark {
  bool is_late = false;  // it has not run, and waits for words come before it
  Clock learned;
};

struct Event {
  uintptr_t context = 0;
  Clock clock;                         // of the last record
  std::shared_ptr<Mark> mark;          // of the last record
  uint64_t recorded = 0, reached = 0;  // number of records enqueued, and passed
  int64_t time_ns = 0;
  bool is_destroyed = false;
  int capture = 0;  // that the last record went into; 0: none
};

struct Stream;

// Work that several streams do together, such as a collective. At the head of its stream it goes on as far as the
// others let it.
struct Joint {
  virtual ~Joint() = default;
  virtual bool can_go() const = 0;
  virtual bool go() = 0;                             // whether it has ended
  virtual std::vector<Stream*> awaited() const = 0;  // streams that have such work further back
};

// A word of memory that a stream writes, or waits for.
struct Word {
  uintptr_t at = 0;  // 0: none
  uint32_t value = 0;
  int condition = 0;  // of the wait
  bool is_met(uint32_t found) const;
};

// Work behind a wait for a word is late: only when it runs is it known what comes before it.
struct Operation {
  std::string name;
  std::function<void()> work;
  std::vector<Access> accesses;
  Event* records = nullptr;
  Event* awaits = nullptr;
  uint64_t record = 0;         // that is recorded or awaited
  std::shared_ptr<Mark> mark;  // of that record
  Word writes_word, awaits_word;
  std::shared_ptr<Joint> joint;
  bool is_kernel = false;  // of cuLaunchKernel
  bool hangs = false;      // until all such work is released
  uint64_t number = 0;     // in its stream
  bool is_late = false;
  Clock clock;  // when it was enqueued, of what is late or writes a word
};

struct Stream {
  int id = 0;
  uintptr_t context = 0;  // of the device that it is of
  bool is_destroyed = false;
  bool blocks = false;  // with the legacy stream
  int writes = 0;       // of words, that have not run
  Clock clock;          // of what is enqueued next
  Clock learned;        // from words, by what has run
  uint64_t enqueued = 0;
  std::deque<Operation> queue;
  int capture = 0;  // number of the capture that takes its work; 0: none
};

// What allocations show, several of them the same one where memory is mapped more than once. Places are offsets in it.
struct Memory {
  struct Past {
    Access access;
    int stream;
    uint64_t number;
    std::string name;
  };
  std::vector<Past> past;  // accesses that nothing later covers
  struct Written {
    uint32_t value;
    Clock clock;
  };
  std::map<uint64_t, Written> words;  // that streams of this process wrote last
};

struct Allocation {
  uintptr_t begin = 0, end = 0;
  bool pinned = false, freed = false;
  bool registered = false;  // memory of the program, by cuMemHostRegister
  int number = 0;
  uintptr_t context = 0;  // of the device that it is on
  // Of a mapping made with the virtual memory calls: one physical segment each.
  uint64_t physical = 0;
  std::set<int> devices;  // that may access it
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  uint64_t offset = 0;  // of its begin
  uint64_t place(uintptr_t at) const { return at - begin + offset; }
};

inline int device_of(uintptr_t context) {
  return static_cast<int>(context & 0xfff) - 0x100;
}

class Machine {
 public:
  static Machine& get();

  std::recursive_mutex& mutex() { return mutex_; }

  // Memory. 0: there is none left.
  uintptr_t alloc(uint64_t bytes, uintptr_t context);
  void* alloc_pinned(uint64_t bytes, uintptr_t context);
  bool free(uintptr_t address, bool pinned);
  const Allocation* find(uintptr_t address) const;
  bool is_of_host(uintptr_t address) const;  // and not page-locked
  uint64_t free_bytes(int device) const;
  // Of allocations on a device, or of page-locked ones that its context made; physical memory of mappings is left out.
  uint64_t live_bytes(int device, bool pinned) const;
  int live() const;  // allocations that are not freed
  // Where work finds memory of the device; other memory is where it is.
  void* here(const void* memory) const;
  // Whether devices reach each other's memory.
  bool has_peers() const;
  // Whether a device may touch all of it.
  bool may_access(uintptr_t at, uint64_t bytes, int device) const;

  // Virtual memory. Addresses, physical memory, and what of one is mapped to the other. False: an invalid value.
  uintptr_t reserve(uint64_t bytes);
  bool unreserve(uintptr_t at, uint64_t bytes);
  uint64_t create(uint64_t bytes, int device, bool is_shareable);
  int export_file(uint64_t physical) const;  // a new descriptor; -1: it cannot be shared
  uint64_t import_file(int file);            // 0: it is not of such memory
  bool release(uint64_t physical);
  bool map(uintptr_t at, uint64_t bytes, uint64_t physical);
  bool unmap(uintptr_t at, uint64_t bytes);
  bool set_access(uintptr_t at, uint64_t bytes, int device, bool can);
  bool reserved(uintptr_t at, uintptr_t* begin, uint64_t* bytes) const;  // the range that holds it

  // Memory of the program that becomes page-locked, and pageable again. What cuMemHostRegister and cuMemHostUnregister
  // return.
  int register_host(uintptr_t at, uint64_t bytes, uintptr_t context);
  int unregister_host(uintptr_t at);

  Stream* stream(void* handle, uintptr_t context);  // default streams are the context's; nullptr: of no stream
  Stream* make_stream(uintptr_t context);
  bool is_default(const Stream& stream) const;
  void destroy_stream(Stream& stream);
  void drop_context(uintptr_t context);

  void enqueue(Stream& stream, Operation operation);
  void record(Stream& stream, Event& event);
  void await(Stream& stream, Event& event);
  // As far as the order of this machine goes until nothing is left in the stream, or the event is reached.
  void finish(Stream& stream);
  void finish(Event& event);
  void finish_device(uintptr_t context);
  void release();                     // kernels that hang
  bool look(Event& event, int most);  // operations that go on meanwhile
  bool look(Stream& stream, int most);
  bool nudge(Stream* stream);                      // one step towards its end; whether there was one
  int unfinished(const std::string& begin) const;  // operations whose name begins like this

  // What went wrong, a line each; since the start of the process.
  const std::vector<std::string>& violations() const { return violations_; }
  void violation(const std::string& text);
  // Text of the first violation that no call has returned as an error yet; empty: none.
  std::string take_violation();

  int allocations = 0, launches = 0, launches_that_may_hang = 0;
  int fails_at = 0, fails_with = 0;  // the launch that ends CUDA, and its error; 0: none
  uint64_t has[kMostDevices] = {};   // bytes of each device; 0: 4 GiB, which all of them share
  int ended_by = 0;                  // the error that has ended CUDA in this process; no work runs behind it

 private:
  Machine();
  bool is_ready(const Stream& stream) const;
  void run_head(Stream& stream);
  using Seen = std::set<const Stream*>;  // streams that were asked already: waits may go round
  Stream* who_leads_to(const Event& event, uint64_t record, Seen& seen);
  Stream* who_lets_go_on(Stream& stream, Seen& seen);
  Stream* who_writes(const Word& word, Seen& seen);
  Stream* who_leads_to(const Event& event, uint64_t record);
  Stream* who_lets_go_on(Stream& stream);
  bool waits_for_others() const;
  Stream* pick(Stream* wanted);
  bool hangs(const Stream& stream) const;
  void run_until(uintptr_t context, const std::function<bool()>& done, const std::function<Stream*()>& wanted);
  Clock& host();
  void has_waited(const Clock& clock);
  // Where an operation touches memory, and whether that is ordered with others'; the latter when it runs if it is late.
  void check_places(const Stream& stream, const Operation& operation);
  void check_order(const Stream& stream, const Operation& operation, const Clock& clock);
  void check_order(Allocation& a, Access access, const Stream& stream, const Operation& operation, const Clock& clock);
  void check_in_flight(const Allocation& a);

  // Words; see words.cc.
  bool is_met(const Word& word) const;
  bool is_same(const Word& a, const Word& b) const;
  void write(const Word& word, const Clock& clock);
  void learn(Stream& stream, const Operation& operation);
  void begin_late(Stream& stream, Operation& operation);
  void keep_writing();
  bool has_writes() const;
  void run_writes();

  struct Physical {
    int file = -1;
    uint64_t bytes = 0;
    int device = 0, maps = 0;
    bool is_released = false;
    bool is_shareable = false, is_imported = false;
    std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  };
  void drop(std::map<uint64_t, Physical>::iterator physical);

  std::recursive_mutex mutex_;
  std::condition_variable_any written_;  // a write of a word is enqueued
  uintptr_t space_ = 0, alias_ = 0;      // addresses of devices, and where work finds them
  uint64_t used_ = 0, used_space_ = 0;
  std::map<uintptr_t, Allocation> allocations_;  // by begin
  std::vector<uintptr_t> freed_;                 // begins, in order
  std::map<uintptr_t, uint64_t> reserved_;       // bytes by begin
  std::map<uint64_t, Physical> physical_;
  uint64_t next_physical_ = 1;
  std::map<std::string, std::weak_ptr<Memory>> files_;  // that registered memory shows, by device and number
  std::map<uintptr_t, Stream> streams_;                 // by number; default streams by context
  std::vector<std::map<uintptr_t, Stream>::node_type> gone_streams_;
  int next_stream_ = 1;
  bool is_released_ = false;
  Clock waited_;  // by any thread
  std::mt19937_64 random_;
  std::vector<std::string> violations_;
  size_t reported_ = 0;
};

// A kernel by its name: what it does with a grid of so many blocks, and what it reads and writes.
struct Launch {
  std::function<void()> work;
  std::vector<Access> accesses;
};
// False: there is no kernel of this name.
bool has_kernel(const std::string& name);
Launch make_launch(const std::string& name, unsigned blocks, unsigned threads, void** params);

}  // namespace fake_cuda
