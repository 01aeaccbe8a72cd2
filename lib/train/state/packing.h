// train/state/packing.h: the scratch memory that a redistribution (program/redistribution.h) needs if shards are not
// contiguous in a tensor. Does not know who moves them.
#pragma once

#include "model/model.h"
#include "program/redistribution.h"

namespace gsel {

// Scratch memory: the shards to send in rank order, then the received shards in rank order. Empty if shards are
// contiguous already, as those of the outermost dimension.
struct Packing {
  uint64_t send_bytes = 0;  // rounded up
  uint64_t recv_bytes = 0;
  uint64_t bytes() const { return send_bytes + recv_bytes; }
};
// For n samples of a value, from the placement of `from` to that of `to`.
Packing packing_of(Redistribution redistribution, const Value& from, const Value& to, int64_t n, int32_t ranks);

// Whether source and result can share memory: nothing to do, or a sum in place.
bool stays_in_place(Redistribution redistribution, int32_t ranks);

// By layer: whether it redistributes and may sum in its input's memory. No other layer may read the input, nor its
// producer in backward, nor a recomputation, which would find the sum instead.
std::vector<bool> sums_in_place(const Model& model, const Program& program);

}  // namespace gsel
