// comm/device/call_clock.h: timeouts of calls on a stream. The timeout of a call starts when the stream reaches it, so
// earlier work on the stream does not count. Does not know what the calls do.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/device.h"

namespace gsel {

class CallClock {
 public:
  explicit CallClock(std::shared_ptr<DeviceContext> device) : device_(std::move(device)) {}

  // begin and end are called around the code that enqueues calls on these streams. text: of the calls, for errors.
  void begin(std::span<gsel_stream* const> streams);
  void end(std::span<gsel_stream* const> streams, const std::string& text, double timeout_s);
  void drop();  // instead of end: the calls were not enqueued
  // The error of the first call that has timed out. Any thread.
  std::optional<Error> late();
  // Whether the device is in a call, which then has a timeout of its own. Any thread.
  bool is_in_call();
  // Whether all calls have ended. Any thread.
  bool is_idle();

 private:
  struct Timed {
    Event reached, ended;
    std::string text;
    double timeout_s;
    int64_t since_ns;  // when the stream was seen to have reached it; 0: not yet
  };
  Event take_event();
  void take_ended();
  bool is_done(const Event& event) const;

  std::shared_ptr<DeviceContext> device_;
  std::mutex mutex_;
  std::vector<Event> begun_;
  std::deque<Timed> under_way_;
  std::vector<Event> spare_;
};

}  // namespace gsel
