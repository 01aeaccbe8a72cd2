// comm/shm/trace/trace_process.cc: reads the communicators of another process from the shared memory that it has open
// under gsel's name, into memory of this process. The contents are not trusted: sizes are computed from the number of
// ranks. Communicators split, duplicated or shrunk from the joined one are on arbitrary pages of the same memory; the
// magic word at the beginning of every arena identifies them.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"
#include "comm/shm/memory/shared_memory.h"
#include "comm/shm/trace/trace.h"

namespace gsel::shm {
namespace {

constexpr size_t kMostArenas = 4096;

// Bytes of a file from an offset on, which may be an arena.
struct Source {
  int fd;
  uint64_t begin;
  bool read(void* to, size_t bytes, size_t offset) const {
    for (size_t done = 0; done < bytes;) {
      const ssize_t n =
          pread(fd, static_cast<char*>(to) + done, bytes - done, static_cast<off_t>(begin + offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }
};

// Reserves addresses for a whole arena; only pages that are written take memory.
std::shared_ptr<char> addresses(size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<char*>(base), [bytes](char* memory) { munmap(memory, bytes); }};
}

// The number of ranks, if this is an arena's beginning; else 0.
int32_t ranks_at(const Source& source) {
  alignas(ArenaHeader) char bytes[sizeof(ArenaHeader)];
  if (!source.read(bytes, sizeof bytes, 0)) return 0;
  const int32_t ranks = reinterpret_cast<const ArenaHeader*>(bytes)->world_size;
  return ranks >= 1 && ranks <= kMaxRanks ? ranks : 0;
}

// Drops entries that were overwritten during the read: their number differs in a second read.
void drop_torn_entries(const Source& source, char* base, const Layout& layout) {
  const size_t n = static_cast<size_t>(layout.world_size) * kRingCalls;
  std::vector<char> again(n * sizeof(CallEntry));
  if (!source.read(again.data(), again.size(), layout.rings_at)) again.assign(again.size(), 0);
  for (size_t i = 0; i < n; ++i) {
    char* number = base + layout.rings_at + i * sizeof(CallEntry);
    if (std::memcmp(number, again.data() + i * sizeof(CallEntry), sizeof(uint64_t)) != 0)
      std::memset(number, 0, sizeof(uint64_t));
  }
}

// Reads the flags that ranks wait for, which may be anywhere in the arena.
void read_awaited_flags(const Source& source, const Arena& arena) {
  for (int32_t q = 0; q < arena.layout().world_size; ++q) {
    const uint64_t offset = arena.rank(q).awaited_flag.load(std::memory_order_relaxed);
    if (arena.flag_at(offset)) source.read(arena.base() + offset, sizeof(uint64_t), offset);
  }
}

// nullptr: no arena of this version.
std::shared_ptr<Arena> copy_arena(const Source& source) {
  const int32_t ranks = ranks_at(source);
  if (ranks == 0) return nullptr;
  const Layout layout(ranks);
  const std::shared_ptr<char> memory = addresses(layout.total_bytes);
  if (!source.read(memory.get(), layout.small_at, 0) ||
      !source.read(memory.get() + layout.rings_at, layout.staging_at - layout.rings_at, layout.rings_at))
    return nullptr;
  drop_torn_entries(source, memory.get(), layout);
  try {
    auto arena = Arena::at(memory.get(), layout, memory);
    read_awaited_flags(source, *arena);
    return arena;
  } catch (const Error&) {
    return nullptr;
  }
}

// The arenas in a memory: that of the joined communicator in the control part, others on any written page after it.
std::vector<Source> arenas_in(int fd) {
  constexpr auto kStep = static_cast<off_t>(kPage);
  std::vector<Source> found{{fd, SharedMemory::kControlAt}};
  uint64_t mark = 0, word = 0;
  if (!found.front().read(&mark, sizeof mark, 0) || mark == 0) return found;
  off_t at = static_cast<off_t>(SharedMemory::kControlAt) + kStep;
  while ((at = lseek(fd, at, SEEK_DATA)) >= 0 && found.size() < kMostArenas) {
    const off_t end = lseek(fd, at, SEEK_HOLE);
    for (at = at / kStep * kStep; at < end && found.size() < kMostArenas; at += kStep) {
      const Source page{fd, static_cast<uint64_t>(at)};
      if (page.read(&word, sizeof word, 0) && word == mark) found.push_back(page);
    }
  }
  return found;
}

// Descriptors of the memfds named "gsel" that a process has open, one for each memory.
std::vector<os::Fd> memories_of(int32_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
  if (!entries && errno == EACCES)
    fail(GSEL_ERR_PERMISSION, "process {} cannot be looked into; expected one of this user", pid);
  if (!entries) fail(GSEL_ERR_NOT_FOUND, "there is no process {}; expected the pid of a rank", pid);
  std::vector<os::Fd> found;
  std::set<std::pair<dev_t, ino_t>> seen;
  while (const dirent* entry = readdir(entries.get())) {
    const std::string path = folder + "/" + entry->d_name;
    char target[64];
    const ssize_t n = readlink(path.c_str(), target, sizeof target);
    if (n <= 0 || std::string_view(target, static_cast<size_t>(n)) != "/memfd:gsel (deleted)") continue;
    os::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) continue;  // closed or reused meanwhile
    if (seen.emplace(info.st_dev, info.st_ino).second) found.push_back(std::move(fd));
  }
  return found;
}

bool has_process(const Arena& arena, int32_t pid) {
  for (int32_t q = 0; q < arena.layout().world_size; ++q)
    if (arena.rank(q).pid == pid) return true;
  return false;
}

// known: the pids in the arena are of this pid namespace.
std::optional<bool> is_alive(int32_t pid, bool known) {
  if (!known || pid <= 0) return {};
  return kill(pid, 0) == 0 || errno != ESRCH;
}

bool somebody_in(const Arena& arena, bool known) {
  for (int32_t q = 0; q < arena.layout().world_size; ++q)
    if (arena.rank(q).left.load(std::memory_order_relaxed) == 0 && is_alive(arena.rank(q).pid, known) != false)
      return true;
  return false;
}

// Adds the joined communicator of a family, and those made from it that still have ranks.
void add_family(int fd, int32_t pid, Json& communicators) {
  bool known = false;
  for (const Source& source : arenas_in(fd)) {
    const std::shared_ptr<Arena> arena = copy_arena(source);
    if (!arena) continue;
    const bool joined = source.begin == SharedMemory::kControlAt;
    if (joined) known = has_process(*arena, pid);
    if (!joined && !somebody_in(*arena, known)) continue;
    if (arena->layout().world_size == 1 && arena->header().part_of.load(std::memory_order_acquire) == 0) continue;
    const auto alive = [&arena, known](int32_t q) { return is_alive(arena->rank(q).pid, known); };
    communicators.push(communicator_json(*arena, {-1, GSEL_OK, {}, alive}));
  }
}

}  // namespace

std::string trace_of_process(int32_t pid) {
  if (pid < 1) fail(GSEL_ERR_ARG, "pid {}; expected the pid of a rank", pid);
  auto communicators = Json::array();
  for (const os::Fd& memory : memories_of(pid)) add_family(memory.get(), pid, communicators);
  if (communicators.empty())
    fail(GSEL_ERR_NOT_FOUND, "process {} has no communicator of more than one rank; expected the pid of a rank", pid);
  return trace_text(std::move(communicators));
}

}  // namespace gsel::shm
