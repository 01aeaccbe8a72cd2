// select/visible.h: the accelerators of all hosts that the environment leaves visible, read strictly.
#pragma once

#include <functional>
#include <vector>

#include "select/candidates.h"
#include "select/rules/rules.h"

namespace gsel {

// Every accelerator whose rules are wanted, before masks.
std::vector<Unit> accelerators(const Inventory& inventory, const std::function<bool(const Rules&)>& wanted);

// Narrows to those that the variables leave, in their order, and the CPUs.
void keep_visible(Candidates& candidates, const Environment& environment,
                  const std::function<bool(const Rules&)>& wanted, Trace& trace);

}  // namespace gsel
