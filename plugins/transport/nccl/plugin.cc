// plugins/transport/nccl/plugin.cc: the transport "nccl" (gsel/transport.h): NVIDIA's collectives between GPUs, or
// "rccl": AMD's, loaded at run time.
#include <gsel/log.h>
#include <gsel/plugin.h>
#include <gsel/transport.h>

#include <cstdio>
#include <cstdlib>

#include "link.h"

namespace gsel_nccl {
namespace {

gsel_status open_transport(const gsel_host_v1* host, void** out, gsel_error** err) {
  *out = nullptr;
  try {
    std::string why;
    const Library* nccl = library(&why);
    if (!nccl) fail(GSEL_ERR_NOT_FOUND, why);
    const int version = version_of(*nccl);
    if (version == 0) fail(GSEL_ERR_PLUGIN, nccl->path + " does not tell its version");
    auto* transport = new Transport{host, nccl, version, ask_for_order(*nccl, version)};
    *out = transport;
    host->log(transport->order.is_kept ? GSEL_LOG_DEBUG : GSEL_LOG_INFO, GSEL_NCCL_PLUGIN,
              ("order of launches: " + transport->order.note).c_str());
    return GSEL_OK;
  } catch (...) {
    return failed(host, err);
  }
}

void close_transport(void* ctx) {
  delete static_cast<Transport*>(ctx);
}

template <class... Bits>
constexpr uint64_t set_of(Bits... bits) {
  return ((uint64_t{1} << bits) | ...);
}

bool is_set(const char* name) {
  const char* value = secure_getenv(name);
  return value && atoi(value) != 0;
}

// Ranks of one process access each other's buffers in place, unless NCCL's own variables forbid it.
uint32_t in_place() {
  return is_set("NCCL_P2P_DISABLE") || is_set("NCCL_P2P_DIRECT_DISABLE") ? 0 : GSEL_TRANSPORT_IN_PLACE;
}

gsel_status describe(void* ctx, gsel_transport_description* out, gsel_error** err) {
  const auto& transport = *static_cast<Transport*>(ctx);
  try {
    if (!out || out->struct_size < sizeof *out) fail(GSEL_ERR_VERSION, "gsel_transport_description states no size");
    const uint32_t size = out->struct_size;
    *out = {};
    out->struct_size = size;
    out->flags = GSEL_TRANSPORT_OWN_DEVICE | in_place();
    if (kCaptures) out->flags |= GSEL_TRANSPORT_CAPTURE;
    if (transport.order.is_kept) out->flags |= GSEL_TRANSPORT_LAUNCH_ORDER;
    out->dlpack_types = set_of(kDlpackType);
    out->version = transport.version;
    out->library = {transport.nccl->path.data(), transport.nccl->path.size()};
    return GSEL_OK;
  } catch (...) {
    return failed(transport.host, err);
  }
}

gsel_status link_join(void* ctx, const gsel_join* given, gsel_link** out, gsel_error** err) {
  *out = nullptr;
  const auto& transport = *static_cast<Transport*>(ctx);
  try {
    if (!given || given->struct_size < sizeof *given || !given->device_table || !given->control)
      fail(GSEL_ERR_ARG, GSEL_NCCL_PLUGIN " joins ranks that have a device; name one in gsel_comm_options.accelerator");
    *out = join(transport, *given);
    return GSEL_OK;
  } catch (...) {
    return failed(transport.host, err);
  }
}

const char* library_note() {
  static const std::string* const note = [] {
    const Library* nccl = library(nullptr);
    return new std::string(nccl ? features_of(*nccl, version_of(*nccl)) : "");
  }();
  return note->c_str();
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
  table.link_note = [](gsel_link* link) { return link->notes.back().c_str(); };
  table.library_note = library_note;
  add_calls(table);
  add_memory(table);
  return table;
}

int32_t probe(const gsel_host_v1*, char* reason, size_t capacity) {
  std::string why;
  if (library(&why)) return 100;
  snprintf(reason, capacity, "%s", why.c_str());
  return 0;
}

const gsel_transport_v2 table = make_table();

}  // namespace
}  // namespace gsel_nccl

GSEL_PLUGIN_DEFINE = {sizeof(struct gsel_plugin_v1),
                      0,
                      GSEL_PLUGIN_ABI_MAJOR,
                      GSEL_PLUGIN_ABI_MINOR,
                      GSEL_PLUGIN_TRANSPORT,
                      0,
                      GSEL_NCCL_PLUGIN,
                      "1.0",
                      "compiler " __VERSION__,
                      &gsel_nccl::table,
                      gsel_nccl::probe};
