// comm/device/launch_order.h: keeps calls on one device, of several communicators and on several streams, in the order
// in which they are enqueued, for transports that do not: each call waits for the end of the one before. Where a device
// has no room for two calls at a time, ranks that begin calls of two communicators in opposite orders would wait for
// each other without an end. The price is that such calls do not overlap. For calls on streams of the library's, whose
// order is the same on all ranks; the program orders its own.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "device/device.h"

namespace gsel {

class LaunchOrder {
 public:
  explicit LaunchOrder(std::shared_ptr<DeviceContext> device) : device_(std::move(device)) {}

  // Around the code that enqueues a call on the stream.
  void begin(gsel_stream* stream);
  void end(gsel_stream* stream);

 private:
  const std::shared_ptr<DeviceContext> device_;
  std::mutex mutex_;
  std::optional<Event> last_;  // at the end of the latest call
  gsel_stream* on_ = nullptr;  // its stream
};

}  // namespace gsel
