// plan/time.h: the time of a step and its parts, by a calibrated analytic model. A pure function of its arguments that
// allocates nothing, since a search calls it for every candidate. Does not know memory or programs.
#pragma once

#include <array>
#include <cstdint>

#include "plan/cluster.h"
#include "plan/layout.h"
#include "plan/recipe.h"
#include "plan/split.h"
#include "plan/workload.h"

namespace gsel::plan {

struct Constants;  // plan/constants.h

enum class TimePart : uint8_t {
  products,   // matrix products, including recomputation
  attention,  // the attention core
  elements,   // element-wise operations
  tensor,     // collectives of the tensor and context axes
  bubble,     // waiting in a pipeline
  messages,   // between stages
  data,       // exposed collectives of the data axis
  optimizer,
  offload,  // transfers to and from host memory
  overhead,
};
constexpr size_t kTimeParts = 10;
const char* name_of(TimePart part);

// Seconds on the busiest rank; the parts add up to the step.
struct TimeForecast {
  std::array<double, kTimeParts> parts{};
  double data_in_all = 0;  // collectives of the data axis, including hidden ones
  double summed_s = 0;     // tensor-axis collectives for gradients of opted-out layers
  double step() const;
  double& operator[](TimePart part) { return parts[static_cast<size_t>(part)]; }
  double operator[](TimePart part) const { return parts[static_cast<size_t>(part)]; }
};

// One micro-batch on a rank of the stage, with collectives of its tensor and context axes and with recomputation.
struct StageTime {
  double forward = 0, backward = 0;
  double ends_forward = 0, ends_backward = 0;  // of which embedding and head
};

// shares: how unequal devices divide the work; each stage is as slow as its slowest rank.
TimeForecast forecast_time(const Workload& workload, const Split& split, const Cluster& cluster, const Layout& layout,
                           const Shares& shares, const Recipe& recipe, const Constants& constants);
StageTime stage_time(const Workload& workload, const Split& split, const StageRun& run, int32_t stage,
                     const Cluster& cluster, const Layout& layout, const Shares& shares, const Recipe& recipe,
                     const Constants& constants);
// The same for one rank of the stage; i: its index in the stage, in rank order.
StageTime rank_time(const Workload& workload, const Split& split, const StageRun& run, int32_t stage, int32_t i,
                    const Cluster& cluster, const Layout& layout, const Shares& shares, const Recipe& recipe,
                    const Constants& constants);

}  // namespace gsel::plan
