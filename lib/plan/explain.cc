// plan/explain.cc: explains a plan by the questions of the Hugging Face guide to training on several GPUs: does the
// model fit on one device, does its largest layer, one node or several, fast or slow links.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "plan/plan.h"

namespace gsel::plan {
namespace {

constexpr double kSame = 1e-6;  // seconds; smaller differences do not count

Layout alone() {
  return {};
}

// Memory of the whole model on one device with one sample at a time.
StageMemory on_one(const Request& request) {
  return worst_memory(split(request.workload, 1), alone(), request.recipe);
}

std::string parts_of(const StageMemory& memory) {
  std::string text;
  for (size_t i = 0; i < kEstimatedParts; ++i) {
    const auto part = static_cast<EstimatedPart>(i);
    if (memory[part] < 0.05 * kGiB) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(part), gib(memory[part]));
  }
  return text;
}

// Which kinds of devices have `bytes`, in one word if all agree: "yes on A40, no on T4".
std::string on_each(const Request& request, double bytes, const char* no) {
  const auto& kinds = request.cluster.kinds;
  const auto fits = [&](const DeviceKind& kind) { return bytes <= kind.memory_bytes; };
  if (std::ranges::all_of(kinds, fits)) return "yes";
  if (std::ranges::none_of(kinds, fits)) return no;
  std::string text;
  for (const DeviceKind& kind : kinds)
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", fits(kind) ? "yes" : no, kind.name);
  return text;
}

Answer fits_one(const Request& request) {
  const StageMemory memory = on_one(request);
  std::string room;
  for (const DeviceKind& kind : request.cluster.kinds)
    room += fmt::format("{}{}", room.empty() ? "" : ", ", gib(kind.memory_bytes));
  return {"Does the model fit one device?",
          fmt::format("{}: {} GiB of {} GiB with one sample at a time ({})", on_each(request, memory.total(), "no"),
                      gib(memory.total()), room, parts_of(memory))};
}

Answer largest_fits(const Request& request) {
  const Block* largest = nullptr;
  for (const Block& block : request.workload.blocks)
    if (!largest || block.costs.largest_params > largest->costs.largest_params) largest = &block;
  const double bytes = largest->costs.largest_params * (request.recipe.gathered_bytes + request.recipe.gradient_bytes);
  return {"Does its largest layer?", fmt::format("{}: {} needs {} GiB while it is whole, parameters and gradient",
                                                 on_each(request, bytes, "no, it must be divided over the tensor axis"),
                                                 largest->name, gib(bytes))};
}

Answer nodes(const Request& request) {
  const Cluster& c = request.cluster;
  return {"One node or several?", c.nodes() == 1
                                      ? fmt::format("one, with {}", with_noun(c.size(), "device"))
                                      : fmt::format("{} nodes of {}", c.nodes(), with_noun(c.per_node, "device"))};
}

Answer links(const Request& request) {
  const Cluster& c = request.cluster;
  if (c.size() == 1) return {"Fast or slow links?", "none: one device has no other to talk to"};
  std::string text = fmt::format("{}: {} at {:.0f} GB/s", c.has_slow_links() ? "slow" : "fast", c.inside.name,
                                 c.inside.bytes_per_second / 1e9);
  if (c.nodes() > 1) text += fmt::format(" inside a node, {:.0f} GB/s between nodes", c.network.bytes_per_second / 1e9);
  if (!c.slowest_pair.empty())
    text += fmt::format("; links in nodes are unlike, and all are priced as the slowest pair, {}", c.slowest_pair);
  return {"Fast or slow links?", text};
}

// Why devices stay idle: the fastest layout with more devices, or why there is none.
std::string why_idle(const Request& request, const SearchResult& result) {
  const Candidate& first = result.best.front();
  const int32_t used = first.layout.ranks(), all = request.cluster.size();
  const auto more = std::ranges::find_if(result.best, [&](const Candidate& c) { return c.layout.ranks() > used; });
  std::optional<Candidate> other;
  if (more != result.best.end()) other = *more;
  Dropped dropped;
  for (int32_t devices = used + 1; more == result.best.end() && devices <= all; ++devices) {
    Fixed fixed = request.fixed;
    fixed.devices = devices;
    SearchResult found = search(search_of(request, request.cluster, fixed));
    dropped.tried += found.dropped.tried, dropped.memory += found.dropped.memory;
    if (!found.best.empty() && (!other || found.best.front().step_s() < other->step_s())) other = found.best.front();
  }
  if (other && other->step_s() > first.step_s())
    return fmt::format("the fastest over more than {} of the {} devices is forecast to take {}, as {}", used, all,
                       duration_text(other->step_s()), name_of(other->layout));
  if (other)
    return fmt::format("faster layouts over more than {} of the {} devices have programs that a run would refuse", used,
                       all);
  if (dropped.memory > 0)
    return fmt::format("nothing over more than {} of the {} devices fits their memory", used, all);
  return fmt::format("nothing over more than {} of the {} devices divides the model and the batch as asked", used, all);
}

std::string advice(const Request& request, const SearchResult& result) {
  if (result.best.empty()) return "nothing that was tried fits";
  const Candidate& first = result.best.front();
  double room = request.cluster.kind(0).memory_bytes;  // of the smallest device with a rank
  for (int32_t rank = 1; rank < first.layout.ranks(); ++rank)
    room = std::min(room, request.cluster.kind(rank).memory_bytes);
  const bool fits = on_one(request).total() <= room;
  std::string text = name_of(first.layout);
  if (first.layout.ranks() < request.cluster.size() && !request.fixed.devices)
    text += ": " + why_idle(request, result);
  else if (first.layout.ranks() == 1)
    text += fits ? ": the model fits it, and nothing travels" : "";
  else if (fits && first.layout.data == first.layout.ranks())
    text += ": replicas of a model that fits one device; only gradients travel";
  else if (!fits && first.layout.zero_stage == 3)
    text += ": each rank keeps its part of the layers, and gathers a layer when it runs";
  else if (!fits && first.layout.zero_stage > 0 && first.layout.tensor == 1 && first.layout.pipeline == 1)
    text += ": parameters fit one device; what they need beside is divided over the ranks";
  else if (first.layout.tensor > 1)
    text += ": the tensor axis inside a node, where its collectives are cheap";
  else if (first.layout.pipeline > 1)
    text +=
        fits ? ": stages of the layers, which send no more than the values at their ends"
             : ": the model does not fit one device; stages of it do, and send no more than the values at their ends";
  else if (first.layout.context > 1)
    text += ": ranks divide the positions of a sample, and attention shifts keys and values round them";
  return text;
}

}  // namespace

