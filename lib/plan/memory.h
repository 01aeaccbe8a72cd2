// plan/memory.h: the bytes of each part of memory on one rank of each stage, by closed form. The trainer's own forecast
// (train/memory) is exact and needs the program; this one serves to search, and for machines and programs not at hand.
// Sources: arXiv:2205.05198 (activations), arXiv:1910.02054 (model states); docs/plan.md has the formulas.
#pragma once

#include <array>
#include <cstdint>

#include "plan/cluster.h"
#include "plan/layout.h"
#include "plan/recipe.h"
#include "plan/split.h"
#include "plan/workload.h"

namespace gsel::plan {

enum class EstimatedPart : uint8_t {
  params,
  gradients,
  state,        // of the optimizer, with master copies
  activations,  // kept for backward, of all micro-batches in flight
  live,         // one layer's while it is recomputed or runs
  logits,
  gathered,  // parameters that are whole for a while, and buckets of gradients
  staging,   // buffers of messages and collectives
  context,   // of the device's driver and libraries
  slack,     // of an allocator
};
constexpr size_t kEstimatedParts = 10;
const char* name_of(EstimatedPart part);

struct StageMemory {
  std::array<double, kEstimatedParts> parts{};
  double host_bytes = 0;  // in the memory of the host, of offloaded state
  double total() const;   // of the device
  double& operator[](EstimatedPart part) { return parts[static_cast<size_t>(part)]; }
  double operator[](EstimatedPart part) const { return parts[static_cast<size_t>(part)]; }
};

// Micro-batches whose activations a stage holds at most; in parts of a rank's layers where it has several chunks.
double in_flight(const Layout& layout, int32_t stage);

// run: of the split. stage: one of the run; the first needs most.
StageMemory forecast_memory(const Split& split, const StageRun& run, int32_t stage, const Layout& layout,
                            const Recipe& recipe);
// The stage that needs most, and what it needs.
StageMemory worst_memory(const Split& split, const Layout& layout, const Recipe& recipe, int32_t* stage = nullptr);

// Closed forms of activations of one layer and micro-batch, bytes: the six rows of arXiv:2205.05198 table 2 and their
// relatives for other shapes.
double layer_activation_bytes(const Costs& layer, double output, const Layout& layout, const Recipe& recipe);

}  // namespace gsel::plan
