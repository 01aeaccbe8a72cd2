// program/verify/walker_buckets.cc: rules of buckets: when parameters can be read, and that every contribution to a
// gradient is reduced exactly once, while nothing writes it. Rules of the end of a step: the loss, norm, overflow and
// optimizer need complete data, and nothing is left open. For optimistic steps: POST_VALIDATE comes before anything
// that the previous step might still change, and nothing reads the number of an optimistic instruction.
#include <algorithm>

#include "base/text.h"
#include "base/types.h"
#include "program/optimistic.h"
#include "program/shards.h"
#include "program/stages.h"
#include "program/verify/walker.h"

namespace gsel {
namespace {

const char* why_unreadable(const ProgramBucket& bucket, Holding holding) {
  switch (holding) {
    case Holding::absent:
      return bucket.owner >= 0 ? "which was not broadcast in this step" : "which is not gathered";
    case Holding::arriving:
      return "which is under way and was not waited for";
    case Holding::released:
      return "which is released";
    case Holding::stale:
      return "which is stale since its step: an allgather and a wait must come first";
    default:
      return "which is already stepped";
  }
}

}  // namespace

// unread: bit i: the callback does not read parameter i.
void Walker::need_params(const ProgramLayer& l, uint64_t unread) const {
  for (size_t i = 0; i < l.params.size(); ++i) {
    const int32_t b = bucket_of_[l.params[i]];
    if (b < 0 || (i < 64 && unread >> i & 1) || buckets_[b].params == Holding::ready) continue;
    refuse(fmt::format("it reads parameter \"{}\" of bucket {}, {}", program_.params[l.params[i]].name, b,
                       why_unreadable(program_.buckets[b], buckets_[b].params)));
  }
}

void Walker::begin_bucket(const gsel_instr& instr) {
  const ProgramBucket& shape = program_.buckets[instr.bucket];
  BucketFacts& bucket = buckets_[instr.bucket];
  if (bucket.under_way) refuse("the bucket's last collective was not waited for");
  if (shape.divides_state() && !in_setup_ && instr.axis != shape.axis)
    refuse(fmt::format("the bucket is kept along the {} axis", axis_name(shape.axis)));
  const InstrRow& row = instr_row(instr.kind);
  if (row.task == InstrTask::gradients) {
    begin_reduction(instr);
  } else {
    row.peer ? check_broadcast(instr) : check_gather(instr);
    bucket.params = Holding::arriving;
  }
  bucket.under_way = instr.kind;
  bucket.axis = instr.axis;
  bucket.index = groups_[instr.axis]->post(spot(), 0);
}

void Walker::check_broadcast(const gsel_instr& instr) const {
  const ProgramBucket& shape = program_.buckets[instr.bucket];
  if (shape.shards_param()) refuse("the bucket's parameters are kept in shards; allgather brings them together");
  if (in_setup_) return;
  if (shape.owner >= 0 && instr.peer != shape.owner)
    refuse(fmt::format("coordinate {} owns the bucket and has its parameters", shape.owner));
  const Holding holding = buckets_[instr.bucket].params;
  if (holding == Holding::stale || holding == Holding::stepped) refuse("the bucket is already stepped");
}

void Walker::check_gather(const gsel_instr& instr) const {
  const ProgramBucket& shape = program_.buckets[instr.bucket];
  const BucketFacts& bucket = buckets_[instr.bucket];
  if (!shape.shards_state()) refuse("the bucket has no shards to gather");
  if (!shape.shards_param()) {
    if (bucket.params != Holding::stale) refuse("the bucket's parameters are whole; allgather comes after step");
    return;
  }
  if (bucket.stepped) refuse("the bucket is already stepped; the next step gathers its parameters");
  if (bucket.params == Holding::ready) refuse("the bucket's parameters are already gathered");
}

void Walker::begin_reduction(const gsel_instr& instr) {
  const ProgramBucket& shape = program_.buckets[instr.bucket];
  BucketFacts& bucket = buckets_[instr.bucket];
  if (bucket.stepped) refuse("the bucket is already stepped");
  if (bucket.checked) refuse("norm or overflow has looked at the bucket's gradients before");
  const InstrRow& wanted = reduction_for(shape.layout());
  if (instr.kind != wanted.kind)
    refuse(fmt::format("as the bucket is kept its gradients are reduced by {}", wanted.word));
  if (shape.owner >= 0 && instr.peer != shape.owner) refuse(fmt::format("coordinate {} owns the bucket", shape.owner));
  // A sum over one axis may be followed by one over another; what is divided over an axis is not.
  bool& reduced = shape.divides_state() ? bucket.reduced : bucket.summed[instr.axis];
  if (shape.shards_gradient()) {
    if (!bucket.unreduced && (contributed_[instr.bucket] || bucket.reduced))
      refuse("no backward has written the bucket's gradients since its last reduction");
  } else {
    if (reduced) refuse("the bucket's gradients are already reduced on this axis");
    need_all_contributions(instr.bucket);
    bucket.closed = true;
  }
  bucket.unreduced = 0;
  reduced = true;
}

bool Walker::wait(const gsel_instr& instr) {
  BucketFacts& bucket = buckets_[instr.bucket];
  if (!groups_[bucket.axis]->complete(bucket.index)) return false;
  if (task_of(bucket.under_way) == InstrTask::params) bucket.params = Holding::ready;
  bucket.under_way = 0;
  return true;
}

void Walker::release(const gsel_instr& instr) {
  const ProgramBucket& shape = program_.buckets[instr.bucket];
  BucketFacts& bucket = buckets_[instr.bucket];
  if (!shape.shards_param() && steps_here(program_, instr.bucket))
    refuse("this rank keeps the bucket's whole parameters");
  if (bucket.params == Holding::arriving) refuse("the bucket's parameters are under way and were not waited for");
  if (bucket.params == Holding::absent) refuse("the bucket's parameters are not here");
  if (bucket.params == Holding::released) refuse("the bucket's parameters are already released");
  bucket.params = Holding::released;
}

// ---- the end of a step ---------------------------------------------------------------------------------------------

void Walker::loss_allreduce(const gsel_instr& instr) {
  if (loss_reduced_[instr.axis]) refuse("the loss is already reduced");
  if (shares_layers(instr.axis) && program_.mesh.size[instr.axis] > 1 && !partial_loss_)
    refuse(fmt::format("each rank of the {} axis has the whole loss; it would be counted several times",
                       axis_name(instr.axis)));
  loss_reduced_[instr.axis] = true;
}

// A sum over the data axis is required even with one rank: it marks the end of contributions.
gsel_axis Walker::missing_reduction(const std::array<bool, kAxes>& done, bool over_tensor) const {
  auto missing = [&](gsel_axis axis) { return program_.mesh.size[axis] > 1 && !done[axis]; };
  if (!done[GSEL_AXIS_DATA]) return GSEL_AXIS_DATA;
  if (const gsel_axis axis = program_.mesh.sharing_axis(); over_tensor && missing(axis)) return axis;
  return missing(GSEL_AXIS_PIPELINE) ? GSEL_AXIS_PIPELINE : -1;
}

gsel_axis Walker::missing_loss_axis() const {
  return missing_reduction(loss_reduced_, partial_loss_);
}

gsel_axis Walker::missing_overflow_axis() const {
  return std::ranges::count(overflow_checked_, true) ? missing_reduction(overflow_checked_, true) : -1;
}

void Walker::need_loss_reduced() const {
  const gsel_axis missing = missing_loss_axis();
  if (missing == GSEL_AXIS_DATA) refuse("the loss weight is not reduced yet");
  if (missing >= 0) refuse(fmt::format("the loss weight is not reduced over the {} axis yet", axis_name(missing)));
}

void Walker::need_all_contributions(int32_t bucket) const {
  for (int32_t p : program_.buckets[bucket].params)
    if (pending_[p])
      refuse(fmt::format("the gradient of parameter \"{}\" still lacks {}", program_.params[p].name,
                         with_noun(pending_[p], "contribution")));
}

std::string Walker::lacks(int32_t b) const {
  if (std::string why = lacks_on_data_axis(b); !why.empty()) return why;
  if (std::string why = lacks_on_sharing_axis(b); !why.empty()) return why;
  if (!tied_groups_[b] || buckets_[b].tied_summed) return {};
  return fmt::format("the gradients of bucket {} are not summed over the stages that hold its parameters yet", b);
}

std::string Walker::lacks_on_data_axis(int32_t b) const {
  const ProgramBucket& shape = program_.buckets[b];
  const BucketFacts& bucket = buckets_[b];
  if (bucket.under_way) return fmt::format("the last collective of bucket {} was not waited for", b);
  if (shape.divides_state()) {
    if (!bucket.reduced) return fmt::format("the gradients of bucket {} are not reduced yet", b);
    if (bucket.unreduced)
      return fmt::format("the gradients of bucket {} have {} that no reduction has taken", b,
                         with_noun(bucket.unreduced, "contribution"));
  } else if (program_.mesh.size[GSEL_AXIS_DATA] > 1 && !bucket.summed[GSEL_AXIS_DATA]) {
    return fmt::format("the gradients of bucket {} are not reduced yet", b);
  }
  return {};
}

std::string Walker::lacks_on_sharing_axis(int32_t b) const {
  if (!sums_partial(program_, b) || buckets_[b].partial_summed) return {};
  return fmt::format(
      "the gradients of bucket {} are partial, and are not summed over the ranks of the {} axis yet; "
      "allreduce_partial does that",
      b, axis_name(program_.mesh.sharing_axis()));
}

// For instructions that read all gradients: no contribution and no reduction may follow.
void Walker::need_complete_gradients(const char* what) {
  if (any_stepped_) refuse(fmt::format("a bucket is already stepped; {} comes before", what));
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (const std::string why = lacks(static_cast<int32_t>(b)); !why.empty()) refuse(why);
    need_all_contributions(static_cast<int32_t>(b));
    buckets_[b].closed = buckets_[b].checked = true;
  }
}

