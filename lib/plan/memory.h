// plan/memory.h: closed forms of each part of memory on one rank of each stage. The trainer's own forecast
// (train/state/layout.h) is exact but needs the program; closed forms serve the search, and machines and programs that
// are not available. Sources: arXiv:2205.05198 (activations), arXiv:1910.02054 (model states); docs/plan.md has the
// formulas.
#pragma once

#include <array>
#include <cstdint>

#include "plan/layout.h"
#include "plan/recipe.h"
#include "plan/split.h"
#include "plan/workload.h"

namespace gsel::plan {

enum class EstimatedPart : uint8_t {
  params,
  gradients,
  state,        // optimizer state with master copies
  activations,  // kept for backward, all micro-batches in flight
  live,         // of one layer while it runs or is recomputed
  logits,
  gathered,  // parameters while gathered, and gradient buckets
  staging,   // buffers of messages and collectives
  context,   // of the device's driver and libraries
  slack,     // of an allocator
};
constexpr size_t kEstimatedParts = 10;
const char* name_of(EstimatedPart part);

struct StageMemory {
  std::array<double, kEstimatedParts> parts{};
  double host_bytes = 0;  // host memory of offloaded state
  double total() const;   // device memory
  double& operator[](EstimatedPart part) { return parts[static_cast<size_t>(part)]; }
  double operator[](EstimatedPart part) const { return parts[static_cast<size_t>(part)]; }
};

// Most micro-batches whose activations a stage holds at the same time; with several chunks, in units of a rank's
// layers.
double in_flight(const Layout& layout, int32_t stage);

// run: of the split. stage: a stage of the run; the first needs most.
StageMemory forecast_memory(const Split& split, const StageRun& run, int32_t stage, const Layout& layout,
                            const Recipe& recipe);
// The stage that needs most memory, and its memory.
StageMemory worst_memory(const Split& split, const Layout& layout, const Recipe& recipe, int32_t* stage = nullptr);

// Closed form of the activation bytes of one layer and micro-batch: the six rows of arXiv:2205.05198 table 2, extended
// to other shapes.
double layer_activation_bytes(const Costs& layer, double output, const Layout& layout, const Recipe& recipe);

}  // namespace gsel::plan
