// train/execute/executor_non_finite.cc: gradients that are not finite. Each rank looks at what its backwards produce,
// because a reduction spreads it over all ranks; that a step has one all ranks know from OVERFLOW or NORM, and then
// they tell each other where it came from first.
#include <cmath>

#include "base/log.h"
#include "train/execute/executor.h"

namespace gsel {

// What a backward has just produced, unless there was one before in this step.
void Executor::look_for_non_finite(const gsel_instr& instr, const Layer& layer) {
  if (non_finite_ == NonFinite::off || origin_.is_known()) return;
  for (size_t i = 0; i < layer.params.size(); ++i) {
    const int32_t p = layer.params[i];
    if (!model_.params()[p].trainable() || !produced_[i]) continue;
    double sum = 0;
    backend_->run(&gsel_backend_v1::sum_squares, static_cast<const void*>(params_.gradient(p)), gsel_dtype{GSEL_F32},
                  static_cast<uint64_t>(model_.params()[p].n_elems), &sum, static_cast<gsel_stream*>(nullptr));
    if (std::isfinite(sum)) continue;
    origin_ = {comms_.world().rank(), layer.origin, p, instr.microbatch};
    return;
  }
}

// A collective of all ranks, which all know that the step has one.
void Executor::tell_non_finite(NonFiniteOrigin origin) {
  double first = origin.order(model_, comms_.world().world_size());
  for (gsel_axis axis : {sharing_axis(), GSEL_AXIS_PIPELINE, GSEL_AXIS_DATA})
    combine_now(0, axis, {&first, 1}, GSEL_MIN);
  non_finite_origin_ = NonFiniteOrigin::of_order(first, model_, comms_.world().world_size());
}

void Executor::report_non_finite(gsel_step_report& report) const {
  report.non_finite_rank = non_finite_origin_.rank;
  report.non_finite_layer = non_finite_origin_.layer;
  report.non_finite_param = non_finite_origin_.param;
  report.non_finite_microbatch = non_finite_origin_.microbatch;
}

// Of a dynamic loss scale that may still fall, an overflow is what it looks for and no error.
void Executor::judge_non_finite(int64_t step) const {
  const NonFiniteOrigin& origin = non_finite_origin_;
  auto name_of = [this](int32_t layer) {
    for (const Layer& candidate : model_.layers())
      if (candidate.origin == layer) return candidate.name;
    return std::string();
  };
  const std::string what =
      origin.is_known()
          ? fmt::format(
                "the gradient of parameter \"{}\" is not finite in step {}, first on rank {}, in the backward of "
                "layer \"{}\", micro-batch {}",
                model_.params()[origin.param].name, step, origin.rank, name_of(origin.layer), origin.microbatch)
          : fmt::format("a sum of gradients is not finite in step {}, though what each rank has produced is", step);
  const bool searches = loss_scale_.may_fall();
  if (non_finite_ == NonFinite::error && !searches)
    throw Error(GSEL_ERR_CALLBACK, what + "; train.non_finite = \"skip\" would go on without this step")
        .about_rank(origin.rank);
  if (comms_.world().rank() == 0)
    log(searches ? GSEL_LOG_INFO : GSEL_LOG_WARN, "train", "{}; the step is skipped on all ranks", what);
}

}  // namespace gsel
