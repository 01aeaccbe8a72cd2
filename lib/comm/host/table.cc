// comm/host/table.cc: the built-in backend's table. There is one device, the host itself, and nothing to open.
#include "comm/backend.h"
#include "comm/host/host.h"

namespace gsel {
namespace {

char the_host;  // a context that is not NULL

gsel_status open_device(const gsel_host_v1*, int32_t device, void** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    if (device != 0) fail(GSEL_ERR_ARG, "device {} of backend host was asked for; it has device 0 only", device);
    *out = &the_host;
  });
}

void close_device(void*) {}

gsel_backend_v1 make_table() {
  gsel_backend_v1 table{};
  table.struct_size = sizeof table;
  table.open = open_device;
  table.close = close_device;
  host::add_memory(table);
  host::add_streams(table);
  host::add_kernels(table);
  host::add_link(table);
  return table;
}

}  // namespace

const gsel_backend_v1& host_backend_table() {
  static const gsel_backend_v1 table = make_table();
  return table;
}

}  // namespace gsel
