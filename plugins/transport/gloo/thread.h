// plugins/transport/gloo/thread.h: the thread that gloo has for an address, and what is done on it. That thread looks
// for each connection's lock without waiting for it: while another thread holds one, and has lost its processor, it
// looks again and again until it has lost its own. So sends and receives are begun on that thread itself.
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
  // Behind what was given before. The task throws nothing, and ends no connection: gloo may have looked up already what
  // has come on it.
  void run(std::function<void()> task);
  // Returns when no task runs.
  void await_pause() { const std::lock_guard running(running_); }
  void handleEvents(int events) override;

  // While it lives, gloo's thread looks up from its sockets every kTickNs. Who opens or closes a connection waits for
  // that in gloo, which does so every 10 ms where nothing comes.
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
  int wake_ = -1;  // can be read while there are tasks
  std::mutex running_, mutex_;
  std::vector<std::function<void()>> tasks_;
  int timer_ = -1;
  std::mutex hurried_;
  int in_a_hurry_ = 0;
  std::unique_ptr<Ticks> ticks_;
};

}  // namespace gsel_gloo
