// fake/cuda/registered.cc: memory of the program that is page-locked by cuMemHostRegister; see machine.h. Where it is a
// shared mapping, its words are those of the file, from whichever address they are reached.
#include <cstdio>

#include "cuda_api.h"
#include "machine.h"

namespace fake_cuda {
namespace {

// What is mapped at an address, as far as the end of the range; none: something there is not mapped, or not to be
// written.
struct Mapped {
  bool is_whole = false;
  std::string file;  // empty: memory of this process alone
  uint64_t offset = 0;
};

Mapped mapped_at(uintptr_t begin, uintptr_t end) {
  Mapped found;
  FILE* maps = fopen("/proc/self/maps", "re");
  if (!maps) abort();
  uintptr_t reached = begin;
  char line[4096];
  while (reached < end && fgets(line, sizeof line, maps)) {
    unsigned long from = 0, to = 0, offset = 0, inode = 0;
    char rights[5] = "", device[32] = "";
    if (sscanf(line, "%lx-%lx %4s %lx %31s %lu", &from, &to, rights, &offset, device, &inode) != 6) continue;
    if (to <= reached) continue;
    if (from > reached || rights[0] != 'r' || rights[1] != 'w') break;
    if (reached == begin && rights[3] == 's') {
      found.file = std::string(device) + " " + std::to_string(inode);
      found.offset = offset + (begin - from);
    }
    reached = to;
  }
  fclose(maps);
  found.is_whole = reached >= end;
  return found;
}

}  // namespace

int Machine::register_host(uintptr_t at, uint64_t bytes, uintptr_t context) {
  if (!at || !bytes) return kInvalidValue;
  for (const auto& [begin, a] : allocations_)
    if (!a.freed && a.pinned && begin < at + bytes && at < a.end) return kAlreadyRegistered;
  const Mapped mapped = mapped_at(at, at + bytes);
  if (!mapped.is_whole) return kInvalidValue;
  Allocation& made = allocations_[at];
  made = {};
  made.begin = at;
  made.end = at + bytes;
  made.pinned = made.registered = true;
  made.number = ++allocations;
  made.context = context;
  for (int device = 0; device < kMostDevices; ++device) made.devices.insert(device);
  if (mapped.file.empty()) return kOk;
  made.offset = mapped.offset;
  std::weak_ptr<Memory>& known = files_[mapped.file];
  if (const auto memory = known.lock())
    made.memory = memory;
  else
    known = made.memory;
  return kOk;
}

// The range is memory like any other then.
int Machine::unregister_host(uintptr_t at) {
  const auto found = allocations_.find(at);
  if (found == allocations_.end() || found->second.freed || !found->second.registered) return kNotRegistered;
  check_in_flight(found->second);
  allocations_.erase(found);
  return kOk;
}

}  // namespace fake_cuda
