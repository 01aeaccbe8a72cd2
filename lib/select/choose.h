// select/choose.h: the layers that narrow the candidates: first to the units that the environment leaves visible, then
// to the first possible choice of the request's spec.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "select/candidates.h"
#include "select/request/request.h"
#include "select/words/tokens.h"

namespace gsel {

// Every accelerator whose rules satisfy `wanted`, before masks.
std::vector<Unit> accelerators(const Inventory& inventory, const std::function<bool(const Rules&)>& wanted);

// Narrows the candidates to the CPUs and to the units that the variables leave, in their order.
void keep_visible(Candidates& candidates, const Environment& environment,
                  const std::function<bool(const Rules&)>& wanted, Trace& trace);

constexpr size_t kMostTold = 16;  // maximum number of reasons in one message

// The context of a choice.
struct Scene {
  const Environment& environment;
  const std::vector<Unit>& accelerators;  // of the kinds asked for, before masks
  const std::vector<int32_t>& hosts;      // hosts that pass the host filters, in their order
};

// Narrows the candidates to the selection. On return each kept unit has a reason.
void choose(Candidates& candidates, const Question& question, const Scene& scene, Trace& trace);

// The same for one choice of the spec; see choose.cc.
void choose_one(Candidates& candidates, const Question& question, const Choice& choice, const Scene& scene,
                Trace& trace);

// Writes the message for too few devices. Does not know what the caller does with it.
class Shortage {
 public:
  Shortage(const Candidates& candidates, const Question& question, const Choice& choice, const Scene& scene)
      : candidates_(candidates), question_(question), choice_(choice), scene_(scene) {}

  // For a selection without any accelerator.
  std::string nothing() const;
  // For a selection that has only `found` devices.
  std::string count(size_t found) const;
  // "; a part of a name is written name:*A100*" when the request has a name without a wildcard, else nothing.
  std::string glob_hint() const;

 private:
  std::string hidden() const;

  const Candidates& candidates_;
  const Question& question_;
  const Choice& choice_;
  const Scene& scene_;
};

}  // namespace gsel
