// plan/search.cc: see search.h. Cheap checks come first: divisibility, memory, time. Only the fastest layout of each
// group (mesh, ZeRO stage, offload) is kept, so that the listed choices differ.
#include "plan/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"
#include "plan/units.h"

namespace gsel::plan {
namespace {

constexpr double kUsable = 0.98;          // share of a device's memory
constexpr int64_t kProgressEvery = 1024;  // layouts
constexpr double kRounding = 1e-6;        // of a sample
constexpr int64_t kMostBatch = 1'000'000'000;
constexpr int64_t kMostMicrobatch = 512;  // samples; larger ones do not change the result
constexpr int64_t kMostChunks = 12;
constexpr int64_t kLongSequence = 8192;  // tokens from which the context axis is tried by default
constexpr int64_t kFewDevices = 16;      // up to this number, smaller subsets are tried as well

std::vector<int64_t> divisors(int64_t n, int64_t most) {
  std::vector<int64_t> out;
  for (int64_t i = 1; i * i <= n; ++i) {
    if (n % i != 0) continue;
    if (i <= most) out.push_back(i);
    if (i * i != n && n / i <= most) out.push_back(n / i);
  }
  std::ranges::sort(out);
  return out;
}

bool allowed(const std::optional<int64_t>& fixed, int64_t value) {
  return !fixed || *fixed == value;
}

// Sort key among equally fast layouts: prefers simpler ones.
auto plainness(const Layout& l) {
  return std::tuple(l.offload, l.zero_stage, l.recompute, l.tensor * l.context, l.pipeline, l.chunks,
                    l.sequence_parallel, l.schedule, -l.microbatch, l.data, l.excluded);
}

bool before(const Candidate& a, const Candidate& b) {
  const double sa = a.step_s(), sb = b.step_s();
  return sa != sb ? sa < sb : plainness(a.layout) < plainness(b.layout);
}

using Group = std::tuple<int32_t, int32_t, int32_t, int32_t, int32_t, Offload>;
Group group_of(const Layout& l) {
  return {l.tensor, l.context, l.data, l.pipeline, l.zero_stage, l.offload};
}

class Search {
 public:
  explicit Search(const SearchInput& input) : in_(input) {}

  // Evaluates one layout, whether it fits or not.
  Candidate only(const Layout& l, const Shares& shares) {
    divide(l);
    const auto replace = [](auto& own, const auto& given) {
      if (!given.empty()) own = given;
    };
    replace(shares_.data_weights, shares.data_weights);
    replace(shares_.tensor_weights, shares.tensor_weights);
    replace(shares_.stage_layers, shares.stage_layers);
    const EffectiveWorkload workload(in_.workload, l.excluded);
    const Split stages = split_for(*workload, l, shares_, in_.recipe);
    Candidate c = weighed(l, stages);
    c.time = forecast_time(*workload, stages, in_.cluster, l, shares_, in_.recipe, in_.constants);
    return c;
  }

  SearchResult run() {
    for (const int64_t world : worlds()) meshes(world);
    for (auto& [group, candidate] : groups_) out_.best.push_back(std::move(candidate));
    std::ranges::sort(out_.best, before);
    if (out_.best.size() > 2 * in_.finalists) out_.best.resize(2 * in_.finalists);
    return std::move(out_);
  }

 private:
  std::vector<int64_t> worlds() const {
    const int64_t all = in_.cluster.size();
    if (in_.fixed.devices) return {*in_.fixed.devices};
    if (all > kFewDevices || in_.cluster.nodes() > 1) return {all};
    std::vector<int64_t> some(static_cast<size_t>(all));
    std::iota(some.begin(), some.end(), 1);
    return some;
  }

  // Whether the axis gets whole heads with their keys. With few devices, ranks may have different numbers of heads
  // (shares_of).
  bool divides_heads(int64_t tensor) const {
    const Workload& w = in_.workload;
    if (w.heads == 0) return std::ranges::any_of(w.blocks, &Block::divisible);
    if (w.heads % tensor == 0 && w.kv_heads % tensor == 0) return true;
    return in_.cluster.size() <= kFewDevices && tensor <= w.kv_heads && w.heads % w.kv_heads == 0;
  }

