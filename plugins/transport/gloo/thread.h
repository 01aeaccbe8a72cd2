// plugins/transport/gloo/thread.h: gloo's thread for an address, and tasks that run on it. That thread spins on each
// connection's lock: if another thread is preempted while it holds a lock, gloo's thread spins for its whole time
// slice. So sends and receives are begun on that thread itself.
#pragma once

#include <gloo/transport/tcp/device.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gsel_gloo {

class Thread final : public gloo::transport::tcp::Handler {
 public:
  explicit Thread(const std::string& address);
  ~Thread() override;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  gloo::transport::tcp::Device& device() { return *device_; }
  // Runs a task after earlier ones. It must not throw, and must not close a connection: gloo may already have fetched
  // events of that connection.
  void run(std::function<void()> task);
  // Returns when no task runs.
  void await_pause() { const std::lock_guard running(running_); }
  void handleEvents(int events) override;

  // While it lives, gloo's event loop wakes up every kTickNs. Opening or closing a connection waits for the next
  // wake-up of the loop, which otherwise comes only every 10 ms on idle sockets.
  class Hurry {
   public:
    explicit Hurry(Thread& thread) : thread_(thread) { thread_.hurry(1); }
    ~Hurry() { thread_.hurry(-1); }
    Hurry(const Hurry&) = delete;
    Hurry& operator=(const Hurry&) = delete;

   private:
    Thread& thread_;
  };

 private:
  static constexpr long kTickNs = 50'000;
  class Ticks final : public gloo::transport::tcp::Handler {
   public:
    explicit Ticks(int timer) : timer_(timer) {}
    void handleEvents(int events) override;
    void await_pause() { const std::lock_guard running(running_); }

   private:
    std::mutex running_;
    const int timer_;
  };
  void hurry(int more);

  std::shared_ptr<gloo::transport::tcp::Device> device_;
  int wake_ = -1;  // eventfd, readable while there are tasks
  std::mutex running_, mutex_;
  std::vector<std::function<void()>> tasks_;
  int timer_ = -1;
  std::mutex hurried_;
  int in_a_hurry_ = 0;
  std::unique_ptr<Ticks> ticks_;
};

}  // namespace gsel_gloo
