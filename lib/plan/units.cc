// plan/units.cc: see units.h.
#include "plan/units.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/text.h"

namespace gsel::plan {
namespace {

size_t block_named(const Workload& w, std::string_view name) {
  return static_cast<size_t>(std::ranges::find(w.blocks, name, &Block::name) - w.blocks.begin());
}

// The part of a whole block's costs that the tensor axis divides.
Costs divided_part(const Costs& c) {
  Costs out;
  out.params_divided = c.params_divided;
  out.flop_dense = c.flop_dense, out.flop_core = c.flop_core;
  out.touched_divided = c.touched_divided, out.saved_divided = c.saved_divided;
  out.saved_gathered = c.saved_gathered;
  out.reduced = c.reduced, out.reductions = c.reductions, out.logits = c.logits;
  out.tensor_layers = c.tensor_layers;
  return out;
}

void opt_out(Costs& c, const Costs& part) {
  c.params_divided -= part.params_divided, c.params_whole += part.params_divided;
  c.params_out += part.params_divided;
  c.largest_out = std::max(c.largest_out, std::min(c.largest_params, part.params_divided));
  c.flop_dense -= part.flop_dense, c.flop_sequence += part.flop_dense;
  c.flop_core -= part.flop_core, c.core_whole += part.flop_core;
  c.touched_divided -= part.touched_divided, c.touched_sequence += part.touched_divided;
  c.saved_divided.elems -= part.saved_divided.elems, c.saved_sequence.elems += part.saved_divided.elems;
  c.saved_divided.mask_bytes -= part.saved_divided.mask_bytes;
  c.saved_sequence.mask_bytes += part.saved_divided.mask_bytes;
  c.saved_gathered.elems -= part.saved_gathered.elems, c.saved_sequence.elems += part.saved_gathered.elems;
  c.saved_out += part.saved_divided.elems + part.saved_gathered.elems;
  c.reduced -= part.reduced, c.reductions -= part.reductions;
  c.logits -= part.logits, c.logits_sequence += part.logits;
  c.tensor_layers -= part.tensor_layers;
}

// ---- of a described model ----

class ModelUnits {
 public:
  ModelUnits(Workload& w, const Model& model) : w_(w), model_(model), group_(model.layers().size()) {
    std::iota(group_.begin(), group_.end(), size_t{0});
  }

  void run() {
    join_layers();
    std::map<size_t, std::vector<size_t>> networks;
    for (size_t l = 0; l < group_.size(); ++l)
      if (is_divided(model_.layers()[l])) networks[root(l)].push_back(l);
    std::vector<std::vector<size_t>> units;  // the layers of equal networks
    std::map<std::vector<double>, size_t> alike;
    for (const auto& [first, layers] : networks) {
      const auto [at, is_new] = alike.try_emplace(costs_key(layers), units.size());
      if (is_new) units.emplace_back();
      for (const size_t l : layers) units[at->second].push_back(l);
    }
    if (units.size() > kMostUnits) return;
    for (const std::vector<size_t>& layers : units) add(layers);
  }

 private:
  size_t root(size_t l) const { return group_[l] == l ? l : root(group_[l]); }
  void join(size_t a, size_t b) { group_[std::max(root(a), root(b))] = std::min(root(a), root(b)); }

  bool has_parts(int32_t value) const { return model_.values()[value].declared == GSEL_PLACEMENT_SHARD; }
  bool is_split(int32_t param) const { return model_.params()[param].shard_kind != GSEL_SHARD_NONE; }
  bool is_divided(const Layer& layer) const {
    const auto in_parts = [&](int32_t v) { return has_parts(v); };
    const auto written = [&](int32_t v) { return model_.values()[v].declared != GSEL_PLACEMENT_REPLICATE; };
    return std::ranges::any_of(layer.params, [&](int32_t p) { return is_split(p); }) ||
           std::ranges::any_of(layer.inputs, in_parts) || std::ranges::any_of(layer.outputs, written);
  }

  void join_layers() {
    std::map<int32_t, size_t> writer, owner;
    for (size_t l = 0; l < group_.size(); ++l) {
      const Layer& layer = model_.layers()[l];
      for (const int32_t v : layer.inputs)
        if (has_parts(v) && writer.contains(v)) join(l, writer[v]);
      for (const int32_t v : layer.outputs) writer[v] = l;
      for (const int32_t p : layer.params)
        if (is_split(p) && !owner.try_emplace(p, l).second) join(l, owner[p]);
    }
  }

  std::vector<double> costs_key(const std::vector<size_t>& layers) const {
    std::vector<double> key;
    for (const size_t l : layers) {
      const Costs& c = w_.blocks[l].costs;
      key.insert(key.end(), {c.params_divided, c.params_whole, c.flop_dense, c.saved_divided.elems, c.reduced});
    }
    return key;
  }

  bool by_position(const Layer& layer) const {
    const auto has = [&](int32_t v) { return model_.values()[v].is_scalar() || model_.values()[v].sequence_dim > 0; };
    return (layer.flags & GSEL_LAYER_POSITIONWISE) && std::ranges::all_of(layer.inputs, has) &&
           std::ranges::all_of(layer.outputs, has);
  }

