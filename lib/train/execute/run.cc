// train/execute/run.cc: see run.h.
#include "train/execute/run.h"

#include <algorithm>

#include "base/foreign.h"
#include "base/log.h"
#include "base/random.h"
#include "program/optimistic.h"
#include "train/execute/instructions.h"
#include "train/execute/state.h"

namespace gsel::execute {
std::vector<BucketLayout> bucket_layouts(const Program& program, const ParamStorage& params) {
  std::vector<BucketLayout> layouts;
  for (size_t b = 0; b < program.buckets.size(); ++b) layouts.push_back(params.layout(static_cast<int32_t>(b)));
  return layouts;
}

Run::Run(const Model& model, const Program& p, const ParamStorage& params, const CountedMemory& m)
    : program(p),
      plan(model, p, bucket_layouts(p, params)),
      message_plan(p),
      memory(&m),
      microbatch_number(microbatch_numbers(p)),
      empty(p.microbatches.size()),
      losses(p.microbatches.size()),
      fetched(p.microbatches.size(), -1),
      weight_begun(model.params().size()),
      used(model.params().size()) {
  for (size_t i = 0; i < p.step.size(); ++i) {
    if (work_of(p.step[i].kind) == InstrWork::backward) last_backward = static_cast<int32_t>(i);
    if (work_of(p.step[i].kind) == InstrWork::loss) last_loss_allreduce = static_cast<int32_t>(i);
  }
  last_optimistic = gsel::last_optimistic(p);
}

uint64_t Run::rng_key(const State& s) const {
  return derive_key(static_cast<uint64_t>(s.config.train.seed), static_cast<uint64_t>(s.step));
}

void Run::start_over() {
  position = phase = 0;
  loss_sum = weight = 0;
  clip = 1;
  overflowed = false;
  origin = {};
  odd_weight_microbatch = odd_weight_rank = -1;
  for (size_t m = 0; m < empty.size(); ++m) empty[m] = program.microbatches[m].count == 0;
  std::ranges::fill(losses, std::array<double, 2>{});
  std::ranges::fill(fetched, -1);
  looks.clear();
  weight_begun.assign(weight_begun.size(), false);
  used.assign(used.size(), false);
  record.exposed_s = {};
  record.intervals.clear();
}

// ---- a training step --------------------------------------------------------------------------------------------

void TrainingStep::end(State& s) {
  if (!s.validation.is_open) end_update(s, overflowed, s.step, origin);
  report_non_finite(s, record.report);
  ++s.step;
  std::swap(s.last_step, record);
  s.has_step = true;
}

// With optimistic steps the norm is that of the previous step.
void TrainingStep::log_progress(const State& s) const {
  const gsel_step_report& report = s.last_step.report;
  const std::string norm = report.gradient_norm > 0 ? fmt::format(", gradient norm {:.6g}", report.gradient_norm) : "";
  log(GSEL_LOG_INFO, "train", "step {}: loss {:.6g}{}, learning rate {:.6g}, {:.4g} s, {:.6g} samples/s{}", report.step,
      report.loss, norm, report.learning_rate, report.seconds,
      static_cast<double>(s.config.train.batch) / std::max(report.seconds, 1e-9), report.skipped ? ", skipped" : "");
}

void TrainingStep::conclude(State& s) {
  const int64_t every = s.config.train.progress_steps;
  if (every > 0 && s.step % every == 0 && s.rank == 0) log_progress(s);
  if (!s.config.train.timeline.empty()) write_timeline(s.config.train.timeline, program, s.last_step);
}

// ---- an evaluation ----------------------------------------------------------------------------------------------

void Evaluation::end(State& s) {
  if (has_weight()) s.last_evaluation = record.report;
}

void Evaluation::conclude(State& s) {
  if (last_loss_allreduce >= 0 && !has_weight()) refuse_weight(s);
}

// ---- an inference -----------------------------------------------------------------------------------------------

// Keeps the first failure.
bool InferenceRun::keep_failure(const State& s, gsel_status status, std::string_view message) {
  failure.emplace(GSEL_ERR_CALLBACK,
                  fmt::format("{} failed in an inference: {}", s.piece_at_work(), reason_of(status, message)));
  return true;
}

void* InferenceRun::left(int32_t value) const {
  const uint64_t offset = plan.left(value);
  return offset == ArenaOperands::kNone ? nullptr : memory->at(offset);
}

}  // namespace gsel::execute
