// select/choose.h: the layers that narrow the candidates: to what the environment leaves visible, then by the spec of
// the request to the first of its choices that is possible.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "select/candidates.h"
#include "select/request/request.h"
#include "select/words/tokens.h"

namespace gsel {

// Every accelerator whose rules are wanted, before masks.
std::vector<Unit> accelerators(const Inventory& inventory, const std::function<bool(const Rules&)>& wanted);

// Narrows to those that the variables leave, in their order, and the CPUs.
void keep_visible(Candidates& candidates, const Environment& environment,
                  const std::function<bool(const Rules&)>& wanted, Trace& trace);

constexpr size_t kMostTold = 16;  // reasons in one message

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

// Explains in words why too few devices are left. Does not know what follows from it.
class Shortage {
 public:
  Shortage(const Candidates& candidates, const Question& question, const Choice& choice, const Scene& scene)
      : candidates_(candidates), question_(question), choice_(choice), scene_(scene) {}

  // Why no accelerator is left.
  std::string nothing() const;
  // How many are left of how many.
  std::string count(size_t found) const;
  // "; a part of a name is written name:*A100*" where a whole name was given, or nothing.
  std::string glob_hint() const;

 private:
  std::string hidden() const;

  const Candidates& candidates_;
  const Question& question_;
  const Choice& choice_;
  const Scene& scene_;
};

}  // namespace gsel
