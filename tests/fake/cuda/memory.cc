// fake/cuda/memory.cc: memory of the devices and of the host; see machine.h. Addresses of devices are open to nobody:
// the same offset from `alias_` is where work finds what is there. A free address is not given out again unless asked
// for.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "machine.h"

namespace fake_cuda {
namespace {

constexpr uint64_t kArena = uint64_t{4} << 30,
                   kSpace = kArena + (uint64_t{512} << 30);  // reservations behind the arena
constexpr uint64_t kAlignment = 512, kGuard = 4096, kPage = uint64_t{2} << 20;

constexpr char kFileName[] = "fake_cuda_memory_of_";

uintptr_t the_space;
struct sigaction earlier;

// Only what a handler may do.
void report_host_access(int number, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (the_space && address >= the_space && address < the_space + kSpace) {
    static const char text[] = "fake cuda: the host touched device memory\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
  }
  if (earlier.sa_flags & SA_SIGINFO && earlier.sa_sigaction) return earlier.sa_sigaction(number, info, context);
  signal(number, SIG_DFL);
}

uintptr_t map_nothing(uint64_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) abort();
  return reinterpret_cast<uintptr_t>(at);
}

uint64_t rounded(uint64_t bytes, uint64_t to) {
  return (bytes + to - 1) / to * to;
}

std::string on_stream(const Stream& stream) {
  return " on stream " + std::to_string(stream.id);
}

// What the memory holds before anybody has written to it.
void spoil(int file, uint64_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) abort();
  memset(at, 0xff, bytes);
  munmap(at, bytes);
}

}  // namespace

Machine::Machine() : random_(static_cast<uint64_t>(number_in("GSEL_FAKE_CUDA_SEED", 1))) {
  space_ = the_space = map_nothing(kSpace);
  alias_ = map_nothing(kSpace);
  mprotect(reinterpret_cast<void*>(alias_), kArena, PROT_READ | PROT_WRITE);
  used_space_ = kArena;
  struct sigaction action {};
  action.sa_sigaction = report_host_access;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &earlier);
}

void* Machine::here(const void* memory) const {
  const auto at = reinterpret_cast<uintptr_t>(memory);
  return reinterpret_cast<void*>(at >= space_ && at < space_ + kSpace ? at - space_ + alias_ : at);
}

uintptr_t Machine::alloc(uint64_t bytes, uintptr_t context) {
  ++allocations;
  if (allocations == number_in("GSEL_FAKE_CUDA_OOM", 0)) return 0;
  const uint64_t room = rounded(bytes + kGuard, kAlignment);
  uintptr_t begin = 0;
  if (setting("GSEL_FAKE_CUDA_REUSE", "") == "1")
    for (size_t i = freed_.size(); i-- > 0 && !begin;)
      if (const Allocation& old = allocations_[freed_[i]]; rounded(old.end - old.begin + kGuard, kAlignment) == room) {
        begin = freed_[i];
        freed_.erase(freed_.begin() + static_cast<ptrdiff_t>(i));
      }
  if (!begin) {
    if (bytes > free_bytes(device_of(context))) return 0;
    begin = space_ + used_;
    used_ += room;
  }
  memset(here(reinterpret_cast<void*>(begin)), 0xff, bytes);
  Allocation& made = allocations_[begin];
  made = {};
  made.begin = begin;
  made.end = begin + bytes;
  made.number = allocations;
  made.context = context;
  for (int device = 0; device < kMostDevices; ++device) made.devices.insert(device);
  return begin;
}

// Of whole pages, which nothing else is on and nobody can touch once they are freed.
void* Machine::alloc_pinned(uint64_t bytes, uintptr_t context) {
  if (++allocations == number_in("GSEL_FAKE_CUDA_OOM", 0)) return nullptr;
  const uintptr_t begin = map_nothing(rounded(bytes, 4096));
  auto* memory = reinterpret_cast<void*>(begin);
  mprotect(memory, rounded(bytes, 4096), PROT_READ | PROT_WRITE);
  memset(memory, 0xff, bytes);
  Allocation& made = allocations_[begin];
  made = {};
  made.begin = begin;
  made.end = begin + bytes;
  made.pinned = true;
  made.number = allocations;
  made.context = context;
  for (int device = 0; device < kMostDevices; ++device) made.devices.insert(device);
  return memory;
}

