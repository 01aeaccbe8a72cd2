// api/comm.cc: gsel/comm.h.
#include <gsel/comm.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "api/handles.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/options.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/call/operation.h"
#include "comm/communicator.h"
#include "comm/hosts/listening_id.h"
#include "comm/request.h"
#include "comm/shm/trace/trace.h"

struct gsel_trace {
  std::string json;
};

struct gsel_request {
  gsel::CallRequest impl;
};

struct gsel_queue {
  std::shared_ptr<gsel::CompletionQueue> impl = std::make_shared<gsel::CompletionQueue>();
};

namespace {

gsel::Config config_of(const gsel_comm_options& given) {
  return given.config ? given.config->impl : gsel::environment_config();
}

gsel_status run(gsel_comm* comm, gsel_collective&& call, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.collective(call); });
}

gsel_collective counted(gsel_collective_kind kind, const void* send, void* recv, gsel_dtype dtype, gsel_op op = 0,
                        int32_t root = -1) {
  return gsel::make_collective(kind, send, recv, 0, dtype, op, root);
}

gsel_collective probe(gsel_collective_kind kind, int32_t source, int32_t tag, gsel_message* message) {
  gsel_collective call = gsel::make_collective(kind, nullptr, nullptr, 0, 0, 0, source);
  call.tag = tag;
  call.received = message;
  return call;
}

constexpr double kLongestWait = 1e8;  // seconds, three years: fits in a clock's nanoseconds

std::unique_ptr<gsel_request> make_request(gsel_comm* comm, std::vector<gsel_collective> calls,
                                           gsel::CallRequest::Use use) {
  gsel::Communicator& communicator = gsel::required(comm, "comm").impl;
  return std::unique_ptr<gsel_request>(new gsel_request{{communicator, std::move(calls), use}});
}

std::vector<gsel_collective> read_call(const gsel_collective* call) {
  return {gsel::read_struct(call, "gsel_collective")};
}

gsel::CallRequest& live(gsel_request* request) {
  return gsel::required(request, "request").impl;
}

// ranks[n]: the ranks that the operation names.
gsel_status start_making(gsel_comm* comm, gsel_request** out, gsel_error** err, gsel::Making making,
                         const int32_t* ranks, size_t n) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel::Communicator& from = gsel::required(comm, "comm").impl;
    if (n > static_cast<size_t>(from.world_size()))
      gsel::fail(GSEL_ERR_ARG, "n is {}; the communicator has {}", n, gsel::with_noun(from.world_size(), "rank"));
    if (n > 0) making.ranks.assign(&gsel::required(ranks, "ranks"), ranks + n);
    auto request = std::unique_ptr<gsel_request>(new gsel_request{{from, std::move(making)}});
    request->impl.start();
    *out = request.release();
  });
}

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
    *out = new gsel_comm{gsel::Communicator::join(given, settings)};
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
    const gsel_comm_options given = gsel::read_struct(options, "gsel_comm_options");
    const gsel::Config settings = config_of(given);
    *out = new gsel_comm{old.grow(given, settings)};
  });
}

gsel_status gsel_comm_merge(gsel_comm* comm, int32_t high, const gsel_comm_options* options, gsel_comm** out,
                            gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    gsel::Communicator& old = gsel::required(comm, "comm").impl;
    if (high != 0 && high != 1) gsel::fail(GSEL_ERR_ARG, "gsel_comm_merge: high is {}; expected 0 or 1", high);
    const gsel_comm_options given = gsel::read_struct(options, "gsel_comm_options");
    const gsel::Config settings = config_of(given);
    *out = new gsel_comm{old.merge(given, high == 1, settings)};
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

// ---- calls at once -------------------------------------------------------------------------------------------------

void gsel_collective_init(gsel_collective* call, size_t struct_size) {
  gsel::init_struct(call, struct_size);
}

void gsel_message_init(gsel_message* message, size_t struct_size) {
  gsel::init_struct(message, struct_size);
}

gsel_status gsel_comm_run(gsel_comm* comm, const gsel_collective* call, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel_collective given = gsel::read_struct(call, "gsel_collective");
    gsel::required(comm, "comm").impl.collective(given);
  });
}

