// program/verify/walker.cc: advances through the instructions: entering, meeting other ranks, leaving. The rules are in
// walker_*.cc, by topic.
#include "program/verify/walker.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "base/types.h"
#include "program/redistribution.h"
#include "program/shards.h"
#include "program/stages.h"

namespace gsel {

// ---- the state between ranks ---------------------------------------------------------------------------------------

namespace {

[[noreturn]] void refuse(const Spot& spot, const std::string& why) {
  throw Error(GSEL_ERR_PROGRAM, fmt::format("{}: {}", spot.where(), why)).about_rank(spot.program->rank);
}

}  // namespace

size_t RankGroup::post(const Spot& spot, int32_t phase) {
  const size_t index = posted_[std::ranges::lower_bound(ranks_, spot.program->rank) - ranks_.begin()]++;
  if (index == calls_.size()) {
    calls_.push_back({spot, phase, 1});
    return index;
  }
  Call& call = calls_[index];
  const gsel_instr &mine = spot.instr(), &first = call.first.instr();
  gsel_instr compared = mine;
  if (!same_bucket_ids_ && mine.bucket >= 0 && first.bucket >= 0) compared.bucket = first.bucket;
  if (std::memcmp(&compared, &first, sizeof compared) != 0 || phase != call.phase)
    refuse(spot, fmt::format("the {} group's call {} is {}; all ranks of a group make the same calls in the same order",
                             name_, index, call.first.where()));
  if (mine.bucket >= 0) {
    const ProgramBucket &here = spot.program->buckets[mine.bucket], &there = call.first.program->buckets[first.bucket];
    if (here.params != there.params)
      refuse(spot,
             fmt::format("the bucket holds other parameters, or in another order, than in {}", call.first.where()));
    if (here != there) refuse(spot, fmt::format("the bucket is kept in another way than in {}", call.first.where()));
  }
  ++call.joined;
  return index;
}

int32_t RankGroup::missing(size_t index) const {
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (posted_[i] <= index) return ranks_[i];
  return -1;
}

void RankGroup::check_complete() const {
  for (size_t index = 0; index < calls_.size(); ++index)
    if (!complete(index)) refuse(calls_[index].first, fmt::format("rank {} never joins it", missing(index)));
}

RankGroup& Exchange::group(const Program& program, gsel_axis axis) {
  std::vector<int32_t> ranks = program.mesh.group(program.rank, axis);
  std::erase_if(ranks, [this](int32_t rank) { return !job_.find(rank); });
  const std::pair<gsel_axis, int32_t> key{axis, ranks.front()};
  return groups_.try_emplace(key, axis_name(axis), std::move(ranks), axis == GSEL_AXIS_DATA).first->second;
}

RankGroup& Exchange::tied_group(const Program& program, int32_t bucket) {
  const std::vector<int32_t> ranks = tied_ranks(program, bucket);
  const std::string name = fmt::format("ranks {}: tied parameters'", fmt::join(ranks, ", "));
  return tied_groups_.try_emplace(ranks, name, ranks, false).first->second;
}

void Exchange::check_ended() const {
  for (const auto& [pair, channel] : channels_)
    if (!channel.under_way.empty())
      refuse(channel.under_way.front(), fmt::format("rank {} never receives it", pair.second));
  for (const auto& [key, group] : groups_) group.check_complete();
  for (const auto& [key, group] : tied_groups_) group.check_complete();
}

// ---- one rank ------------------------------------------------------------------------------------------------------

Walker::Walker(const Program& program, Exchange& all, Purpose purpose, int32_t transfers)
    : program_(program),
      all_(all),
      purpose_(purpose),
      transfers_(transfers),
      partial_loss_(has_partial_loss(program)),
      tied_groups_(program.buckets.size()),
      bucket_of_(program.params.size(), -1),
      contributed_(program.buckets.size()),
      buckets_(program.buckets.size()),
      pending_(program.params.size()) {
  for (gsel_axis axis = 0; axis < kAxes; ++axis) groups_.push_back(&all.group(program, axis));
  const std::vector<bool> tied = sums_tied(program);
  for (int32_t b = 0; b < static_cast<int32_t>(program.buckets.size()); ++b) {
    for (int32_t p : program.buckets[b].params) bucket_of_[p] = b;
    if (tied[b]) tied_groups_[b] = &all.tied_group(program, b);
  }
  for (int32_t l = 0; l < static_cast<int32_t>(program.layers.size()); ++l)
    for (int32_t p : program.layers[l].params)
      if (program.layers[l].needs_backward_weight && bucket_of_[p] >= 0 && is_here(program, l))
        contributed_[bucket_of_[p]] = true;
}

void Walker::refuse(const std::string& why) const {
  throw Error(GSEL_ERR_PROGRAM, fmt::format("{}: {}", where_now(), why)).about_rank(program_.rank);
}

void Walker::refuse_end(const std::string& why) const {
  throw Error(GSEL_ERR_PROGRAM, fmt::format("rank {}, end of step: {}", program_.rank, why)).about_rank(program_.rank);
}

bool Walker::advance() {
  bool moved = false;
  for (;;) {
    if (in_setup_ && position_ == program_.setup.size()) {
      begin_step();
      moved = true;
    }
    if (position_ == list().size()) return moved;
    const gsel_instr& instr = list()[position_];
    if (!entered_ && !has_room(instr)) return moved;
    if (!entered_) enter(instr);
    entered_ = true;
    const int32_t met = met_;
    if (!meet(instr)) return moved || met_ != met;
    leave(instr);
    entered_ = posted_ = false;
    met_ = 0;
    ++position_;
    moved = true;
  }
}

// Effects of setup on parameters last, except for copies that belong to a step.
void Walker::begin_step() {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].under_way)
      throw Error(GSEL_ERR_PROGRAM, fmt::format("rank {}, end of setup: bucket {}'s last collective was not waited for",
                                                program_.rank, b))
          .about_rank(program_.rank);
    const bool whole = !program_.buckets[b].shards_param() && steps_here(program_, static_cast<int32_t>(b));
    buckets_[b].params = whole ? Holding::ready : Holding::absent;
  }
  in_setup_ = false;
  position_ = 0;
}

