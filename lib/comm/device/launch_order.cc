// comm/device/launch_order.cc: see launch_order.h.
#include "comm/device/launch_order.h"

namespace gsel {

void LaunchOrder::begin(gsel_stream* stream) {
  const std::lock_guard lock(mutex_);
  if (on_ && on_ != stream) device_->run(&gsel_device_v1::stream_wait_event, stream, last_->get());
}

void LaunchOrder::end(gsel_stream* stream) {
  const std::lock_guard lock(mutex_);
  if (!last_) last_.emplace(device_);
  last_->record(stream);
  on_ = stream;
}

}  // namespace gsel