void Machine::check_in_flight(const Allocation& a) {
  for (const auto& [handle, stream] : streams_)
    for (const Operation& operation : stream.queue)
      for (const Access& access : operation.accesses)
        if (access.begin < a.end && a.begin < access.end)
          violation("allocation " + std::to_string(a.number) + " is freed while " + operation.name + on_stream(stream) +
                    " has not run");
}

bool Machine::free(uintptr_t address, bool pinned) {
  const auto at = allocations_.find(address);
  if (at == allocations_.end() || at->second.freed || at->second.pinned != pinned || at->second.physical ||
      at->second.registered)
    return false;
  Allocation& a = at->second;
  check_in_flight(a);
  finish_device(a.context);
  if (pinned) {
    mmap(reinterpret_cast<void*>(a.begin), rounded(a.end - a.begin, 4096), PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  } else {
    const auto from = reinterpret_cast<uintptr_t>(here(reinterpret_cast<void*>(a.begin)));
    const uintptr_t first = rounded(from, 4096), last = (from + a.end - a.begin) & ~uintptr_t{4095};
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
    freed_.push_back(address);
  }
  a.freed = true;
  a.memory = std::make_shared<Memory>();
  return true;
}

const Allocation* Machine::find(uintptr_t address) const {
  auto at = allocations_.upper_bound(address);
  if (at == allocations_.begin()) return nullptr;
  --at;
  return address < at->second.end && !at->second.freed ? &at->second : nullptr;
}

bool Machine::is_of_host(uintptr_t address) const {
  const bool is_of_device = address >= space_ && address < space_ + kSpace;
  const auto at = allocations_.upper_bound(address);
  const bool is_known = at != allocations_.begin() && address < std::prev(at)->second.end;
  return !is_of_device && !is_known;
}

bool Machine::has_peers() const {
  return setting("GSEL_FAKE_CUDA_PEERS", "") != "none";
}

bool Machine::may_access(uintptr_t at, uint64_t bytes, int device) const {
  for (uintptr_t from = at; from < at + bytes;) {
    const Allocation* a = find(from);
    if (!a || !a->devices.contains(device)) return false;
    from = a->end;
  }
  return true;
}

int Machine::live() const {
  return static_cast<int>(std::ranges::count_if(allocations_, [](const auto& a) { return !a.second.freed; }));
}

uint64_t Machine::free_bytes(int device) const {
  const uint64_t room = kArena - used_ > kGuard ? kArena - used_ - kGuard : 0;
  if (has[device] == 0) return room;
  const uint64_t live = live_bytes(device, false);
  return std::min(room, has[device] > live ? has[device] - live : 0);
}

uint64_t Machine::live_bytes(int device, bool pinned) const {
  uint64_t bytes = 0;
  for (const auto& [begin, a] : allocations_)
    if (!a.freed && !a.physical && a.pinned == pinned && device_of(a.context) == device) bytes += a.end - a.begin;
  return bytes;
}

// ---- virtual memory -------------------------------------------------------------------------------------------------

uintptr_t Machine::reserve(uint64_t bytes) {
  if (bytes == 0 || bytes % kPage || used_space_ + bytes > kSpace) return 0;
  const uintptr_t begin = space_ + rounded(used_space_, kPage);
  used_space_ += rounded(used_space_, kPage) - used_space_ + bytes;
  reserved_[begin] = bytes;
  return begin;
}

bool Machine::unreserve(uintptr_t at, uint64_t bytes) {
  const auto found = reserved_.find(at);
  if (found == reserved_.end() || found->second != bytes) return false;
  for (const auto& [begin, a] : allocations_)
    if (a.physical && !a.freed && begin >= at && begin < at + bytes) return false;
  reserved_.erase(found);
  return true;
}

bool Machine::reserved(uintptr_t at, uintptr_t* begin, uint64_t* bytes) const {
  auto found = reserved_.upper_bound(at);
  if (found == reserved_.begin()) return false;
  --found;
  *begin = found->first;
  *bytes = found->second;
  return at < found->first + found->second;
}

// The name of the file says whose it is; see import_file.
uint64_t Machine::create(uint64_t bytes, int device, bool is_shareable) {
  if (++allocations == number_in("GSEL_FAKE_CUDA_OOM", 0)) return 0;
  Physical& made = physical_[next_physical_];
  made.file = memfd_create((std::string(kFileName) + std::to_string(device)).c_str(), MFD_CLOEXEC);
  if (made.file < 0 || ftruncate(made.file, static_cast<off_t>(bytes)) != 0) abort();
  made.bytes = bytes;
  made.device = device;
  made.is_shareable = is_shareable;
  if (is_shareable) spoil(made.file, bytes);  // before others may write
  return next_physical_++;
}

void Machine::drop(std::map<uint64_t, Physical>::iterator physical) {
  close(physical->second.file);
  physical_.erase(physical);
}

bool Machine::release(uint64_t physical) {
  const auto found = physical_.find(physical);
  if (found == physical_.end() || found->second.is_released) return false;
  found->second.is_released = true;
  if (found->second.maps == 0) drop(found);
  return true;
}

// What is imported is not exported again.
int Machine::export_file(uint64_t physical) const {
  const auto found = physical_.find(physical);
  if (found == physical_.end() || found->second.is_released || !found->second.is_shareable) return -1;
  return fcntl(found->second.file, F_DUPFD_CLOEXEC, 0);
}

// Memory that this process has by another handle is the same memory.
uint64_t Machine::import_file(int file) {
  char name[64] = "";
  if (readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), name, sizeof name - 1) < 0) return 0;
  const std::string prefix = std::string("/memfd:") + kFileName;
  struct stat status {};
  if (!std::string(name).starts_with(prefix) || fstat(file, &status) != 0) return 0;
  Physical made;
  made.bytes = static_cast<uint64_t>(status.st_size);
  made.device = atoi(name + prefix.size());
  made.is_imported = true;
  for (const auto& [handle, other] : physical_)
    if (struct stat known{}; fstat(other.file, &known) == 0 && known.st_ino == status.st_ino)
      made.memory = other.memory;
  made.file = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (made.file < 0) return 0;
  physical_[next_physical_] = std::move(made);
  return next_physical_++;
}