// Requirements of a sum of what this rank steps over an axis other than data.
void Walker::need_reducible(const gsel_instr& instr) const {
  const BucketFacts& bucket = buckets_[instr.bucket];
  if (bucket.stepped) refuse("the bucket is already stepped");
  if (bucket.checked) refuse("norm or overflow has looked at the bucket's gradients before");
  if (const std::string why = lacks_on_data_axis(instr.bucket); !why.empty()) refuse(why);
  need_all_contributions(instr.bucket);
}

void Walker::allreduce_partial(const gsel_instr& instr) {
  BucketFacts& bucket = buckets_[instr.bucket];
  if (!shares_layers(instr.axis)) refuse("gradients are partial on the tensor and context axes alone");
  if (!steps_here(program_, instr.bucket))
    refuse(fmt::format("coordinate {} owns the bucket and has its gradients", program_.buckets[instr.bucket].owner));
  if (!sums_partial(program_, instr.bucket))
    refuse(program_.mesh.sharing_size() == 1 ? "its axis has one rank"
                                             : "the gradients of the bucket's parameters are not partial: what "
                                               "each rank has is all of them");
  if (bucket.partial_summed)
    refuse(fmt::format("the bucket's gradients are already summed over the {} axis", axis_name(instr.axis)));
  if (bucket.tied_summed)
    refuse("allreduce_tied has summed the bucket's gradients before; allreduce_partial comes first");
  need_reducible(instr);
  bucket.partial_summed = bucket.closed = true;
}

