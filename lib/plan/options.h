// plan/options.h: what gsel_plan_options ask for, and the forecast of given configurations. Does not know how layouts
// are found.
#pragma once

#include <gsel/plan.h>

#include <memory>
#include <span>
#include <vector>

#include "base/config.h"
#include "plan/plan.h"
#include "select/inventory/inventory.h"

namespace gsel::plan {

// described: nullptr: the options have the model as text. inventory: nullptr: the options describe the cluster, or it
// is this machine.
Request request_of(const gsel_plan_options& o, const std::shared_ptr<Model>& described,
                   const std::shared_ptr<const Inventory>& inventory);

// An estimate accepts only fixed values that the strategies of its rows do not determine. GSEL_ERR_ARG.
void check_fixed_of_estimate(const Fixed& fixed);

// Forecasts each configuration. Refuses what a run would refuse. Notes that apply to several appear once.
std::vector<Compared> compare(const Request& asked, std::span<const Config* const> configs);

}  // namespace gsel::plan
