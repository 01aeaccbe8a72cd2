// select/choose.h: applies a spec to the visible devices: takes the first of its choices that is possible. Does not
// know why devices are visible.
#pragma once

#include <string>
#include <vector>

#include "select/candidates.h"
#include "select/question.h"
#include "select/trace.h"

namespace gsel {

// What stands round a choice.
struct Scene {
  const Environment& environment;
  const std::vector<Unit>& accelerators;  // of the kinds asked for, before masks
  const std::vector<int32_t>& hosts;      // those that host filters leave, in their order
};

// Narrows the candidates to the selection. On return each kept unit has a reason.
void choose(Candidates& candidates, const Question& question, const Scene& scene, Trace& trace);

// The same for one choice of the spec; see choose_one.cc.
void choose_one(Candidates& candidates, const Question& question, const Choice& choice, const Scene& scene,
                Trace& trace);

}  // namespace gsel
