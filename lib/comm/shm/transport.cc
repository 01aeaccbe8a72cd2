// comm/shm/transport.cc: see transport.h. Each function of the table calls the link behind it inside a guard. Streams
// are those of the host device.
#include "comm/shm/transport.h"

#include <cstring>
#include <new>

#include "base/guard.h"
#include "comm/shm/link.h"
#include "device/host/stream.h"

struct gsel_link {
  gsel::shm::Link impl;
};

namespace gsel::shm {
namespace {

gsel_status open_transport(const gsel_host_v1*, void** out, gsel_error**) {
  *out = nullptr;
  return GSEL_OK;
}

void close_transport(void*) {}

gsel_status link_join(void*, const gsel_join* join, gsel_link** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    *out = new gsel_link{Link(*join)};
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

gsel_status group(gsel_link* link, const gsel_collective* calls, uint64_t n, gsel_error** err) {
  return guard(err, [&] { link->impl.group(calls, n); });
}

// A gsel_pending of the table is a Work here.
Work& work_of(gsel_pending* work) {
  return *reinterpret_cast<Work*>(work);
}

gsel_status work_start(gsel_link* link, const gsel_collective* calls, uint64_t n, gsel_pending** out,
                       gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    *out = reinterpret_cast<gsel_pending*>(link->impl.start(calls, n).release());
  });
}

gsel_status work_wait(gsel_pending* handle, double seconds, int32_t* done, gsel_error** err) {
  return guard(err, [&] {
    Work& work = work_of(handle);
    *done = 1;
    require_own_process(work.fork_generation, "request");
    if (seconds < 0)
      work.engine.wait(work);
    else
      *done = work.done.load(std::memory_order_acquire) || work.engine.wait_for(work, seconds);
    if (*done && work.failure) throw Error(*work.failure);
  });
}

// In a forked child it stays: the thread that would end it is not here.
void work_free(gsel_pending* handle) {
  if (!handle) return;
  Work& work = work_of(handle);
  if (work.done.load(std::memory_order_acquire)) delete &work;
}

gsel_status link_counts(const gsel_link* link, gsel_collective_kind kind, gsel_comm_count* out, gsel_error** err) {
  return guard(err, [&] { *out = link->impl.counts(kind); });
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

gsel_membership membership_of(const Link& link) {
  return {link.rank(), link.world_size()};
}

gsel_status link_split(gsel_link* link, int32_t colour, int32_t key, gsel_membership* membership, gsel_link** out,
                       gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    if (auto made = link->impl.split(colour, key)) {
      *out = new gsel_link{Link(std::move(*made))};
      *membership = membership_of((*out)->impl);
    }
  });
}

gsel_status link_create_group(gsel_link* link, const int32_t* ranks, uint64_t n, gsel_membership* membership,
                              gsel_link** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    *out = new gsel_link{Link(link->impl.create_group({ranks, ranks + n}))};
    *membership = membership_of((*out)->impl);
  });
}

gsel_status link_dup(gsel_link* link, gsel_membership* membership, gsel_link** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    *out = new gsel_link{Link(link->impl.dup())};
    *membership = membership_of((*out)->impl);
  });
}

const char* link_name(const gsel_link* link) {
  return link->impl.name();
}

gsel_status link_shrink(gsel_link* link, gsel_membership* membership, gsel_link** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    *out = new gsel_link{Link(link->impl.shrink())};
    *membership = membership_of((*out)->impl);
  });
}

gsel_status link_resync(gsel_link* link, gsel_error** err) {
  return guard(err, [&] { link->impl.resync(); });
}

gsel_status link_set_timeout(gsel_link* link, double timeout_s, gsel_error** err) {
  return guard(err, [&] { link->impl.set_timeout(timeout_s); });
}

gsel_status link_alloc(gsel_link* link, uint64_t bytes, void** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    *out = link->impl.family("gsel_mem_alloc").alloc(bytes);
  });
}

gsel_status link_free(gsel_link* link, void* memory, gsel_error** err) {
  return guard(err, [&] { link->impl.family("gsel_mem_free").free(memory); });
}

gsel_status link_register(gsel_link* link, void* memory, uint64_t bytes, gsel_error** err) {
  return guard(err, [&] { link->impl.family("gsel_mem_register").register_memory(memory, bytes); });
}

gsel_status link_unregister(gsel_link* link, void* memory, gsel_error** err) {
  return guard(err, [&] { link->impl.family("gsel_mem_unregister").unregister_memory(memory); });
}

gsel_transport_v1 make_table() {
  gsel_transport_v1 table{};
  table.struct_size = sizeof table;
  table.open = open_transport;
  table.close = close_transport;
  table.link_join = link_join;
  table.link_leave = link_leave;
  table.link_abort = link_abort;
  table.collective = collective;
  table.link_counts = link_counts;
  table.group = group;
  table.work_start = work_start;
  table.work_wait = work_wait;
  table.work_free = work_free;
  table.link_explain = link_explain;
  table.link_trace = link_trace;
  table.link_split = link_split;
  table.link_create_group = link_create_group;
  table.link_dup = link_dup;
  table.link_name = link_name;
  table.link_shrink = link_shrink;
  table.link_resync = link_resync;
  table.link_set_timeout = link_set_timeout;
  table.link_alloc = link_alloc;
  table.link_free = link_free;
  table.link_register = link_register;
  table.link_unregister = link_unregister;
  return table;
}

}  // namespace

Link& link_of(gsel_link* link) {
  return link->impl;
}

bool cancel(gsel_pending* handle) {
  Work& work = work_of(handle);
  require_own_process(work.fork_generation, "request");
  return !work.done.load(std::memory_order_acquire) && work.engine.cancel(work);
}

void wait_or_cancel(gsel_pending* handle) {
  Work& work = work_of(handle);
  require_own_process(work.fork_generation, "request");
  if (!work.done.load(std::memory_order_acquire)) work.engine.wait_or_cancel(work);
}

gsel_status shrink_without(gsel_link* link, const int32_t* ranks, uint64_t n, gsel_membership* membership,
                           gsel_link** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    *out = new gsel_link{Link(link->impl.shrink({ranks, ranks + n}))};
    *membership = membership_of((*out)->impl);
  });
}

gsel_status split_inside(gsel_link* link, int32_t colour, int32_t key, const char* label, gsel_membership* membership,
                         gsel_link** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    if (auto made = link->impl.split_inside(colour, key, label)) {
      *out = new gsel_link{Link(std::move(*made))};
      *membership = membership_of((*out)->impl);
    }
  });
}

const gsel_transport_v1& transport_table() {
  static const gsel_transport_v1 table = make_table();
  return table;
}

}  // namespace gsel::shm
