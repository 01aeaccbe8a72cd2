// plan/explain.cc: why the plan is as it is, in the words of the Hugging Face guide to training on several GPUs: does
// the model fit one device, does its largest layer, one node or several, fast or slow links.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "plan/accelerator.h"
#include "plan/plan.h"

namespace gsel::plan {
namespace {

constexpr double kSame = 1e-6;  // seconds that nobody would tell apart
constexpr int32_t kMostNodes = 4096;
constexpr int32_t kMostInNode = 16;  // devices that one is tried with

Layout alone() {
  return {};
}

// The whole model on one device, one sample at a time.
StageMemory on_one(const Request& request) {
  return worst_memory(split(request.workload, 1), alone(), request.recipe);
}

std::string parts_of(const StageMemory& memory) {
  std::string text;
  for (size_t i = 0; i < kMemoryParts; ++i) {
    const auto part = static_cast<MemoryPart>(i);
    if (memory[part] < 0.05 * kGiB) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(part), gib(memory[part]));
  }
  return text;
}

// For each kind of device whether it has so much, or in one word where all are alike: "yes on A40, no on T4".
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

SearchInput with(const Request& r, const Cluster& cluster, const Fixed& fixed) {
  return {r.workload, cluster, r.recipe, r.constants, r.batch, fixed, 1, {}};
}

// Why devices stay idle: the fastest layout over more of them, or why there is none.
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
    SearchResult found = search(with(request, request.cluster, fixed));
    dropped.tried += found.dropped.tried, dropped.memory += found.dropped.memory;
    if (!found.best.empty() && (!other || found.best.front().step_s() < other->step_s())) other = found.best.front();
  }
  if (other && other->step_s() > first.step_s())
    return fmt::format("the fastest over more than {} of the {} devices is forecast to take {}, as {}", used, all,
                       duration_text(other->step_s()), name_of(other->layout));
  if (other) return fmt::format("a run refuses the programs of what is faster over more than {} of the {}", used, all);
  if (dropped.memory > 0)
    return fmt::format("nothing over more than {} of the {} devices fits their memory", used, all);
  return fmt::format("nothing over more than {} of the {} devices divides the model and the batch as asked", used, all);
}

std::string advice(const Request& request, const SearchResult& result) {
  if (result.best.empty()) return "nothing that was tried fits";
  const Candidate& first = result.best.front();
  double room = request.cluster.kind(0).memory_bytes;  // of the smallest device that has a rank
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
  return text;
}

// One thing less that the caller has decided, and what it is called.
struct Looser {
  std::string change;
  Fixed fixed;
};

std::vector<Looser> loosened(const Fixed& fixed) {
  std::vector<Looser> out;
  const auto add = [&](bool set, const char* name, auto clear) {
    if (!set) return;
    Looser looser{name, fixed};
    clear(looser.fixed);
    out.push_back(std::move(looser));
  };
  add(fixed.microbatch.has_value(), "microbatch", [](Fixed& f) { f.microbatch.reset(); });
  add(fixed.recompute.has_value(), "recompute", [](Fixed& f) { f.recompute.reset(); });
  add(fixed.sequence_parallel.has_value(), "sequence_parallel", [](Fixed& f) { f.sequence_parallel.reset(); });
  add(fixed.zero_stage.has_value(), "zero", [](Fixed& f) { f.zero_stage.reset(); });
  add(fixed.tensor.has_value(), "tensor", [](Fixed& f) { f.tensor.reset(), f.data.reset(), f.pipeline.reset(); });
  add(fixed.pipeline.has_value(), "pipeline", [](Fixed& f) { f.pipeline.reset(), f.data.reset(), f.tensor.reset(); });
  add(fixed.offload.has_value(), "offload", [](Fixed& f) { f.offload.reset(); });
  add(fixed.devices.has_value(), "devices", [](Fixed& f) { f.devices.reset(); });
  return out;
}

// So many devices, the last ones as the last that there is.
Cluster grown(const Cluster& from, int32_t devices, int32_t per_node) {
  Cluster cluster = from;
  cluster.per_node = per_node;
  cluster.devices.resize(static_cast<size_t>(devices), from.devices.back());
  return cluster;
}

// The smallest number of devices of one node, then of nodes, on which something fits.
std::string more_devices(const Request& request) {
  const Cluster& own = request.cluster;
  const auto layout_on = [&](const Cluster& cluster) -> std::optional<Layout> {
    SearchResult found = search(with(request, cluster, request.fixed));
    if (found.best.empty()) return std::nullopt;
    return found.best.front().layout;
  };
  if (own.nodes() == 1)
    for (int32_t devices = own.size() + 1; devices <= kMostInNode; ++devices)
      if (const auto layout = layout_on(grown(own, devices, devices)))
        return fmt::format("{} of them fit, as {}", with_noun(devices, "device"), name_of(*layout));
  int32_t none = own.nodes(), some = 2 * none;
  std::optional<Layout> layout;
  for (; some <= kMostNodes && !(layout = layout_on(grown(own, some * own.per_node, own.per_node))); some *= 2)
    none = some;
  if (!layout) return {};
  while (some - none > 1) {
    const int32_t middle = none + (some - none) / 2;
    if (const auto found = layout_on(grown(own, middle * own.per_node, own.per_node)))
      some = middle, layout = found;
    else
      none = middle;
  }
  return fmt::format("{} nodes of {} fit, as {}", some, with_noun(own.per_node, "device"), name_of(*layout));
}

