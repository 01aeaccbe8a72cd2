// plan/change.cc: when nothing fits, finds a change of the request that helps: one decision less, more devices, larger
// devices. Also finds the decision that excludes every layout.
#include <optional>

#include "base/text.h"
#include "plan/accelerator.h"
#include "plan/plan.h"

namespace gsel::plan {
namespace {

constexpr int32_t kMostNodes = 4096;
constexpr int32_t kMostInNode = 16;  // most devices tried in one node

// The caller's decisions without one, and the text of that change.
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

// The cluster with `devices` devices; new ones are of the kind of the last.
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
    SearchResult found = search(search_of(request, cluster, request.fixed));
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

// The device with the least memory among those with at least `bytes`.
std::string larger_device(double bytes) {
  const Accelerator* least = nullptr;
  for (const Accelerator& one : accelerators())
    if (one.memory_bytes >= bytes && (!least || one.memory_bytes < least->memory_bytes)) least = &one;
  if (!least) return {};
  return fmt::format("; devices of {} GiB hold it, such as {} with {}", gib(bytes), least->name,
                     gib(least->memory_bytes));
}

// Which fixed value, or the batch, excludes every layout.
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

std::string multiples_near(int64_t n, int64_t unit) {
  const int64_t below = n / unit * unit;
  return below == 0 ? fmt::format("{} and its multiples", unit)
                    : fmt::format("multiples of {}, such as {} and {}", unit, below, below + unit);
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
    const SearchResult found = search(search_of(request, request.cluster, looser.fixed));
    if (!found.best.empty())
      return join(fmt::format("without a fixed {}, {} fits", looser.change, name_of(found.best.front().layout)));
  }
  return join(more_devices(request));
}

}  // namespace gsel::plan
