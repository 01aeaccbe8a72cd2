// comm/call/check.h: checks the arguments of calls, once for every transport, and computes the extents of their buffers
// (buffers.cc). Does not know how bytes travel. Compares buffers by address only, since they may be device memory.
#pragma once

#include <gsel/comm.h>

#include "comm/call/collective.h"

namespace gsel {

// Clears fields that the kind does not use. Throws GSEL_ERR_ARG for invalid arguments.
void check_call(gsel_collective& call, int32_t rank, int32_t world_size);

// GSEL_ERR_ARG if the operation is unknown or not defined for the type. `name`: the function that was called.
void check_operation(gsel_op op, gsel_dtype dtype, const char* name);

// GSEL_ERR_ARG if the count of a reduction is no multiple of the operation's record, or a record is too large.
void check_records(gsel_op op, gsel_dtype dtype, uint64_t count, const char* name);

// A time limit: 0 is the default of 60 s.
double checked_seconds(double value, const char* name);

// GSEL_ERR_ARG if a buffer is missing, too large or overlaps another. Where buffers are given in parts, sets send and
// recv to the lowest address of the parts.
void check_buffers(gsel_collective& call, const CollectiveRow& row, int32_t rank, int32_t world_size);
void check_large_count(uint64_t count, const char* role, const gsel_collective& call, int32_t world_size);
inline void check_count(uint64_t count, const char* role, const gsel_collective& call, int32_t world_size) {
  if (count > UINT32_MAX) check_large_count(count, role, call, world_size);
}

// Extents of the buffers of a checked call.
struct BufferBytes {
  uint64_t send, recv;
};
BufferBytes buffer_bytes(const gsel_collective& checked, int32_t rank, int32_t world_size);

}  // namespace gsel
