// api/comm.cc: gsel/comm.h.
#include <gsel/comm.h>

#include <cstring>

#include "api/accelerator.h"
#include "api/comm_handle.h"
#include "api/comm_request.h"
#include "api/init_struct.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"

extern "C" {

gsel_status gsel_unique_id_create(gsel_unique_id* out, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::os::random_bytes(gsel::required(out, "out").bytes, sizeof out->bytes); });
}

void gsel_comm_options_init(gsel_comm_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}

gsel_status gsel_comm_init(const gsel_comm_options* options, gsel_comm** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel_comm_options given{};
    if (options) given = gsel::read_struct(options, "gsel_comm_options");
    const gsel::Config settings = gsel::settings_of(given);
    const gsel::JoinOptions join = gsel::join_of(given, settings);
    *out = new gsel_comm{gsel::Communicator(join, gsel::accelerator_of(given, settings, join))};
  });
}

int32_t gsel_comm_rank(const gsel_comm* comm) {
  return comm ? comm->impl.rank() : -1;
}
int32_t gsel_comm_world_size(const gsel_comm* comm) {
  return comm ? comm->impl.world_size() : -1;
}

gsel_str gsel_comm_name(const gsel_comm* comm) {
  const char* name = comm ? comm->impl.name() : "";
  return {name, std::strlen(name)};
}

gsel_status gsel_comm_counts(const gsel_comm* comm, gsel_collective_kind kind, gsel_comm_count* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    const auto& impl = gsel::required(comm, "comm").impl;
    gsel::write_struct(out, impl.counts(kind), "gsel_comm_count");
  });
}

void gsel_comm_abort(gsel_comm* comm, gsel_str reason) {
  if (comm) comm->impl.abort(gsel::view(reason));
}

void gsel_comm_free(gsel_comm* comm) {
  if (comm && comm->impl.in_operation())
    return gsel::log(GSEL_LOG_ERROR, "comm",
                     "gsel_comm_free of communicator {} from an operation that a call on it runs: it is not released; "
                     "free it behind that call",
                     comm->impl.name());
  delete comm;
}

}  // extern "C"
