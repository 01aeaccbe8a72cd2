// comm/host/link.cc: communication of the built-in backend: the shared-memory link behind the table.
#include "comm/shm/link.h"

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

gsel_status group(gsel_link* link, const gsel_collective* calls, uint64_t n, gsel_error** err) {
  return guard(err, [&] { link->impl.group(calls, n); });
}

// A gsel_work of the table is a shm::Work here.
shm::Work& work_of(gsel_work* work) {
  return *reinterpret_cast<shm::Work*>(work);
}

gsel_status work_start(gsel_link* link, const gsel_collective* calls, uint64_t n, gsel_work** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    *out = reinterpret_cast<gsel_work*>(link->impl.start(calls, n).release());
  });
}

gsel_status work_wait(gsel_work* handle, double seconds, int32_t* done, gsel_error** err) {
  return guard(err, [&] {
    shm::Work& work = work_of(handle);
    *done = 1;
    shm::require_own_process(work.fork_generation, "request");
    if (seconds < 0)
      work.engine.wait(work);
    else
      *done = work.done.load(std::memory_order_acquire) || work.engine.wait_for(work, seconds);
    if (*done && work.failure) throw Error(*work.failure);
  });
}

// In a forked child it stays: the thread that would end it is not here.
void work_free(gsel_work* handle) {
  if (!handle) return;
  shm::Work& work = work_of(handle);
  if (work.done.load(std::memory_order_acquire)) delete &work;
}

gsel_comm_count link_counts(const gsel_link* link, gsel_collective_kind kind) {
  return link->impl.counts(kind);
}

}  // namespace

void add_link(gsel_backend_v1& table) {
  table.link_join = link_join;
  table.link_leave = link_leave;
  table.link_abort = link_abort;
  table.collective = collective;
  table.link_counts = link_counts;
  table.group = group;
  table.work_start = work_start;
  table.work_wait = work_wait;
  table.work_free = work_free;
}

}  // namespace gsel::host
