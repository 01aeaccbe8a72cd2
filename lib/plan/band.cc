// plan/band.cc: the error band of a candidate's forecast: the mean error of the measurements to which its class of
// devices was fitted, plus half of the part of its step that none of these measurements covers.
#include <algorithm>

#include "plan/plan.h"

namespace gsel::plan {

ErrorBand band_of(const Request& request, const Candidate& c) {
  const Layout& l = c.layout;
  const TimeForecast& t = c.time;
  ErrorBand out;
  out.spread = request.constants.spread;
  Covered covered = request.constants.covered;
  if (request.calibrated_on.empty())
    for (int32_t rank = 0; rank < l.ranks() && !request.cluster.uniform(); ++rank) {
      const Constants own = constants_for(request.cluster.kind(rank).device_class, runtime_of(request.recipe));
      out.spread = std::max(out.spread, own.spread);
      covered.pipeline &= own.covered.pipeline, covered.nodes &= own.covered.nodes;
      covered.recompute &= own.covered.recompute, covered.offload &= own.covered.offload;
    }
  const auto add = [&](bool is_covered, const char* name, double seconds) {
    if (is_covered || !(seconds > 0)) return;
    out.uncovered += seconds / c.step_s();
    out.parts.emplace_back(name);
  };
  add(covered.pipeline, "bubble", t[TimePart::bubble]);
  const int32_t inner = l.tensor * l.context;
  if (l.ranks() > request.cluster.per_node)
    add(covered.nodes, "communication between nodes",
        t[TimePart::data] + t[TimePart::messages] + (inner > request.cluster.per_node ? t[TimePart::tensor] : 0));
  // A layer's work has four parts: forward, backward (twice as long) and recomputed forward.
  const double layers = t[TimePart::products] + t[TimePart::attention] + t[TimePart::elements];
  if (l.recompute != Recompute::none) add(covered.recompute, "recomputation", layers / 4);
  if (l.offload != Offload::none) add(covered.offload, "offload", t[TimePart::offload] + t[TimePart::optimizer]);
  out.uncovered = std::min(out.uncovered, 1.0);
  return out;
}

}  // namespace gsel::plan