gsel_status gsel_group_run(gsel_comm* const* comms, const gsel_collective* const* calls, size_t n, gsel_error** err) {
  return gsel::guard(err, [&] {
    if (n == 0) return;
    gsel::required(comms, "comms");
    gsel::required(calls, "calls");
    std::vector<gsel::GroupCall> group;
    for (size_t i = 0; i < n; ++i) {
      if (!comms[i] || !calls[i])
        gsel::fail(GSEL_ERR_ARG, "{}[{}] is NULL in a group of {}", comms[i] ? "calls" : "comms", i, n);
      gsel::require_own_process(comms[i]->impl.fork_generation(), "gsel_group_run");
      group.push_back({&comms[i]->impl, gsel::read_struct(calls[i], "gsel_collective")});
    }
    gsel::run_group(group);
  });
}

gsel_status gsel_allreduce(gsel_comm* comm, const void* send, void* recv, size_t count, gsel_dtype dtype, gsel_op op,
                           gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_ALLREDUCE, send, recv, count, dtype, op), err);
}

gsel_status gsel_reduce(gsel_comm* comm, const void* send, void* recv, size_t count, gsel_dtype dtype, gsel_op op,
                        int32_t root, gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_REDUCE, send, recv, count, dtype, op, root), err);
}

gsel_status gsel_reduce_scatter(gsel_comm* comm, const void* send, void* recv, size_t count, gsel_dtype dtype,
                                gsel_op op, gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_REDUCE_SCATTER, send, recv, count, dtype, op), err);
}

gsel_status gsel_reduce_scatterv(gsel_comm* comm, const void* send, void* recv, const uint64_t* counts,
                                 const uint64_t* offsets, gsel_dtype dtype, gsel_op op, gsel_error** err) {
  gsel_collective call = counted(GSEL_COLLECTIVE_REDUCE_SCATTERV, send, recv, dtype, op);
  call.recv_counts = counts;
  call.send_offsets = offsets;
  return run(comm, std::move(call), err);
}

gsel_status gsel_allgather(gsel_comm* comm, const void* send, void* recv, size_t count, gsel_dtype dtype,
                           gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_ALLGATHER, send, recv, count, dtype), err);
}

gsel_status gsel_allgatherv(gsel_comm* comm, const void* send, void* recv, const uint64_t* counts,
                            const uint64_t* offsets, gsel_dtype dtype, gsel_error** err) {
  gsel_collective call = counted(GSEL_COLLECTIVE_ALLGATHERV, send, recv, dtype);
  call.recv_counts = counts;
  call.recv_offsets = offsets;
  return run(comm, std::move(call), err);
}

gsel_status gsel_broadcast(gsel_comm* comm, const void* send, void* recv, size_t count, gsel_dtype dtype, int32_t root,
                           gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_BROADCAST, send, recv, count, dtype, 0, root), err);
}

gsel_status gsel_gather(gsel_comm* comm, const void* send, void* recv, size_t count, gsel_dtype dtype, int32_t root,
                        gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_GATHER, send, recv, count, dtype, 0, root), err);
}

gsel_status gsel_gatherv(gsel_comm* comm, const void* send, void* recv, const uint64_t* counts, const uint64_t* offsets,
                         gsel_dtype dtype, int32_t root, gsel_error** err) {
  gsel_collective call = counted(GSEL_COLLECTIVE_GATHERV, send, recv, dtype, 0, root);
  call.recv_counts = counts;
  call.recv_offsets = offsets;
  return run(comm, std::move(call), err);
}

gsel_status gsel_scatter(gsel_comm* comm, const void* send, void* recv, size_t count, gsel_dtype dtype, int32_t root,
                         gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_SCATTER, send, recv, count, dtype, 0, root), err);
}

gsel_status gsel_scatterv(gsel_comm* comm, const void* send, void* recv, const uint64_t* counts,
                          const uint64_t* offsets, gsel_dtype dtype, int32_t root, gsel_error** err) {
  gsel_collective call = counted(GSEL_COLLECTIVE_SCATTERV, send, recv, dtype, 0, root);
  call.send_counts = counts;
  call.send_offsets = offsets;
  return run(comm, std::move(call), err);
}

gsel_status gsel_alltoall(gsel_comm* comm, const void* send, void* recv, size_t count, gsel_dtype dtype,
                          gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_ALLTOALL, send, recv, count, dtype), err);
}

gsel_status gsel_alltoallv(gsel_comm* comm, const void* send, const uint64_t* send_counts, const uint64_t* send_offsets,
                           void* recv, const uint64_t* recv_counts, const uint64_t* recv_offsets, gsel_dtype dtype,
                           gsel_error** err) {
  gsel_collective call = counted(GSEL_COLLECTIVE_ALLTOALLV, send, recv, dtype);
  call.send_counts = send_counts;
  call.send_offsets = send_offsets;
  call.recv_counts = recv_counts;
  call.recv_offsets = recv_offsets;
  return run(comm, std::move(call), err);
}

