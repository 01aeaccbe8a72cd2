// comm/shm/memory/watcher.h: one thread per process that notices the deaths of ranks in other processes and breaks
// their communicators. It sleeps until the descriptor of a process (its "life descriptor") becomes ready. It starts
// with the first family that has ranks in other processes, and ends with the last. A forked child has no such thread
// and does not touch its data. Does not know what follows from a death.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/os.h"

namespace gsel::shm {

// A communicator of a family, which is told of a member's end on the watcher's thread.
class ExitListener {
 public:
  virtual void on_member_exit(int32_t family_rank) const noexcept = 0;

 protected:
  ~ExitListener() = default;
};

class Family;

class Watcher {
 public:
  // Watches the family from now on, unless it has no rank in another process or no thread can be created.
  static void watch(Family& family);
  Watcher();
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // A communicator is added after its family and removed before it. add() reports members that have already died.
  void add(const Family& family, const ExitListener& communicator);
  void remove(const Family& family, const ExitListener& communicator) noexcept;

 private:
  struct Life {
    const Family* family;
    int32_t rank;
  };
  struct Watched {
    std::vector<int32_t> dead;
    std::vector<const ExitListener*> communicators;
  };

  static std::shared_ptr<Watcher> of_process();
  void add(const Family& family);
  void remove(const Family& family) noexcept;
  void run();
  void on_process_exit(uint64_t key);
  void forget(const Life& life) noexcept;

  os::Fd epoll_, stop_;
  std::mutex mutex_;
  uint64_t last_key_ = 0;  // 0 is stop_
  std::map<uint64_t, Life> lives_;
  std::map<const Family*, Watched> families_;
  std::thread thread_;
};

}  // namespace gsel::shm
