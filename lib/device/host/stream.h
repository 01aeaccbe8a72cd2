// device/host/stream.h: streams of the host. A stream is a thread that works off a queue; the NULL stream is the
// caller. A failure stays with its stream: later work there is skipped, and every wait reports the failure.
#pragma once

#include <gsel/device.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/os.h"

namespace gsel::host {

// What an event knows. Work in queues keeps it alive.
class EventState {
 public:
  uint64_t start_record();  // number of the record now enqueued
  void reach(uint64_t record, const std::optional<Error>& failure);
  uint64_t last_record() const;
  bool is_done() const;              // what stood before the last record; throws its failure
  void wait(uint64_t record) const;  // throws the failure of the work before it
  int64_t time_ns() const;
  // The stream that it was last recorded on, by its count of waiters; nullptr: none.
  void follow(std::shared_ptr<std::atomic<int>> waiters);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::shared_ptr<std::atomic<int>> waiters_;
  uint64_t recorded_ = 0;
  uint64_t reached_ = 0;
  int64_t time_ns_ = 0;
  std::optional<Error> failure_;
};

// Threads that wait for the stream whose thread this is, or for an event on it; nullptr on other threads.
const std::atomic<int>* waiters_of_this_stream();

}  // namespace gsel::host

struct gsel_event {
  std::shared_ptr<gsel::host::EventState> state = std::make_shared<gsel::host::EventState>();
};

struct gsel_stream {
 public:
  gsel_stream();
  ~gsel_stream();  // works off what is queued
  gsel_stream(const gsel_stream&) = delete;
  gsel_stream& operator=(const gsel_stream&) = delete;

  // In a forked child: its thread stayed with the parent, so nothing of it can be used, waited for or destroyed.
  bool of_parent() const { return gsel::os::fork_generation() != fork_generation_; }

  void enqueue(std::function<void()> work);
  void record(std::shared_ptr<gsel::host::EventState> event);
  void wait();

 private:
  struct Item {
    std::function<void()> work;
    std::shared_ptr<gsel::host::EventState> event;  // to reach, when set
    uint64_t record = 0;
  };
  void run_queue();
  void run_item(const Item& item);

  const uint64_t fork_generation_ = gsel::os::fork_generation();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool busy_ = false;
  bool closing_ = false;
  const std::shared_ptr<std::atomic<int>> waiters_ = std::make_shared<std::atomic<int>>(0);
  std::optional<gsel::Error> failure_;
  std::thread thread_;
};

namespace gsel::host {

// At once on the NULL stream, else behind what the stream has queued.
template <class Work>
void run_on(gsel_stream* stream, Work&& work) {
  if (stream)
    stream->enqueue(std::forward<Work>(work));
  else
    work();
}

}  // namespace gsel::host
