// train/execute/numbers.cc: see numbers.h.
#include "train/execute/numbers.h"

#include <algorithm>

namespace gsel {

Numbers::Numbers(std::shared_ptr<DeviceContext> device, size_t most)
    : device_(std::move(device)),
      most_(most),
      memory_(device_, std::max<size_t>(most, 1) * sizeof(double), GSEL_MEMORY_PINNED) {}

double* Numbers::next() {
  if (n_ == most_) fail(GSEL_ERR_INTERNAL, "a run has more numbers than the {} that its program has", most_);
  return static_cast<double*>(memory_.data()) + n_++;
}

size_t Numbers::sum_squares(const void* data, gsel_dtype dtype, uint64_t elems) {
  device_->enqueue(&gsel_device_v1::sum_squares, data, dtype, elems, next());
  return n_ - 1;
}

size_t Numbers::fetch(const void* number) {
  device_->enqueue(&gsel_device_v1::copy, static_cast<void*>(next()), number, uint64_t{sizeof(double)},
                   int32_t{GSEL_COPY_TO_HOST});
  return n_ - 1;
}

}  // namespace gsel
