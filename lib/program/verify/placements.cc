// program/verify/placements.cc: see checks.h. A sum over the sharing axis is made by a redistribution, by a phase of a
// layer, or, for gradients of whole parameters, by ALLREDUCE_PARTIAL. Otherwise something is summed never or twice.
#include <algorithm>

#include "base/text.h"
#include "program/verify/checks.h"
#include "program/words/words.h"

namespace gsel {
namespace {

// The outline of one rank.
class Outline {
 public:
  explicit Outline(const Program& program) : program_(program), used_by_divided_(program.params.size()) {}

  void check() {
    for (const ProgramParam& p : program_.params) check_param(p);
    for (const ProgramValue& v : program_.values) check_value(v);
    for (const ProgramLayer& l : program_.layers) check_layer(l);
    check_partial_gradients();
    check_loss();
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> why, Args&&... args) const {
    throw Error(GSEL_ERR_PROGRAM,
                fmt::format("rank {}: {}", program_.rank, fmt::format(why, std::forward<Args>(args)...)))
        .about_rank(program_.rank);
  }
  const ProgramParam& param(int32_t id) const { return program_.params[id]; }
  const ProgramValue& value(int32_t id) const { return program_.values[id]; }
  Placement placement(int32_t id) const { return value(id).placement; }
  const char* axis() const { return axis_name(program_.mesh.sharing_axis()); }

  // ---- single shards ----

  static bool is_sound(const Shard& shard) {
    return shard.is_whole() ||
           (shard.blocks >= 1 && 0 <= shard.begin && shard.begin < shard.end && shard.end <= shard.whole);
  }

  void check_param(const ProgramParam& p) const {
    if (!is_sound(p.shard) || (!p.shard.is_whole() && p.n_elems % (p.shard.size() * p.shard.blocks)))
      refuse("parameter \"{}\" has {} and is said to be {} of the whole", p.name, with_noun(p.n_elems, "element"),
             text_of(p.shard));
  }

  void check_value(const ProgramValue& v) const {
    if ((v.placement == Placement::shard) == v.shard.is_whole())
      refuse("value \"{}\" is {}, and what is here of it is {}", v.name, word_of(v.placement),
             v.shard.is_whole() ? "all" : text_of(v.shard));
    if (!is_sound(v.shard) || (!v.shard.is_whole() && v.sample_bytes % (v.shard.size() * v.shard.blocks)))
      refuse("value \"{}\" has {} bytes and is said to be {} of the whole", v.name, v.sample_bytes, text_of(v.shard));
    if (v.is_input && v.placement != Placement::replicate)
      refuse("value \"{}\" is an input and {}; the embedder fills inputs whole, alike on every rank of the {} axis",
             v.name, word_of(v.placement), axis());
  }

  static std::string_view word_of(Placement placement) { return kPlacementWords[static_cast<size_t>(placement)]; }

  // ---- layers ----

  void check_layer(const ProgramLayer& l) {
    if (l.redistributes) return check_redistribution(program_, l);
    const bool has_shards =
        std::ranges::any_of(l.inputs, [&](int32_t v) { return placement(v) == Placement::shard; }) ||
        std::ranges::any_of(l.params, [&](int32_t p) { return !param(p).shard.is_whole(); });
    if (has_shards && !l.divided)
      refuse("layer \"{}\" has a shard of an input or parameter and is not marked as divided", l.name);
    if (!has_shards && l.divided)
      refuse("layer \"{}\" is said to be divided and has all of its inputs and parameters", l.name);
    for (int32_t v : l.inputs) l.divided ? check_input_of_divided(l, v) : check_whole(l, v, "reads");
    for (int32_t v : l.outputs) l.divided ? check_output_of_divided(l, v) : check_whole(l, v, "writes");
    if (l.divided)
      for (int32_t p : l.params) used_by_divided_[p] = &l;
  }

  void check_whole(const ProgramLayer& l, int32_t v, const char* does) const {
    if (placement(v) != Placement::replicate)
      refuse("layer \"{}\" is run alike by every rank of the {} axis and {} value \"{}\", which is {}", l.name, axis(),
             does, value(v).name, word_of(placement(v)));
  }

  void check_input_of_divided(const ProgramLayer& l, int32_t v) const {
    if (placement(v) == Placement::partial)
      refuse("layer \"{}\" reads partial sums of value \"{}\"; a redistribution sums them first", l.name,
             value(v).name);
    const bool contributes = value(v).needs_gradient && l.needs_backward_input;
    if (placement(v) == Placement::copy && contributes && reduces(l.backward_phases))
      refuse(
          "layer \"{}\" reduces in its backward over the {} axis and reads value \"{}\" as a copy, whose gradient is "
          "summed over it once more; it would read the whole one",
          l.name, axis(), value(v).name);
    if (placement(v) == Placement::replicate && contributes && !reduces(l.backward_phases))
      refuse(
          "layer \"{}\" has shards of its values, and what it contributes to the gradient of the whole value \"{}\" "
          "is never summed over the {} axis; it would read a copy, or reduce in a phase of its backward",
          l.name, value(v).name, axis());
  }

