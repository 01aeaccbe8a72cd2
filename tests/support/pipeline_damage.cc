// See pipeline_damage.h.
#include "support/pipeline_damage.h"

namespace gsel::test {

Pick kind_is(gsel_instr_kind kind) {
  return [kind](const Program&, const gsel_instr& i) { return i.kind == kind; };
}

std::optional<Spotted> spot(const std::vector<Program>& programs, const Pick& pick, Draw& draw) {
  std::vector<Spotted> found;
  for (size_t r = 0; r < programs.size(); ++r)
    for (size_t i = 0; i < programs[r].step.size(); ++i)
      if (pick(programs[r], programs[r].step[i])) found.push_back({r, i});
  if (found.empty()) return std::nullopt;
  return draw.of(found);
}

Damage dropped(const Pick& pick) {
  return [pick](std::vector<Program>& programs, Draw& draw) {
    const auto at = spot(programs, pick, draw);
    if (at) programs[at->rank].step.erase(programs[at->rank].step.begin() + static_cast<ptrdiff_t>(at->at));
    return at.has_value();
  };
}

Damage doubled(const Pick& pick) {
  return [pick](std::vector<Program>& programs, Draw& draw) {
    const auto at = spot(programs, pick, draw);
    if (!at) return false;
    std::vector<gsel_instr>& step = programs[at->rank].step;
    const gsel_instr again = step[at->at];
    step.insert(step.begin() + static_cast<ptrdiff_t>(at->at), again);
    return true;
  };
}

Damage changed(const Pick& pick, const std::function<void(Program&, gsel_instr&)>& change) {
  return [pick, change](std::vector<Program>& programs, Draw& draw) {
    const auto at = spot(programs, pick, draw);
    if (at) change(programs[at->rank], programs[at->rank].step[at->at]);
    return at.has_value();
  };
}

// After the last instruction of its rank.
static Damage put_last(const Pick& pick) {
  return [pick](std::vector<Program>& programs, Draw& draw) {
    const auto at = spot(programs, pick, draw);
    if (!at) return false;
    std::vector<gsel_instr>& step = programs[at->rank].step;
    std::rotate(step.begin() + static_cast<ptrdiff_t>(at->at), step.begin() + static_cast<ptrdiff_t>(at->at) + 1,
                step.end());
    return true;
  };
}

static bool is_forward_of_loss(const Program& p, const gsel_instr& i) {
  return i.kind == GSEL_FORWARD && p.layers[i.layer].is_loss;
}

static bool is_message(const Program&, const gsel_instr& i) {
  return i.kind == GSEL_INSTR_SEND || i.kind == GSEL_INSTR_RECV;
}

// Removes both ends of a message.
static bool drop_pair(std::vector<Program>& programs, Draw& draw) {
  const auto at = spot(programs, kind_is(GSEL_INSTR_SEND), draw);
  if (!at) return false;
  const gsel_instr sent = programs[at->rank].step[at->at];
  programs[at->rank].step.erase(programs[at->rank].step.begin() + static_cast<ptrdiff_t>(at->at));
  std::erase_if(programs[sent.peer].step, [&](const gsel_instr& i) {
    return i.kind == GSEL_INSTR_RECV && i.peer == static_cast<int32_t>(at->rank) && i.value == sent.value &&
           i.microbatch == sent.microbatch && i.flags == sent.flags;
  });
  return true;
}

// Two messages that follow each other between the same two ranks, at one end.
static bool swap_messages(std::vector<Program>& programs, Draw& draw) {
  const auto first = spot(programs, is_message, draw);
  if (!first) return false;
  std::vector<gsel_instr>& step = programs[first->rank].step;
  for (size_t i = first->at + 1; i < step.size(); ++i)
    if (step[i].kind == step[first->at].kind && step[i].peer == step[first->at].peer) {
      std::swap(step[i], step[first->at]);
      return true;
    }
  return false;
}

static bool sum_tied_nowhere(std::vector<Program>& programs, Draw&) {
  size_t n = 0;
  for (Program& p : programs)
    n += std::erase_if(p.step, [](const gsel_instr& i) { return i.kind == GSEL_INSTR_ALLREDUCE_TIED; });
  return n > 0;
}

// Moves all instructions of a layer to another pipeline rank.
static bool move_layer(std::vector<Program>& programs, Draw& draw) {
  const auto at = spot(programs, kind_is(GSEL_FORWARD), draw);
  const gsel_instr forward = programs[at->rank].step[at->at];
  Program& other = programs[(at->rank + programs[0].mesh.size[GSEL_AXIS_DATA]) % programs.size()];
  auto is_its = [&](const gsel_instr& i) { return i.layer == forward.layer && i.microbatch == forward.microbatch; };
  for (const gsel_instr& i : programs[at->rank].step)
    if (is_its(i)) other.step.insert(other.step.begin() + draw.from(0, static_cast<int32_t>(other.step.size())), i);
  std::erase_if(programs[at->rank].step, is_its);
  return true;
}

static bool tell_other_stages(std::vector<Program>& programs, Draw& draw) {
  Program& p = programs[draw.from(0, static_cast<int32_t>(programs.size()) - 1)];
  std::swap(p.rank_of_stage.front(), p.rank_of_stage[draw.from(1, p.mesh.size[GSEL_AXIS_PIPELINE] - 1)]);
  return true;
}

// Another pipeline rank's parameters get a bucket here.
static bool take_absent_param(std::vector<Program>& programs, Draw& draw) {
  Program& p = programs[draw.from(0, static_cast<int32_t>(programs.size()) - 1)];
  for (int32_t param = 0; param < static_cast<int32_t>(p.params.size()); ++param) {
    if (holds(p, param) || !p.params[param].trainable) continue;
    p.buckets.push_back({{param}});
    return true;
  }
  return false;
}

static bool lose_own_param(std::vector<Program>& programs, Draw& draw) {
  Program& p = programs[draw.from(0, static_cast<int32_t>(programs.size()) - 1)];
  for (ProgramBucket& b : p.buckets)
    if (b.params.size() > 1) {
      b.params.pop_back();
      return true;
    }
  return false;
}

static bool reorder_tied_bucket(std::vector<Program>& programs, Draw&) {
  for (Program& p : programs)
    for (size_t b = 0; b < p.buckets.size(); ++b)
      if (p.buckets[b].params.size() > 1 && sums_tied(p, static_cast<int32_t>(b))) {
        std::ranges::reverse(p.buckets[b].params);
        return true;
      }
  return false;
}

static bool allow_other_transfers(std::vector<Program>& programs, Draw& draw) {
  ++programs[draw.from(0, static_cast<int32_t>(programs.size()) - 1)].transfers;
  return true;
}

static bool is_deferred_one(const Program&, const gsel_instr& i) {
  return i.flags & GSEL_INSTR_OPTIMISTIC;
}

// In a program of one rank, over messages, calls of groups or anything that is not of forward; or all the way to the
// front, over as much.
static bool moves_over(const Program& p, size_t from, size_t to) {
  for (size_t i = std::min(from, to); i < std::max(from, to); ++i) {
    const gsel_instr& instr = p.step[i];
    const bool empty = instr.microbatch >= 0 && p.microbatches[instr.microbatch].count == 0;
    if (instr.kind == GSEL_INSTR_SEND || instr.kind == GSEL_INSTR_RECV) return true;
    if (instr.kind == GSEL_INSTR_ALLGATHER && p.mesh.size[instr.axis] > 1) return true;
    if (to > from && !empty && instr.kind != GSEL_FORWARD && instr.kind != GSEL_INPUT &&
        instr.kind != GSEL_INSTR_WAIT && instr.kind != GSEL_INSTR_RELEASE && instr.kind != GSEL_INSTR_POST_VALIDATE &&
        instr.kind != GSEL_INSTR_ALLGATHER)
      return true;
  }
  return false;
}

static Damage validated_elsewhere(bool earlier) {
  return [earlier](std::vector<Program>& programs, Draw& draw) {
    const auto at = spot(programs, kind_is(GSEL_INSTR_POST_VALIDATE), draw);
    if (!at) return false;
    std::vector<gsel_instr>& step = programs[at->rank].step;
    const auto n = static_cast<int32_t>(step.size()), from = static_cast<int32_t>(at->at);
    if (earlier ? from == 0 : from + 2 >= n) return false;
    const int32_t to = earlier ? draw.from(0, from - 1) : draw.from(from + 2, n);
    if (!moves_over(programs[at->rank], at->at, static_cast<size_t>(to))) return false;
    const gsel_instr post_validate = step[at->at];
    step.erase(step.begin() + from);
    step.insert(step.begin() + (earlier ? to : to - 1), post_validate);
    return true;
  };
}

static bool post_validate_nowhere(std::vector<Program>& programs, Draw&) {
  size_t n = 0;
  for (Program& p : programs)
    n += std::erase_if(p.step, [](const gsel_instr& i) { return i.kind == GSEL_INSTR_POST_VALIDATE; });
  return n > 0;
}

static bool optimistic_nowhere(std::vector<Program>& programs, Draw&) {
  bool any = false;
  for (Program& p : programs)
    for (gsel_instr& i : p.step) {
      any |= (i.flags & GSEL_INSTR_OPTIMISTIC) != 0;
      i.flags &= ~GSEL_INSTR_OPTIMISTIC;
    }
  return any;
}

std::vector<std::pair<std::string, Damage>> all_damages() {
  const gsel_axis kBoth[] = {GSEL_AXIS_DATA, GSEL_AXIS_PIPELINE};
  std::vector<std::pair<std::string, Damage>> damages = {
      {"a message's both ends go", drop_pair},
      {"two messages swapped at one end", swap_messages},
      {"no tied sum anywhere", sum_tied_nowhere},
      {"a layer on another pipeline rank", move_layer},
      {"stages on other pipeline ranks", tell_other_stages},
      {"a parameter of another pipeline rank", take_absent_param},
      {"a parameter in no bucket", lose_own_param},
      {"a tied bucket in another order", reorder_tied_bucket},
      {"other transfers on one rank", allow_other_transfers},
      {"a value for its gradient",
       changed(is_message, [](Program&, gsel_instr& i) { i.flags ^= GSEL_INSTR_GRADIENT; })},
      {"another peer",
       changed(is_message, [](Program& p, gsel_instr& i) { i.peer = (i.peer + 1) % p.mesh.world_size(); })},
      {"the loss's forward after all", put_last(is_forward_of_loss)},
      {"a tied sum after all", put_last(kind_is(GSEL_INSTR_ALLREDUCE_TIED))},
      {"post_validate dropped", dropped(kind_is(GSEL_INSTR_POST_VALIDATE))},
      {"post_validate doubled", doubled(kind_is(GSEL_INSTR_POST_VALIDATE))},
      {"post_validate after all", put_last(kind_is(GSEL_INSTR_POST_VALIDATE))},
      {"post_validate nowhere", post_validate_nowhere},
      {"post_validate earlier", validated_elsewhere(true)},
      {"post_validate later", validated_elsewhere(false)},
      {"optimistic nowhere", optimistic_nowhere},
      {"optimistic on one rank less",
       changed(is_deferred_one, [](Program&, gsel_instr& i) { i.flags &= ~GSEL_INSTR_OPTIMISTIC; })},
      {"optimistic over the data axis",
       changed([](const Program&,
                  const gsel_instr& i) { return i.kind == GSEL_INSTR_OVERFLOW && i.axis == GSEL_AXIS_DATA; },
               [](Program&, gsel_instr& i) { i.flags |= GSEL_INSTR_OPTIMISTIC; })},
      {"a norm optimistic on one rank",
       changed([](const Program&,
                  const gsel_instr& i) { return i.kind == GSEL_INSTR_NORM && !(i.flags & GSEL_INSTR_OPTIMISTIC); },
               [](Program&, gsel_instr& i) { i.flags |= GSEL_INSTR_OPTIMISTIC; })},
  };
  for (gsel_instr_kind kind :
       {GSEL_INPUT, GSEL_FORWARD, GSEL_BACKWARD, GSEL_BACKWARD_INPUT, GSEL_BACKWARD_WEIGHT, GSEL_INSTR_SEND,
        GSEL_INSTR_RECV, GSEL_INSTR_ALLREDUCE_TIED, GSEL_INSTR_NORM, GSEL_INSTR_STEP, GSEL_INSTR_ALLREDUCE,
        GSEL_INSTR_REDUCE_SCATTER, GSEL_INSTR_WAIT, GSEL_INSTR_ALLGATHER, GSEL_INSTR_RELEASE}) {
    damages.emplace_back(fmt::format("{} dropped", find_instr_row(kind)->word), dropped(kind_is(kind)));
    damages.emplace_back(fmt::format("{} doubled", find_instr_row(kind)->word), doubled(kind_is(kind)));
  }
  for (gsel_instr_kind kind : {GSEL_INSTR_LOSS_ALLREDUCE, GSEL_INSTR_OVERFLOW})
    for (gsel_axis axis : kBoth) {
      // Over one rank nothing is summed, and overflow is looked for where the pipeline's is.
      const Pick pick = [kind, axis](const Program& p, const gsel_instr& i) {
        return i.kind == kind && i.axis == axis && (p.mesh.size[axis] > 1 || kind == GSEL_INSTR_LOSS_ALLREDUCE);
      };
      damages.emplace_back(fmt::format("{} over axis {} dropped", find_instr_row(kind)->word, axis), dropped(pick));
      damages.emplace_back(fmt::format("{} over axis {} doubled", find_instr_row(kind)->word, axis), doubled(pick));
    }
  return damages;
}

}  // namespace gsel::test
