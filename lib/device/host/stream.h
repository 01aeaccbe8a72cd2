// device/host/stream.h: streams of the host. A stream is a thread with a queue; the NULL stream is the calling thread.
// A failed stream stays failed: later work is skipped, and every wait throws the failure.
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

// State of an event; shared with queued work, which keeps it alive.
class EventState {
 public:
  uint64_t start_record();  // number of the record now enqueued
  void reach(uint64_t record, const std::optional<Error>& failure);
  uint64_t last_record() const;
  bool is_done() const;              // all work before the last record; throws its failure
  void wait(uint64_t record) const;  // throws the failure of the work before it
  int64_t time_ns() const;
  // Sets the stream of the last record, as its count of waiters; nullptr: none.
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

// Number of threads that wait for the current thread's stream or an event on it; nullptr on other threads.
const std::atomic<int>* waiters_of_this_stream();

}  // namespace gsel::host

struct gsel_event {
  std::shared_ptr<gsel::host::EventState> state = std::make_shared<gsel::host::EventState>();
};

struct gsel_stream {
 public:
  gsel_stream();
  ~gsel_stream();  // finishes queued work
  gsel_stream(const gsel_stream&) = delete;
  gsel_stream& operator=(const gsel_stream&) = delete;

  // True in a forked child: the stream's thread exists only in the parent, so the stream cannot be used or destroyed.
  bool of_parent() const { return gsel::os::fork_generation() != fork_generation_; }

  void enqueue(std::function<void()> work);
  void record(std::shared_ptr<gsel::host::EventState> event);
  void wait();

 private:
  struct Item {
    std::function<void()> work;
    std::shared_ptr<gsel::host::EventState> event;  // event to reach, if set
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

// Runs immediately on the NULL stream, else queues the work.
template <class Work>
void run_on(gsel_stream* stream, Work&& work) {
  if (stream)
    stream->enqueue(std::forward<Work>(work));
  else
    work();
}

}  // namespace gsel::host
