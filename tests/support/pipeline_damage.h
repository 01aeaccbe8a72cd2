// support/pipeline_damage.h: changes of valid programs of a pipeline after which they are no training step; the
// verifier must refuse each.
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

// Of programs with a tensor axis, so that a sum is missing, made twice, or made of the wrong values. Outlines are
// changed on all ranks alike, so that a rule refuses them and not a difference between ranks.
std::vector<std::pair<std::string, Damage>> tensor_damages();

}  // namespace gsel::test
