// plan/units.h: which layers the tensor axis divides together, and a workload where some of them opted out of it
// (strategy.tensor.exclude): each rank has all of their parameters and computes all of them, or a part of the positions
// under sequence parallelism. Does not know devices and times.
#pragma once

#include <optional>

#include "plan/workload.h"

namespace gsel::plan {

constexpr size_t kMostUnits = 64;  // bits of Layout::excluded

// Of a transformer, with the names of plan/describe.h: the embedding, attention and the network of all layers, the
// head.
void add_units(Workload& workload, const Transformer& shape);
// Of a described model: layers that values in parts or a parameter join, those of equal costs together.
void add_units(Workload& workload, const Model& model);

// excluded: bits of workload.units. The result has no units.
Workload with_whole_units(const Workload& workload, uint64_t excluded);

// A workload as a layout has it.
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

// "a, b" as strategy.tensor.exclude has it: bits of the units that it names all layers of. others: whether it names
// more than these.
uint64_t units_named(const Workload& workload, std::string_view list, bool* others);
std::string layers_of(const Workload& workload, uint64_t excluded);  // the list

}  // namespace gsel::plan
