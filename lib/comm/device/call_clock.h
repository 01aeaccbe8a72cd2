// comm/device/call_clock.h: the time of calls on a stream. The time of a call runs from the moment that the stream
// reaches it, so work that was enqueued before it costs the call nothing. Does not know what the calls do.
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

  // Around what enqueues calls on these streams. text: of the calls; timeout_s: their bound.
  void begin(std::span<gsel_stream* const> streams);
  void end(std::span<gsel_stream* const> streams, const std::string& text, double timeout_s);
  void drop();  // the calls between were not enqueued
  // The first call whose time is over, as the error that says so. Any thread.
  std::optional<Error> late();
  // Whether all calls have ended. Any thread.
  bool is_idle();

 private:
  struct Timed {
    Event reached, ended;
    std::string text;
    double timeout_s;
    int64_t since_ns;  // 0: the stream has not reached it, as far as is known
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
