// plan/units.h: units: groups of layers that the tensor axis divides together. Derives the workload in which some units
// opt out (strategy.tensor.exclude): each rank then has all their parameters, and computes the whole layers, or its
// shard of the positions under sequence parallelism. Does not know devices or times.
#pragma once

#include <optional>

#include "plan/workload.h"

namespace gsel::plan {

constexpr size_t kMostUnits = 64;  // bits of Layout::excluded

// Units of a transformer, with the names of plan/describe.h: the embedding, attention and the MLP of all layers, the
// head.
void add_units(Workload& workload, const Transformer& shape);
// Units of a described model: layers connected by sharded values or a parameter; groups of equal cost form one unit.
void add_units(Workload& workload, const Model& model);

// excluded: a bit for each of workload.units. The result has no units.
Workload with_whole_units(const Workload& workload, uint64_t excluded);

// The workload after a layout's opt-outs.
class EffectiveWorkload {
 public:
  EffectiveWorkload(const Workload& workload, uint64_t excluded) : all_(workload) {
    if (excluded != 0 && !workload.units.empty()) own_ = with_whole_units(workload, excluded);
  }
  const Workload& operator*() const { return own_ ? *own_ : all_; }

 private:
  const Workload& all_;
  std::optional<Workload> own_;
};

// list: "a, b" as in strategy.tensor.exclude. Returns bits of the units whose layers are all named. others: whether it
// names further layers.
uint64_t units_named(const Workload& workload, std::string_view list, bool* others);
std::string layers_of(const Workload& workload, uint64_t excluded);  // the list

}  // namespace gsel::plan
