// comm/shm/regroup/maker.h: makes a communicator asynchronously, on a thread of its own. Does not know how it is made.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/os.h"
#include "comm/interface/backend.h"

namespace gsel::shm {

class Maker {
 public:
  explicit Maker(std::function<void()> make);
  ~Maker();
  Maker(const Maker&) = delete;
  Maker& operator=(const Maker&) = delete;

  uint64_t fork_generation() const { return fork_generation_; }
  bool has_ended();
  // Waits at most `seconds` and returns whether it has ended; negative: no limit. Throws its failure.
  bool wait(double seconds);
  void tell(const std::shared_ptr<Listener>& listener);
  void join();

 private:
  void run(const std::function<void()>& make) noexcept;

  const uint64_t fork_generation_ = os::fork_generation();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::optional<Error> failure_;
  std::shared_ptr<Listener> listener_;
  std::unique_ptr<std::thread> thread_;
};

// The caller's request for a Maker. The endpoint keeps the Maker until its thread has ended.
class BackgroundCreation final : public BackendRequest {
 public:
  explicit BackgroundCreation(std::shared_ptr<Maker> maker) : maker_(std::move(maker)) {}
  bool wait(double seconds) override;
  bool tell(const std::shared_ptr<Listener>& listener) override;

 private:
  const std::shared_ptr<Maker> maker_;
};

}  // namespace gsel::shm
