// train/execute/numbers.h: numbers of a run that the device computes and the host reads later: losses and sums of
// squares. The device writes them to page-locked memory; they are known after wait(), or at once where work has ended
// when a call returns. Does not know what they mean.
#pragma once

#include <memory>

#include "device/device.h"

namespace gsel {

class Numbers {
 public:
  // most: numbers of a run.
  Numbers(std::shared_ptr<DeviceContext> device, size_t most);

  bool are_known_at_once() const { return !device_->compute(); }
  // Forgets all; the device must have written them.
  void clear() { n_ = 0; }
  // On the compute stream. Returns the number's index.
  size_t sum_squares(const void* data, gsel_dtype dtype, uint64_t elems);
  size_t fetch(const void* number);  // an f64 of the device
  void wait() const { device_->wait(); }
  double operator[](size_t i) const { return static_cast<const double*>(memory_.data())[i]; }

 private:
  double* next();

  const std::shared_ptr<DeviceContext> device_;
  const size_t most_;
  const Memory memory_;
  size_t n_ = 0;
};

}  // namespace gsel
