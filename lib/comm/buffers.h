// comm/buffers.h: the buffers of a call: how far they reach, whether they may be one, whether they overlap. Compares
// them only as addresses, since they may be a device's. Does not know how bytes travel.
#pragma once

#include <gsel/comm.h>

#include "comm/collective.h"

namespace gsel {

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
