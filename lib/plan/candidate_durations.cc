// plan/candidate_durations.cc: see candidate_durations.h.
#include "plan/candidate_durations.h"

#include <algorithm>

#include "base/config.h"
#include "plan/units.h"
#include "program/shards.h"

namespace gsel::plan {
namespace {

double own_elems(const Program& program) {
  double elems = 0;
  for (size_t b = 0; b < program.buckets.size(); ++b) {
    const gsel_range own = own_shard(program, static_cast<int32_t>(b));
    elems += static_cast<double>(own.end - own.begin);
  }
  return elems;
}

// Time of each rank relative to a rank with the first kind of device and an equal shard.
std::vector<double> slowness_of(const SearchInput& input, const Cluster& alike, const Candidate& candidate,
                                const Split& stages) {
  const Layout& l = candidate.layout;
  const int32_t replicas = l.tensor * l.context * l.data;
  const Shares none{candidate.shares.stage_layers, {}, {}};
  const EffectiveWorkload workload(input.workload, l.excluded);
  std::vector<double> slowness(static_cast<size_t>(l.ranks()), 1);
  for (const StageRun& run : stages.runs)
    for (int32_t stage = run.first; stage < run.first + run.count; ++stage) {
      const StageTime usual = stage_time(*workload, stages, run, stage, alike, l, none, input.recipe, input.constants);
      for (int32_t i = 0; i < replicas; ++i) {
        const StageTime own = rank_time(*workload, stages, run, stage, i, input.cluster, l, candidate.shares,
                                        input.recipe, input.constants);
        slowness[static_cast<size_t>(stage * replicas + i)] =
            (own.forward + own.backward) / (usual.forward + usual.backward);
      }
    }
  return slowness;
}

bool sums_over_sharing_axis(gsel_instr_kind kind) {
  const InstrRow& row = instr_row(kind);
  return row.task == InstrTask::sum_stepped && row.peers == InstrPeers::axis;
}

}  // namespace

CandidateDurations::CandidateDurations(const SearchInput& input, const Candidate& candidate, const CompiledJob& job) {
  const Program& program = job.programs().front();
  const Model& model = job.model_of(0);
  const Split stages = split_of(input.workload, input.recipe, candidate);
  const Shares& shares = candidate.shares;
  Cluster alike = input.cluster;
  alike.kinds.resize(1);
  std::ranges::fill(alike.devices, 0);
  SearchInput usual{input.workload, alike, input.recipe, input.constants, input.batch, input.fixed, 0, {}};
  Candidate plain = candidate;
  plain.shares = {shares.stage_layers, {}, {}};
  const bool unequal = !input.cluster.uniform() || !shares.data_weights.empty() || !shares.tensor_weights.empty();
  const std::vector<StageTimes> times =
      stage_times(unequal ? usual : input, unequal ? plain : candidate, stages, program.rank_of_stage);
  // Distributes time by operations, wherever the strategy has cut. The embedding and the head, the only layers that are
  // not recomputable, get the forecast's time for them.
  OfLayer all, ends;
  for (const StageTimes& t : times) all.forward += t.forward, all.backward += t.backward_input + t.backward_weight;
  const SearchInput& in = unequal ? usual : input;
  const EffectiveWorkload workload(input.workload, candidate.layout.excluded);
  for (const StageRun* run : {&stages.runs.front(), &stages.runs.back()}) {
    if (run == &stages.runs.back() && stages.runs.size() == 1) break;
    const StageTime t = stage_time(*workload, stages, *run, run->first, in.cluster, candidate.layout,
                                   unequal ? plain.shares : candidate.shares, in.recipe, in.constants);
    ends.forward += t.ends_forward, ends.backward += t.ends_backward;
  }
  double flop = 0, ends_flop = 0;
  for (const Layer& layer : model.layers()) (layer.recomputable() ? flop : ends_flop) += layer.flop_per_sample;
  if (!(ends.forward > 0 && flop > 0 && ends_flop > 0)) ends = {}, flop += ends_flop, ends_flop = 0;
  for (const Layer& layer : model.layers()) {
    const bool end = ends_flop > 0 && !layer.recomputable();
    const double share = end ? layer.flop_per_sample / ends_flop : flop > 0 ? layer.flop_per_sample / flop : 0;
    const OfLayer part = end ? ends : OfLayer{all.forward - ends.forward, all.backward - ends.backward};
    layers_.push_back({share * part.forward, share * part.backward});
  }
  if (unequal) slowness_ = slowness_of(input, alike, candidate, stages);
  double bytes = 0;
  for (const auto& [by, count] : step_traffic(program))
    if (by.first == GSEL_AXIS_DATA && find_instr_row(by.second)->is_bucket_collective())
      bytes += static_cast<double>(count.bytes_sent);
  double summed = 0;
  for (const auto& [by, count] : step_traffic(program))
    if (sums_over_sharing_axis(by.second)) summed += static_cast<double>(count.bytes_sent);
  summed_byte_s_ = summed > 0 ? candidate.time.summed_s / summed : 0;
  data_byte_s_ = bytes > 0 ? candidate.time.data_in_all / bytes : 0;
  const Cluster& c = input.cluster;
  const double rate = candidate.layout.ranks() > c.per_node
                          ? c.network.bytes_per_second * input.constants.network / c.per_node
                          : c.inside.bytes_per_second * input.constants.inside;
  pipeline_byte_s_ = rate > 0 ? input.constants.link_scale / rate : 0;
  // The slowest rank takes the forecast's time.
  double longest = 0;
  const auto rate_of = [&](int32_t rank) { return std::max(1.0, input.cluster.kind(rank).memory_bytes_per_second); };
  for (const Program& p : job.programs()) longest = std::max(longest, own_elems(p) / rate_of(p.rank));
  const double stepped = candidate.time[TimePart::optimizer] + candidate.time[TimePart::offload];
  for (int32_t rank = 0; rank < candidate.layout.ranks(); ++rank)
    step_s_.push_back(longest > 0 ? stepped / longest / rate_of(rank) : 0);
}

double CandidateDurations::compute(const Program& program, const gsel_instr& instr) const {
  const InstrRow& row = instr_row(instr.kind);
  if (row.task == InstrTask::step) {
    const gsel_range own = own_shard(program, instr.bucket);
    return step_s_[static_cast<size_t>(program.rank)] * static_cast<double>(own.end - own.begin);
  }
  if (instr.layer < 0 || row.recomputes) return 0;  // included in backward's time
  const ProgramLayer& layer = program.layers[static_cast<size_t>(instr.layer)];
  OfLayer time = layers_[static_cast<size_t>(instr.layer)];
  if (!slowness_.empty()) {
    const double slowness = slowness_[static_cast<size_t>(program.rank)];
    time = {time.forward * slowness, time.backward * slowness};
  }
  if (row.task == InstrTask::forward) return time.forward;
  const bool halves = layer.needs_backward_input && layer.needs_backward_weight && !(row.input_half && row.weight_half);
  return halves ? time.backward / 2 : time.backward;
}

ExchangeTime CandidateDurations::exchange(const Program&, const gsel_instr& instr, gsel_axis axis, uint64_t,
                                          uint64_t bytes) const {
  if (sums_over_sharing_axis(instr.kind)) return {summed_byte_s_ * static_cast<double>(bytes), 0};
  if (!find_instr_row(instr.kind)->is_bucket_collective()) return {};
  const double byte_s = axis == GSEL_AXIS_DATA ? data_byte_s_ : axis == GSEL_AXIS_PIPELINE ? pipeline_byte_s_ : 0;
  return {byte_s * static_cast<double>(bytes), 0};
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
  // For unequal devices the search has already compared each stage with its own device.
  const uint64_t bound = input.cluster.uniform() && least > 0 ? static_cast<uint64_t>(least) : 0;
  return price(job, {durations, {}, bound, 1});
}

double instructions_of(const Model& model, const Layout& layout) {
  return 3.0 * static_cast<double>(model.layers().size()) * static_cast<double>(layout.microbatches) * layout.pipeline;
}

}  // namespace gsel::plan