void Walker::check_purpose(const gsel_instr& instr) const {
  if (!find_instr_row(instr.kind)) refuse("unknown kind of instruction");
  if (in_setup_ && !instr_row(instr.kind).in_setup) refuse("setup has broadcast and wait alone");
  if (purpose_ == Purpose::evaluation && trains(instr)) refuse("an evaluation has inputs, forwards and the loss alone");
}

void Walker::enter(const gsel_instr& instr) {
  check_purpose(instr);
  const InstrRow& row = instr_row(instr.kind);
  switch (row.task) {
    case InstrTask::input:
      return input(instr);
    case InstrTask::forward:
      return row.recomputes ? recompute(instr) : forward(instr);
    case InstrTask::backward:
      return backward(instr);
    case InstrTask::message:
      if (row.is_send()) return send(instr);
      if (instr.peer == program_.rank) refuse("a rank cannot receive from itself");
      return;
    case InstrTask::scatter_gather:
      return enter_scatter_gather(instr);
    case InstrTask::params:
    case InstrTask::gradients:
      return begin_bucket(instr);
    case InstrTask::wait:
      if (!buckets_[instr.bucket].under_way) refuse("no collective of this bucket is under way");
      return;
    case InstrTask::release:
      return release(instr);
    case InstrTask::sum_stepped:
      return row.peers == InstrPeers::tied ? allreduce_tied(instr) : allreduce_partial(instr);
    case InstrTask::loss:
      return loss_allreduce(instr);
    case InstrTask::check:
      return row.peers == InstrPeers::norm ? norm() : overflow(instr);
    case InstrTask::step:
      return step(instr);
    case InstrTask::post_validate:
      return post_validate();
  }
}

RankGroup* Walker::meeting(const gsel_instr& instr, int32_t i) const {
  const InstrRow& row = instr_row(instr.kind);
  if (row.is_bucket_collective()) return nullptr;  // at its WAIT
  switch (row.peers) {
    case InstrPeers::nobody:
    case InstrPeers::peer:
      return nullptr;
    case InstrPeers::axis:
      return i == 0 ? groups_[instr.axis] : nullptr;
    case InstrPeers::tied:
      return i == 0 ? tied_groups_[instr.bucket] : nullptr;
    case InstrPeers::layer: {
      const ProgramLayer& l = program_.layers[instr.layer];
      if (l.redistributes)
        return i == 0 && communicates(redistribution_of(program_, l, instr.kind))
                   ? groups_[program_.mesh.sharing_axis()]
                   : nullptr;
      const auto& phases = row.task == InstrTask::forward ? l.forward_phases : l.backward_phases;
      return static_cast<size_t>(i) < phases.size() ? groups_[phases[i].axis] : nullptr;
    }
    case InstrPeers::norm:
      for (gsel_axis axis = 0; axis < kAxes; ++axis)
        if (norm_sums_over(program_, axis) && i-- == 0) return groups_[axis];
      return nullptr;
  }
  return nullptr;
}

