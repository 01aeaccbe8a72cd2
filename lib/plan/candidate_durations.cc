// plan/candidate_durations.cc: see candidate_durations.h.
#include "plan/candidate_durations.h"

#include <algorithm>

#include "base/config.h"
#include "program/shards.h"

namespace gsel::plan {
namespace {

bool reduces_gradients(gsel_instr_kind kind) {
  return kind == GSEL_INSTR_ALLREDUCE || kind == GSEL_INSTR_REDUCE_SCATTER || kind == GSEL_INSTR_ALLGATHER ||
         kind == GSEL_INSTR_REDUCE || kind == GSEL_INSTR_BROADCAST;
}

double own_elems(const Program& program) {
  double elems = 0;
  for (size_t b = 0; b < program.buckets.size(); ++b) {
    const gsel_range own = own_shard(program, static_cast<int32_t>(b));
    elems += static_cast<double>(own.end - own.begin);
  }
  return elems;
}

}  // namespace

CandidateDurations::CandidateDurations(const SearchInput& input, const Candidate& candidate, const CompiledJob& job) {
  const Program& program = job.programs().front();
  const Model& model = job.model_of(0);
  const Split stages = candidate.shares.stage_layers.empty() ? split(input.workload, candidate.layout.pipeline)
                                                             : split_as(input.workload, candidate.shares.stage_layers);
  const std::vector<StageTimes> times = stage_times(input, candidate, stages, program.rank_of_stage);
  // By operations, wherever the strategy has cut: a stage with more of them takes longer than the forecast says.
  double flop = 0, forward = 0, backward = 0;
  for (const Layer& layer : model.layers()) flop += layer.flop_per_sample;
  for (const StageTimes& t : times) forward += t.forward, backward += t.backward_input + t.backward_weight;
  for (const Layer& layer : model.layers()) {
    const double share = flop > 0 ? layer.flop_per_sample / flop : 0;
    layers_.push_back({share * forward, share * backward});
  }
  double bytes = 0;
  for (const auto& [by, count] : step_traffic(program))
    if (by.first == GSEL_AXIS_DATA && reduces_gradients(by.second)) bytes += static_cast<double>(count.bytes_sent);
  data_byte_s_ = bytes > 0 ? candidate.time.data_in_all / bytes : 0;
  const double elems = own_elems(program);
  step_s_ = elems > 0 ? (candidate.time[TimePart::optimizer] + candidate.time[TimePart::offload]) / elems : 0;
}

double CandidateDurations::compute(const Program& program, const gsel_instr& instr) const {
  if (instr.kind == GSEL_INSTR_STEP) {
    const gsel_range own = own_shard(program, instr.bucket);
    return step_s_ * static_cast<double>(own.end - own.begin);
  }
  if (instr.layer < 0 || instr.kind == GSEL_INSTR_RECOMPUTE) return 0;  // backward's time has it
  const ProgramLayer& layer = program.layers[static_cast<size_t>(instr.layer)];
  const OfLayer& time = layers_[static_cast<size_t>(instr.layer)];
  if (instr.kind == GSEL_FORWARD) return time.forward;
  const bool halves = layer.needs_backward_input && layer.needs_backward_weight && instr.kind != GSEL_BACKWARD;
  return halves ? time.backward / 2 : time.backward;
}

ExchangeTime CandidateDurations::exchange(const Program&, const gsel_instr& instr, gsel_axis axis, uint64_t,
                                          uint64_t bytes) const {
  return {axis == GSEL_AXIS_DATA && reduces_gradients(instr.kind) ? data_byte_s_ * static_cast<double>(bytes) : 0, 0};
}

ExchangeTime CandidateDurations::message(const Program&, int32_t, int64_t) const {
  return {};
}

Finalist price(const SearchInput& input, const Candidate& candidate, const std::string& toml, const Model& model) {
  const Config config = parse_config(toml, "plan");
  const CompiledJob job(model, config, candidate.layout.ranks(), nullptr, 1);
  const CandidateDurations durations(input, candidate, job);
  double least = input.cluster.kind(0).memory_bytes;
  for (int32_t rank = 0; rank < candidate.layout.ranks(); ++rank)
    least = std::min(least, input.cluster.kind(rank).memory_bytes);
  // Unequal devices: the search has looked at each beside its own stage.
  const uint64_t bound = input.cluster.uniform() && least > 0 ? static_cast<uint64_t>(least) : 0;
  return price(job, {durations, {}, bound, 1});
}

double instructions_of(const Model& model, const Layout& layout) {
  return 3.0 * static_cast<double>(model.layers().size()) * static_cast<double>(layout.microbatches) * layout.pipeline;
}

}  // namespace gsel::plan
