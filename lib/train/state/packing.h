// train/state/packing.h: the memory that a redistribution (program/redistribution.h) needs beside its source and its
// result, where the parts of a tensor are not contiguous in it. Does not know who moves them.
#pragma once

#include "model/model.h"
#include "program/redistribution.h"

namespace gsel {

// Memory beside source and result: what is sent, part after part in the order of ranks, followed by what is received in
// that order. None where parts are contiguous already, as those of the outermost dimension are.
struct Packing {
  uint64_t send_bytes = 0;  // rounded up
  uint64_t recv_bytes = 0;
  uint64_t bytes() const { return send_bytes + recv_bytes; }
};
// For n samples of a value that is brought from the placement of `from` to that of `to`.
Packing packing_of(Redistribution redistribution, const Value& from, const Value& to, int64_t n, int32_t ranks);

// Whether source and result can be one memory: nothing is done, or a sum is made in place.
bool stays_in_place(Redistribution redistribution, int32_t ranks);

// By layer: whether it redistributes and may sum where its input lies: nobody else reads that, neither its producer in
// backward nor a recomputation that finds the sum where its input was.
std::vector<bool> sums_in_place(const Model& model, const Program& program);

}  // namespace gsel