bool Machine::map(uintptr_t at, uint64_t bytes, uint64_t physical) {
  uintptr_t begin = 0;
  uint64_t room = 0;
  const auto found = physical_.find(physical);
  if (found == physical_.end() || bytes != found->second.bytes || at % kPage || !reserved(at, &begin, &room))
    return false;
  if (found->second.is_released || at + bytes > begin + room || find(at) || find(at + bytes - 1)) return false;
  auto* place = static_cast<char*>(here(reinterpret_cast<void*>(at)));
  if (mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, found->second.file, 0) == MAP_FAILED) abort();
  const bool is_new = found->second.maps++ == 0 && !found->second.is_shareable && !found->second.is_imported;
  if (is_new) memset(place, 0xff, bytes);
  Allocation& made = allocations_[at];
  made = {};
  made.begin = at;
  made.end = at + bytes;
  made.number = ++allocations;
  made.context = static_cast<uintptr_t>(0x100 + found->second.device);
  made.physical = physical;
  made.memory = found->second.memory;
  return true;
}

bool Machine::unmap(uintptr_t at, uint64_t bytes) {
  for (uintptr_t from = at; from < at + bytes;) {
    const auto found = allocations_.find(from);
    if (found == allocations_.end() || !found->second.physical || found->second.freed) return false;
    Allocation& a = found->second;
    check_in_flight(a);
    mmap(here(reinterpret_cast<void*>(from)), a.end - a.begin, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    const auto physical = physical_.find(a.physical);
    if (--physical->second.maps == 0 && physical->second.is_released) drop(physical);
    a.freed = true;
    const std::shared_ptr<Memory> memory = std::exchange(a.memory, std::make_shared<Memory>());
    const bool is_shown = std::ranges::any_of(
        allocations_, [&](const auto& other) { return !other.second.freed && other.second.memory == memory; });
    if (!is_shown) memory->past.clear();
    from = a.end;
  }
  return true;
}

bool Machine::set_access(uintptr_t at, uint64_t bytes, int device, bool can) {
  for (uintptr_t from = at; from < at + bytes;) {
    const auto found = allocations_.find(from);
    if (found == allocations_.end() || !found->second.physical || found->second.freed) return false;
    can ? static_cast<void>(found->second.devices.insert(device))
        : static_cast<void>(found->second.devices.erase(device));
    from = found->second.end;
  }
  return true;
}

// ---- what an operation touches --------------------------------------------------------------------------------------

// An access may go over several segments of a mapping.
void Machine::check_places(const Stream& stream, const Operation& operation) {
  for (const Access& access : operation.accesses)
    for (uintptr_t from = access.begin; from < access.end;) {
      auto at = allocations_.upper_bound(from);
      if (at == allocations_.begin() || (--at, from >= at->second.end)) {
        if (from > access.begin)
          violation(operation.name + on_stream(stream) + " goes " + std::to_string(access.end - from) +
                    " bytes past the end of allocation " +
                    std::to_string(std::prev(allocations_.upper_bound(from - 1))->second.number));
        else if (from >= space_ && from < space_ + kSpace)  // else memory of the host, which only copies may touch
          violation(operation.name + on_stream(stream) + " touches device memory that is not allocated");
        break;
      }
      const Allocation& a = at->second;
      if (a.freed) violation(operation.name + on_stream(stream) + " touches freed memory");
      if (!a.devices.contains(device_of(stream.context)) && !a.freed)
        violation(operation.name + on_stream(stream) + " touches allocation " + std::to_string(a.number) +
                  ", which device " + std::to_string(device_of(stream.context)) + " may not access");
      from = a.end;
    }
}

// A word is read and written again and again: of ordered accesses the last one stays.
void Machine::check_order(Allocation& a, Access access, const Stream& stream, const Operation& operation,
                          const Clock& clock) {
  access.begin = a.place(access.begin);
  access.end = a.place(access.end);
  std::erase_if(a.memory->past, [&](const Memory::Past& past) {
    const bool overlaps = past.access.begin < access.end && access.begin < past.access.end;
    if (!overlaps) return false;
    const bool ordered = past.stream == stream.id || clock.of(past.stream) >= past.number;
    const bool are_atomic = past.access.is_atomic && access.is_atomic;
    if (!ordered && (past.access.writes || access.writes) && !are_atomic)
      violation("no event orders " + past.name + " on stream " + std::to_string(past.stream) + " (" +
                (past.access.writes ? "writes" : "reads") + ") and " + operation.name + on_stream(stream) + " (" +
                (access.writes ? "writes" : "reads") + ") in allocation " + std::to_string(a.number));
    const bool replaces = access.is_atomic ? are_atomic && (access.writes || !past.access.writes) : access.writes;
    return ordered && replaces && access.begin <= past.access.begin && past.access.end <= access.end;
  });
  a.memory->past.push_back({access, stream.id, operation.number, operation.name});
}

void Machine::check_order(const Stream& stream, const Operation& operation, const Clock& clock) {
  for (const Access& access : operation.accesses)
    for (uintptr_t from = access.begin; from < access.end;) {
      auto at = allocations_.upper_bound(from);
      if (at == allocations_.begin() || (--at, from >= at->second.end)) break;
      Allocation& a = at->second;
      Access part = access;
      part.begin = from;
      part.end = std::min(access.end, a.end);
      check_order(a, part, stream, operation, clock);
      from = a.end;
    }
}

}  // namespace fake_cuda