// The device with the least memory of those that have so much.
std::string larger_device(double bytes) {
  const Accelerator* least = nullptr;
  for (const Accelerator& one : accelerators())
    if (one.memory_bytes >= bytes && (!least || one.memory_bytes < least->memory_bytes)) least = &one;
  if (!least) return {};
  return fmt::format("; devices of {} GiB hold it, such as {} with {}", gib(bytes), least->name,
                     gib(least->memory_bytes));
}

// Which of the values that are fixed, or the batch, excludes every layout.
std::string excluded_by(const Request& request, const Dropped& dropped) {
  const Fixed& f = request.fixed;
  const int64_t devices = f.devices.value_or(request.cluster.size());
  int64_t product = 1;
  std::string sizes;
  const auto axis = [&](const char* name, const std::optional<int64_t>& size) {
    if (!size) return;
    product *= *size;
    sizes += fmt::format("{}{}={}", sizes.empty() ? "" : ", ", name, *size);
  };
  axis("tensor", f.tensor), axis("context", f.context), axis("data", f.data), axis("pipeline", f.pipeline);
  if (product > devices)
    return fmt::format("{} needs {}, and there are {}", sizes, with_noun(product, "rank"), devices);
  const bool all = f.tensor && f.context && f.data && f.pipeline;
  if (devices % product != 0 || (all && product != devices))
    return fmt::format("{} is {}, which does not divide {}; fix devices={} too", sizes, with_noun(product, "rank"),
                       with_noun(devices, "device"), devices / product * product);
  const Workload& w = request.workload;
  if (f.tensor && w.heads > 0 && *f.tensor > w.kv_heads)
    return fmt::format("tensor={} divides {} whose keys are shared, and there are {}", *f.tensor, "heads", w.kv_heads);
  if (f.tensor.value_or(1) > 1 && f.context.value_or(1) > 1)
    return "tensor and context divide the same layers; fix one of them";
  if (f.pipeline && *f.pipeline > w.layers())
    return fmt::format("pipeline={} has more stages than there are layers, {}", *f.pipeline, w.layers());
  if (f.chunks.value_or(1) > 1 && f.pipeline.value_or(2) == 1)
    return fmt::format("chunks={} is of a pipeline; fix pipeline=2 or more", *f.chunks);
  if (f.sequence_parallel.value_or(false) && f.tensor.value_or(2) == 1)
    return "sequence_parallel=true is of the tensor axis; fix tensor=2 or more";
  if (f.microbatch && request.batch % *f.microbatch != 0)
    return fmt::format("microbatch={} does not divide a batch of {}", *f.microbatch, request.batch);
  if (dropped.batch > 0)
    return fmt::format("a batch of {} does not divide by {}, the fewest of any layout of {}; accepted: {}",
                       request.batch, with_noun(dropped.replicas, "replica"), with_noun(devices, "device"),
                       multiples_near(request.batch, dropped.replicas * f.microbatch.value_or(1)));
  if (f.microbatch && f.data && request.batch / *f.data % *f.microbatch != 0)
    return fmt::format("microbatch={} does not divide the {} of each of data={} replicas", *f.microbatch,
                       with_noun(request.batch / *f.data, "sample"), *f.data);
  return "what is fixed excludes every layout; fix less";
}

}  // namespace

std::string duration_text(double seconds, int32_t digits) {
  const bool small = std::abs(seconds) < 1 - 0.5 * std::pow(10, -digits);  // else so many digits make it 1000 ms
  const double value = small ? seconds * 1e3 : seconds;
  const char* unit = small ? "ms" : "s";
  if (std::abs(value) >= std::pow(10, digits)) return fmt::format("{:.0f} {}", value, unit);
  return fmt::format("{:.{}g} {}", value, digits, unit);
}

std::string multiples_near(int64_t n, int64_t unit) {
  const int64_t below = n / unit * unit;
  return below == 0 ? fmt::format("{} and its multiples", unit)
                    : fmt::format("multiples of {}, such as {} and {}", unit, below, below + unit);
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

std::string smallest_change(const Request& request, const SearchResult& result) {
  std::string text;
  if (result.least) {
    const Candidate& c = *result.least;
    text =
        fmt::format("the nearest, {}, is {} GiB short on stage {}", name_of(c.layout), gib(c.short_bytes()), c.stage);
    if (request.cluster.uniform())
      text += larger_device(c.memory.total() * request.cluster.kinds.front().memory_bytes / c.capacity);
  }
  const auto join = [&](const std::string& more) {
    return text.empty() ? more : more.empty() ? text : text + "; " + more;
  };
  if (result.dropped.tried == 0) text = excluded_by(request, result.dropped);
  for (const Looser& looser : loosened(request.fixed)) {
    const SearchResult found = search(with(request, request.cluster, looser.fixed));
    if (!found.best.empty())
      return join(fmt::format("without a fixed {}, {} fits", looser.change, name_of(found.best.front().layout)));
  }
  return join(more_devices(request));
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

}  // namespace gsel::plan
