/* support/every_call.h: one call of each kind on buffers that fit it, for tests that care how a call ends rather than
 * what it computes. */
#ifndef GSEL_TESTS_EVERY_CALL_H
#define GSEL_TESTS_EVERY_CALL_H

#include "support/ranks.h"

/* send and recv of a sendrecv ring come as one: a rank sends to the next and receives from the one before. */
#define EVERY_CALL_MESSAGES GSEL_COLLECTIVE_SEND

typedef struct call_room {
  char *send, *recv;
  uint64_t counts[RANKS_MAX];
} call_room;

/* Room for calls of `count` f32 on n ranks; every rank's part of a v call has another size. */
void call_room_open(call_room* room, int32_t n, size_t count);
void call_room_close(call_room* room);

/* The call of this kind, roots at rank 1 of at least two. Sizes of an alltoallv agree by symmetry. */
gsel_status call_once(gsel_comm* comm, gsel_collective_kind kind, call_room* room, size_t count, gsel_error** err);

/* Every kind once; messages stand for send and recv. Returns 0 after the last. */
int every_call(int i, gsel_collective_kind* kind);

#endif
