// comm/device/call_clock.cc: see call_clock.h.
#include "comm/device/call_clock.h"

#include <algorithm>

#include "base/os.h"
#include "base/text.h"

namespace gsel {

Event CallClock::take_event() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) return Event(device_);
  Event event = std::move(spare_.back());
  spare_.pop_back();
  return event;
}

bool CallClock::is_done(const Event& event) const {
  int32_t done = 0;
  device_->run(&gsel_device_v1::event_done, event.get(), &done);
  return done != 0;
}

void CallClock::begin(std::span<gsel_stream* const> streams) {
  for (gsel_stream* stream : streams) {
    begun_.push_back(take_event());
    begun_.back().record(stream);
  }
}

void CallClock::drop() {
  const std::lock_guard lock(mutex_);
  for (Event& event : begun_) spare_.push_back(std::move(event));
  begun_.clear();
}

void CallClock::end(std::span<gsel_stream* const> streams, const std::string& text, double timeout_s) {
  for (size_t i = 0; i < streams.size(); ++i) {
    Event event = take_event();
    event.record(streams[i]);
    const std::lock_guard lock(mutex_);
    under_way_.push_back({std::move(begun_[i]), std::move(event), text, timeout_s, 0});
  }
  begun_.clear();
}

void CallClock::take_ended() {
  while (!under_way_.empty() && is_done(under_way_.front().ended)) {
    spare_.push_back(std::move(under_way_.front().reached));
    spare_.push_back(std::move(under_way_.front().ended));
    under_way_.pop_front();
  }
}

bool CallClock::is_idle() {
  const std::lock_guard lock(mutex_);
  take_ended();
  return under_way_.empty();
}

bool CallClock::is_in_call() {
  const std::lock_guard lock(mutex_);
  take_ended();
  return std::ranges::any_of(under_way_, [this](const Timed& call) { return is_done(call.reached); });
}

std::optional<Error> CallClock::late() {
  const std::lock_guard lock(mutex_);
  take_ended();
  const int64_t now = os::now_ns();
  for (Timed& call : under_way_) {  // all, since they may be on several streams
    if (call.since_ns == 0 && is_done(call.reached)) call.since_ns = now;
    if (call.since_ns == 0 || static_cast<double>(now - call.since_ns) * 1e-9 < call.timeout_s) continue;
    if (is_done(call.ended)) continue;
    return Error(GSEL_ERR_TIMEOUT,
                 fmt::format("{} timed out: its stream reached it {} ago and it has not ended; give each message its "
                             "partner, and make calls of several communicators in one order on every rank",
                             call.text, seconds_text(call.timeout_s)));
  }
  return std::nullopt;
}

}  // namespace gsel
