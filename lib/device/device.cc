// device/device.cc: see device.h.
#include "device/device.h"

#include "base/foreign.h"
#include "device/host/table.h"

namespace gsel {

DeviceContext::DeviceContext(const gsel_device_v1& table, int32_t ordinal, std::string_view uuid) : table_(table) {
  gsel_device_options options{};
  options.struct_size = sizeof options;
  options.ordinal = ordinal;
  options.uuid = {uuid.data(), uuid.size()};
  gsel_error* err = nullptr;
  const gsel_status status = table_.open(&host_services(), &options, &ctx_, &err);
  throw_if_failed(status, err);
  try {
    is_synchronous_ = (describe().flags & GSEL_DEVICE_SYNCHRONOUS) != 0;
  } catch (...) {
    table_.close(ctx_);
    throw;
  }
}

DeviceContext::~DeviceContext() {
  if (compute_) table_.stream_free(ctx_, compute_);
  if (number_) table_.free(ctx_, number_);
  table_.close(ctx_);
}

// ---- computing ------------------------------------------------------------------------------------------------------

gsel_stream* DeviceContext::compute() const {
  if (is_synchronous_) return nullptr;
  std::call_once(made_, [this] {
    void* number = nullptr;
    run(&gsel_device_v1::alloc, int32_t{GSEL_MEMORY_PINNED}, uint64_t{sizeof(double)}, &number);
    number_ = static_cast<double*>(number);
    run(&gsel_device_v1::stream_create, uint32_t{0}, &compute_);
  });
  return compute_;
}

void* DeviceContext::native_compute() const {
  gsel_stream* stream = compute();
  return stream ? table_.stream_native(ctx_, stream) : nullptr;
}

void DeviceContext::wait() const {
  if (gsel_stream* stream = compute()) run(&gsel_device_v1::stream_wait, stream);
}

void DeviceContext::copy(void* dst, const void* src, uint64_t bytes, int32_t direction) const {
  enqueue(&gsel_device_v1::copy, dst, src, bytes, direction);
  if (direction != GSEL_COPY_ON_DEVICE) wait();
}

double DeviceContext::sum_squares(const void* data, gsel_dtype dtype, uint64_t elems) const {
  double sum = 0;
  double* out = compute() ? number_ : &sum;
  enqueue(&gsel_device_v1::sum_squares, data, dtype, elems, out);
  wait();
  return *out;
}

gsel_device_description DeviceContext::describe() const {
  gsel_device_description description{};
  description.struct_size = sizeof description;
  run(&gsel_device_v1::describe, &description);
  return description;
}

std::shared_ptr<DeviceContext> DeviceContext::open_host() {
  return std::make_shared<DeviceContext>(host_device_table(), 0);
}

Memory::Memory(std::shared_ptr<DeviceContext> device, uint64_t bytes, int32_t kind)
    : device_(std::move(device)), bytes_(bytes) {
  device_->run(&gsel_device_v1::alloc, kind, bytes, &data_);
}

}  // namespace gsel
