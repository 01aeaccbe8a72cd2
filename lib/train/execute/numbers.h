// train/execute/numbers.h: numbers of a run that the device computes and the host reads later: losses and sums of
// squares. The device writes them to page-locked memory; they are known after wait(), or immediately on devices whose
// calls are synchronous. Does not know what they mean.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "device/device.h"

namespace gsel {

class Numbers {
 public:
  // most: numbers of a run.
  Numbers(std::shared_ptr<DeviceContext> device, size_t most)
      : device_(std::move(device)),
        most_(most),
        memory_(device_, std::max<size_t>(most, 1) * sizeof(double), GSEL_MEMORY_PINNED) {}

  bool are_known_at_once() const { return !device_->compute(); }
  // Forgets all; the device must have written them.
  void clear() { n_ = 0; }
  size_t count() const { return n_; }
  // At another position of the run, which has n numbers there. After a graph launch: the device writes them as in the
  // recorded run.
  void set_count(size_t n) { n_ = n; }
  // On the compute stream. Returns the number's index.
  size_t sum_squares(const void* data, gsel_dtype dtype, uint64_t elems) {
    device_->enqueue(&gsel_device_v1::sum_squares, data, dtype, elems, next());
    return n_ - 1;
  }
  // number: an f64 of the device.
  size_t fetch(const void* number) {
    device_->enqueue(&gsel_device_v1::copy, static_cast<void*>(next()), number, uint64_t{sizeof(double)},
                     int32_t{GSEL_COPY_TO_HOST});
    return n_ - 1;
  }
  void wait() const { device_->wait(); }
  double operator[](size_t i) const { return *at(i); }
  const double* at(size_t i) const { return static_cast<const double*>(memory_.data()) + i; }

 private:
  double* next() {
    if (n_ == most_)
      throw Error(GSEL_ERR_INTERNAL, fmt::format("a run has more numbers than the {} that its program has", most_));
    return static_cast<double*>(memory_.data()) + n_++;
  }

  const std::shared_ptr<DeviceContext> device_;
  const size_t most_;
  const Memory memory_;
  size_t n_ = 0;
};

}  // namespace gsel
