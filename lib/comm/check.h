// comm/check.h: checks arguments of calls, once for every transport. Does not know how bytes travel; compares buffers
// only as addresses, since they may be a device's.
#pragma once

#include <gsel/comm.h>

namespace gsel {

// Clears fields that the kind does not name, then throws GSEL_ERR_ARG for what cannot be done.
void check_call(gsel_collective& call, int32_t rank, int32_t world_size);

// GSEL_ERR_ARG where an operation is unknown or the type does not have it; `name` says what was called.
void check_operation(gsel_op op, gsel_dtype dtype, const char* name);

// GSEL_ERR_ARG where a count of a reduction cuts one of the operation's records, or a record is too large.
void check_records(gsel_op op, gsel_dtype dtype, uint64_t count, const char* name);

// A time limit: 0 is the default of 60 s.
double checked_seconds(double value, const char* name);

}  // namespace gsel
