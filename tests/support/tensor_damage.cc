// See pipeline_damage.h.
#include "program/redistribution.h"
#include "support/pipeline_damage.h"

namespace gsel::test {

namespace {

// ---- instructions ----

// At one position on all ranks of the tensor axis, whose programs are alike.
Damage by_group(const Pick& pick, const std::function<void(std::vector<gsel_instr>&, size_t)>& change) {
  return [pick, change](std::vector<Program>& programs, Draw& draw) {
    const auto at = spot(programs, pick, draw);
    if (!at) return false;
    for (int32_t rank : programs[at->rank].mesh.group(static_cast<int32_t>(at->rank), GSEL_AXIS_TENSOR))
      change(programs[rank].step, at->at);
    return true;
  };
}

Damage dropped_by_group(const Pick& pick) {
  return by_group(pick, [](auto& step, size_t at) { step.erase(step.begin() + static_cast<ptrdiff_t>(at)); });
}
Damage doubled_by_group(const Pick& pick) {
  return by_group(pick, [](auto& step, size_t at) {
    const gsel_instr again = step[at];
    step.insert(step.begin() + static_cast<ptrdiff_t>(at), again);
  });
}
Damage first_by_group(const Pick& pick) {
  return by_group(pick, [](auto& step, size_t at) {
    std::rotate(step.begin(), step.begin() + static_cast<ptrdiff_t>(at), step.begin() + static_cast<ptrdiff_t>(at) + 1);
  });
}
Damage last_by_group(const Pick& pick) {
  return by_group(pick, [](auto& step, size_t at) {
    std::rotate(step.begin() + static_cast<ptrdiff_t>(at), step.begin() + static_cast<ptrdiff_t>(at) + 1, step.end());
  });
}

Pick redistribution_is(gsel_instr_kind kind) {
  return [kind](const Program& p, const gsel_instr& i) { return i.kind == kind && p.layers[i.layer].redistributes; };
}
Pick over_tensor(gsel_instr_kind kind) {
  return [kind](const Program&, const gsel_instr& i) { return i.kind == kind && i.axis == GSEL_AXIS_TENSOR; };
}

// Two adjacent calls of redistributions on one rank.
bool swap_redistributions(std::vector<Program>& programs, Draw& draw) {
  auto meets = [](const Program& p, const gsel_instr& i) {
    return i.kind == GSEL_FORWARD && communicates(redistribution_of(p, p.layers[i.layer], i.kind));
  };
  std::vector<Spotted> found;
  for (size_t r = 0; r < programs.size(); ++r)
    for (size_t i = 0; i + 1 < programs[r].step.size(); ++i)
      if (meets(programs[r], programs[r].step[i]) && meets(programs[r], programs[r].step[i + 1]))
        found.push_back({r, i});
  if (found.empty()) return false;
  const Spotted at = draw.of(found);
  std::swap(programs[at.rank].step[at.at], programs[at.rank].step[at.at + 1]);
  return true;
}

// Of a bucket whose gradients are replicated.
bool sum_replicated_gradients(std::vector<Program>& programs, Draw& draw) {
  const auto at = spot(
      programs,
      [](const Program& p, const gsel_instr& i) {
        return i.kind == GSEL_INSTR_STEP && !p.params[p.buckets[i.bucket].params.front()].partial_gradient;
      },
      draw);
  if (!at) return false;
  for (int32_t rank : programs[at->rank].mesh.group(static_cast<int32_t>(at->rank), GSEL_AXIS_TENSOR)) {
    std::vector<gsel_instr>& step = programs[rank].step;
    gsel_instr sum = make_instr(GSEL_INSTR_ALLREDUCE_PARTIAL);
    sum.bucket = step[at->at].bucket;
    sum.axis = GSEL_AXIS_TENSOR;
    step.insert(step.begin() + static_cast<ptrdiff_t>(at->at), sum);
  }
  return true;
}

bool sum_partial_loss_never(std::vector<Program>& programs, Draw&) {
  size_t n = 0;
  for (Program& p : programs)
    n += std::erase_if(
        p.step, [](const gsel_instr& i) { return i.kind == GSEL_INSTR_LOSS_ALLREDUCE && i.axis == GSEL_AXIS_TENSOR; });
  return n > 0;
}

bool sum_replicated_loss(std::vector<Program>& programs, Draw&) {
  if (has_partial_loss(programs[0])) return false;
  for (Program& p : programs) {
    gsel_instr sum = make_instr(GSEL_INSTR_LOSS_ALLREDUCE);
    sum.axis = GSEL_AXIS_TENSOR;
    p.step.insert(std::ranges::find(p.step, GSEL_INSTR_LOSS_ALLREDUCE, &gsel_instr::kind), sum);
  }
  return true;
}

// ---- outlines ----

// Some item of one kind that fits, changed on all ranks.
template <class Item>
Damage on_all(std::vector<Item> Program::*items, const std::function<bool(const Program&, size_t)>& fits,
              const std::function<void(Program&, Item&)>& change) {
  return [=](std::vector<Program>& programs, Draw& draw) {
    std::vector<size_t> found;
    for (size_t i = 0; i < (programs[0].*items).size(); ++i)
      if (fits(programs[0], i)) found.push_back(i);
    if (found.empty()) return false;
    const size_t at = draw.of(found);
    for (Program& p : programs) change(p, (p.*items)[at]);
    return true;
  };
}

// Where the layers around it leave no room for the other placement: a phase may replicate anything, and a
// redistribution starts from any placement.
bool is_settled(const Program& p, size_t v) {
  auto has = [&](const std::vector<int32_t>& ids) { return std::ranges::count(ids, static_cast<int32_t>(v)) > 0; };
  bool by_reader = false, by_writer = false;
  for (const ProgramLayer& l : p.layers) {
    by_reader |= has(l.inputs) && !l.redistributes;
    by_writer |= has(l.outputs) &&
                 (l.redistributes || !std::ranges::count(l.forward_phases, GSEL_AXIS_TENSOR, &ProgramPhase::axis));
  }
  return p.values[v].placement == Placement::partial ? by_writer : by_reader;
}

Damage placement_changed(Placement from, Placement to) {
  return on_all<ProgramValue>(
      &Program::values,
      [from](const Program& p, size_t v) {
        return p.values[v].placement == from && p.values[v].needs_gradient && is_settled(p, v);
      },
      [to](Program&, ProgramValue& v) { v.placement = to; });
}

// On one rank: its shard and the next one overlap, or leave a gap.
template <class Item>
bool move_end(std::vector<Program>& programs, std::vector<Item> Program::*items, int64_t Item::*size, int by,
              Draw& draw) {
  std::vector<std::pair<size_t, size_t>> found;
  for (size_t r = 0; r < programs.size(); ++r)
    for (size_t i = 0; i < (programs[r].*items).size(); ++i) {
      const Shard& shard = (programs[r].*items)[i].shard;
      if (!shard.is_whole() && shard.end + by <= shard.whole && shard.size() + by > 0) found.push_back({r, i});
    }
  if (found.empty()) return false;
  const auto [rank, id] = draw.of(found);
  Item& item = (programs[rank].*items)[id];
  item.*size = item.*size / item.shard.size() * (item.shard.size() + by);
  item.shard.end += by;
  return true;
}

Damage param_end_moved(int by) {
  return [by](std::vector<Program>& programs, Draw& draw) {
    return move_end(programs, &Program::params, &ProgramParam::n_elems, by, draw);
  };
}
Damage value_end_moved(int by) {
  return [by](std::vector<Program>& programs, Draw& draw) {
    return move_end(programs, &Program::values, &ProgramValue::sample_bytes, by, draw);
  };
}

// A bias that each rank adds to its partial sums.
bool add_bias_per_rank(std::vector<Program>& programs, Draw& draw) {
  const Damage add = on_all<ProgramLayer>(
      &Program::layers,
      [](const Program& p, size_t l) {
        return std::ranges::any_of(p.layers[l].outputs, [&](int32_t v) {
          return p.values[v].placement == Placement::partial && !p.values[v].is_scalar;
        });
      },
      [](Program& p, ProgramLayer& l) {
        l.params.push_back(static_cast<int32_t>(p.params.size()));
        ProgramParam bias;
        bias.name = "bias";
        bias.n_elems = 4;
        bias.trainable = false;
        p.params.push_back(bias);
      });
  return add(programs, draw);
}

bool sums(const Program& p, const ProgramLayer& redistribution) {
  const Placement from = p.values[redistribution.inputs.front()].placement,
                  to = p.values[redistribution.outputs.front()].placement;
  return from == Placement::partial || (from == Placement::replicate && to == Placement::copy);
}

// A reader that takes the value as its layer left it: unsummed, or without the sum over the ranks.
bool read_unredistributed(std::vector<Program>& programs, Draw& draw) {
  std::vector<std::pair<size_t, size_t>> found;
  const Program& first = programs[0];
  for (size_t c = 0; c < first.layers.size(); ++c)
    for (size_t l = 0; first.layers[c].redistributes && l < first.layers.size(); ++l)
      if (std::ranges::count(first.layers[l].inputs, first.layers[c].outputs.front()) && sums(first, first.layers[c]))
        found.push_back({c, l});
  if (found.empty()) return false;
  const auto [c, l] = draw.of(found);
  for (Program& p : programs)
    std::ranges::replace(p.layers[l].inputs, p.layers[c].outputs.front(), p.layers[c].inputs.front());
  return true;
}

bool writes_replicated_when_divided(const Program& p, size_t l) {
  auto is_replicated = [&](int32_t v) { return p.values[v].placement == Placement::replicate; };
  return p.layers[l].divided && !p.layers[l].redistributes && std::ranges::any_of(p.layers[l].outputs, is_replicated);
}

}  // namespace

std::vector<std::pair<std::string, Damage>> tensor_damages() {
  std::vector<std::pair<std::string, Damage>> damages = {
      {"redistributions in another order on one rank", swap_redistributions},
      {"replicated gradients summed", sum_replicated_gradients},
      {"a partial loss never summed", sum_partial_loss_never},
      {"a replicated loss summed", sum_replicated_loss},
      {"a parameter's part overlaps the next", param_end_moved(1)},
      {"a parameter's part leaves a gap", param_end_moved(-1)},
      {"a value's part overlaps the next", value_end_moved(1)},
      {"a value's part leaves a gap", value_end_moved(-1)},
      {"a bias added per rank", add_bias_per_rank},
      {"a value read without its redistribution", read_unredistributed},
      {"copy declared replicate", placement_changed(Placement::copy, Placement::replicate)},
      {"replicate declared copy", placement_changed(Placement::replicate, Placement::copy)},
      {"replicate declared partial", placement_changed(Placement::replicate, Placement::partial)},
      {"partial declared replicate", placement_changed(Placement::partial, Placement::replicate)},
      {"partial declared copy", placement_changed(Placement::partial, Placement::copy)},
      {"copy declared partial", placement_changed(Placement::copy, Placement::partial)},
      {"shard declared replicate", placement_changed(Placement::shard, Placement::replicate)},
      {"a gradient no longer partial",
       on_all<ProgramParam>(
           &Program::params, [](const Program& p, size_t i) { return p.params[i].partial_gradient; },
           [](Program&, ProgramParam& p) { p.partial_gradient = false; })},
      {"a gradient partial",
       on_all<ProgramParam>(
           &Program::params, [](const Program& p, size_t i) { return !p.params[i].partial_gradient; },
           [](Program&, ProgramParam& p) { p.partial_gradient = true; })},
      {"a layer no longer divided",
       on_all<ProgramLayer>(
           &Program::layers, [](const Program& p, size_t l) { return p.layers[l].divided; },
           [](Program&, ProgramLayer& l) { l.divided = false; })},
      {"a layer divided", on_all<ProgramLayer>(
                              &Program::layers, [](const Program& p, size_t l) { return !p.layers[l].divided; },
                              [](Program&, ProgramLayer& l) { l.divided = true; })},
      {"a replicated value of a divided layer without a phase",
       on_all<ProgramLayer>(&Program::layers, writes_replicated_when_divided,
                            [](Program&, ProgramLayer& l) { l.forward_phases.clear(); })},
      {"phases of one rank",
       [](std::vector<Program>& programs, Draw&) {
         for (ProgramLayer& l : programs.back().layers)
           if (!l.forward_phases.empty()) return l.forward_phases.pop_back(), true;
         return false;
       }},
  };
  const std::pair<const char*, Pick> picks[] = {
      {"a redistribution", redistribution_is(GSEL_FORWARD)},
      {"a redistribution back", redistribution_is(GSEL_BACKWARD_INPUT)},
      {"a sum of partial gradients", kind_is(GSEL_INSTR_ALLREDUCE_PARTIAL)},
      {"a sum of losses", over_tensor(GSEL_INSTR_LOSS_ALLREDUCE)},
      {"a look for overflow", over_tensor(GSEL_INSTR_OVERFLOW)},
      {"a forward", kind_is(GSEL_FORWARD)},
      {"a norm", kind_is(GSEL_INSTR_NORM)},
  };
  for (const auto& [name, pick] : picks) {
    damages.emplace_back(fmt::format("{} dropped on one rank", name), dropped(pick));
    damages.emplace_back(fmt::format("{} doubled on one rank", name), doubled(pick));
    damages.emplace_back(fmt::format("{} doubled", name), doubled_by_group(pick));
    if (std::string_view(name) != "a norm")
      damages.emplace_back(fmt::format("{} dropped", name), dropped_by_group(pick));
  }
  damages.emplace_back("partial gradients summed first", first_by_group(kind_is(GSEL_INSTR_ALLREDUCE_PARTIAL)));
  damages.emplace_back("partial gradients summed last", last_by_group(kind_is(GSEL_INSTR_ALLREDUCE_PARTIAL)));
  return damages;
}

}  // namespace gsel::test
