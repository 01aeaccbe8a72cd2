// base/threads.cc: see threads.h.
#include "base/threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/os.h"

namespace gsel {
namespace {

// The number of resting threads, and the fork generation it belongs to: a child has none of its parent's threads.
struct alignas(uint64_t) Resting {  // 8 bytes, else Clang 14 calls libatomic
  uint32_t generation;
  int32_t threads;
};
std::atomic<Resting> resting{Resting{0, 0}};

int32_t resting_threads() noexcept {
  const Resting known = resting.load(std::memory_order_relaxed);
  return known.generation == static_cast<uint32_t>(os::fork_generation()) ? known.threads : 0;
}

void count(int32_t change) noexcept {
  const auto generation = static_cast<uint32_t>(os::fork_generation());
  Resting known = resting.load(std::memory_order_relaxed);
  while (!resting.compare_exchange_weak(
      known, {generation, (known.generation == generation ? known.threads : 0) + change}, std::memory_order_relaxed)) {
  }
}

// The main thread's entry stays, as a zombie's, until the last thread ends: "pid (name) Z ...".
bool main_thread_ended() noexcept {
  char path[64], text[128];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", static_cast<int>(getpid()));
  const os::Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t n = fd ? read(fd.get(), text, sizeof text - 1) : -1;
  if (n <= 0) return false;
  text[n] = '\0';
  const char* name_end = std::strrchr(text, ')');
  return name_end && std::strncmp(name_end, ") Z", 3) == 0;
}

// Returns -1 when the number is not known.
int threads_of_process() noexcept {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir("/proc/self/task"), closedir);
  if (!entries) return -1;
  int threads = 0;
  while (const dirent* entry = readdir(entries.get())) threads += entry->d_name[0] != '.';
  return threads;
}

}  // namespace

RestingThread::RestingThread() noexcept {
  count(1);
}

RestingThread::~RestingThread() {
  count(-1);
}

bool only_resting_threads_remain() noexcept {
  return main_thread_ended() && threads_of_process() == 1 + resting_threads();
}

}  // namespace gsel
