// plan/estimate.cc: memory of each rank under each strategy on a cluster, without a search: like accelerate
// estimate-memory and DeepSpeed's estimators, but with activations.
#include "base/error.h"
#include "base/text.h"
#include "plan/plan.h"

namespace gsel::plan {
namespace {

struct Strategy {
  const char* name;
  int32_t zero_stage;
  Offload offload;
};
constexpr Strategy kData[] = {{"DDP", 0, Offload::none},
                              {"ZeRO-1", 1, Offload::none},
                              {"ZeRO-1, state in host memory", 1, Offload::state},
                              {"ZeRO-2", 2, Offload::none},
                              {"ZeRO-2, state in host memory", 2, Offload::state},
                              {"ZeRO-3", 3, Offload::none},
                              {"ZeRO-3, state in host memory", 3, Offload::state},
                              {"ZeRO-3, all in host memory", 3, Offload::all}};

EstimateRow row(const Request& request, std::string name, const Layout& layout) {
  EstimateRow out{std::move(name), layout, {}, false, {}};
  double room = request.cluster.kinds.front().memory_bytes;
  for (const DeviceKind& kind : request.cluster.kinds) room = std::min(room, kind.memory_bytes);
  const Split stages = split_for(request.workload, layout, {}, request.recipe);
  const int32_t replicas = layout.ranks() / layout.pipeline;
  for (const StageRun& run : stages.runs)
    for (int32_t stage = run.first; stage < run.first + run.count; ++stage) {
      const StageMemory here = forecast_memory(stages, run, stage, layout, request.recipe);
      if (!out.ranks.empty() && out.ranks.back().memory.parts == here.parts) {
        out.ranks.back().count += replicas;
        continue;
      }
      out.ranks.push_back({stage * replicas, replicas, here, here.total() <= room});
      if (here.total() > out.memory.total()) out.memory = here;
    }
  out.fits = out.memory.total() <= room;
  return out;
}

// "ranks 0-3"
std::string name_of(const EstimateRow::Ranks& ranks) {
  if (ranks.count == 1) return fmt::format("rank {}", ranks.first);
  return fmt::format("ranks {}-{}", ranks.first, ranks.first + ranks.count - 1);
}

}  // namespace

std::vector<EstimateRow> estimate(const Request& request) {
  const int32_t devices = static_cast<int32_t>(request.fixed.devices.value_or(request.cluster.size()));
  Layout base;
  base.microbatch = request.fixed.microbatch.value_or(1);
  base.recompute = request.fixed.recompute.value_or(Recompute::none);
  std::vector<EstimateRow> rows{row(request, "one device", base)};
  if (devices == 1) return rows;
  for (const Strategy& strategy : kData) {
    Layout layout = base;
    layout.data = devices;
    layout.zero_stage = strategy.zero_stage;
    layout.offload = strategy.offload;
    rows.push_back(row(request, strategy.name, layout));
  }
  const int32_t inside = std::min(devices, request.cluster.per_node);
  const Workload& w = request.workload;
  if (w.heads > 0 && w.heads % inside == 0 && w.kv_heads % inside == 0 && inside > 1) {
    Layout layout = base;
    layout.tensor = inside;
    layout.data = devices / inside;
    rows.push_back(row(request, fmt::format("TP {}", inside), layout));
    layout.sequence_parallel = true;
    rows.push_back(row(request, fmt::format("TP {}, sequence parallelism", inside), layout));
    layout.zero_stage = 1;
    if (layout.data > 1)
      rows.push_back(row(request, fmt::format("TP {}, sequence parallelism, ZeRO-1", inside), layout));
  }
  if (w.layers() >= inside && inside > 1) {
    Layout layout = base;
    layout.pipeline = inside;
    layout.data = devices / inside;
    layout.microbatches = 4L * inside;
    rows.push_back(row(request, fmt::format("PP {} (1f1b)", inside), layout));
    layout.schedule = ScheduleKind::gpipe;
    rows.push_back(row(request, fmt::format("PP {} (gpipe, {} micro-batches)", inside, 4 * inside), layout));
  }
  return rows;
}

std::string estimate_text(const Request& request) {
  const auto rows = estimate(request);
  std::vector<size_t> shown;  // parts that at least one row has
  for (size_t i = 0; i < kEstimatedParts; ++i)
    for (const EstimateRow& r : rows)
      if (r.memory.parts[i] > 0) {
        shown.push_back(i);
        break;
      }
  size_t width = 8;
  for (const EstimateRow& r : rows) width = std::max(width, r.strategy.size());
  std::string text = fmt::format(
      "{}: {:.2f} billion parameters, {}, micro-batch {} of {} tokens, recompute {}\n"
      "GiB on each rank, or on the one that needs most and below it on each; \"fits\" is for the smallest device of "
      "{}, {}\n{}\n",
      request.workload.name, request.workload.params() / 1e9, request.recipe.name, rows[0].layout.microbatch,
      request.workload.sequence, name_of(rows[0].layout.recompute), request.cluster.name,
      with_noun(request.cluster.nodes(), "node"), notes_text(request));
  text += fmt::format("{:{}}  {:>8}  fits", "strategy", width, "all");
  for (const size_t i : shown) {
    const std::string name = name_of(static_cast<EstimatedPart>(i));
    text += fmt::format("  {:>{}}", name, std::max<size_t>(name.size(), 6));
  }
  text += "  host\n";
  const auto line = [&](const std::string& of, const StageMemory& memory, bool fits) {
    text += fmt::format("{:{}}  {:>8}  {:4}", of, width, gib(memory.total()), fits ? "yes" : "no");
    for (const size_t i : shown) {
      const std::string name = name_of(static_cast<EstimatedPart>(i));
      text += fmt::format("  {:>{}}", gib(memory.parts[i]), std::max<size_t>(name.size(), 6));
    }
    text += fmt::format("  {}\n", memory.host_bytes > 0 ? gib(memory.host_bytes) : "-");
  };
  for (const EstimateRow& r : rows) {
    line(r.strategy, r.memory, r.fits);
    if (r.ranks.size() < 2) continue;
    for (const EstimateRow::Ranks& ranks : r.ranks) line("  " + name_of(ranks), ranks.memory, ranks.fits);
  }
  return text;
}

}  // namespace gsel::plan
