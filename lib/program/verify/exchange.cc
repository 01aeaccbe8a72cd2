// program/verify/exchange.cc: see exchange.h.
#include "program/verify/exchange.h"

#include <algorithm>
#include <cstring>

#include "base/axis.h"
#include "program/stages.h"

namespace gsel {
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

}  // namespace gsel