  // "h*.up" if it matches only layers of the unit, else a list of names.
  std::string names_of(const std::vector<size_t>& layers) const {
    std::set<std::string> own, names;
    for (const size_t l : layers) own.insert(model_.layers()[l].name);
    std::vector<std::string> list;
    for (const size_t l : layers) {
      const std::string& name = model_.layers()[l].name;
      const size_t digit = name.find_first_of("0123456789");
      if (digit == name.npos) {
        if (names.insert(name).second) list.push_back(name);
        continue;
      }
      const size_t end = std::min(name.find_first_not_of("0123456789", digit), name.size());
      const std::string before = name.substr(0, digit), behind = name.substr(end);
      const bool alone = std::ranges::all_of(model_.layers(), [&](const Layer& other) {
        const bool matches = other.name.size() >= before.size() + behind.size() && other.name.starts_with(before) &&
                             other.name.ends_with(behind);
        return !matches || own.contains(other.name);
      });
      const std::string chosen = alone ? before + "*" + behind : name;
      if (names.insert(chosen).second) list.push_back(chosen);
    }
    return fmt::format("{}", fmt::join(list, ","));
  }

  void add(const std::vector<size_t>& layers) {
    Unit unit;
    unit.layers = names_of(layers);
    unit.name = unit.layers.substr(0, unit.layers.find(','));
    unit.by_position = std::ranges::all_of(layers, [&](size_t l) { return by_position(model_.layers()[l]); });
    for (const size_t l : layers) unit.parts.push_back({l, divided_part(w_.blocks[l].costs)});
    w_.units.push_back(std::move(unit));
  }

  Workload& w_;
  const Model& model_;
  std::vector<size_t> group_;  // by layer: an earlier layer of the same network, or itself
};

}  // namespace

void add_units(Workload& w, const Model& model) {
  ModelUnits(w, model).run();
}

void add_units(Workload& w, const Transformer& t) {
  const auto s = static_cast<double>(w.sequence), h = static_cast<double>(t.hidden);
  const size_t embedding = block_named(w, "embedding"), head = block_named(w, "head");
  Unit first{t.tied ? "embedding and head" : "embedding", t.tied ? "embed.token,head,loss" : "embed.token", true, {}};
  first.parts.push_back({embedding, divided_part(w.blocks[embedding].costs)});
  Unit last{"head", "head,loss", true, {}};
  (t.tied ? first : last).parts.push_back({head, divided_part(w.blocks[head].costs)});
  Unit attention{"attention", "h*.attn*", false, {}}, network{"mlp", "h*.mlp.*", true, {}};
  for (size_t i = 0; i < w.blocks.size(); ++i) {
    if (w.blocks[i].kind != BlockKind::layer) continue;
    const bool moe = w.blocks[i].name == "expert layer";
    const Costs& all = w.blocks[i].costs;
    Costs mine, rest = divided_part(all);
    mine.params_divided = static_cast<double>(t.attention_matrices());
    mine.flop_dense = 2 * s * mine.params_divided;
    mine.flop_core = all.flop_core;
    const double ffn = static_cast<double>(moe ? t.experts_per_token * t.expert_ffn + t.shared_ffn : t.ffn) *
                       (t.mlp_matrices == 3 ? 3 : 2);
    mine.touched_divided = std::max(0.0, rest.touched_divided - s * ffn);
    mine.saved_divided.elems = std::max(0.0, rest.saved_divided.elems - s * ffn);
    mine.saved_gathered.elems = s * h;
    mine.reduced = s * h, mine.reductions = 1;
    mine.tensor_layers = 0.5;
    rest.params_divided -= mine.params_divided, rest.flop_dense -= mine.flop_dense, rest.flop_core = 0;
    rest.touched_divided -= mine.touched_divided, rest.saved_divided.elems -= mine.saved_divided.elems;
    rest.saved_gathered.elems -= mine.saved_gathered.elems;
    rest.reduced -= mine.reduced, rest.reductions -= 1, rest.tensor_layers -= 0.5;
    attention.parts.push_back({i, mine});
    network.parts.push_back({i, rest});
  }
  w.units = {std::move(first), std::move(attention), std::move(network)};
  if (!t.tied) w.units.push_back(std::move(last));
}

Workload with_whole_units(const Workload& workload, uint64_t excluded) {
  Workload out = workload;
  out.units.clear();
  for (size_t u = 0; u < workload.units.size(); ++u) {
    if (!(excluded >> u & 1)) continue;
    for (const Unit::Part& part : workload.units[u].parts) {
      Block& block = out.blocks[part.block];
      opt_out(block.costs, part.costs);
      if (block.kind == BlockKind::embedding) out.tied_out = true;
    }
  }
  return out;
}

namespace {

std::vector<std::string> list_entries(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (const std::string_view name = trimmed(list.substr(0, comma)); !name.empty()) out.emplace_back(name);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return out;
}

}  // namespace

uint64_t units_named(const Workload& workload, std::string_view list, bool* others) {
  uint64_t bits = 0;
  const std::vector<std::string> names = list_entries(list);
  std::set<std::string> left(names.begin(), names.end());
  for (size_t u = 0; u < workload.units.size(); ++u) {
    const std::vector<std::string> own = list_entries(workload.units[u].layers);
    if (!std::ranges::all_of(own, [&](const std::string& name) { return std::ranges::count(names, name) > 0; }))
      continue;
    bits |= uint64_t{1} << u;
    for (const std::string& name : own) left.erase(name);
  }
  *others = !left.empty();
  return bits;
}

std::string layers_of(const Workload& workload, uint64_t excluded) {
  std::string text;
  for (size_t u = 0; u < workload.units.size(); ++u)
    if (excluded >> u & 1) text += (text.empty() ? "" : ",") + workload.units[u].layers;
  return text;
}

}  // namespace gsel::plan
