// comm/shm/wait/watcher.h: the one thread of a process that notices the deaths of ranks in other processes, whatever
// its own ranks wait for, and breaks the communicators that they were in. It sleeps until the descriptor of a process
// (its "life descriptor") becomes ready. It starts with the first family of communicators that has other processes, and
// ends with the last. In a forked child the thread does not exist, and its data is left alone. Does not know what
// follows from a death.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/os.h"

namespace gsel::shm {

class Family;
class Breaking;

class Watcher {
 public:
  // From now on the thread hears of deaths in the family, if there is anybody to watch and a thread to be had.
  static void watch(Family& family);
  Watcher();
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // A communicator is added after its family and removed before it. It is told at once which members have died.
  void add(const Family& family, const Breaking& communicator);
  void remove(const Family& family, const Breaking& communicator) noexcept;

 private:
  struct Life {
    const Family* family;
    int32_t rank;
  };
  struct Watched {
    std::vector<int32_t> dead;
    std::vector<const Breaking*> communicators;
  };

  static std::shared_ptr<Watcher> of_process();
  void add(const Family& family);
  void remove(const Family& family) noexcept;
  void run();
  void hear(uint64_t key);
  void forget(const Life& life) noexcept;

  os::Fd epoll_, stop_;
  std::mutex mutex_;
  uint64_t last_key_ = 0;  // 0 is stop_
  std::map<uint64_t, Life> lives_;
  std::map<const Family*, Watched> families_;
  std::thread thread_;
};

}  // namespace gsel::shm