bool Walker::meet(const gsel_instr& instr) {
  const InstrRow& row = instr_row(instr.kind);
  if (row.task == InstrTask::wait) return wait(instr);
  if (row.is_receive()) return receive(instr);
  for (RankGroup* group; (group = meeting(instr, met_)); ++met_) {
    // The number of a norm's meetings depends on this rank's buckets.
    if (!posted_) meeting_index_ = group->post(spot(), row.peers == InstrPeers::norm ? 0 : met_);
    posted_ = true;
    if (awaited(instr, *group) >= 0) return false;
    posted_ = false;
  }
  return true;
}

// The first rank that this one waits for at a meeting, or -1. Over the pipeline, the rank that has the losses sends
// them and waits for nobody.
int32_t Walker::awaited(const gsel_instr& instr, const RankGroup& group) const {
  if (group.complete(meeting_index_) || is_nonblocking(instr, group)) return -1;
  const auto loss = std::ranges::find_if(program_.layers, &ProgramLayer::is_loss);
  if (task_of(instr.kind) != InstrTask::loss || instr.axis != GSEL_AXIS_PIPELINE || loss == program_.layers.end())
    return group.missing(meeting_index_);
  const int32_t sender = pipeline_rank_of_layer(program_, static_cast<int32_t>(loss - program_.layers.begin()));
  if (sender == coordinate(GSEL_AXIS_PIPELINE) || group.has_posted(sender, meeting_index_)) return -1;
  return program_.mesh.group(program_.rank, GSEL_AXIS_PIPELINE)[sender];
}

void Walker::leave(const gsel_instr& instr) {
  if (task_of(instr.kind) == InstrTask::scatter_gather) leave_scatter_gather(instr);
}

std::string Walker::waits_for() const {
  const gsel_instr& instr = list()[position_];
  const InstrRow& row = instr_row(instr.kind);
  if (row.is_receive()) return fmt::format("a send of rank {}", instr.peer);
  if (!entered_)
    return fmt::format("rank {} to receive what was sent before", row.is_send() ? instr.peer : full_channel());
  const int32_t rank = row.task == InstrTask::wait
                           ? groups_[buckets_[instr.bucket].axis]->missing(buckets_[instr.bucket].index)
                           : awaited(instr, *meeting(instr, met_));
  return fmt::format("rank {} to join the collective", rank);
}

void Walker::check_end() const {
  for (const auto& [id, facts] : layers_) {
    const ProgramLayer& l = program_.layers[id >> 32];
    const bool whole =
        facts.backward_input >= l.needs_backward_input && facts.backward_weight >= l.needs_backward_weight;
    if (facts.forward && !whole && purpose_ == Purpose::training)
      refuse_end(fmt::format("the backward of layer \"{}\", micro-batch {}, is missing", l.name, uint32_t(id)));
  }
  for (size_t b = 0; b < buckets_.size(); ++b) check_bucket_end(static_cast<int32_t>(b));
  const bool has_loss = std::ranges::any_of(program_.layers, &ProgramLayer::is_loss);
  if (const gsel_axis missing = missing_loss_axis(); has_loss && missing >= 0)
    refuse_end(fmt::format("the loss is not reduced over the {} axis", axis_name(missing)));
  if (const gsel_axis missing = missing_overflow_axis(); missing >= 0)
    refuse_end(fmt::format("overflow is not looked for on the {} axis", axis_name(missing)));
}

void follow(std::deque<Walker>& walkers) {
  for (bool moved = true; moved;) {
    moved = false;
    for (Walker& w : walkers) moved |= w.advance();
  }
}

bool all_finished(const std::deque<Walker>& walkers) {
  return std::ranges::all_of(walkers, &Walker::finished);
}

// Names every rank that is blocked forever, up to a few: the cause is often not with the first.
void check_finished(const std::deque<Walker>& walkers) {
  constexpr int kNamed = 4;
  int stuck = 0;
  int32_t first = -1;
  std::string text;
  for (const Walker& w : walkers) {
    if (w.finished()) continue;
    if (first < 0) first = w.program().rank;
    if (stuck++ < kNamed)
      text += fmt::format("{}{}: waits without end for {}", text.empty() ? "" : "; ", w.where_now(), w.waits_for());
  }
  if (stuck > kNamed) text += fmt::format("; and {}", with_noun(stuck - kNamed, "more rank"));
  if (stuck) throw Error(GSEL_ERR_PROGRAM, text).about_rank(first);
}

}  // namespace gsel
