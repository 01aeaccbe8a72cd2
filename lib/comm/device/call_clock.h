// comm/device/call_clock.h: the time of calls on a stream. The time of a call runs from the moment that the stream
// reaches it, so work that was enqueued before it costs the call nothing. Does not know what the calls do.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/device.h"

namespace gsel {

class CallClock {
 public:
  explicit CallClock(std::shared_ptr<DeviceContext> device) : device_(std::move(device)) {}

  // Around what enqueues a call. ended: text of the call and its bound.
  void begin(gsel_stream* stream);
  void end(gsel_stream* stream, std::string text, double timeout_s);
  void drop();  // the call between was not enqueued
  // The first call whose time is over, as the error that says so. Any thread.
  std::optional<Error> late();

 private:
  struct Timed {
    Event reached, ended;
    std::string text;
    double timeout_s;
    int64_t since_ns;  // 0: the stream has not reached it, as far as is known
  };
  Event take_event();
  bool is_done(const Event& event) const;

  std::shared_ptr<DeviceContext> device_;
  std::mutex mutex_;
  std::optional<Event> begun_;
  std::deque<Timed> under_way_;
  std::vector<Event> spare_;
};

}  // namespace gsel
