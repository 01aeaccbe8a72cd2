// device/host/table.cc: the host device's table. There is one device, the host, and nothing to open.
#include "device/host/table.h"

#include <unistd.h>

#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"

namespace gsel {
namespace {

char the_host;  // any non-NULL context

gsel_status open_device(const gsel_host_v1*, const gsel_device_options* options, void** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    const gsel_device_options given = read_struct(options, "gsel_device_options");
    check_flags(given.flags, 0, "gsel_device_options.flags");
    if (given.ordinal != 0)
      fail(GSEL_ERR_ARG, "device {} of the host was asked for; the host has device 0 only", given.ordinal);
    if (const std::string_view uuid = view(given.uuid); !uuid.empty())
      fail(GSEL_ERR_NO_DEVICES, "device {} was asked for; the host device has no uuid", uuid);
    *out = &the_host;
  });
}

gsel_status describe(void*, gsel_device_description* out, gsel_error** err) {
  return guard(err, [&] {
    gsel_device_description host{};
    host.flags = GSEL_DEVICE_HOST_MEMORY | GSEL_DEVICE_SYNCHRONOUS;
    host.dlpack_type = 1;
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    host.memory_bytes = page * static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
    host.free_bytes = page * static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES));
    host.name = GSEL_STR("host");
    write_struct(out, host, "gsel_device_description");
  });
}

void close_device(void*) {}

gsel_device_v1 make_table() {
  gsel_device_v1 table{};
  table.struct_size = sizeof table;
  table.open = open_device;
  table.close = close_device;
  table.describe = describe;
  host::add_memory(table);
  host::add_streams(table);
  host::add_kernels(table);
  return table;
}

}  // namespace

const gsel_device_v1& host_device_table() {
  static const gsel_device_v1 table = make_table();
  return table;
}

}  // namespace gsel
