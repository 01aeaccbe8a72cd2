// api/comm.cc: communicators, operations and the flight recorder of gsel/comm.h; calls on communicators are in
// collective.cc, since one file would have 660 lines.
#include <gsel/comm.h>

#include <cstring>
#include <span>

#include "api/accelerator.h"
#include "api/handles.h"
#include "api/init_struct.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/options.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/call/operation.h"
#include "comm/communicator.h"
#include "comm/hosts/listening_id.h"
#include "comm/shm/trace/trace.h"

struct gsel_trace {
  std::string json;
};

namespace {

gsel::Config config_of(const gsel_comm_options& given) {
  return given.config ? given.config->impl : gsel::environment_config();
}

// `given` has the current size. The result borrows from given and settings, which must outlive it.
gsel::JoinOptions join_of(gsel_comm_options& given, const gsel::Config& settings) {
  if (given.timeout_s == 0) given.timeout_s = settings.comm.timeout_s;
  gsel::JoinOptions join = gsel::complete_join(given);
  join.find_between_hosts = gsel::between_hosts_of(given, settings);
  if (join.trace.len == 0) join.trace = gsel::borrow(settings.comm.trace);
  return join;
}

// How ranks of `old` join a larger communicator; `join` and `find` borrow from the rest.
struct Larger {
  Larger(std::string_view name, const gsel::Communicator& old, const gsel_comm_options* options)
      : given(gsel::read_struct(options, "gsel_comm_options")), settings(config_of(given)) {
    if (!given.id || given.world_size == 0)
      gsel::fail(GSEL_ERR_ARG, "{}: the config has no {}; it needs a fresh id and the new world_size", name,
                 given.id ? "world_size" : "id");
    given.rank = old.rank();
    join = join_of(given, settings);
    find = gsel::accelerator_of(given, settings, join);
  }
  Larger(const Larger&) = delete;
  Larger& operator=(const Larger&) = delete;

  gsel_comm_options given;
  const gsel::Config settings;
  gsel::JoinOptions join;
  gsel::Communicator::FindAccelerator find;
};

}  // namespace

extern "C" {

gsel_status gsel_unique_id_create(gsel_unique_id* out, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::os::random_bytes(gsel::required(out, "out").bytes, sizeof out->bytes); });
}

gsel_status gsel_unique_id_listen(gsel_unique_id* out, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(out, "out") = gsel::hosts::listen_for_id(); });
}

void gsel_comm_options_init(gsel_comm_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}

gsel_status gsel_comm_init(const gsel_comm_options* options, gsel_comm** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel_comm_options given{};
    if (options) given = gsel::read_struct(options, "gsel_comm_options");
    const gsel::Config settings = config_of(given);
    const gsel::JoinOptions join = join_of(given, settings);
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
                     "free it after that call",
                     comm->impl.name());
  delete comm;
}

// ---- communicators from communicators ------------------------------------------------------------------------------

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
    const Larger larger("gsel_comm_grow", old, options);
    *out = new gsel_comm{old.grow(larger.join, larger.find)};
  });
}

gsel_status gsel_comm_merge(gsel_comm* comm, int32_t high, const gsel_comm_options* options, gsel_comm** out,
                            gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel::Communicator& old = gsel::required(comm, "comm").impl;
    if (high != 0 && high != 1) gsel::fail(GSEL_ERR_ARG, "gsel_comm_merge: high is {}; expected 0 or 1", high);
    const Larger larger("gsel_comm_merge", old, options);
    *out = new gsel_comm{old.merge(larger.join, high == 1, larger.find)};
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

// ---- memory that other ranks can access ----------------------------------------------------------------------------

gsel_status gsel_mem_alloc(gsel_comm* comm, size_t bytes, void** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = gsel::required(comm, "comm").impl.alloc(bytes);
  });
}

gsel_status gsel_mem_free(gsel_comm* comm, void* memory, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.free(memory); });
}

gsel_status gsel_mem_register(gsel_comm* comm, void* memory, size_t bytes, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.register_memory(memory, bytes); });
}

gsel_status gsel_mem_unregister(gsel_comm* comm, void* memory, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.unregister_memory(memory); });
}

// ---- operations ----------------------------------------------------------------------------------------------------

gsel_status gsel_op_create(gsel_str name, size_t record_elems, gsel_op_fn function, void* user_data,
                           gsel_free_fn free_user_data, gsel_op* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = 0;
    if (!gsel::given(name)) gsel::fail(GSEL_ERR_ARG, "name is not given; ranks compare operations by it");
    *out = gsel::create_operation(gsel::view(name), record_elems, function, user_data, free_user_data);
  });
}

gsel_status gsel_op_create_scaled_sum(double factor, gsel_op* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = 0;
    *out = gsel::create_scaled_sum(factor);
  });
}

void gsel_op_free(gsel_op op) {
  gsel::destroy_operation(op);
}

gsel_status gsel_reduce_local(const void* const* inputs, size_t n, void* out, size_t count, gsel_dtype dtype,
                              gsel_op op, int32_t order, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::reduce_local(inputs, n, out, count, dtype, op, order); });
}

// ---- explanation of a call; the flight recorder --------------------------------------------------------------------

void gsel_comm_explanation_init(gsel_comm_explanation* explanation, size_t struct_size) {
  gsel::init_struct(explanation, struct_size);
}

gsel_status gsel_comm_explain(gsel_comm* comm, const gsel_collective* call, gsel_comm_explanation* out,
                              gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::Communicator& communicator = gsel::required(comm, "comm").impl;
    gsel::write_struct(out, communicator.explain(gsel::read_struct(call, "gsel_collective")), "gsel_comm_explanation");
  });
}

gsel_status gsel_comm_trace(const gsel_comm* comm, gsel_trace** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_trace{gsel::required(comm, "comm").impl.trace()};
  });
}

gsel_status gsel_trace_process(int32_t pid, gsel_trace** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_trace{gsel::shm::trace_of_process(pid)};
  });
}

gsel_str gsel_trace_json(const gsel_trace* trace) {
  return trace ? gsel::borrow(trace->json) : gsel_str{nullptr, 0};
}

void gsel_trace_free(gsel_trace* trace) {
  delete trace;
}

}  // extern "C"