  void check_output_of_divided(const ProgramLayer& l, int32_t v) const {
    switch (placement(v)) {
      case Placement::replicate:
        if (reduces(l.forward_phases)) return;
        refuse(
            "layer \"{}\" has a shard of an input or parameter and writes value \"{}\" whole, without a phase over "
            "the {} axis that would make it so",
            l.name, value(v).name, axis());
      case Placement::copy:
        refuse("layer \"{}\" writes value \"{}\" as a copy; only a redistribution does", l.name, value(v).name);
      case Placement::partial:
        if (value(v).is_scalar) return;
        for (int32_t p : l.params)
          if (param(p).shard.is_whole())
            refuse(
                "layer \"{}\" writes partial sums of value \"{}\" and has all of parameter \"{}\", which would be "
                "added on every rank of the {} axis",
                l.name, value(v).name, param(p).name, axis());
        return;
      default:
        return;
    }
  }

  static bool reduces(const std::vector<ProgramPhase>& phases) {
    return std::ranges::any_of(phases, shares_layers, &ProgramPhase::axis);
  }

  // ---- conditions on all layers ----

  void check_partial_gradients() const {
    for (size_t p = 0; p < program_.params.size(); ++p) {
      const ProgramParam& param = program_.params[p];
      const ProgramLayer* divided = used_by_divided_[p];
      const bool is_partial = divided && param.trainable && param.shard.is_whole();
      if (is_partial && !param.partial_gradient)
        refuse(
            "parameter \"{}\" is whole and used by layer \"{}\", of which each rank of the {} axis has a shard; "
            "its gradient is partial and not said to be",
            param.name, divided->name, axis());
      if (!is_partial && param.partial_gradient)
        refuse("the gradient of parameter \"{}\" is said to be partial, and {}", param.name,
               !param.trainable          ? "it is frozen"
               : !param.shard.is_whole() ? "each rank has another shard of it"
                                         : "only layers use it that all ranks run alike");
      if (is_partial) check_no_other_use(static_cast<int32_t>(p), *divided);
    }
  }

  void check_no_other_use(int32_t p, const ProgramLayer& divided) const {
    for (const ProgramLayer& l : program_.layers)
      if (!l.divided && std::ranges::count(l.params, p))
        refuse(
            "parameter \"{}\" is used by layer \"{}\", of which each rank of the {} axis has a shard, and by "
            "layer \"{}\", which all run alike; their gradients cannot be summed as one",
            param(p).name, divided.name, axis(), l.name);
  }

  // The loss and its weight are reduced together.
  void check_loss() const {
    for (const ProgramLayer& l : program_.layers)
      if (l.is_loss &&
          std::ranges::any_of(l.outputs, [&](int32_t v) { return placement(v) != placement(l.outputs.front()); }))
        refuse(
            "layer \"{}\" writes values \"{}\" and \"{}\" with two placements; sums of losses and of weights are both "
            "whole "
            "or both partial",
            l.name, value(l.outputs.front()).name, value(l.outputs.back()).name);
  }

