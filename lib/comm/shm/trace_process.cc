// comm/shm/trace_process.cc: the communicators of another process: what it has open under the name of our memory, read
// into memory of our own. Nothing there is trusted: sizes are those that follow from the number of ranks.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/os.h"
#include "comm/shm/shared_memory.h"
#include "comm/shm/trace_json.h"

namespace gsel::shm {
namespace {

bool read_at(int fd, char* to, size_t bytes, size_t offset) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = pread(fd, to + done, bytes - done, static_cast<off_t>(SharedMemory::kControlAt + offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// Addresses for a whole arena; only what is read takes memory.
std::shared_ptr<char> addresses(size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<char*>(base), [bytes](char* memory) { munmap(memory, bytes); }};
}

// The number of ranks, if this is an arena's beginning; else 0.
int32_t ranks_at(int fd) {
  alignas(ArenaHeader) char bytes[sizeof(ArenaHeader)];
  if (!read_at(fd, bytes, sizeof bytes, 0)) return 0;
  const int32_t ranks = reinterpret_cast<const ArenaHeader*>(bytes)->world_size;
  return ranks >= 1 && ranks <= kMaxRanks ? ranks : 0;
}

// Entries that were written to while they were read have another number, or none, the second time.
void drop_torn_entries(int fd, char* base, const Layout& layout) {
  const size_t n = static_cast<size_t>(layout.world_size) * kRingCalls;
  std::vector<char> again(n * sizeof(CallEntry));
  if (!read_at(fd, again.data(), again.size(), layout.rings_at)) again.assign(again.size(), 0);
  for (size_t i = 0; i < n; ++i) {
    char* number = base + layout.rings_at + i * sizeof(CallEntry);
    if (std::memcmp(number, again.data() + i * sizeof(CallEntry), sizeof(uint64_t)) != 0)
      std::memset(number, 0, sizeof(uint64_t));
  }
}

// The flags that ranks wait for may stand anywhere in the arena.
void read_awaited_flags(int fd, const Arena& arena) {
  for (int32_t q = 0; q < arena.layout().world_size; ++q) {
    const uint64_t offset = arena.rank(q).awaited_flag.load(std::memory_order_relaxed);
    if (arena.flag_at(offset)) read_at(fd, arena.base() + offset, sizeof(uint64_t), offset);
  }
}

// nullptr when it is no arena of this version.
std::shared_ptr<Arena> copy_arena(int fd) {
  const int32_t ranks = ranks_at(fd);
  if (ranks == 0) return nullptr;
  const Layout layout(ranks);
  const std::shared_ptr<char> memory = addresses(layout.total_bytes);
  if (!read_at(fd, memory.get(), layout.small_at, 0) ||
      !read_at(fd, memory.get() + layout.rings_at, layout.staging_at - layout.rings_at, layout.rings_at))
    return nullptr;
  drop_torn_entries(fd, memory.get(), layout);
  try {
    auto arena = Arena::at(memory.get(), layout, memory);
    read_awaited_flags(fd, *arena);
    return arena;
  } catch (const Error&) {
    return nullptr;
  }
}

// The descriptors of a process that lead to memory under our name, one for each memory.
std::vector<os::Fd> memories_of(int32_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
  if (!entries && errno == EACCES)
    fail(GSEL_ERR_PERMISSION, "process {} cannot be looked into; one of this user would do", pid);
  if (!entries) fail(GSEL_ERR_NOT_FOUND, "there is no process {}; the pid of a rank would do", pid);
  std::vector<os::Fd> found;
  std::set<std::pair<dev_t, ino_t>> seen;
  while (const dirent* entry = readdir(entries.get())) {
    const std::string path = folder + "/" + entry->d_name;
    char target[64];
    const ssize_t n = readlink(path.c_str(), target, sizeof target);
    if (n <= 0 || std::string_view(target, static_cast<size_t>(n)) != "/memfd:gsel (deleted)") continue;
    os::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) continue;  // gone, or another by now
    if (seen.emplace(info.st_dev, info.st_ino).second) found.push_back(std::move(fd));
  }
  return found;
}

// Only where our numbers of processes are theirs.
std::function<std::optional<bool>(int32_t)> alive_by_pid(const Arena& arena, int32_t asked) {
  bool known = false;
  for (int32_t q = 0; q < arena.layout().world_size; ++q) known = known || arena.rank(q).pid == asked;
  return [&arena, known](int32_t q) -> std::optional<bool> {
    const int32_t pid = arena.rank(q).pid;
    if (!known || pid <= 0) return {};
    return kill(pid, 0) == 0 || errno != ESRCH;
  };
}

}  // namespace

std::string trace_of_process(int32_t pid) {
  if (pid < 1) fail(GSEL_ERR_ARG, "pid {}: the pid of a rank would do", pid);
  auto communicators = nlohmann::ordered_json::array();
  for (const os::Fd& memory : memories_of(pid))
    if (const auto arena = copy_arena(memory.get()))
      communicators.push_back(communicator_json(*arena, {-1, GSEL_OK, {}, alive_by_pid(*arena, pid)}));
  if (communicators.empty())
    fail(GSEL_ERR_NOT_FOUND, "process {} has no communicator of more than one rank; the pid of a rank would do", pid);
  return trace_text(std::move(communicators));
}

}  // namespace gsel::shm
