// train/execute/instructions/non_finite.cc: gradients that are not finite. Each rank looks at what its backwards
// produce, because a reduction spreads it over all ranks; that a step has one all ranks know from OVERFLOW or NORM, and
// then they agree on where it came from first.
#include <cmath>

#include "base/log.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

// A collective of all ranks, which all know that the step has one.
void agree_on_non_finite(State& s, NonFiniteOrigin origin) {
  double first = origin.order(s.model, s.comms.world().world_size());
  for (gsel_axis axis : {s.sharing_axis(), GSEL_AXIS_PIPELINE, GSEL_AXIS_DATA})
    allreduce_numbers(s, 0, axis, {&first, 1}, GSEL_MIN);
  s.non_finite_origin = NonFiniteOrigin::of_order(first, s.model, s.comms.world().world_size());
}

// Of a dynamic loss scale that may still fall, an overflow is what it looks for and no error.
void judge_non_finite(const State& s, int64_t step) {
  const NonFiniteOrigin& origin = s.non_finite_origin;
  auto name_of = [&s](int32_t layer) {
    for (const Layer& candidate : s.model.layers())
      if (candidate.origin == layer) return candidate.name;
    return std::string();
  };
  const std::string what =
      origin.is_known()
          ? fmt::format(
                "the gradient of parameter \"{}\" is not finite in step {}, first on rank {}, in the backward of "
                "layer \"{}\", micro-batch {}",
                s.model.params()[origin.param].name, step, origin.rank, name_of(origin.layer), origin.microbatch)
          : fmt::format("a sum of gradients is not finite in step {}, though what each rank has produced is", step);
  const bool searches = s.loss_scale.may_fall();
  if (s.non_finite == NonFinite::error && !searches)
    throw Error(GSEL_ERR_CALLBACK, what + "; train.non_finite = \"skip\" would go on without this step")
        .about_rank(origin.rank);
  if (s.comms.world().rank() == 0)
    log(searches ? GSEL_LOG_INFO : GSEL_LOG_WARN, "train", "{}; the step is skipped on all ranks", what);
}

}  // namespace

// What a backward has just produced, unless there was one before in this step.
void look_for_non_finite(State& s, const gsel_instr& instr, const Layer& layer) {
  if (s.non_finite == NonFinite::off || s.run->origin.is_known()) return;
  for (size_t i = 0; i < layer.params.size(); ++i) {
    const int32_t p = layer.params[i];
    if (!s.model.params()[p].trainable() || !s.lent.produced[i]) continue;
    const double sum = s.sum_squares(s.params.gradient(p), static_cast<uint64_t>(s.model.params()[p].n_elems));
    if (std::isfinite(sum)) continue;
    s.run->origin = {s.comms.world().rank(), layer.origin, p, instr.microbatch};
    return;
  }
}

void report_non_finite(const State& s, gsel_step_report& report) {
  report.non_finite_rank = s.non_finite_origin.rank;
  report.non_finite_layer = s.non_finite_origin.layer;
  report.non_finite_param = s.non_finite_origin.param;
  report.non_finite_microbatch = s.non_finite_origin.microbatch;
}

void end_update(State& s, bool overflowed, int64_t step, const NonFiniteOrigin& origin) {
  s.non_finite_origin = {};
  if (overflowed) {
    agree_on_non_finite(s, origin);
    judge_non_finite(s, step);
  }
  s.loss_scale.update(overflowed);
  s.updates += !overflowed;
  for (BucketState& bucket : s.buckets)
    if (bucket.compressor) bucket.compressor->end_step(!overflowed);
}

}  // namespace gsel::execute
