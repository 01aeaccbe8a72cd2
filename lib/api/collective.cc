// api/collective.cc: the calls of gsel/comm.h.
#include <gsel/comm.h>

#include <utility>
#include <vector>

#include "api/handles.h"
#include "api/init_struct.h"
#include "base/forked.h"
#include "base/guard.h"
#include "base/options.h"
#include "comm/communicator.h"

namespace {

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

}  // namespace

extern "C" {

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

}  // extern "C"
