// device/device.cc: see device.h.
#include "device/device.h"

#include "base/host_services.h"

namespace gsel {

DeviceContext::DeviceContext(const gsel_device_v1& table, int32_t ordinal, std::string_view uuid) : table_(table) {
  gsel_device_options options{};
  options.struct_size = sizeof options;
  options.ordinal = ordinal;
  options.uuid = {uuid.data(), uuid.size()};
  gsel_error* err = nullptr;
  const gsel_status status = table_.open(&host_services(), &options, &ctx_, &err);
  throw_if_failed(status, err);
}

DeviceContext::~DeviceContext() {
  table_.close(ctx_);
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
