// train/state/forecast.cc: what train/state/layout.h promises: the parts of memory that a program needs on its rank.
#include "train/optimize/compress.h"
#include "train/state/arena_plan.h"

namespace gsel {

PartBytes forecast_memory(const Model& model, const Program& program, const Optimizer& optimizer) {
  PartBytes parts{};
  const std::vector<BucketLayout> layouts = layouts_of(program, optimizer);
  for (const BucketLayout& layout : layouts) layout.add_to(parts);
  for (size_t b = 0; b < program.buckets.size(); ++b) {
    if (program.buckets[b].compression == GSEL_COMPRESS_NONE) continue;
    const PartBytes compressor = Compressor::bytes(program, static_cast<int32_t>(b));
    for (size_t i = 0; i < kParts; ++i) parts[i] += compressor[i];
  }
  parts[static_cast<size_t>(Part::windows)] += ArenaPlan(model, program, layouts).bytes();
  parts[static_cast<size_t>(Part::staging)] += staging_bytes(program, optimizer);
  return parts;
}

}  // namespace gsel