SearchInput search_of(const Request& r, const Cluster& cluster, const Fixed& fixed) {
  return {r.workload, cluster, r.recipe, r.constants, r.batch, fixed, 1, {}};
}

std::string duration_text(double seconds, int32_t digits) {
  const bool small = std::abs(seconds) < 1 - 0.5 * std::pow(10, -digits);  // else rounding yields 1000 ms
  const double value = small ? seconds * 1e3 : seconds;
  const char* unit = small ? "ms" : "s";
  if (std::abs(value) >= std::pow(10, digits)) return fmt::format("{:.0f} {}", value, unit);
  return fmt::format("{:.{}g} {}", value, digits, unit);
}

std::string gib(double bytes) {
  const double value = bytes / kGiB;
  return fmt::format("{:.{}f}", value, value < 10 ? 2 : 1);
}

std::string name_of(const Layout& l) {
  std::vector<std::string> words;
  if (l.tensor > 1)
    words.push_back(fmt::format("tensor {}{}{}", l.tensor, l.sequence_parallel ? " with sequence parallelism" : "",
                                l.excluded != 0 ? " but for some layers" : ""));
  if (l.context > 1) words.push_back(fmt::format("context {}", l.context));
  if (l.pipeline > 1) {
    std::string chunks = l.chunks > 1 ? fmt::format(", {} chunks", l.chunks) : "";
    words.push_back(fmt::format("pipeline {} ({}{})", l.pipeline, name_of(l.schedule), chunks));
  }
  if (l.data > 1) words.push_back(fmt::format("data {}", l.data));
  if (words.empty()) words.emplace_back("one device");
  if (l.zero_stage > 0) words.push_back(fmt::format("ZeRO-{}", l.zero_stage));
  if (l.offload != Offload::none)
    words.emplace_back(l.offload == Offload::all ? "state and parameters in host memory" : "state in host memory");
  if (l.recompute == Recompute::full) words.emplace_back("recomputation");
  if (l.recompute == Recompute::selective) words.emplace_back("recomputed attention");
  words.push_back(fmt::format("{} of {}", with_noun(l.microbatches, "micro-batch"), with_noun(l.microbatch, "sample")));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string lost_by(const Candidate& first, const Candidate& other) {
  size_t worst = 0;
  double most = -1;
  for (size_t i = 0; i < kTimeParts; ++i) {
    const double more = other.time.parts[i] - first.time.parts[i];
    if (more > most) most = more, worst = i;
  }
  if (other.step_s() - first.step_s() < kSame) return "as fast";
  return fmt::format("{} +{}", name_of(static_cast<TimePart>(worst)), duration_text(most, 3));
}

Runtime runtime_of(const Recipe& recipe) {
  const std::string_view name = recipe.name;
  if (name.starts_with("megatron")) return Runtime::overlapped;
  if (name.starts_with("fsdp2") || name.starts_with("gsel")) return Runtime::compiled;
  return Runtime::plain;
}

std::string confidence(const Request& request) {
  const Constants& constants = request.constants;
  if (!request.calibrated_on.empty()) {
    std::string text = "calibrated on " + request.calibrated_on;
    for (const DeviceKind& kind : request.cluster.kinds)
      if (kind.device_class != request.cluster.kinds.front().device_class)
        text += fmt::format("; {} takes the scalar of {}, without a measurement of its own", kind.name,
                            request.cluster.kinds.front().name);
    return text;
  }
  std::string text =
      constants.calibrated()
          ? fmt::format("within {:.0f} % on average of the measurements of {} that were left out of the fit of {}",
                        constants.spread * 100, constants.device_class, with_noun(constants.rows, "row"))
          : fmt::format("uncalibrated: nobody's measurements of this class of device are known; those of {} are used",
                        constants.device_class);
  for (const DeviceKind& kind : request.cluster.kinds)
    if (constants.calibrated() && !constants_for(kind.device_class, runtime_of(request.recipe)).calibrated())
      text += fmt::format("; {} is uncalibrated", kind.name);
  return text;
}

std::vector<Answer> decision(const Request& request, const SearchResult& result) {
  return {fits_one(request), largest_fits(request), nodes(request), links(request), {"So:", advice(request, result)}};
}

std::string devices_text(const Request& request, const Candidate& candidate) {
  const Cluster& cluster = request.cluster;
  if (cluster.uniform()) return {};
  const auto named = [&](int32_t from, int32_t to) {
    std::string text;
    for (int32_t rank = from; rank < to; ++rank)
      text += fmt::format("{}{}", rank == from ? "" : ", ", cluster.kind(rank).name);
    return text;
  };
  const int32_t ranks = candidate.layout.ranks();
  std::string text = "devices by rank: " + named(0, ranks);
  if (ranks < cluster.size()) text += "; idle: " + named(ranks, cluster.size());
  return text;
}

// ---- the error of a forecast ---------------------------------------------------------------------------------------

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
