// plugins/transport/cuda_ipc/plugin.cc: the transport "cuda_ipc" (gsel/transport.h): ranks of one host whose devices'
// memory each of them reaches, several of them on one device too.
#include <gsel/plugin.h>
#include <gsel/transport.h>

#include <cstdio>

#include "link.h"

namespace gsel_ipc {
namespace {

using namespace gsel_between;

struct Transport {
  const gsel_host_v1* host;
};

constexpr int kDlCuda = 2, kVersion = 1;

gsel_status open_transport(const gsel_host_v1* host, void** out, gsel_error** err) {
  *out = nullptr;
  try {
    std::string why;
    if (!driver(&why)) fail(GSEL_ERR_NOT_FOUND, why);
    *out = new Transport{host};
    return GSEL_OK;
  } catch (...) {
    return failed(host, err);
  }
}

void close_transport(void* ctx) {
  delete static_cast<Transport*>(ctx);
}

gsel_status describe(void* ctx, gsel_transport_description* out, gsel_error** err) {
  try {
    if (!out || out->struct_size < sizeof *out) fail(GSEL_ERR_VERSION, "gsel_transport_description states no size");
    const uint32_t size = out->struct_size;
    *out = {};
    out->struct_size = size;
    out->flags = GSEL_TRANSPORT_BITWISE | GSEL_TRANSPORT_ONE_ORDER | GSEL_TRANSPORT_LAUNCH_ORDER |
                 GSEL_TRANSPORT_SHARED_DEVICE | GSEL_TRANSPORT_CAPTURE;
    out->dlpack_types = uint64_t{1} << kDlCuda;
    out->version = kVersion;
    return GSEL_OK;
  } catch (...) {
    return failed(static_cast<Transport*>(ctx)->host, err);
  }
}

gsel_status link_join(void* ctx, const gsel_join* given, gsel_link** out, gsel_error** err) {
  *out = nullptr;
  const gsel_host_v1* host = static_cast<Transport*>(ctx)->host;
  try {
    if (!given || given->struct_size < sizeof *given || !given->device_table || !given->control)
      fail(GSEL_ERR_ARG, "cuda_ipc joins ranks that have a device; name one in gsel_comm_options.accelerator");
    *out = join(host, *given);
    return GSEL_OK;
  } catch (...) {
    return failed(host, err);
  }
}

gsel_transport_v2 make_table() {
  gsel_transport_v2 table{};
  table.struct_size = sizeof table;
  table.open = open_transport;
  table.close = close_transport;
  table.describe = describe;
  table.link_join = link_join;
  table.link_leave = leave;
  table.link_abort = [](gsel_link* link, const char*) { abort(link); };
  table.link_note = [](gsel_link* link) { return link->note.c_str(); };
  add_calls(table);
  return table;
}

int32_t probe(const gsel_host_v1*, char* reason, size_t capacity) {
  std::string why;
  if (driver(&why)) return 50;  // below nccl, which has all that devices of their own need
  snprintf(reason, capacity, "%s", why.c_str());
  return 0;
}

const gsel_transport_v2 table = make_table();

}  // namespace
}  // namespace gsel_ipc

GSEL_PLUGIN_DEFINE = {sizeof(struct gsel_plugin_v1),
                      0,
                      GSEL_PLUGIN_ABI_MAJOR,
                      GSEL_PLUGIN_ABI_MINOR,
                      GSEL_PLUGIN_TRANSPORT,
                      0,
                      "cuda_ipc",
                      "1.0",
                      "compiler " __VERSION__,
                      &gsel_ipc::table,
                      gsel_ipc::probe};