  void meshes(int64_t world) {
    for (const int64_t tensor : divisors(world, world)) {
      if (!allowed(in_.fixed.tensor, tensor)) continue;
      if (tensor > 1 && (!divides_heads(tensor) || (!in_.fixed.tensor && tensor > in_.cluster.per_node))) {
        ++out_.dropped.heads;
        continue;
      }
      for (const int64_t context : divisors(world / tensor, world)) {
        if (!allowed(in_.fixed.context, context) || (context > 1 && tensor > 1)) continue;
        if (context > 1 && !in_.fixed.context &&
            (in_.workload.sequence < kLongSequence || context > in_.cluster.per_node))
          continue;
        for (const int64_t pipeline : divisors(world / tensor / context, world)) {
          if (!allowed(in_.fixed.pipeline, pipeline)) continue;
          const int64_t data = world / tensor / context / pipeline;
          if (allowed(in_.fixed.data, data)) mesh(tensor, context, data, pipeline);
        }
      }
    }
  }

  void mesh(int64_t tensor, int64_t context, int64_t data, int64_t pipeline) {
    if (pipeline > 1 && pipeline > in_.workload.layers()) {
      ++out_.dropped.layers;
      return;
    }
    // Without a pipeline, replicas may have different numbers of samples; the largest determines the time.
    if (in_.batch < data || (in_.batch % data != 0 && (pipeline > 1 || in_.cluster.size() > kFewDevices))) {
      ++out_.dropped.batch;
      out_.dropped.replicas = out_.dropped.replicas > 0 ? std::min(out_.dropped.replicas, data) : data;
      return;
    }
    Layout l;
    l.tensor = static_cast<int32_t>(tensor), l.context = static_cast<int32_t>(context);
    l.data = static_cast<int32_t>(data), l.pipeline = static_cast<int32_t>(pipeline);
    divide(l);
    const int64_t share = (in_.batch + data - 1) / data;
    for (const int64_t microbatch : divisors(share, std::min(share, in_.fixed.microbatch.value_or(kMostMicrobatch)))) {
      if (!allowed(in_.fixed.microbatch, microbatch)) continue;
      l.microbatch = microbatch;
      l.microbatches = share / microbatch;
      if (!shares_.data_weights.empty()) divide(l);  // whole samples of a micro-batch
      schedules(l);
    }
  }

  void divide(const Layout& l) {
    shares_ = shares_of(in_.workload, in_.cluster, l, std::max<int64_t>(in_.batch, l.data));
    splits_ = {};
  }

  // The split, shared by layouts of a mesh that have the same cuts.
  const Split& stages_of(const Layout& l) {
    std::optional<Split>& known =
        splits_[l.pipeline == 1 ? 0 : (l.recompute == Recompute::full ? 1 : 0) + (l.chunks > 1 ? 2 : 0)];
    if (!known) known = split_for(in_.workload, l, shares_, in_.recipe);
    return *known;
  }

  void schedules(Layout l) {
    const auto fixed = in_.fixed.schedule;
    if (l.pipeline == 1 && !allowed(in_.fixed.chunks, 1)) return;
    if (l.pipeline == 1) return settings(l);
    if ((!fixed || *fixed == ScheduleKind::one_f_one_b) && allowed(in_.fixed.chunks, 1)) settings(l);
    for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::zb_h1}) {
      if (!fixed || *fixed != kind) continue;  // never better in the closed forms; only on request
      l.schedule = kind;
      settings(l);
    }
    if ((fixed && *fixed != ScheduleKind::interleaved) || l.microbatches % l.pipeline != 0) return;
    l.schedule = ScheduleKind::interleaved;
    const int64_t layers = in_.workload.layers();
    for (int64_t chunks = 2; chunks <= kMostChunks && chunks * l.pipeline <= layers; ++chunks) {
      if (layers % (chunks * l.pipeline) != 0 || !allowed(in_.fixed.chunks, chunks)) continue;
      l.chunks = static_cast<int32_t>(chunks);
      settings(l);
    }
  }

