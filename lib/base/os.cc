// base/os.cc: see os.h.
#include "base/os.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"

namespace gsel::os {
namespace {

// State that fork handlers update. Never destroyed: threads may still run when the process exits.
struct Process {
  std::mutex mutex;
  std::atomic<uint64_t> generation{0};
  std::mutex own_mutex;
  std::set<int> own;  // of OwnFds; a child that kept them would hide the end of its parent
  uint64_t token = 0;

  Process() {
    pthread_atfork([] { get().lock(); }, [] { get().unlock(); }, [] { get().become_child(); });
  }
  void lock() {
    mutex.lock();
    own_mutex.lock();
  }
  void unlock() {
    own_mutex.unlock();
    mutex.unlock();
  }
  static Process& get() {
    alignas(Process) static std::byte room[sizeof(Process)];  // static storage: works without memory
    static Process* process = new (room) Process;
    return *process;
  }
  void become_child() {
    generation.fetch_add(1, std::memory_order_relaxed);
    token = 0;
    for (const int fd : own) {
      // The number stays in use, so that the child's copy of the handle does not close an unrelated descriptor.
      const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (nothing < 0 || dup3(nothing, fd, O_CLOEXEC) < 0) close(fd);
      if (nothing >= 0) close(nothing);
    }
    unlock();
  }
};

}  // namespace

void Fd::reset() noexcept {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

OwnFd::OwnFd(Fd fd) : Fd(std::move(fd)) {
  if (!*this) return;
  Process& process = Process::get();
  const std::lock_guard lock(process.own_mutex);
  process.own.insert(get());
}

OwnFd& OwnFd::operator=(OwnFd&& other) noexcept {
  Fd::operator=(std::move(other));
  return *this;
}

// Closes under the lock: the number may belong to another descriptor right after.
OwnFd::~OwnFd() {
  if (!*this) return;
  Process& process = Process::get();
  const std::lock_guard lock(process.own_mutex);
  process.own.erase(get());
  reset();
}

int64_t now_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void random_bytes(void* out, size_t bytes) {
  auto* at = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = getrandom(at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(GSEL_ERR_IO, "getrandom of {} bytes failed: {}", bytes, errno_text(errno));
    at += got;
    bytes -= static_cast<size_t>(got);
  }
}

void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, int64_t nanoseconds) noexcept {
  const timespec time{.tv_sec = nanoseconds / 1'000'000'000, .tv_nsec = nanoseconds % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &time, nullptr, 0);
}

void futex_wake_all(const std::atomic<uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

bool register_for_barriers() noexcept {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void pass_barriers_everywhere() noexcept {
  syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

uint64_t fork_generation() noexcept {
  return Process::get().generation.load(std::memory_order_relaxed);
}

uint64_t process_token() {
  std::lock_guard lock(process_mutex());
  uint64_t& token = Process::get().token;
  while (token == 0) random_bytes(&token, sizeof token);
  return token;
}

const uint64_t* process_token_place() noexcept {
  return &Process::get().token;
}

std::mutex& process_mutex() {
  return Process::get().mutex;
}

Life open_life() {
  Life life;
  life.watch = Fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));  // always close-on-exec
  if (life.watch) return life;
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
    fail(GSEL_ERR_IO, "pidfd_open failed: {}", errno_text(errno));
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) fail(GSEL_ERR_IO, "pipe2 failed: {}", errno_text(errno));
  life.watch = Fd(pipe_ends[0]);
  life.keep = OwnFd(Fd(pipe_ends[1]));
  return life;
}

bool life_ended(int fd) noexcept {
  pollfd item{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&item, 1, 0) > 0;
}

// ---- available memory -----------------------------------------------------------------------------------------------
// The host offers MemAvailable and free swap. Each control group from this process upwards offers its limit less the
// memory in use, where file pages that can be dropped do not count.

namespace {

constexpr const char* kGroups = "/sys/fs/cgroup";

std::optional<uint64_t> first_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;  // "max" is no number
}

// The number after `name` at the beginning of a line.
uint64_t named_number(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name)) return std::strtoull(line.c_str() + name.size(), nullptr, 10);
  return 0;
}

uint64_t host_memory() {
  constexpr uint64_t kKilobyte = 1024;
  const uint64_t available = named_number("/proc/meminfo", "MemAvailable:");
  return available == 0 ? UINT64_MAX : (available + named_number("/proc/meminfo", "SwapFree:")) * kKilobyte;
}

uint64_t group_memory(const std::string& folder) {
  const auto limit = first_number(folder + "/memory.max"), used = first_number(folder + "/memory.current");
  if (!limit || !used) return UINT64_MAX;
  const std::string details = folder + "/memory.stat";
  const uint64_t files = named_number(details, "inactive_file ") + named_number(details, "active_file ");
  const uint64_t held = *used - std::min(*used, files);
  return *limit - std::min(*limit, held);
}

std::string own_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::/")) return line.substr(3);
  return "/";
}

}  // namespace

uint64_t available_memory() {
  uint64_t least = host_memory();
  for (std::string group = own_group();; group.resize(group.rfind('/'))) {
    least = std::min(least, group_memory(kGroups + group));
    if (group.empty() || group.find('/') == std::string::npos) return least;
  }
}

}  // namespace gsel::os
