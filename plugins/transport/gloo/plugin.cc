// plugins/transport/gloo/plugin.cc: the transport "gloo" (gsel/transport.h): moves bytes between hosts over TCP, by the
// library of that name.
#include <dlfcn.h>
#include <gloo/config.h>
#include <gsel/plugin.h>

#include "link.h"

namespace gsel_gloo {
namespace {

using gsel_between::fail;
using gsel_between::failed;

constexpr int kVersion = GLOO_VERSION_MAJOR * 10000 + GLOO_VERSION_MINOR * 100 + GLOO_VERSION_PATCH;
constexpr uint64_t kDlCpu = 1;

gsel_status open_transport(const gsel_host_v1* host, void** out, gsel_error** err) {
  *out = nullptr;
  try {
    auto transport = std::make_unique<Transport>();
    transport->host = host;
    Dl_info info{};
    const auto inside = reinterpret_cast<void*>(&gloo::transport::tcp::CreateDevice);
    transport->library = dladdr(inside, &info) && info.dli_fname ? info.dli_fname : "libgloo";
    *out = transport.release();
    return GSEL_OK;
  } catch (...) {
    return failed(host, err);
  }
}

void close_transport(void* ctx) {
  delete static_cast<Transport*>(ctx);
}

gsel_status describe(void* ctx, gsel_transport_description* out, gsel_error** err) {
  const auto& transport = *static_cast<Transport*>(ctx);
  try {
    if (!out || out->struct_size < sizeof *out) fail(GSEL_ERR_VERSION, "gsel_transport_description states no size");
    const uint32_t size = out->struct_size;
    *out = {};
    out->struct_size = size;
    out->flags = GSEL_TRANSPORT_HOST_SYNCHRONOUS;
    out->dlpack_types = 1u << kDlCpu;
    out->version = kVersion;
    out->library = {transport.library.data(), transport.library.size()};
    return GSEL_OK;
  } catch (...) {
    return failed(transport.host, err);
  }
}

gsel_status link_join(void* ctx, const gsel_join* given, gsel_link** out, gsel_error** err) {
  *out = nullptr;
  auto& transport = *static_cast<Transport*>(ctx);
  try {
    if (!given || given->struct_size < sizeof *given || !given->control)
      fail(GSEL_ERR_ARG, "gloo joins ranks that have a control");
    *out = join(transport, *given);
    return GSEL_OK;
  } catch (...) {
    return failed(transport.host, err);
  }
}

gsel_status enqueue(const gsel_enqueued* calls, uint64_t n, double, gsel_error** err) {
  if (n == 0) return GSEL_OK;
  if (err) *err = calls[0].link->host->error_new(GSEL_ERR_UNSUPPORTED, "gloo moves bytes, and makes no collectives");
  return GSEL_ERR_UNSUPPORTED;
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
  table.supports = gsel_between::supports_nothing;
  table.enqueue = enqueue;
  add_transfers(table);
  return table;
}

const gsel_transport_v2 table = make_table();

}  // namespace
}  // namespace gsel_gloo

GSEL_PLUGIN_DEFINE = {sizeof(struct gsel_plugin_v1),
                      0,
                      GSEL_PLUGIN_ABI_MAJOR,
                      GSEL_PLUGIN_ABI_MINOR,
                      GSEL_PLUGIN_TRANSPORT,
                      0,
                      "gloo",
                      "1.0",
                      "compiler " __VERSION__,
                      &gsel_gloo::table,
                      nullptr};