  void settings(Layout l) {
    for (const bool sequence : {false, true}) {
      if (sequence && l.tensor == 1) continue;
      if (in_.fixed.sequence_parallel && *in_.fixed.sequence_parallel != sequence) continue;
      l.sequence_parallel = sequence;
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        if (recompute == Recompute::selective && in_.recipe.fused_attention) continue;
        if (in_.fixed.recompute && *in_.fixed.recompute != recompute) continue;
        l.recompute = recompute;
        for (int32_t zero = 0; zero <= 3; ++zero) {
          if (!allowed(in_.fixed.zero_stage, zero)) continue;
          l.zero_stage = zero;
          for (const Offload offload : {Offload::none, Offload::state, Offload::all}) {
            if (zero == 0 && offload != Offload::none) continue;
            if (zero > 0 && l.data == 1 && offload == Offload::none && !in_.fixed.zero_stage) continue;
            if (offload == Offload::all && zero < 3) continue;
            if (l.data == 1 && zero == 2 && !in_.fixed.zero_stage) continue;  // same as stage 1
            if (l.data == 1 && zero == 3 && offload != Offload::all && !in_.fixed.zero_stage) continue;
            if (in_.fixed.offload && *in_.fixed.offload != offload) continue;
            l.offload = offload;
            one(l);
          }
        }
      }
    }
  }

  void one(const Layout& l) {
    if (++out_.dropped.tried % kProgressEvery == 0 && in_.progress && !in_.progress(out_.dropped.tried))
      fail(GSEL_ERR_ABORTED, "the search was ended after {} layouts, as its caller asked", out_.dropped.tried);
    const Split& stages = stages_of(l);
    Candidate c = weighed(l, stages);
    if (c.short_bytes() > 0) {
      ++out_.dropped.memory;
      if (!out_.least || c.short_bytes() < out_.least->short_bytes()) out_.least = std::move(c);
      return;
    }
    const double host = c.memory.host_bytes * in_.cluster.per_node;
    if (in_.cluster.host_memory_bytes > 0 && host > in_.cluster.host_memory_bytes) {
      ++out_.dropped.host;
      return;
    }
    c.time = forecast_time(in_.workload, stages, in_.cluster, l, shares_, in_.recipe, in_.constants);
    const auto [at, first] = groups_.try_emplace({group_of(l), l.chunks > 1}, c);
    if (!first && before(c, at->second)) at->second = std::move(c);
  }

  // A candidate with memory, but without time.
  Candidate weighed(const Layout& l, const Split& stages) const {
    Candidate c{.layout = l, .shares = {}, .memory = {}, .time = {}};
    if (in_.cluster.uniform() && shares_.tensor_weights.empty() && shares_.data_weights.empty()) {
      c.memory = worst_memory(stages, l, in_.recipe, &c.stage);
      c.capacity = kUsable * in_.cluster.kinds.front().memory_bytes;
      return c;
    }
    c.shares = shares_;
    unequal(l, stages, c);
    return c;
  }

  // Compares each stage with its smallest device. More samples or a larger shard of a layer need more memory.
  void unequal(const Layout& l, const Split& stages, Candidate& c) const {
    const int32_t replicas = l.tensor * l.context * l.data;
    bool first = true;
    for (const StageRun& run : stages.runs) {
      for (int32_t stage = run.first; stage < run.first + run.count; ++stage) {
        const StageMemory usual = forecast_memory(stages, run, stage, l, in_.recipe);
        for (int32_t r = stage * replicas; r < (stage + 1) * replicas; ++r) {
          StageMemory here = usual;
          scale(here, l, r);
          const double capacity = kUsable * in_.cluster.kind(r).memory_bytes;
          if (!first && here.total() - capacity <= c.short_bytes()) continue;
          first = false;
          c.memory = here, c.capacity = capacity, c.stage = stage;
        }
      }
    }
  }

  // The micro-batch of a replica with `share` times an equal share, relative to the layout's: samples are whole.
  double largest_microbatch(const Layout& l, double share) const {
    if (shares_.data_weights.empty()) return share;
    const double samples = static_cast<double>(in_.batch) * share / l.data / static_cast<double>(l.microbatches);
    return std::ceil(samples - kRounding) / static_cast<double>(l.microbatch);
  }

  void scale(StageMemory& memory, const Layout& l, int32_t rank) const {
    const auto share = [](const std::vector<double>& weights, int32_t i) {
      if (weights.empty()) return 1.0;
      return weights[i] * static_cast<double>(weights.size()) / std::accumulate(weights.begin(), weights.end(), 0.0);
    };
    const double samples = largest_microbatch(l, share(shares_.data_weights, rank / (l.tensor * l.context) % l.data));
    const double part = share(shares_.tensor_weights, rank % l.tensor);
    for (const EstimatedPart p :
         {EstimatedPart::activations, EstimatedPart::live, EstimatedPart::logits, EstimatedPart::staging})
      memory[p] *= samples;
    for (const EstimatedPart p : {EstimatedPart::params, EstimatedPart::gradients, EstimatedPart::state,
                                  EstimatedPart::activations, EstimatedPart::live, EstimatedPart::logits})
      memory[p] *= part;
  }

  const SearchInput& in_;
  SearchResult out_;
  std::map<std::pair<Group, bool>, Candidate> groups_;  // separate with chunks: the schedule shows how even they are
  Shares shares_;
  std::array<std::optional<Split>, 4> splits_;
};

}  // namespace

