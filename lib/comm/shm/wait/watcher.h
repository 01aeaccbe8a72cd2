// comm/shm/wait/watcher.h: the one thread of a process that hears of the deaths of ranks in other processes, whatever
// its own ranks wait for, and breaks the communicators they were in. Does not know how deaths are dealt with. It
// sleeps in the kernel until a life descriptor becomes ready; it starts with the first family that has somebody to
// watch and ends with the last. In a forked child there is no such thread: what the child has of it is left alone.
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
class Link;

class Watcher {
 public:
  static std::shared_ptr<Watcher> of_process();
  Watcher();
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // Links come after their family and go before it. A link is told at once of those who have died already.
  void add(const Family& family);
  void remove(const Family& family) noexcept;
  void add(const Family& family, Link& link);
  void remove(const Family& family, Link& link) noexcept;

 private:
  struct Life {
    const Family* family;
    int32_t rank;
  };
  struct Watched {
    std::vector<int32_t> dead;
    std::vector<Link*> links;
  };

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