gsel_status gsel_barrier(gsel_comm* comm, gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_BARRIER, nullptr, nullptr, 0, 0), err);
}

gsel_status gsel_send(gsel_comm* comm, const void* send, size_t count, gsel_dtype dtype, int32_t peer,
                      gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_SEND, send, nullptr, count, dtype, 0, peer), err);
}

gsel_status gsel_recv(gsel_comm* comm, void* recv, size_t count, gsel_dtype dtype, int32_t peer, gsel_error** err) {
  return run(comm, gsel::make_collective(GSEL_COLLECTIVE_RECV, nullptr, recv, count, dtype, 0, peer), err);
}

gsel_status gsel_sendrecv(gsel_comm* comm, const void* send, size_t send_count, int32_t to, void* recv,
                          size_t recv_count, int32_t from, gsel_dtype dtype, gsel_error** err) {
  gsel_collective call = gsel::make_collective(GSEL_COLLECTIVE_SENDRECV, send, recv, send_count, dtype, 0, to);
  call.source = from;
  call.recv_count = recv_count;
  return run(comm, std::move(call), err);
}

gsel_status gsel_send_tag(gsel_comm* comm, const void* send, size_t count, gsel_dtype dtype, int32_t peer, int32_t tag,
                          gsel_error** err) {
  gsel_collective call = gsel::make_collective(GSEL_COLLECTIVE_SEND, send, nullptr, count, dtype, 0, peer);
  call.tag = tag;
  return run(comm, std::move(call), err);
}

gsel_status gsel_recv_tag(gsel_comm* comm, void* recv, size_t count, gsel_dtype dtype, int32_t source, int32_t tag,
                          gsel_message* received, gsel_error** err) {
  gsel_collective call = gsel::make_collective(GSEL_COLLECTIVE_RECV, nullptr, recv, count, dtype, 0, source);
  call.tag = tag;
  call.received = received;
  return run(comm, std::move(call), err);
}

gsel_status gsel_probe(gsel_comm* comm, int32_t source, int32_t tag, gsel_message* message, gsel_error** err) {
  return run(comm, probe(GSEL_COLLECTIVE_PROBE, source, tag, message), err);
}

gsel_status gsel_iprobe(gsel_comm* comm, int32_t source, int32_t tag, int32_t* found, gsel_message* message,
                        gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(found, "found") = 0;
    gsel_message there = GSEL_MESSAGE_INIT;
    gsel::stated_size(message, "gsel_message");
    gsel_collective call = probe(GSEL_COLLECTIVE_IPROBE, source, tag, &there);
    gsel::Communicator& communicator = gsel::required(comm, "comm").impl;
    communicator.collective(call);
    if (there.source == GSEL_ANY_RANK) return;
    *found = 1;
    gsel::write_struct(message, there, "gsel_message");
  });
}

// ---- requests ------------------------------------------------------------------------------------------------------

gsel_status gsel_comm_start(gsel_comm* comm, const gsel_collective* call, gsel_request** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    auto request = make_request(comm, read_call(call), gsel::CallRequest::Use::started);
    request->impl.start();
    *out = request.release();
  });
}

gsel_status gsel_group_start(gsel_comm* comm, const gsel_collective* const* calls, size_t n, gsel_request** out,
                             gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    if (n == 0 || n > PTRDIFF_MAX / sizeof *calls)
      gsel::fail(GSEL_ERR_ARG, "n is {}; a group that is started has 1 call or more", n);
    gsel::required(calls, "calls");
    std::vector<gsel_collective> group;
    for (size_t i = 0; i < n; ++i) {
      if (!calls[i]) gsel::fail(GSEL_ERR_ARG, "calls[{}] is NULL in a group of {}", i, n);
      group.push_back(gsel::read_struct(calls[i], "gsel_collective"));
    }
    auto request = make_request(comm, std::move(group), gsel::CallRequest::Use::started);
    request->impl.start();
    *out = request.release();
  });
}

gsel_status gsel_comm_start_split(gsel_comm* comm, int32_t colour, int32_t key, gsel_request** out, gsel_error** err) {
  return start_making(comm, out, err, {gsel::Making::Kind::split, colour, key}, nullptr, 0);
}