void Walker::allreduce_tied(const gsel_instr& instr) {
  BucketFacts& bucket = buckets_[instr.bucket];
  if (!steps_here(program_, instr.bucket))
    refuse(fmt::format("coordinate {} owns the bucket and has its gradients", program_.buckets[instr.bucket].owner));
  if (!tied_groups_[instr.bucket]) refuse("no other stage of the pipeline holds the bucket's parameters");
  if (bucket.tied_summed) refuse("the bucket's gradients are already summed over the stages that hold its parameters");
  need_reducible(instr);
  if (const std::string why = lacks_on_sharing_axis(instr.bucket); !why.empty()) refuse(why);
  bucket.tied_summed = bucket.closed = true;
}

void Walker::norm() {
  if (normed_) refuse("the norm is already computed");
  need_loss_reduced();
  need_complete_gradients("the norm");
  normed_ = true;
  // Without a sum the norm is local, but either all ranks clip or none.
  for (gsel_axis axis : {program_.mesh.sharing_axis(), GSEL_AXIS_DATA})
    if (!norm_sums_over(program_, axis)) groups_[axis]->post(spot(), 0);
}

void Walker::overflow(const gsel_instr& instr) {
  if (overflow_checked_[instr.axis]) refuse("overflow is already looked for");
  need_complete_gradients("the look for overflow");
  overflow_checked_[instr.axis] = true;
}

void Walker::step(const gsel_instr& instr) {
  const ProgramBucket& shape = program_.buckets[instr.bucket];
  BucketFacts& bucket = buckets_[instr.bucket];
  if (!steps_here(program_, instr.bucket))
    refuse(fmt::format("coordinate {} owns the bucket and steps it", shape.owner));
  if (bucket.stepped) refuse("the bucket is already stepped");
  need_loss_reduced();
  if (const gsel_axis missing = missing_overflow_axis(); missing >= 0)
    refuse(fmt::format("overflow is not looked for on the {} axis", axis_name(missing)));
  if (const std::string why = lacks(instr.bucket); !why.empty()) refuse(why);
  need_all_contributions(instr.bucket);
  bucket.stepped = bucket.closed = any_stepped_ = true;
  const bool is_open = bucket.params == Holding::ready;
  if (is_open) bucket.params = shape.shards_state() ? Holding::stale : Holding::stepped;
  // An optimizer that needs norms of parameters sums them over the owners of shards.
  if (shape.shards_state()) groups_[shape.axis]->post(spot(), 0);
}

void Walker::check_bucket_end(int32_t b) const {
  const ProgramBucket& shape = program_.buckets[b];
  const BucketFacts& bucket = buckets_[b];
  if (bucket.under_way) refuse_end(fmt::format("the last collective of bucket {} is never waited for", b));
  if (shape.shards_param() && bucket.params != Holding::absent && bucket.params != Holding::released)
    refuse_end(fmt::format("the gathered parameters of bucket {} are never released", b));
  if (purpose_ == Purpose::evaluation) return;
  if (!bucket.stepped && steps_here(program_, b)) refuse_end(fmt::format("bucket {} is never stepped", b));
  if (bucket.params == Holding::stale)
    refuse_end(
        fmt::format("the parameters of bucket {} are stale since its step; an allgather after it is missing", b));
  if (const std::string why = lacks(b); !why.empty()) refuse_end(why);
}

void Walker::post_validate() {
  if (validated_) refuse("the step before is already validated");
  validated_ = true;
}

// Pipeline ranks exchange optimistic numbers asynchronously while they go on.
bool Walker::is_nonblocking(const gsel_instr& instr, const RankGroup& group) const {
  return is_optimistic(instr) && &group == groups_[GSEL_AXIS_PIPELINE];
}

}  // namespace gsel
