/* See every_call.h. */
#include "support/every_call.h"

#include <stdlib.h>

void call_room_open(call_room* room, int32_t n, size_t count) {
  for (int32_t q = 0; q < n; ++q) room->counts[q] = count - count * (size_t)q / 8;
  room->send = (char*)calloc(count * (size_t)n + 1, 4);
  room->recv = (char*)calloc(count * (size_t)n + 1, 4);
}

void call_room_close(call_room* room) {
  free(room->send);
  free(room->recv);
}

static gsel_status call_message_ring(gsel_comm* comm, call_room* room, size_t count, gsel_error** err) {
  const int32_t n = gsel_comm_world_size(comm), rank = gsel_comm_rank(comm);
  const int32_t to = (rank + 1) % n, from = (rank + n - 1) % n;
  gsel_status status;
  if (rank == 0) {
    status = gsel_recv(comm, room->recv, count, GSEL_F32, from, err);
    return status ? status : gsel_send(comm, room->send, count, GSEL_F32, to, err);
  }
  status = gsel_send(comm, room->send, count, GSEL_F32, to, err);
  return status ? status : gsel_recv(comm, room->recv, count, GSEL_F32, from, err);
}

gsel_status call_once(gsel_comm* comm, gsel_collective_kind kind, call_room* room, size_t count, gsel_error** err) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  uint64_t mine[RANKS_MAX], theirs[RANKS_MAX];
  const int32_t n = gsel_comm_world_size(comm), rank = gsel_comm_rank(comm);
  if (kind == EVERY_CALL_MESSAGES) return call_message_ring(comm, room, count, err);
  for (int32_t q = 0; q < n; ++q) {
    mine[q] = room->counts[rank] - (uint64_t)q;
    theirs[q] = room->counts[q] - (uint64_t)rank;
    if (room->counts[rank] < (uint64_t)q) mine[q] = 0;
    if (room->counts[q] < (uint64_t)rank) theirs[q] = 0;
  }
  call.kind = kind;
  call.dtype = GSEL_F32;
  call.op = GSEL_SUM;
  call.root = n > 1 ? 1 : 0;
  call.send = room->send;
  call.recv = room->recv;
  call.count = count;
  call.send_counts = kind == GSEL_COLLECTIVE_ALLTOALLV ? mine : room->counts;
  call.recv_counts = kind == GSEL_COLLECTIVE_ALLTOALLV ? theirs : room->counts;
  return gsel_comm_run(comm, &call, err);
}

int every_call(int i, gsel_collective_kind* kind) {
  static const gsel_collective_kind kinds[] = {
      GSEL_COLLECTIVE_BARRIER,   GSEL_COLLECTIVE_ALLREDUCE, GSEL_COLLECTIVE_REDUCE_SCATTER,  GSEL_COLLECTIVE_ALLGATHER,
      GSEL_COLLECTIVE_BROADCAST, EVERY_CALL_MESSAGES,       GSEL_COLLECTIVE_REDUCE,          GSEL_COLLECTIVE_GATHER,
      GSEL_COLLECTIVE_SCATTER,   GSEL_COLLECTIVE_ALLTOALL,  GSEL_COLLECTIVE_REDUCE_SCATTERV, GSEL_COLLECTIVE_ALLGATHERV,
      GSEL_COLLECTIVE_GATHERV,   GSEL_COLLECTIVE_SCATTERV,  GSEL_COLLECTIVE_ALLTOALLV,
  };
  if (i < 0 || i >= (int)(sizeof kinds / sizeof kinds[0])) return 0;
  *kind = kinds[i];
  return 1;
}
