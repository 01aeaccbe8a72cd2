// api/comm.cc: gsel/comm.h.
#include <gsel/comm.h>

#include "api/comm_handle.h"
#include "api/config_handle.h"
#include "api/init_struct.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/os.h"
#include "base/text.h"

namespace {

gsel_status run(gsel_comm* comm, const gsel_collective& call, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.collective(call); });
}

}  // namespace

extern "C" {

gsel_status gsel_unique_id_create(gsel_unique_id* out, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::os::random_bytes(gsel::required(out, "out").bytes, sizeof out->bytes); });
}

void gsel_comm_config_init(gsel_comm_config* config, size_t struct_size) {
  gsel::init_struct(config, struct_size);
}

gsel_status gsel_comm_init(const gsel_comm_config* config, gsel_comm** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel_comm_config given{};
    if (config) given = gsel::read_struct(config, "gsel_comm_config");
    if (given.timeout_s == 0)
      given.timeout_s = (given.config ? given.config->impl : gsel::environment_config()).comm.timeout_s;
    *out = new gsel_comm{{gsel::Backend::open_host(), gsel::complete_join(given)}};
  });
}

int32_t gsel_comm_rank(const gsel_comm* comm) {
  return comm ? comm->impl.rank() : -1;
}
int32_t gsel_comm_world_size(const gsel_comm* comm) {
  return comm ? comm->impl.world_size() : -1;
}

gsel_status gsel_allreduce(gsel_comm* comm, const void* send, void* recv, size_t count, gsel_dtype dtype, gsel_op op,
                           gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_ALLREDUCE, send, recv, count, dtype, op, -1), err);
}

gsel_status gsel_reduce_scatter(gsel_comm* comm, const void* send, void* recv, size_t count, gsel_dtype dtype,
                                gsel_op op, gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_REDUCE_SCATTER, send, recv, count, dtype, op, -1), err);
}

gsel_status gsel_allgather(gsel_comm* comm, const void* send, void* recv, size_t count, gsel_dtype dtype,
                           gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_ALLGATHER, send, recv, count, dtype, 0, -1), err);
}

gsel_status gsel_broadcast(gsel_comm* comm, const void* send, void* recv, size_t count, gsel_dtype dtype, int32_t root,
                           gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_BROADCAST, send, recv, count, dtype, 0, root), err);
}

gsel_status gsel_barrier(gsel_comm* comm, gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_BARRIER, nullptr, nullptr, 0, 0, 0, -1), err);
}

gsel_status gsel_send(gsel_comm* comm, const void* send, size_t count, gsel_dtype dtype, int32_t peer,
                      gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_SEND, send, nullptr, count, dtype, 0, peer), err);
}

gsel_status gsel_recv(gsel_comm* comm, void* recv, size_t count, gsel_dtype dtype, int32_t peer, gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_RECV, nullptr, recv, count, dtype, 0, peer), err);
}

gsel_comm_count gsel_comm_counts(const gsel_comm* comm, gsel_collective_kind kind) {
  return comm ? comm->impl.counts(kind) : gsel_comm_count{};
}

void gsel_comm_abort(gsel_comm* comm, gsel_str reason) {
  if (comm) comm->impl.abort(gsel::view(reason));
}

void gsel_comm_destroy(gsel_comm* comm) {
  delete comm;
}

}  // extern "C"
