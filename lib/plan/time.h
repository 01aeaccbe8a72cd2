// plan/time.h: the time of a step and what it is made of, by a calibrated analytic model. A pure function of its
// arguments that allocates nothing, since a search calls it for every candidate. Does not know memory and programs.
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
  products,   // matrix products, recomputation with them
  attention,  // its core
  elements,   // element-wise operations
  tensor,     // collectives of the tensor and context axes
  bubble,     // ranks that wait in a pipeline
  messages,   // from stage to stage
  data,       // collectives of the data axis that nothing hides
  optimizer,
  offload,  // to and from the memory of the host
  overhead,
};
constexpr size_t kTimeParts = 10;
const char* name_of(TimePart part);

// Seconds on the rank that is busy longest; the parts add up to the step.
struct TimeForecast {
  std::array<double, kTimeParts> parts{};
  double data_in_all = 0;  // collectives of the data axis, hidden ones with them
  double summed_s = 0;     // of collectives of the tensor axis: gradients of layers that opted out of it
  double step() const;
  double& operator[](TimePart part) { return parts[static_cast<size_t>(part)]; }
  double operator[](TimePart part) const { return parts[static_cast<size_t>(part)]; }
};

// Of one micro-batch on a rank of the stage, with collectives of its tensor and context axes and what is recomputed.
struct StageTime {
  double forward = 0, backward = 0;
  double ends_forward = 0, ends_backward = 0;  // of these: of the embedding and the head
};

// shares: how unequal devices divide the work; each stage is as slow as its slowest rank.
TimeForecast forecast_time(const Workload& workload, const Split& split, const Cluster& cluster, const Layout& layout,
                           const Shares& shares, const Recipe& recipe, const Constants& constants);
StageTime stage_time(const Workload& workload, const Split& split, const StageRun& run, int32_t stage,
                     const Cluster& cluster, const Layout& layout, const Shares& shares, const Recipe& recipe,
                     const Constants& constants);
// The same of one rank of the stage; i: which of them, in the order of ranks.
StageTime rank_time(const Workload& workload, const Split& split, const StageRun& run, int32_t stage, int32_t i,
                    const Cluster& cluster, const Layout& layout, const Shares& shares, const Recipe& recipe,
                    const Constants& constants);

}  // namespace gsel::plan
