// support/program_judge.cc: see program_judge.h.
#include "support/program_judge.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gsel::test {

Judge::Judge(const Program& p) : p_(p), bucket_of_(p.params.size(), -1) {
  for (size_t b = 0; b < p.buckets.size(); ++b)
    for (int32_t param : p.buckets[b].params) bucket_of_[param] = static_cast<int32_t>(b);
  std::map<int32_t, gsel_instr_kind> under_way;
  for (size_t i = 0; i < p.step.size(); ++i) {
    const gsel_instr& instr = p.step[i];
    if (find_instr_row(instr.kind)->bucket && find_instr_row(instr.kind)->axis) under_way[instr.bucket] = instr.kind;
    footprints_.push_back(touch(instr, under_way[instr.bucket]));
  }
}

bool Judge::commute(size_t a, size_t b, bool everywhere) const {
  if (!everywhere && footprints_[a].meets && footprints_[b].meets) return false;
  for (const auto& [thing, access] : footprints_[a].things) {
    const auto other = footprints_[b].things.find(thing);
    if (other == footprints_[b].things.end()) continue;
    const bool fine = access == other->second && access != Access::write;
    if (!fine) return false;
  }
  return true;
}

bool Judge::reductions_are_sound(const std::vector<gsel_instr>& step) const {
  struct State {
    int32_t left = 0;
    bool under_way = false;
  };
  std::vector<State> states(p_.buckets.size());
  for (const gsel_instr& instr : step) {
    if (instr.bucket >= 0) {
      State& state = states[instr.bucket];
      if (instr.kind == GSEL_INSTR_WAIT) state.under_way = false;
      if (instr.kind != GSEL_INSTR_REDUCE_SCATTER || !p_.buckets[instr.bucket].shards_gradient()) continue;
      if (state.left == 0) return false;
      state = {0, true};
    } else if (instr.kind == GSEL_BACKWARD || instr.kind == GSEL_BACKWARD_WEIGHT) {
      for (int32_t param : p_.layers[instr.layer].params) {
        const int32_t b = bucket_of_[param];
        if (b < 0 || !p_.buckets[b].shards_gradient()) continue;
        if (states[b].under_way) return false;
        ++states[b].left;
      }
    }
  }
  for (const State& state : states)
    if (state.left) return false;
  return true;
}

bool Judge::windows_are_sound(const std::vector<gsel_instr>& step) const {
  enum { closed, arriving, open };
  std::vector<int> states(p_.buckets.size(), closed);
  for (const gsel_instr& instr : step) {
    if (instr.bucket >= 0) {
      if (!p_.buckets[instr.bucket].shards_param()) continue;
      int& state = states[instr.bucket];
      if (instr.kind == GSEL_INSTR_ALLGATHER && std::exchange(state, arriving) != closed) return false;
      if (instr.kind == GSEL_INSTR_WAIT && state == arriving) state = open;
      if (instr.kind == GSEL_INSTR_RELEASE && std::exchange(state, closed) != open) return false;
    } else if (instr.layer >= 0) {
      Footprint reader;
      params(reader, p_.layers[instr.layer], unread_by(instr));
      for (const auto& [thing, access] : reader.things) {
        const int32_t b = std::get<1>(thing);
        if (p_.buckets[b].shards_param() && states[b] != open) return false;
      }
    }
  }
  return std::ranges::count(states, closed) == std::ssize(states);
}

void Judge::note(Footprint& f, Thing thing, int32_t id, int32_t mb, Access access) {
  const auto [it, is_new] = f.things.try_emplace({thing, id, mb}, access);
  if (!is_new && it->second != access) it->second = Access::write;
}

uint64_t Judge::unread_by(const gsel_instr& instr) const {
  if (instr.kind == GSEL_FORWARD || instr.kind == GSEL_INSTR_RECOMPUTE) return 0;
  if (instr.kind == GSEL_BACKWARD_WEIGHT) return ~uint64_t{0};
  return p_.layers[instr.layer].backward_unread_params;
}

void Judge::params(Footprint& f, const ProgramLayer& l, uint64_t unread) const {
  for (size_t i = 0; i < l.params.size(); ++i)
    if (bucket_of_[l.params[i]] >= 0 && !(unread >> i & 1)) note(f, kWindow, bucket_of_[l.params[i]], 0, Access::read);
}

void Judge::read_params(Footprint& f, const gsel_instr& instr) const {
  Footprint reader;
  params(reader, p_.layers[instr.layer], unread_by(instr));
  for (const auto& [thing, access] : reader.things)
    if (!p_.buckets[std::get<1>(thing)].shards_param()) f.things.insert({thing, access});
}