gsel_status gsel_comm_start_dup(gsel_comm* comm, gsel_request** out, gsel_error** err) {
  return start_making(comm, out, err, {gsel::Making::Kind::dup}, nullptr, 0);
}

gsel_status gsel_comm_start_create_group(gsel_comm* comm, const int32_t* ranks, size_t n, gsel_request** out,
                                         gsel_error** err) {
  return start_making(comm, out, err, {gsel::Making::Kind::group}, ranks, n);
}

gsel_status gsel_comm_start_shrink(gsel_comm* comm, const int32_t* without, size_t n, gsel_request** out,
                                   gsel_error** err) {
  return start_making(comm, out, err, {gsel::Making::Kind::shrink}, without, n);
}

gsel_status gsel_request_take_comm(gsel_request* request, gsel_comm** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    if (auto made = live(request).take()) *out = new gsel_comm{std::move(*made)};
  });
}

gsel_status gsel_request_create(gsel_comm* comm, const gsel_collective* call, gsel_request** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = make_request(comm, read_call(call), gsel::CallRequest::Use::persistent).release();
  });
}

gsel_status gsel_request_start(gsel_request* request, gsel_error** err) {
  return gsel::guard(err, [&] { live(request).start(); });
}

gsel_status gsel_request_run(gsel_request* request, gsel_error** err) {
  return gsel::guard(err, [&] { live(request).run(); });
}

gsel_status gsel_request_test(gsel_request* request, int32_t* done, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(done, "done") = 0;
    live(request).test(done);
  });
}

gsel_status gsel_request_wait(gsel_request* request, gsel_error** err) {
  return gsel::guard(err, [&] { live(request).wait(); });
}

gsel_status gsel_request_wait_for(gsel_request* request, double seconds, int32_t* done, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(done, "done") = 0;
    if (!(seconds >= 0)) gsel::fail(GSEL_ERR_ARG, "seconds is {}; give 0 or more", seconds);
    gsel::CallRequest& impl = live(request);
    *done = !impl.waits_for_itself();  // 1 also if the result is an error
    *done = impl.wait_for(std::min(seconds, kLongestWait));
  });
}

gsel_status gsel_request_notify(gsel_request* request, gsel_queue* queue, void* user, gsel_error** err) {
  return gsel::guard(err, [&] { live(request).notify(queue ? queue->impl : nullptr, user); });
}

gsel_status gsel_queue_create(gsel_queue** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_queue();
  });
}

int32_t gsel_queue_fd(const gsel_queue* queue) {
  return queue ? queue->impl->descriptor() : -1;
}

gsel_status gsel_queue_next(gsel_queue* queue, double seconds, int32_t* found, void** user, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(found, "found") = 0;
    gsel::required(user, "user") = nullptr;
    if (std::isnan(seconds)) gsel::fail(GSEL_ERR_ARG, "seconds is no number; 0 looks, and less than 0 waits");
    gsel::CompletionQueue& impl = *gsel::required(queue, "queue").impl;
    gsel::require_own_process(impl.fork_generation(), "gsel_queue_next");
    const auto next = impl.next(std::min(seconds, kLongestWait));
    *found = next.has_value();
    *user = next.value_or(nullptr);
  });
}

void gsel_queue_free(gsel_queue* queue) {
  if (!queue) return;
  queue->impl->close();
  delete queue;
}

gsel_status gsel_request_wait_any(gsel_request* const* requests, size_t n, size_t* index, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(index, "index");
    gsel::required(requests, "requests");
    if (n > PTRDIFF_MAX / sizeof *requests) gsel::fail(GSEL_ERR_ARG, "n is {}; no array has so many requests", n);
    std::vector<gsel::CallRequest*> all(n);
    for (size_t i = 0; i < n; ++i) all[i] = requests[i] ? &requests[i]->impl : nullptr;
    gsel::CallRequest::wait_any(all, index);
  });
}

gsel_status gsel_request_event(gsel_request* request, void** event, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(event, "event") = nullptr;
    *event = live(request).event();
  });
}

gsel_status gsel_request_cancel(gsel_request* request, int32_t* cancelled, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(cancelled, "cancelled") = 0;
    *cancelled = live(request).cancel();
  });
}

void gsel_request_free(gsel_request* request) {
  if (request && request->impl.waits_for_itself())
    return gsel::log(GSEL_LOG_ERROR, "comm",
                     "gsel_request_free from an operation that runs before the request's end: it is not released; free "
                     "it after the operation returns");
  delete request;
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
