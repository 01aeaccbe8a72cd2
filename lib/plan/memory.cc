// plan/memory.cc: see memory.h. Each line is one term of docs/plan.md. The results depend only on the arguments, and
// sums are made in the order of the lines.
#include "plan/memory.h"

#include <algorithm>

namespace gsel::plan {
namespace {

constexpr double kContextBytes = 0.9e9;  // of a GPU's driver with one communicator: reports say 0.5 to 1.5 GiB
constexpr double kSlack = 0.02;          // what an allocator cannot use

struct Divided {
  double tensor, sequence, samples;  // samples: of a micro-batch, for one rank of the context axis
  explicit Divided(const Layout& layout)
      : tensor(layout.tensor),
        sequence(layout.sequence_parallel ? layout.tensor : 1),
        samples(static_cast<double>(layout.microbatch) / layout.context) {}
};

// Bytes of one micro-batch on one rank; `core`: whether attention scores are kept.
double kept_bytes(const Costs& c, const Divided& by, const Recipe& recipe, bool core) {
  double bytes = c.saved_sequence.bytes(recipe.element_bytes) / by.sequence +
                 c.saved_divided.bytes(recipe.element_bytes) / by.tensor;
  bytes += c.saved_gathered.bytes(recipe.element_bytes) / (recipe.keeps_gathered ? 1 : by.sequence);
  if (core) bytes += c.saved_core.bytes(recipe.element_bytes) / by.tensor;
  return bytes * by.samples;
}

bool keeps_core(const Layout& layout, const Recipe& recipe) {
  return layout.recompute == Recompute::none && !recipe.fused_attention;
}

}  // namespace

const char* name_of(EstimatedPart part) {
  static constexpr const char* kNames[kEstimatedParts] = {
      "params", "gradients", "optimizer state", "activations",    "live layer",
      "logits", "gathered",  "staging",         "device context", "allocator slack"};
  return kNames[static_cast<size_t>(part)];
}

double StageMemory::total() const {
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

double in_flight(const Layout& layout, int32_t stage) {
  const auto m = static_cast<double>(layout.microbatches);
  const double p = layout.pipeline, i = stage, v = layout.chunks;
  switch (layout.schedule) {
    case ScheduleKind::gpipe:
      return m;
    case ScheduleKind::interleaved:
      return std::min(m * v, (v - 1) * p + 2 * (p - i - 1) + 1) / v;
    default:
      return std::min(m, p - i);
  }
}

double layer_activation_bytes(const Costs& layer, double output, const Layout& layout, const Recipe& recipe) {
  const Divided by(layout);
  if (layout.recompute == Recompute::full) return output * recipe.element_bytes / by.sequence * by.samples;
  return kept_bytes(layer, by, recipe, keeps_core(layout, recipe));
}

StageMemory forecast_memory(const Split& split, const StageRun& run, int32_t stage, const Layout& layout,
                            const Recipe& recipe) {
  const Divided by(layout);
  const Costs& c = run.costs;
  const double shards = layout.data * (recipe.context_divides ? layout.context : 1.0);
  const double params = c.params_divided / by.tensor + c.params_whole;
  const double largest = (c.largest_params - c.largest_out) / by.tensor + c.largest_out;
  const int32_t zero = layout.zero_stage;
  StageMemory out;
  out[EstimatedPart::params] = params * recipe.param_state(zero, shards);
  out[EstimatedPart::gradients] = params * recipe.gradient_state(zero, shards);
  out[EstimatedPart::state] = params * recipe.optimizer_state(zero, shards);
  if (layout.offload != Offload::none) {
    out.host_bytes += out[EstimatedPart::state];
    out[EstimatedPart::state] = 0;
    if (recipe.offloads_gradients && zero >= 2) {
      out.host_bytes += out[EstimatedPart::gradients];
      out[EstimatedPart::gradients] = 0;
      if (zero == 2) out[EstimatedPart::params] -= params * recipe.copy_bytes;
    }
  }
  if (layout.offload == Offload::all) {
    out.host_bytes += out[EstimatedPart::params];
    out[EstimatedPart::params] = 0;
  }

  const double flying = in_flight(layout, stage);
  const bool core = keeps_core(layout, recipe);
  const double head = c.saved_head.bytes(recipe.element_bytes) / by.sequence * by.samples;
  if (layout.recompute == Recompute::full) {
    out[EstimatedPart::activations] =
        run.kept_outputs * recipe.element_bytes / by.sequence * by.samples * flying + head;
    const double layers = std::max(c.layers, 1.0);
    out[EstimatedPart::live] = kept_bytes(c, by, recipe, !recipe.fused_attention) / layers;
  } else {
    out[EstimatedPart::activations] = kept_bytes(c, by, recipe, core) * flying + head;
    if (!core && !recipe.fused_attention && c.layers > 0)
      out[EstimatedPart::live] = c.saved_core.bytes(recipe.element_bytes) / c.layers / by.tensor * by.samples;
  }
  out[EstimatedPart::logits] =
      (c.logits / by.tensor + c.logits_sequence / by.sequence) * recipe.logits_bytes * by.samples;
  // Logits are freed before the first layer is recomputed.
  out[EstimatedPart::live] = std::max(0.0, out[EstimatedPart::live] - out[EstimatedPart::logits]);
  if (zero == 3 && shards > 1) {
    const double gathered = std::min(recipe.gathered_blocks * largest, params);
    out[EstimatedPart::gathered] = gathered * recipe.gathered_bytes + largest * recipe.reduced_bytes;
  } else if (zero == 2 && shards > 1 && recipe.bucket_elems == 0) {
    out[EstimatedPart::gathered] = largest * recipe.gradient_bytes;  // the block whose gradient is being reduced
  } else if (recipe.bucket_elems > 0 && layout.data > 1) {
    out[EstimatedPart::gathered] = std::min(recipe.bucket_elems, params) * recipe.reduced_bytes;
  }
  // Two messages are in flight in each direction; each chunk of an interleaved schedule has its own pair.
  if (layout.pipeline > 1)
    out[EstimatedPart::staging] =
        std::max(4.0, 2.0 * layout.chunks) * split.boundary * recipe.element_bytes / by.sequence * by.samples;
  out[EstimatedPart::context] = kContextBytes;
  out[EstimatedPart::slack] = kSlack * (out.total() - kContextBytes);
  return out;
}

StageMemory worst_memory(const Split& split, const Layout& layout, const Recipe& recipe, int32_t* stage) {
  StageMemory worst;
  double most = -1;
  for (const StageRun& run : split.runs) {
    const StageMemory here = forecast_memory(split, run, run.first, layout, recipe);
    if (here.total() <= most) continue;
    most = here.total();
    worst = here;
    if (stage) *stage = run.first;
  }
  return worst;
}

}  // namespace gsel::plan
