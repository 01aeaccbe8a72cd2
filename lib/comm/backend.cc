// comm/backend.cc: see backend.h.
#include "comm/backend.h"

#include "base/host_services.h"

namespace gsel {

Backend::Backend(const gsel_backend_v1& table, int32_t device) : table_(table) {
  gsel_error* err = nullptr;
  const gsel_status status = table_.open(&host_services(), device, &ctx_, &err);
  throw_if_failed(status, err);
}

Backend::~Backend() {
  table_.close(ctx_);
}

std::shared_ptr<Backend> Backend::open_host() {
  return std::make_shared<Backend>(host_backend_table(), 0);
}

Memory::Memory(std::shared_ptr<Backend> backend, uint64_t bytes) : backend_(std::move(backend)), bytes_(bytes) {
  backend_->run(&gsel_backend_v1::alloc, bytes, &data_);
}

}  // namespace gsel