SearchResult search(const SearchInput& input) {
  if (input.batch < 1 || input.batch > kMostBatch)
    fail(GSEL_ERR_ARG, "a batch of {} samples was asked for; from 1 to {} are accepted", input.batch, kMostBatch);
  if (input.fixed.devices && *input.fixed.devices > input.cluster.size())
    fail(GSEL_ERR_ARG, "{} devices were asked for; {} has {}", *input.fixed.devices, input.cluster.name,
         input.cluster.size());
  SearchResult result = Search(input).run();
  for (Candidate& candidate : result.best) choose_excluded(input, candidate);
  for (Candidate& candidate : result.best) simulate_schedule(input, candidate);
  std::ranges::stable_sort(result.best, before);
  std::set<Group> seen;
  std::erase_if(result.best, [&](const Candidate& c) { return !seen.insert(group_of(c.layout)).second; });
  if (result.best.size() > input.finalists) result.best.resize(input.finalists);
  return result;
}

Candidate by_closed_forms(const SearchInput& input, const Layout& layout, const Shares& shares) {
  return Search(input).only(layout, shares);
}

Candidate evaluate(const SearchInput& input, const Layout& layout, const Shares& shares) {
  Candidate c = by_closed_forms(input, layout, shares);
  simulate_schedule(input, c);
  return c;
}

// ---- the schedule of a candidate -----------------------------------------------------------------------------------

namespace {

constexpr int64_t kRoundsSimulated = 8;  // most simulated micro-batches per stage

}  // namespace

Split split_of(const Workload& workload, const Recipe& recipe, const Candidate& c) {
  const EffectiveWorkload own(workload, c.layout.excluded);
  return split_for(*own, c.layout, c.shares, recipe);
}

std::vector<StageTimes> stage_times(const SearchInput& in, const Candidate& c, const Split& stages,
                                    const std::vector<int32_t>& rank_of) {
  std::vector<StageTimes> times(rank_of.size());
  const EffectiveWorkload workload(in.workload, c.layout.excluded);
  for (const StageRun& run : stages.runs) {
    const StageTime t =
        stage_time(*workload, stages, run, run.first, in.cluster, c.layout, c.shares, in.recipe, in.constants);
    // Chunks have equal shards of the layers; the first one has the embedding, the last one the head.
    const double chunks = c.layout.chunks;
    for (size_t s = 0; s < rank_of.size(); ++s) {
      if (rank_of[s] < run.first || rank_of[s] >= run.first + run.count) continue;
      const double ends = s == 0 || s + 1 == rank_of.size() ? 1 : 0;
      const double forward = (t.forward - t.ends_forward) / chunks + ends * t.ends_forward;
      const double backward = (t.backward - t.ends_backward) / chunks + ends * t.ends_backward;
      times[s] = {forward, backward / 2, backward / 2};
    }
  }
  return times;
}

// Replaces the closed form's bubble by that of the simulated schedule. Once all ranks are busy, each further
// micro-batch takes as long as the one before it: the busiest rank's time, or longer if chunks differ.
void simulate_schedule(const SearchInput& in, Candidate& c) {
  const Layout& l = c.layout;
  if (l.pipeline == 1) return;
  const Split stages = split_of(in.workload, in.recipe, c);
  const auto run = [&](int64_t microbatches) {
    const gsel::Schedule schedule =
        make_schedule(name_of(l.schedule), l.pipeline, static_cast<int32_t>(microbatches), l.chunks);
    return gsel::simulate(schedule, stage_times(in, c, stages, schedule.rank_of), 0);
  };
  const int64_t some = std::min(l.microbatches, kRoundsSimulated * l.pipeline);
  const Simulation simulation = run(some);
  double busiest = *std::ranges::max_element(simulation.busy);
  c.simulated_s = simulation.makespan;
  if (l.microbatches > some) {
    const int64_t fewer = some / 2;
    const auto more = static_cast<double>(l.microbatches - some);
    c.simulated_s += more * (simulation.makespan - run(fewer).makespan) / static_cast<double>(some - fewer);
    busiest += more * busiest / static_cast<double>(some);
  }
  c.time[TimePart::bubble] = std::max(0.0, c.simulated_s - busiest);
}

}  // namespace gsel::plan