Footprint Judge::touch(const gsel_instr& instr, gsel_instr_kind under_way) {
  Footprint f;
  const int32_t v = instr.value, mb = instr.microbatch, b = instr.bucket;
  const bool gradient = instr.flags & GSEL_INSTR_GRADIENT;
  const bool is_root = p_.rank == instr.peer;
  switch (instr.kind) {
    case GSEL_INPUT:
      note(f, kValue, v, mb, Access::write);
      break;
    case GSEL_FORWARD:
    case GSEL_INSTR_RECOMPUTE:
      forward(f, instr);
      break;
    case GSEL_BACKWARD:
    case GSEL_BACKWARD_INPUT:
    case GSEL_BACKWARD_WEIGHT:
      backward(f, instr);
      break;
    case GSEL_INSTR_SCATTER:
      f.meets = true;
      if (is_root) note(f, gradient ? kGradient : kValue, v, p_.microbatches[mb].whole, Access::read);
      note(f, gradient ? kGradient : kValue, v, mb, gradient ? Access::add : Access::write);
      break;
    case GSEL_INSTR_GATHER:
      f.meets = true;
      note(f, kValue, v, mb, Access::read);
      note(f, kGradient, v, mb, Access::add);  // one more reader, whose contribution is owed
      if (is_root) note(f, kValue, v, p_.microbatches[mb].whole, Access::write);
      break;
    case GSEL_INSTR_BROADCAST:
    case GSEL_INSTR_ALLGATHER:
      f.meets = true;
      note(f, kUnderWay, b, 0, Access::write);
      if (!p_.buckets[b].shards_param()) note(f, kWindow, b, 0, Access::write);
      note(f, kShard, b, 0, Access::read);
      break;
    case GSEL_INSTR_ALLREDUCE:
    case GSEL_INSTR_REDUCE_SCATTER:
    case GSEL_INSTR_REDUCE:
      f.meets = true;
      note(f, kUnderWay, b, 0, Access::write);
      note(f, kBucketGradient, b, 0, Access::write);
      if (!p_.buckets[b].shards_gradient()) note(f, kContributions, b, 0, Access::write);
      break;
    case GSEL_INSTR_WAIT:
      note(f, kUnderWay, b, 0, Access::write);
      note(f, under_way == GSEL_INSTR_ALLGATHER || under_way == GSEL_INSTR_BROADCAST ? kWindow : kBucketGradient, b, 0,
           Access::write);
      break;
    case GSEL_INSTR_RELEASE:
      if (!p_.buckets[b].shards_param()) note(f, kWindow, b, 0, Access::write);
      break;
    case GSEL_INSTR_LOSS_ALLREDUCE:
      f.meets = true;
      note(f, kLoss, 0, 0, Access::write);
      break;
    case GSEL_INSTR_NORM:
    case GSEL_INSTR_OVERFLOW:
      f.meets = true;
      for (size_t i = 0; i < p_.buckets.size(); ++i)
        for (Thing thing : {kContributions, kBucketGradient}) note(f, thing, static_cast<int32_t>(i), 0, Access::read);
      note(f, instr.kind == GSEL_INSTR_NORM ? kNorm : kOverflow, 0, 0, Access::write);
      if (instr.kind == GSEL_INSTR_NORM) note(f, kLoss, 0, 0, Access::read);
      break;
    case GSEL_INSTR_STEP:
      f.meets = p_.buckets[b].shards_state();
      for (Thing thing : {kLoss, kNorm, kOverflow}) note(f, thing, 0, 0, Access::read);
      for (Thing thing : {kContributions, kBucketGradient}) note(f, thing, b, 0, Access::read);
      note(f, kShard, b, 0, Access::write);
      if (!p_.buckets[b].shards_param()) note(f, kWindow, b, 0, Access::write);
      break;
  }
  return f;
}

void Judge::forward(Footprint& f, const gsel_instr& instr) {
  const ProgramLayer& l = p_.layers[instr.layer];
  const int32_t mb = instr.microbatch;
  const bool again = instr.kind == GSEL_INSTR_RECOMPUTE;
  f.meets = !l.forward_phases.empty();
  for (int32_t v : l.inputs) {
    note(f, kValue, v, mb, Access::read);
    // One more contribution that is owed to the gradient.
    if (!again && p_.values[v].needs_gradient) note(f, kGradient, v, mb, Access::add);
  }
  // A second write stores the same value, so earlier readers are not affected.
  if (!again)
    for (int32_t v : l.outputs) note(f, kValue, v, mb, Access::write);
  note(f, kSaved, instr.layer, mb, Access::write);
  read_params(f, instr);
  if (!again && l.is_loss) note(f, kLoss, 0, 0, Access::add);
  if (!again && l.needs_backward_weight)
    for (int32_t param : l.params)
      if (bucket_of_[param] >= 0 && !p_.buckets[bucket_of_[param]].shards_gradient())
        note(f, kContributions, bucket_of_[param], 0, Access::add);
}

void Judge::backward(Footprint& f, const gsel_instr& instr) {
  const ProgramLayer& l = p_.layers[instr.layer];
  const int32_t mb = instr.microbatch;
  const bool inputs = instr.kind != GSEL_BACKWARD_WEIGHT;
  for (int32_t v : l.inputs) note(f, kValue, v, mb, Access::read);
  note(f, kSaved, instr.layer, mb, Access::read);
  for (int32_t v : l.outputs)
    if (p_.values[v].needs_gradient) note(f, kGradient, v, mb, Access::read);
  if (inputs) {
    f.meets = !l.backward_phases.empty();
    read_params(f, instr);
    for (int32_t v : l.inputs)
      if (l.needs_backward_input && p_.values[v].needs_gradient) note(f, kGradient, v, mb, Access::add);
  }
  if (instr.kind != GSEL_BACKWARD_INPUT && l.needs_backward_weight)
    for (int32_t param : l.params)
      if (bucket_of_[param] >= 0) note(f, kContributions, bucket_of_[param], 0, Access::add);
}

}  // namespace gsel::test
