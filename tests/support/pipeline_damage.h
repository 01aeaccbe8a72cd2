// support/pipeline_damage.h: what can be done to good programs of a pipeline so that no training step is left, whatever
// they are: each way is to be refused.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "program/stages.h"
#include "support/draw.h"

namespace gsel::test {

using Pick = std::function<bool(const Program&, const gsel_instr&)>;

Pick kind_is(gsel_instr_kind kind);

// An instruction that the damage fits, or nothing.
struct Spotted {
  size_t rank, at;
};
std::optional<Spotted> spot(const std::vector<Program>& programs, const Pick& pick, Draw& draw);

using Damage = std::function<bool(std::vector<Program>&, Draw&)>;  // false: does not fit these programs

Damage dropped(const Pick& pick);

Damage doubled(const Pick& pick);

Damage changed(const Pick& pick, const std::function<void(Program&, gsel_instr&)>& change);
std::vector<std::pair<std::string, Damage>> all_damages();

// Of programs with a tensor axis, so that some sum is never made, made twice, or made of what is not to be summed.
// Outlines are damaged on all ranks alike, so that it is the rule that refuses them and not that they differ.
std::vector<std::pair<std::string, Damage>> tensor_damages();

}  // namespace gsel::test
