// plugins/transport/common/current.h: makes a device current on the calling thread, for libraries that want that.
#pragma once

#include "transport/common/failure.h"

namespace gsel_between {

class Current {
 public:
  Current(const gsel_device_v1* device, void* ctx) : device_(device), ctx_(ctx) {
    if (device_->enter) must([&](gsel_error** err) { return device_->enter(ctx_, &before_, err); });
  }
  ~Current() {
    if (device_->leave) device_->leave(ctx_, before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const gsel_device_v1* device_;
  void* ctx_;
  void* before_ = nullptr;
};

}  // namespace gsel_between
