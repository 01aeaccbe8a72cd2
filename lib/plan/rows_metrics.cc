// plan/rows_metrics.cc: what a row's metric means: the quantity and unit of any metric (seconds of a step, operations,
// tokens, bytes), and forecasts of memory metrics (model states, activations of a stage, bytes that an allocator
// counted). Formulas are those of memory.h; this file selects the parts that a metric includes.
#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "plan/memory.h"
#include "plan/rows.h"

namespace gsel::plan {
namespace {

struct ByteUnit {
  const char* name;
  double bytes;
};
constexpr ByteUnit kUnits[] = {{"TiB", 1099511627776.0},
                               {"GiB", 1073741824},
                               {"MiB", 1048576},
                               {"TB", 1e12},
                               {"GB", 1e9},
                               {"MB", 1e6},
                               {"byte", 1}};

// Operations of a step as the metric counts them: with recomputation if a note or full recomputation says so.
double counted_flop(const PublishedRow& row, const RowCase& run, double batch) {
  const std::string& note = row.text("note");
  // Counts all pairs of positions, except for Llama 3, whose two lines only agree with the causal half.
  const double core = mentions(row.text("source"), "Llama 3") ? 0.5 : 1;
  double layers = 0, head = 0;
  for (const Block& block : run.workload.blocks)
    (block.kind == BlockKind::head ? head : layers) +=
        static_cast<double>(block.count) *
        (block.costs.flop_dense + block.costs.flop_whole + core * block.costs.flop_core);
  const bool again =
      row.text("metric").starts_with("hfu") || mentions(note, "hardware FLOP") ||
      (row.text("recompute") == "full" && !mentions(note, "model FLOP") && !row.text("metric").starts_with("mfu"));
  return batch * ((again ? 4 : 3) * layers + 3 * head);
}

// The 200 in "train_200_steps_s".
std::optional<double> steps_of(std::string_view name) {
  if (!name.starts_with("train_")) return std::nullopt;
  name.remove_prefix(6);
  double n = 0;
  while (!name.empty() && is_digit(name.front())) n = 10 * n + (name.front() - '0'), name.remove_prefix(1);
  return n > 0 && (name == "_steps_s" || name == "_iterations_s") ? std::optional(n) : std::nullopt;
}

bool is_memory(const std::string& name) {
  return name.starts_with("activation_percent") ||
         std::any_of(std::begin(kUnits), std::end(kUnits),
                     [&](const ByteUnit& unit) { return mentions(name, unit.name); });
}

double unit_bytes(const PublishedRow& row) {
  for (const std::string* text : {&row.text("metric"), &row.text("unit")})
    for (const ByteUnit& unit : kUnits)
      if (mentions(*text, unit.name)) return unit.bytes;
  return 1;
}

}  // namespace

Metric metric_of(const PublishedRow& row, const RowCase& run) {
  const std::string& name = row.text("metric");
  const double batch = run.layouts.empty() ? 1 : static_cast<double>(run.layouts[0].batch());
  const auto gpus = static_cast<double>(run.gpus), tokens = batch * static_cast<double>(run.workload.sequence);
  const bool each = name.ends_with("_per_gpu") || name.ends_with("_per_device");
  if (name == "fits") return {Quantity::fits, 1, false};
  if (name == "iteration_s" || name == "step_time_s" || name == "step_s" || name == "iteration_time_s")
    return {Quantity::step, 1, false};
  if (name == "iteration_ms" || name == "step_time_ms" || name == "step_ms") return {Quantity::step, 1e3, false};
  if (const auto steps = steps_of(name)) return {Quantity::step, *steps, false};
  if (name.starts_with("tokens_per_s")) return {Quantity::step, tokens / (each ? gpus : 1), true};
  if (name.starts_with("samples_per_s")) return {Quantity::step, batch / (each ? gpus : 1), true};
  if (name.starts_with("tflops"))
    return {Quantity::step, counted_flop(row, run, batch) / 1e12 / (each ? gpus : 1), true};
  if (name.starts_with("pflops"))
    return {Quantity::step, counted_flop(row, run, batch) / 1e15 / (each ? gpus : 1), true};
  if (name.starts_with("mfu") || name.starts_with("hfu")) {
    const double peak =
        run.cluster.kinds.empty() ? 1 : run.cluster.kinds[0].flop(run.recipe.element_bytes, run.recipe.tf32);
    const double percent = row.text("unit") == "%" || row.number("value", 0, 0) > 1 ? 100 : 1;
    return {Quantity::step, percent * counted_flop(row, run, batch) / (gpus * peak), true};
  }
  if (is_memory(name)) return {Quantity::memory, 1 / unit_bytes(row), false};
  return {};
}

// ---- memory --------------------------------------------------------------------------------------------------------

namespace {

constexpr double kGathered = 4;  // bytes per parameter of the largest layer in DeepSpeed's estimator
constexpr double kBucket = 1e9;  // bytes of DeepSpeed's gradient bucket
constexpr double kContext = 0.9e9;

std::string why_not(const PublishedRow& row, const char* column, std::string_view need) {
  return fmt::format("row {}: column {}: {}", row.has("row") ? row.text("row") : fmt::format("on line {}", row.line),
                     column, need);
}

// Elements from "largest layer 32M".
double largest_layer(const std::string& note, double absent) {
  const size_t at = note.find("largest layer ");
  if (at == note.npos) return absent;
  double value = 0;
  const char* begin = note.data() + at + 14;
  const auto result = std::from_chars(begin, note.data() + note.size(), value);
  if (result.ec != std::errc()) return absent;
  const double unit = *result.ptr == 'B' ? 1e9 : *result.ptr == 'M' ? 1e6 : *result.ptr == 'K' ? 1e3 : 1;
  return value * unit;
}

Layout layout_of(const PublishedRow& row) {
  Layout l;
  l.tensor = static_cast<int32_t>(row.whole("tp", 1, 1, kMostRowRanks));
  l.pipeline = static_cast<int32_t>(row.whole("pp", 1, 1, kMostRowRanks));
  const int64_t model_ranks = static_cast<int64_t>(l.tensor) * l.pipeline;
  const int64_t replicas = std::max<int64_t>(1, row.whole("gpus", 1, 1, kMostRowRanks) / model_ranks);
  l.data = static_cast<int32_t>(row.whole("dp", 1, replicas, kMostRowRanks));
  l.context = static_cast<int32_t>(row.whole("cp", 1, 1, kMostRowRanks));
  l.zero_stage = static_cast<int32_t>(row.whole("zero", 0, 0, 3));
  l.sequence_parallel = row.whole("seqpar", 0, 0) != 0;
  l.microbatch = row.whole("mbs", 1, 1);
  l.chunks = row.text("vpp") == "interleaved" ? 2 : static_cast<int32_t>(row.whole("vpp", 1, 1, 1000));
  if (l.chunks > 1) l.schedule = ScheduleKind::interleaved;
  const int64_t batch = row.whole("gbs", 1, 0);
  // An unknown batch keeps every stage busy.
  l.microbatches =
      batch > 0 ? std::max<int64_t>(1, batch / (l.microbatch * l.data)) : int64_t{2} * l.pipeline * l.chunks;
  const std::string& again = row.text("recompute");
  l.recompute = again == "full"                ? Recompute::full
                : mentions(again, "selective") ? Recompute::selective
                                               : Recompute::none;
  return l;
}

double params_of(const PublishedRow& row, const RowCase& run) {
  const double given = row.number("params_b", 0, 0) * 1e9;
  return given > 0 ? given : run.workload.params();
}

// As in DeepSpeed's estimators: under ZeRO-2 every GPU keeps an equal shard of the states that stay on devices; under
// ZeRO-3 an equal shard of all states, and the whole largest layer.
double model_state(const PublishedRow& row, const RowCase& run, const Layout& layout) {
  const std::string& note = row.text("note");
  const double params = params_of(row, run);
  const double ranks = layout.data;
  if (!mentions(note, "offload"))
    return params / (static_cast<double>(layout.tensor) * layout.pipeline) *
           find_recipe("paper-fp16")->model_state(layout.zero_stage, ranks);
  const Recipe& recipe = *find_recipe("deepspeed-fp16");
  const double largest = layout.zero_stage == 3 ? kGathered * largest_layer(note, 0) : 0;
  if (mentions(note, "opt+param->cpu")) return largest;
  if (mentions(note, "opt->cpu")) return params * recipe.param_bytes / (layout.zero_stage == 3 ? ranks : 1) + largest;
  return params * recipe.model_state(layout.zero_stage, ranks) + largest;
}

// Activations of a layer under PyTorch's selective recomputation of single operations: the layer's input, the output of
// attention and every second product (queries, values, the MLP's first and last) are kept; the rest is recomputed.
double kept_by_operation(const Transformer& t, const Layout& layout, double sequence, double element_bytes) {
  const double query = static_cast<double>(t.heads * t.head_dim), value = static_cast<double>(t.kv_heads * t.head_dim);
  const double divided = 2 * query + value + static_cast<double>(t.ffn);
  const double whole = 2 * static_cast<double>(t.hidden) / (layout.sequence_parallel ? layout.tensor : 1);
  return element_bytes * sequence * static_cast<double>(layout.microbatch) / layout.context *
         (whole + divided / layout.tensor);
}

// Activations of the first stage, without those of embedding and head.
double layer_activations(const RowCase& run, Layout layout, bool fused) {
  Recipe recipe = *find_recipe("paper-fp16");
  recipe.fused_attention = fused;
  for (const Block& block : run.workload.blocks)
    if (block.kind == BlockKind::layer)
      return layer_activation_bytes(block.costs, block.output, layout, recipe) *
             static_cast<double>(run.workload.layers()) / layout.pipeline * in_flight(layout, 0);
  return 0;
}

}  // namespace

double memory_of(const PublishedRow& row, RowCase& run) {
  const std::string& name = row.text("metric");
  const std::string& note = row.text("note");
  const Layout layout = layout_of(row);
  const double params = params_of(row, run);
  const bool shaped = row.has("layers") && row.has("hidden");
  run.why.clear();
  const auto needs_shape = [&] {
    run.why = why_not(row, row.has("layers") ? "hidden" : "layers", "is empty; activations need the shape of a layer");
    return 0.0;
  };
  if (name.starts_with("model_state") && (params > 0 || shaped)) return model_state(row, run, layout);
  if (name.starts_with("after_initialize")) return params * 2 + kBucket + kContext;  // not yet divided
  if (name.starts_with("params_grads_opt")) {
    if (!shaped) return needs_shape();
    const double matrices = static_cast<double>(run.shape.layers) *
                            static_cast<double>(run.shape.attention_matrices() + run.shape.dense_mlp_matrices());
    const Recipe& recipe = *find_recipe("megatron-bf16");
    return matrices / (static_cast<double>(layout.tensor) * layout.pipeline) *
           recipe.model_state(layout.zero_stage, layout.data);
  }
  if (name.starts_with("activation")) {
    if (!shaped) return needs_shape();
    const bool fused = mentions(note, "flash");
    const double bytes = layer_activations(run, layout, fused);
    if (!mentions(name, "percent")) return bytes;
    Layout plain = layout;
    plain.recompute = Recompute::none;
    plain.sequence_parallel = false;
    return 100 * bytes / layer_activations(run, plain, fused);
  }
  if (run.layouts.empty()) {
    // Only weights, if nothing is known about activations: whole while gathered, as users of such programs report.
    if (!shaped && params > 0 && layout.zero_stage == 3 && !row.has("mbs") && !mentions(row.text("model"), "mb"))
      return params * 2 + kContext;
    return shaped ? (run.why = why_not(row, "gpu", "is empty or not known"), 0.0) : needs_shape();
  }
  Layout chosen = run.layouts[0];
  step_of(run, run.constants, &chosen);
  const Split stages = split(run.workload, chosen.pipeline);
  if (name == "fits")
    return worst_memory(stages, chosen, run.recipe).total() <= run.cluster.kinds[0].memory_bytes ? 1 : 0;
  // Programs that log one rank log the first.
  StageMemory here = forecast_memory(stages, stages.runs[0], 0, chosen, run.recipe);
  // Message buffers stay allocated between steps if each chunk has its own.
  if (name.starts_with("static"))
    return here[EstimatedPart::params] + here[EstimatedPart::gradients] + here[EstimatedPart::state] +
           (chosen.chunks > 1 ? here[EstimatedPart::staging] : 0);
  if (row.text("recompute") == "selective-op" && here[EstimatedPart::activations] > 0) {
    const auto sequence = static_cast<double>(run.workload.sequence);
    const auto layers = stages.runs[0].layers;
    const double all = here[EstimatedPart::activations] / layers;
    here[EstimatedPart::activations] =
        layers * kept_by_operation(run.shape, chosen, sequence, run.recipe.element_bytes);
    here[EstimatedPart::live] = all;
  }
  const double context = here[EstimatedPart::context], slack = here[EstimatedPart::slack];
  return here.total() - context - (mentions(name, "allocated") ? slack : 0);
}

}  // namespace gsel::plan
