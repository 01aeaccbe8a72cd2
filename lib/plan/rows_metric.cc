// plan/rows_metric.cc: the quantity that a row's metric and unit mean: seconds of a step, operations, tokens, bytes.
#include <algorithm>
#include <optional>

#include "base/text.h"
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

}  // namespace gsel::plan