  const Program& program_;
  std::vector<const ProgramLayer*> used_by_divided_;  // by parameter
};

// ---- between ranks ----

template <class... Args>
[[noreturn]] void refuse_pair(const Program& a, const Program& b, fmt::format_string<Args...> why, Args&&... args) {
  throw Error(GSEL_ERR_PROGRAM,
              fmt::format("ranks {} and {}, which share the {} axis: {}", a.rank, b.rank,
                          axis_name(a.mesh.sharing_axis()), fmt::format(why, std::forward<Args>(args)...)))
      .about_rank(b.rank);
}

// amount: of the shard. Returns it for one index of the shard's dim in one block.
int64_t per_index(const Shard& shard, int64_t amount) {
  return shard.is_whole() ? amount : amount / (shard.size() * shard.blocks);
}

// An item of a model, for messages.
struct Named {
  const char* kind;
  const std::string& name;
  std::string text() const { return fmt::format("{} \"{}\"", kind, name); }
};

// The next rank's shard begins where this one's ends.
void check_neighbours(const Program& a, const Shard& here, const Program& b, const Shard& there, const Named& what) {
  if (here.dim != there.dim || here.blocks != there.blocks || here.whole != there.whole)
    refuse_pair(a, b, "{} is split in another way: {} and {}", what.text(), here.is_whole() ? "not" : text_of(here),
                there.is_whole() ? "not" : text_of(there));
  if (!here.is_whole() && here.end != there.begin)
    refuse_pair(a, b, "{} has {} and {}; shards follow each other without gap or overlap", what.text(), text_of(here),
                text_of(there));
}

void check_ends(const Program& first, const Shard& head, const Program& last, const Shard& tail, const Named& what) {
  if (head.is_whole() || (head.begin == 0 && tail.end == tail.whole)) return;
  refuse_pair(first, last, "{} has shards from {} to {} of {}; together they are the whole", what.text(), head.begin,
              tail.end, tail.whole);
}

// The parameter without what depends on its shard.
ProgramParam without_shard(ProgramParam p) {
  p.n_elems = per_index(p.shard, p.n_elems);
  p.rows = p.shard.dim == 0 ? per_index(p.shard, p.rows) : p.rows;
  p.shard = {};
  return p;
}
ProgramValue without_shard(ProgramValue v) {
  v.sample_bytes = per_index(v.shard, v.sample_bytes);
  v.shard = {};
  return v;
}

template <class Item>
void check_items(std::span<const Program* const> programs, std::vector<Item> Program::*items, const char* kind) {
  const Program& first = *programs.front();
  for (size_t i = 0; i + 1 < programs.size(); ++i) {
    const Program &a = *programs[i], &b = *programs[i + 1];
    if ((a.*items).size() != (b.*items).size())
      refuse_pair(a, b, "their models have {} and {}", (a.*items).size(), with_noun((b.*items).size(), kind));
    for (size_t k = 0; k < (a.*items).size(); ++k) {
      const Item &here = (a.*items)[k], &there = (b.*items)[k];
      const Named what{kind, here.name};
      check_neighbours(a, here.shard, b, there.shard, what);
      if (here != there && without_shard(here) != without_shard(there))
        refuse_pair(a, b, "{} differs in more than the shard that each has", what.text());
    }
  }
  const Program& last = *programs.back();
  for (size_t k = 0; k < (first.*items).size(); ++k)
    check_ends(first, (first.*items)[k].shard, last, (last.*items)[k].shard, {kind, (first.*items)[k].name});
}

void check_layers(const Program& a, const Program& b) {
  if (a.layers.size() != b.layers.size())
    refuse_pair(a, b, "their models have {} and {}", a.layers.size(), with_noun(b.layers.size(), "layer"));
  for (size_t l = 0; l < a.layers.size(); ++l)
    if (a.layers[l] != b.layers[l]) refuse_pair(a, b, "layer \"{}\" differs", a.layers[l].name);
}

}  // namespace

void check_redistribution(const Program& program, const ProgramLayer& l) {
  if (!l.redistributes) return;
  auto refuse = [&](const std::string& why) {
    fail(GSEL_ERR_PROGRAM, "rank {}: layer \"{}\" redistributes {}", program.rank, l.name, why);
  };
  if (l.inputs.size() != 1 || l.outputs.size() != 1 || !l.params.empty() || !l.forward_phases.empty() ||
      !l.backward_phases.empty() || l.is_loss || l.needs_backward_weight)
    refuse("and is more than that: it has one input and one output, no parameters, no phases and no loss");
  if (!l.divided) refuse("and is not marked as divided");
  const ProgramValue &in = program.values[l.inputs.front()], &out = program.values[l.outputs.front()];
  const bool makes_sense =
      in.placement != Placement::copy && out.placement != Placement::partial && in.placement != out.placement;
  const bool exchanges =
      in.placement == Placement::shard && out.placement == Placement::shard && in.shard.dim != out.shard.dim;
  if (!makes_sense && !exchanges)
    refuse(
        fmt::format("value \"{}\", which is {}, to \"{}\", which is {}; it goes from replicate, shard or partial to "
                    "another placement than it, and not to partial",
                    in.name, kPlacementWords[static_cast<size_t>(in.placement)], out.name,
                    kPlacementWords[static_cast<size_t>(out.placement)]));
  if (in.is_scalar || out.is_scalar || in.dtype != out.dtype ||
      per_index(in.shard, in.sample_bytes) * in.shard.blocks * std::max<int64_t>(in.shard.whole, 1) !=
          per_index(out.shard, out.sample_bytes) * out.shard.blocks * std::max<int64_t>(out.shard.whole, 1))
    refuse(fmt::format(
        "value \"{}\" to \"{}\", which is not the same with another placement: as a whole it has another size "
        "or element type",
        in.name, out.name));
  if (out.needs_gradient && !(in.needs_gradient && l.needs_backward_input))
    refuse(fmt::format("value \"{}\" to \"{}\", whose gradient it does not bring back", in.name, out.name));
}

void check_sharing_outlines(std::span<const Program* const> programs) {
  for (const Program* p : programs) Outline(*p).check();
  check_items(programs, &Program::params, "parameter");
  check_items(programs, &Program::values, "value");
  for (size_t i = 0; i + 1 < programs.size(); ++i) check_layers(*programs[i], *programs[i + 1]);
}

}  // namespace gsel
