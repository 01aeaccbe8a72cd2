// api/comm_more.cc: communicators from communicators, of gsel/comm.h.
#include <gsel/comm.h>

#include <span>

#include "api/accelerator.h"
#include "api/comm_handle.h"
#include "api/comm_request.h"
#include "base/guard.h"

extern "C" {

gsel_status gsel_comm_split(gsel_comm* comm, int32_t colour, int32_t key, gsel_comm** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    if (auto made = gsel::required(comm, "comm").impl.split(colour, key)) *out = new gsel_comm{std::move(*made)};
  });
}

gsel_status gsel_comm_create_group(gsel_comm* comm, const int32_t* ranks, size_t n, gsel_comm** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel::Communicator& all = gsel::required(comm, "comm").impl;
    *out = new gsel_comm{all.create_group(std::span(&gsel::required(ranks, "ranks"), n))};
  });
}

gsel_status gsel_comm_dup(gsel_comm* comm, gsel_comm** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_comm{gsel::required(comm, "comm").impl.dup()};
  });
}

gsel_status gsel_comm_shrink(gsel_comm* comm, gsel_comm** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_comm{gsel::required(comm, "comm").impl.shrink()};
  });
}

gsel_status gsel_comm_shrink_without(gsel_comm* comm, const int32_t* ranks, size_t n, gsel_comm** out,
                                     gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel::Communicator& all = gsel::required(comm, "comm").impl;
    if (n > 0) gsel::required(ranks, "ranks");
    *out = new gsel_comm{all.shrink_without(std::span(ranks, n))};
  });
}

gsel_status gsel_comm_resync(gsel_comm* comm, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.resync(); });
}

gsel_status gsel_comm_grow(gsel_comm* comm, const gsel_comm_options* options, gsel_comm** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel::Communicator& old = gsel::required(comm, "comm").impl;
    gsel_comm_options given = gsel::read_struct(options, "gsel_comm_options");
    if (!given.id || given.world_size == 0)
      gsel::fail(GSEL_ERR_ARG, "gsel_comm_grow: the config has no {}; it needs a fresh id and the new world_size",
                 given.id ? "world_size" : "id");
    given.rank = old.rank();
    const gsel::Config settings = gsel::settings_of(given);
    const gsel::JoinOptions join = gsel::join_of(given, settings);
    *out = new gsel_comm{old.grow(join, gsel::accelerator_of(given, settings, join))};
  });
}

gsel_status gsel_comm_set_stream(gsel_comm* comm, void* stream, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.set_stream(stream); });
}

gsel_status gsel_comm_synchronize(gsel_comm* comm, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.synchronize(); });
}

gsel_status gsel_comm_get_async_error(gsel_comm* comm, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.throw_async_error(); });
}

gsel_status gsel_comm_set_timeout(gsel_comm* comm, double timeout_s, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.set_timeout(timeout_s); });
}

}  // extern "C"
