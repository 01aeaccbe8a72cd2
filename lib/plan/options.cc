// plan/options.cc: see options.h.
#include "plan/options.h"

#include <algorithm>

#include "base/text.h"
#include "plan/config_layout.h"
#include "plan/describe.h"
#include "plan/finalist.h"
#include "plan/units.h"

namespace gsel::plan {
namespace {

constexpr size_t kRowsShown = 10;
constexpr int32_t kMostRanksCompiled = 1024;  // most ranks of a compared config whose programs are compiled
constexpr int64_t kMostDescribed = 512;       // most layers of a model whose programs are compiled

// Reads the model, and makes a described model for the strategies if only its shape is known.
void read_model(const gsel_plan_options& o, const std::shared_ptr<Model>& described, Request& request) {
  const std::string name = given(o.model_name) ? one_line(view(o.model_name)) : "the model";
  if (given(o.model)) {
    std::optional<Transformer> shape;
    request.workload = read_workload(view(o.model), name, o.sequence, &shape);
    if (!shape || shape->layers > kMostDescribed) return;
    const gsel_dtype dtype = request.recipe.element_bytes > 2 ? GSEL_F32 : GSEL_BF16;
    request.model = describe(*shape, {request.workload.sequence, dtype});
    return;
  }
  if (!described)
    fail(GSEL_ERR_ARG, "gsel_plan_options names no model; set model to a config.json, or described to a gsel_model");
  request.workload = workload_of(*described, name);
  request.model = described;
}

Cluster cluster_of(const gsel_plan_options& o, const Inventory* inventory) {
  const ClusterOptions options{o.nodes == 0 ? 1 : o.nodes, text(o.link), text(o.network), o.memory_bytes};
  if (given(o.cluster)) return cluster_of(view(o.cluster), options);
  if (inventory) return cluster_of(*inventory, options);
  return cluster_of(detect_inventory(), options);
}

Recipe recipe_of(const gsel_plan_options& o) {
  const std::string name = given(o.precision) ? text(o.precision) : "gsel-bf16";
  if (const Recipe* found = find_recipe(name)) return *found;
  fail(GSEL_ERR_ARG, "precision {} is not known; accepted: {}", in_quotes(name), recipe_names());
}

}  // namespace

Request request_of(const gsel_plan_options& o, const std::shared_ptr<Model>& described,
                   const std::shared_ptr<const Inventory>& inventory) {
  Request request;
  request.recipe = recipe_of(o);
  read_model(o, described, request);
  request.cluster = cluster_of(o, inventory.get());
  align_kinds(request.cluster);
  request.fixed = parse_fixed(view(o.fixed));
  if (request.recipe.fused_attention && request.fixed.recompute == Recompute::selective)
    throw Error(
        GSEL_ERR_ARG,
        fmt::format("recompute=selective is not accepted with {}, whose kernels do not keep the scores of attention: "
                    "there is nothing to compute again; accepted: none, all",
                    request.recipe.name))
        .at({"", 0, 0, "recompute"});
  request.batch = o.batch == 0 ? request.cluster.size() : o.batch;
  request.constants = constants_for(request.cluster.kinds.front().device_class, runtime_of(request.recipe));
  if (given(o.measured)) calibrate(request, view(o.measured), "measured");
  request.shown = o.n_shown > 0 ? static_cast<size_t>(o.n_shown) : kRowsShown;
  return request;
}

void check_fixed_of_estimate(const Fixed& fixed) {
  const struct {
    bool set;
    const char* name;
  } all[] = {{fixed.tensor.has_value(), "tensor"},
             {fixed.context.has_value(), "context"},
             {fixed.data.has_value(), "data"},
             {fixed.pipeline.has_value(), "pipeline"},
             {fixed.zero_stage.has_value(), "zero"},
             {fixed.chunks.has_value(), "chunks"},
             {fixed.offload.has_value(), "offload"},
             {fixed.schedule.has_value(), "schedule"},
             {fixed.sequence_parallel.has_value(), "sequence_parallel"}};
  for (const auto& key : all)
    if (key.set)
      throw Error(GSEL_ERR_ARG, fmt::format("{} is fixed, and an estimate has rows of strategies that decide it; "
                                            "accepted: devices, microbatch, recompute",
                                            key.name))
          .at({"", 0, 0, key.name});
}

std::vector<Compared> compare(const Request& asked, std::span<const Config* const> configs) {
  std::vector<Compared> all;
  for (size_t i = 0; i < configs.size(); ++i) {
    const Config& config = *configs[i];
    const std::string name = config.file.empty() ? fmt::format("config {}", i + 1) : config.file;
    Request request = asked;
    request.cluster = devices_of(config, asked.cluster);
    bool others = false;
    const Layout layout = layout_of(config, request.workload, request.cluster.size(), &others);
    if (others)
      request.workload.notes.push_back(
          fmt::format("strategy.tensor.exclude of {} names layers that the forecast divides; it knows {}", name,
                      layers_of(request.workload, ~uint64_t{0})));
    const Shares shares = shares_of(config, request.workload, request.cluster, layout);
    request.batch = config.train.batch;
    if (config.train.recompute != "none" && config.train.recompute != "all")
      request.workload.notes.push_back(
          fmt::format("train.recompute of {} names layers; the forecast computes all of them again", name));
    if (const std::string note = uneven_note(config, layout); !note.empty()) request.workload.notes.push_back(note);
    // Refuses what a run would refuse, such as an option that a strategy does not have.
    if (request.model && layout.ranks() <= kMostRanksCompiled)
      CompiledJob(*request.model, config, layout.ranks(), nullptr, 1);
    const SearchInput input{
        request.workload, request.cluster, request.recipe, request.constants, request.batch, {}, 1, {}};
    all.push_back({name, evaluate(input, layout, shares), request});
  }
  // Notes that apply to several files appear once.
  std::vector<std::string>& notes = all.front().request.workload.notes;
  for (const Compared& one : all)
    for (const std::string& note : one.request.workload.notes)
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
  if (const std::string note = unlike_batches(all); !note.empty()) notes.push_back(note);
  return all;
}

}  // namespace gsel::plan
