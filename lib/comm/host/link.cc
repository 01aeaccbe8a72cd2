// comm/host/link.cc: communication of the built-in backend: the shared-memory link behind the table.
#include "comm/shm/link.h"

#include <cstring>
#include <new>

#include "comm/host/host.h"
#include "comm/host/stream.h"

struct gsel_link {
  gsel::shm::Link impl;
};

namespace gsel::host {
namespace {

gsel_status link_join(void*, const gsel_join* join, gsel_link** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    *out = new gsel_link{shm::Link(*join)};
  });
}

void link_leave(gsel_link* link) {
  delete link;
}

void link_abort(gsel_link* link, const char* reason) {
  link->impl.abort(reason);
}

gsel_status collective(gsel_link* link, const gsel_collective* call, gsel_stream* stream, gsel_error** err) {
  return guard(err, [&] {
    if (stream)
      stream->enqueue([link, copy = *call] { link->impl.collective(copy); });
    else
      link->impl.collective(*call);
  });
}

gsel_comm_count link_counts(const gsel_link* link, gsel_collective_kind kind) {
  return link->impl.counts(kind);
}

gsel_status link_explain(gsel_link* link, const gsel_collective* call, gsel_comm_explanation* out, gsel_error** err) {
  return guard(err, [&] { *out = link->impl.explain(*call); });
}

gsel_status link_trace(const gsel_link* link, char** out, gsel_error** err) {
  return guard(err, [&] {
    *out = strdup(link->impl.trace().c_str());
    if (!*out) throw std::bad_alloc();
  });
}

}  // namespace

void add_link(gsel_backend_v1& table) {
  table.link_join = link_join;
  table.link_leave = link_leave;
  table.link_abort = link_abort;
  table.collective = collective;
  table.link_counts = link_counts;
  table.link_explain = link_explain;
  table.link_trace = link_trace;
}

}  // namespace gsel::host
