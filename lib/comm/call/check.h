// comm/call/check.h: checks arguments of calls, once for every transport, and how far the buffers of a call reach
// (buffers.cc). Does not know how bytes travel; compares buffers only as addresses, since they may be a device's.
#pragma once

#include <gsel/comm.h>

#include "comm/call/collective.h"

namespace gsel {

// Clears fields that the kind does not name, then throws GSEL_ERR_ARG for what cannot be done.
void check_call(gsel_collective& call, int32_t rank, int32_t world_size);

// GSEL_ERR_ARG where an operation is unknown or the type does not have it; `name` says what was called.
void check_operation(gsel_op op, gsel_dtype dtype, const char* name);

// GSEL_ERR_ARG where a count of a reduction cuts one of the operation's records, or a record is too large.
void check_records(gsel_op op, gsel_dtype dtype, uint64_t count, const char* name);

// A time limit: 0 is the default of 60 s.
double checked_seconds(double value, const char* name);

// GSEL_ERR_ARG for what is missing, too large or overlaps. Of buffers that are given in parts, send and recv become the
// first byte of all.
void check_buffers(gsel_collective& call, const CollectiveRow& row, int32_t rank, int32_t world_size);
void check_large_count(uint64_t count, const char* role, const gsel_collective& call, int32_t world_size);
inline void check_count(uint64_t count, const char* role, const gsel_collective& call, int32_t world_size) {
  if (count > UINT32_MAX) check_large_count(count, role, call, world_size);
}

// How far the buffers of a checked call reach from their start.
struct BufferBytes {
  uint64_t send, recv;
};
BufferBytes buffer_bytes(const gsel_collective& checked, int32_t rank, int32_t world_size);

}  // namespace gsel
