// plan/workload.cc: see workload.h. The activations are those of arXiv:2205.05198 section 4.1, counted operation by
// operation, so that they hold for other shapes than GPT's.
#include "plan/workload.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_object.h"
#include "plan/units.h"

namespace gsel::plan {

Saved& Saved::operator+=(const Saved& other) {
  elems += other.elems;
  mask_bytes += other.mask_bytes;
  return *this;
}

Costs& Costs::operator+=(const Costs& o) {
  layers += o.layers;
  params_divided += o.params_divided, params_whole += o.params_whole;
  largest_params = std::max(largest_params, o.largest_params);
  flop_dense += o.flop_dense, flop_core += o.flop_core, flop_whole += o.flop_whole;
  flop_sequence += o.flop_sequence, core_whole += o.core_whole, tensor_layers += o.tensor_layers;
  logits_sequence += o.logits_sequence, params_out += o.params_out, saved_out += o.saved_out;
  largest_out = std::max(largest_out, o.largest_out);
  touched_divided += o.touched_divided, touched_sequence += o.touched_sequence;
  saved_divided += o.saved_divided, saved_sequence += o.saved_sequence, saved_core += o.saved_core;
  saved_head += o.saved_head, saved_gathered += o.saved_gathered;
  reduced += o.reduced, reductions += o.reductions, shifted += o.shifted, logits += o.logits;
  return *this;
}

Costs Costs::operator*(double n) const {
  Costs c = *this;
  c.layers *= n;
  c.params_divided *= n, c.params_whole *= n;
  c.flop_dense *= n, c.flop_core *= n, c.flop_whole *= n;
  c.flop_sequence *= n, c.core_whole *= n, c.tensor_layers *= n;
  c.logits_sequence *= n, c.params_out *= n, c.saved_out *= n;
  c.touched_divided *= n, c.touched_sequence *= n;
  for (Saved* saved : {&c.saved_divided, &c.saved_sequence, &c.saved_core, &c.saved_head, &c.saved_gathered})
    saved->elems *= n, saved->mask_bytes *= n;
  c.reduced *= n, c.reductions *= n, c.shifted *= n, c.logits *= n;
  return c;
}

double Workload::params() const {
  double n = 0;
  for (const Block& block : blocks) n += static_cast<double>(block.count) * block.costs.params();
  return n;
}

double Workload::flop_forward() const {
  double n = 0;
  for (const Block& block : blocks) n += static_cast<double>(block.count) * block.costs.flop();
  return n;
}

int64_t Workload::layers() const {
  int64_t n = 0;
  for (const Block& block : blocks)
    if (block.kind == BlockKind::layer) n += block.count;
  return n;
}

namespace {

// The width of the MLP that one token uses.
double mlp_width(const Transformer& t, bool moe) {
  return static_cast<double>(moe ? t.experts_per_token * t.expert_ffn + t.shared_ffn : t.ffn);
}

Costs layer_costs(const Transformer& t, bool moe, double s) {
  const auto h = static_cast<double>(t.hidden), d = static_cast<double>(t.head_dim);
  const auto a = static_cast<double>(t.heads), g = static_cast<double>(t.kv_heads);
  const double query = a * (d + static_cast<double>(t.kv_rank > 0 ? t.rope_dim : 0));
  const double value = t.kv_rank > 0 ? a * static_cast<double>(t.value_dim) : a * d;
  const double kv = t.kv_rank > 0 ? static_cast<double>(t.kv_rank + t.rope_dim) : 2 * g * d;
  const double f = mlp_width(t, moe);
  const double vectors = static_cast<double>(t.layer_divided_vectors(moe));
  const double mask = t.dropout ? 1 : 0;
  const bool gated = t.mlp_matrices == 3;
  Costs c;
  c.layers = c.tensor_layers = 1;
  c.params_whole = static_cast<double>(t.layer_whole_vectors() + (moe ? t.experts * t.hidden : 0));
  c.params_divided = static_cast<double>(t.layer_params(moe)) - c.params_whole;
  c.largest_params = c.params();
  const double active = static_cast<double>(t.attention_matrices()) + static_cast<double>(t.mlp_matrices) * h * f;
  c.flop_dense = 2 * s * active;
  c.flop_core = 2 * t.pairs(s) * (query + value);
  if (moe) c.flop_whole = 2 * s * h * static_cast<double>(t.experts);
  // Norms read and write, residual adds read two values, a gate multiplies.
  c.touched_sequence = s * h * (2 * static_cast<double>(t.norms_per_layer) + 6);
  c.touched_divided = s * ((gated ? 3 : 2) * f + query + kv + vectors / std::max(h, 1.0));
  // Kept: inputs of norms, products and attention; one-byte masks.
  c.saved_sequence = {s * h * 2, 2 * mask * s * h};
  c.saved_gathered.elems = s * h * 2;
  c.saved_divided.elems = s * (query + kv + value + (gated ? 3 : 2) * f);
  c.saved_core = {s * s * a * (t.dropout ? 2 : 1), mask * s * s * a};
  c.reduced = 2 * s * h;
  c.reductions = 2;
  c.shifted = s * kv;
  return c;
}

// Queries, keys and values; the attention core; its projection; the MLP's first and second product: as in describe.cc.
std::vector<double> sublayers_of(const Transformer& t, bool moe, const Costs& c) {
  const double all = 3 * (c.flop_dense + c.flop_whole) + 2 * c.flop_core;
  const double tokens = c.flop_dense / (2 * (static_cast<double>(t.attention_matrices()) +
                                             static_cast<double>(t.mlp_matrices * t.hidden) * mlp_width(t, moe)));
  const auto share = [&](double elems) { return 3 * 2 * tokens * elems / all; };
  const double out =
      static_cast<double>(t.heads * t.hidden) * static_cast<double>(t.kv_rank > 0 ? t.value_dim : t.head_dim);
  const double query = t.kv_rank == 0 && t.kv_heads < t.heads ? out : 0;
  const double one = static_cast<double>(t.hidden) * mlp_width(t, moe);
  std::vector<double> sublayers;
  if (query > 0) sublayers.push_back(share(query));
  sublayers.insert(sublayers.end(), {share(static_cast<double>(t.attention_matrices()) - query - out),
                                     2 * c.flop_core / all, share(out)});
  sublayers.push_back(share(one * (t.mlp_matrices - 1)) + 3 * c.flop_whole / all);
  sublayers.push_back(share(one));
  return sublayers;
}

Block layers_of(const Transformer& t, bool moe, int64_t count, double s) {
  Block block{moe ? "expert layer" : "layer",   BlockKind::layer, count, true, layer_costs(t, moe, s),
              s * static_cast<double>(t.hidden)};
  block.sublayers = sublayers_of(t, moe, block.costs);
  return block;
}

}  // namespace

constexpr int64_t kMostTokens = 1'000'000'000;

Workload workload_of(const Transformer& t, int64_t sequence) {
  if (sequence == 0) sequence = t.max_positions;
  if (sequence == 0)
    fail(GSEL_ERR_ARG, "{} does not say how long a sequence may be; give the tokens of a sample", t.name);
  if (sequence < 1 || sequence > kMostTokens)
    fail(GSEL_ERR_ARG, "a sequence of {} tokens was asked for; from 1 to {} are accepted", sequence, kMostTokens);
  if (t.positions > 0 && sequence > t.positions)
    fail(GSEL_ERR_ARG, "a sequence of {} tokens was asked for; {} has learned positions for {}", sequence, t.name,
         t.positions);
  Workload w;
  w.name = t.name;
  w.sequence = sequence;
  w.heads = t.heads, w.kv_heads = t.kv_heads, w.hidden = t.hidden, w.ffn = t.ffn, w.vocab = t.vocab;
  w.causal = t.causal;
  w.notes = t.notes;
  const auto s = static_cast<double>(sequence), h = static_cast<double>(t.hidden), v = static_cast<double>(t.vocab);

  Block embedding{"embedding", BlockKind::embedding, 1, true, {}, s * h};
  embedding.costs.params_divided = v * h;
  embedding.costs.params_whole = static_cast<double>(t.positions + (t.embedding_norm ? t.norm_vectors : 0)) * h;
  embedding.costs.largest_params = embedding.costs.params();
  embedding.costs.touched_sequence = 2 * s * h;
  embedding.costs.saved_sequence.mask_bytes = t.dropout ? s * h : 0;
  embedding.costs.reduced = s * h;
  embedding.costs.reductions = 1;
  w.blocks.push_back(embedding);
  const int64_t moe = t.moe_layers();
  if (t.layers > moe) w.blocks.push_back(layers_of(t, false, t.layers - moe, s));
  if (moe > 0) w.blocks.push_back(layers_of(t, true, moe, s));

  Block head{"head", BlockKind::head, 1, true, {}, 0};
  head.costs.params_divided = (t.tied ? 0 : v * h) + (t.head_bias ? v : 0);
  head.costs.params_whole = static_cast<double>(t.norm_vectors) * h;
  head.costs.largest_params = v * h;
  head.costs.flop_dense = 2 * s * h * v;
  head.costs.touched_sequence = 2 * s * h;
  head.costs.touched_divided = 4 * s * v;
  head.costs.saved_head.elems = 2 * s * h;
  head.costs.logits = s * v;
  w.blocks.push_back(head);
  w.tied_params = t.tied ? v * h : 0;
  add_units(w, t);
  return w;
}

Workload workload_of(const Model& model, const std::string& name) {
  if (model.layers().empty()) fail(GSEL_ERR_ARG, "the described model has no layers; describe it before it is planned");
  Workload w;
  w.name = name;
  w.causal = false;
  for (const Layer& layer : model.layers()) {
    Block block;
    block.name = layer.name;
    block.divisible = false;
    block.trains = !layer.params.empty();
    block.recomputable = layer.recomputable();
    Costs& c = block.costs;
    c.layers = c.tensor_layers = 1;
    for (const int32_t p : layer.params) {
      const Param& param = model.params()[p];
      const bool divided = param.shard_kind != GSEL_SHARD_NONE;
      block.divisible |= divided;
      // A parameter of several layers is counted at its first use.
      bool seen = false;
      for (const Block& before : w.blocks) {
        const Layer& other = model.layers()[&before - w.blocks.data()];
        seen |= std::ranges::find(other.params, p) != other.params.end();
      }
      if (!seen) (divided ? c.params_divided : c.params_whole) += static_cast<double>(param.n_elems);
    }
    c.largest_params = c.params();
    for (const int32_t v : layer.outputs) {
      const Value& value = model.values()[v];
      if (value.is_scalar()) continue;
      block.output += static_cast<double>(value.sample_elems);
      const bool divided = value.declared == GSEL_PLACEMENT_SHARD;
      block.divisible |= divided;
      (divided ? c.saved_divided : c.saved_sequence).elems += static_cast<double>(value.sample_elems);
      if (value.declared == GSEL_PLACEMENT_PARTIAL) {
        c.reduced += static_cast<double>(value.sample_elems);
        c.reductions += 1;
      }
    }
    (block.divisible ? c.saved_divided : c.saved_sequence).mask_bytes +=
        static_cast<double>(layer.saved_bytes_per_sample);
    const double flop = layer.flop_per_sample > 0 ? layer.flop_per_sample : 2 * c.params();
    (block.divisible ? c.flop_dense : c.flop_whole) = flop;
    c.touched_sequence = 2 * block.output;
    w.blocks.push_back(block);
  }
  add_units(w, model);
  return w;
}

namespace {

Block read_block(JsonObject layer) {
  Block block;
  block.name = layer.require_text("name");
  block.count = static_cast<int64_t>(layer.number("count", 1, 1'000'000, 1));
  const std::string kind = layer.text("kind", "layer");
  if (kind != "embedding" && kind != "layer" && kind != "head")
    layer.refuse("kind", fmt::format("is \"{}\"; accepted are \"embedding\", \"layer\" and \"head\"", kind));
  block.kind = kind == "embedding" ? BlockKind::embedding : kind == "head" ? BlockKind::head : BlockKind::layer;
  block.divisible = layer.flag("tensor", true);
  Costs& c = block.costs;
  const double params = layer.amount("params", 0);
  (block.divisible ? c.params_divided : c.params_whole) = params;
  c.params_whole += layer.amount("params_whole", 0);
  c.largest_params = c.params();
  (block.divisible ? c.flop_dense : c.flop_whole) = layer.amount("forward_flop", 2 * params);
  c.flop_core = layer.amount("attention_flop", 0);
  block.output = layer.amount("output_elems", 0);
  (block.divisible ? c.saved_divided : c.saved_sequence).elems = layer.amount("saved_elems", block.output);
  c.saved_sequence.elems += layer.amount("saved_elems_whole", 0);
  c.touched_sequence = layer.amount("touched_elems", 2 * block.output);
  c.reductions = block.divisible ? layer.amount("tensor_reductions", 1) : 0;
  c.reduced = c.reductions * block.output;
  c.shifted = layer.amount("shifted_elems", 0);
  c.layers = c.tensor_layers = block.kind == BlockKind::layer ? 1 : 0;
  layer.finish();
  return block;
}

}  // namespace

Workload read_workload(std::string_view text, const std::string& file, int64_t sequence,
                       std::optional<Transformer>* shape) {
  const JsonSource source{"model", file, text};
  const auto tree = parse_json(text, source);
  JsonObject whole(*tree, source);
  if (!whole.has("layers")) {
    Transformer read = read_transformer(text, file);
    Workload workload = workload_of(read, sequence);
    if (shape) *shape = std::move(read);
    return workload;
  }
  Workload w;
  w.name = whole.text("name", file);
  w.sequence = static_cast<int64_t>(
      whole.number("sequence", 1, 1'000'000'000, static_cast<uint64_t>(std::max<int64_t>(sequence, 1))));
  w.causal = false;
  const JsonArray layers = whole.array("layers");
  if (layers.empty()) whole.refuse("layers", "is empty; one layer at least is needed");
  for (size_t i = 0; i < layers.size(); ++i) w.blocks.push_back(read_block(layers.object(i)));
  whole.finish();
  return w;
}

}  // namespace gsel::plan
