// program/verify/facts.h: what the verifier tracks about the data of one rank while it follows the rank's program.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace gsel {

// A value of a micro-batch.
struct ValueFacts {
  bool written = false;
  bool gradient_used = false;
  int32_t expected = 0;  // gradient contributions owed: forward readers, sends and gathers
  int32_t arrived = 0;
};

// A layer of a micro-batch.
struct LayerFacts {
  bool forward = false, recomputed = false, backward_input = false, backward_weight = false;
};

// Whether a bucket's parameters can be read.
enum class Holding : uint8_t {
  ready,
  absent,    // not gathered or broadcast yet
  arriving,  // until WAIT
  released,
  stale,    // the optimizer changed shards on other ranks
  stepped,  // the optimizer changed them on this rank: reads now belong to the next step
};

struct BucketFacts {
  Holding params = Holding::ready;
  gsel_instr_kind under_way = 0;  // its collective, with axis and call of the group
  gsel_axis axis = -1;
  size_t index = 0;
  int32_t uncovered = 0;             // contributions to its gradients that are not reduced yet
  bool reduced = false;              // over the axis of its shards or owner
  std::array<bool, kAxes> summed{};  // axes over which its whole gradients are summed
  bool partial_summed = false;       // over the sharing axis
  bool tied_summed = false;          // over the pipeline ranks that hold its parameters
  bool closed = false;               // no further contribution is allowed
  bool looked_at = false;            // by norm or overflow
  bool stepped = false;
};

}  // namespace gsel
