// plugins/transport/mpi/plugin.cc: the transports "mpi_openmpi" and "mpi_mpich" (gsel/transport.h): move bytes between
// hosts through an MPI that its launcher has started. Compiled once for each implementation.
#include <gsel/plugin.h>

#include "link.h"

namespace gsel_mpi {
namespace {

using gsel_between::fail;
using gsel_between::failed;

constexpr uint64_t kDlCpu = 1;

struct Transport {
  const gsel_host_v1* host;
};

// MPI is loaded and initialised when the first link is joined.
gsel_status open_transport(const gsel_host_v1* host, void** out, gsel_error**) {
  static Transport transport;
  transport.host = host;
  *out = &transport;
  return GSEL_OK;
}

gsel_status describe(void* ctx, gsel_transport_description* out, gsel_error** err) {
  try {
    if (!out || out->struct_size < sizeof *out) fail(GSEL_ERR_VERSION, "gsel_transport_description states no size");
    const uint32_t size = out->struct_size;
    *out = {};
    out->struct_size = size;
    out->flags = GSEL_TRANSPORT_HOST_SYNCHRONOUS | GSEL_TRANSPORT_PROMPT;
    out->dlpack_types = 1u << kDlCpu;
    out->version = kVersion;
    out->library = {kFile, std::char_traits<char>::length(kFile)};
    return GSEL_OK;
  } catch (...) {
    return failed(static_cast<Transport*>(ctx)->host, err);
  }
}

gsel_status link_join(void* ctx, const gsel_join* given, gsel_link** out, gsel_error** err) {
  *out = nullptr;
  const gsel_host_v1* host = static_cast<Transport*>(ctx)->host;
  try {
    if (!given || given->struct_size < sizeof *given || !given->control)
      fail(GSEL_ERR_ARG, "MPI joins ranks that have a control");
    *out = join(host, *given);
    return GSEL_OK;
  } catch (...) {
    return failed(host, err);
  }
}

gsel_status enqueue(const gsel_enqueued* calls, uint64_t n, double, gsel_error** err) {
  if (n == 0) return GSEL_OK;
  if (err) *err = calls[0].link->host->error_new(GSEL_ERR_UNSUPPORTED, "this transport moves bytes alone");
  return GSEL_ERR_UNSUPPORTED;
}

gsel_transport_v2 make_table() {
  gsel_transport_v2 table{};
  table.struct_size = sizeof table;
  table.open = open_transport;
  table.close = [](void*) {};
  table.describe = describe;
  table.link_join = link_join;
  table.link_leave = leave;
  table.link_abort = [](gsel_link* link, const char*) { link->aborting = true; };
  table.supports = gsel_between::supports_nothing;
  table.enqueue = enqueue;
  table.link_native = [](gsel_link* link) -> void* { return &link->comm; };
  table.link_note = [](gsel_link* link) { return link->mpi->note.c_str(); };
  add_transfers(table);
  return table;
}

const gsel_transport_v2 table = make_table();

}  // namespace
}  // namespace gsel_mpi

#ifdef OPEN_MPI
#define GSEL_MPI_PLUGIN "mpi_openmpi"
#else
#define GSEL_MPI_PLUGIN "mpi_mpich"
#endif
GSEL_PLUGIN_DEFINE = {sizeof(struct gsel_plugin_v1),
                      0,
                      GSEL_PLUGIN_ABI_MAJOR,
                      GSEL_PLUGIN_ABI_MINOR,
                      GSEL_PLUGIN_TRANSPORT,
                      0,
                      GSEL_MPI_PLUGIN,
                      "1.0",
                      "compiler " __VERSION__,
                      &gsel_mpi::table,
                      nullptr};
