// plan/plan.cc: makes a plan, and the numbers of its candidates.
#include "plan/plan.h"

#include "base/error.h"
#include "program/schedule/simulate.h"

namespace gsel::plan {

Plan::Plan(Request request, const std::function<bool(int64_t)>& progress) : request_(std::move(request)) {
  SearchInput in = input();
  in.progress = progress;
  result_ = search(in);
}

Rates rates_of(const Request& request, const Candidate& c) {
  Rates r{};
  const Layout& l = c.layout;
  r.step_s = c.step_s();
  r.samples_per_s = static_cast<double>(request.batch) / r.step_s;
  r.tokens_per_s = r.samples_per_s * static_cast<double>(request.workload.sequence);
  const double forward = request.workload.flop_forward() * static_cast<double>(request.batch);
  double again = 0;
  for (const Block& block : request.workload.blocks) {
    if (block.kind != BlockKind::layer) continue;
    const auto n = static_cast<double>(block.count * request.batch);
    if (l.recompute == Recompute::full) again += n * block.costs.flop();
    if (l.recompute == Recompute::selective) again += n * block.costs.flop_core;
  }
  double peak = 0;
  for (int32_t rank = 0; rank < l.ranks(); ++rank) peak += request.cluster.kind(rank).flop_16;
  if (peak > 0) {
    r.mfu = 3 * forward / r.step_s / peak;
    r.hfu = (3 * forward + again) / r.step_s / peak;
  }
  r.bubble = c.time[TimePart::bubble] / r.step_s;
  r.exposed = (c.time[TimePart::tensor] + c.time[TimePart::messages] + c.time[TimePart::data]) / r.step_s;
  return r;
}

std::string Plan::simulation_json(size_t i) const {
  const Candidate& c = candidates().at(i);
  const Layout& l = c.layout;
  if (l.pipeline == 1)
    fail(GSEL_ERR_ARG, "candidate {} is {}, which has no pipeline to draw; candidates with pipeline above 1 have", i,
         name_of(l));
  const Split stages = c.shares.stage_layers.empty() ? split(request_.workload, l.pipeline)
                                                     : split_as(request_.workload, c.shares.stage_layers);
  const gsel::Schedule schedule =
      make_schedule(gsel::plan::name_of(l.schedule), l.pipeline, static_cast<int32_t>(l.microbatches), l.chunks);
  return to_json(simulate(schedule, stage_times(input(), c, stages, schedule.rank_of), 0));
}

}  // namespace gsel::plan
