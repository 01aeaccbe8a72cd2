// program/verify/facts.h: what the verifier knows of the data of one rank while it follows the rank's program, in place
// of the data itself.
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

// Whether the parameters of a bucket can be read.
enum class Holding : uint8_t {
  ready,
  absent,    // nothing was gathered or broadcast yet
  arriving,  // until WAIT
  released,
  stale,    // the optimizer has changed shards that other ranks hold
  stepped,  // the optimizer has changed them here: what is read now belongs to the next step
};

struct BucketFacts {
  Holding params = Holding::ready;
  gsel_instr_kind under_way = 0;  // its collective, on which axis, and which call of the group
  gsel_axis axis = -1;
  size_t index = 0;
  int32_t uncovered = 0;             // contributions to its gradients that no reduction has taken yet
  bool reduced = false;              // over the axis that it has shards or an owner on
  std::array<bool, kAxes> summed{};  // over which axes its whole gradients are
  bool partial_summed = false;       // over the ranks of the sharing axis
  bool tied_summed = false;          // over the stages that hold its parameters
  bool closed = false;               // no contribution may come any more
  bool looked_at = false;            // by norm or overflow
  bool stepped = false;
};

}  // namespace gsel
