// program/verify/walker_buckets.cc: rules of bucket collectives: when parameters can be read, and that every
// contribution to a gradient is reduced exactly once, while nothing writes it.
#include "base/axis.h"
#include "program/shards.h"
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
  const InstrForm& form = known_form_of(instr.kind);
  if (form.work == InstrWork::gradients) {
    begin_reduction(instr);
  } else {
    form.peer ? check_broadcast(instr) : check_gather(instr);
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
  if (bucket.looked_at) refuse("norm or overflow has looked at the bucket's gradients before");
  const InstrForm& wanted = reduction_for(shape.layout());
  if (instr.kind != wanted.kind)
    refuse(fmt::format("as the bucket is kept its gradients are reduced by {}", wanted.word));
  if (shape.owner >= 0 && instr.peer != shape.owner) refuse(fmt::format("coordinate {} owns the bucket", shape.owner));
  // A sum over one axis may be followed by one over another; what is divided over an axis is not.
  bool& reduced = shape.divides_state() ? bucket.reduced : bucket.summed[instr.axis];
  if (shape.shards_gradient()) {
    if (!bucket.uncovered && (contributed_[instr.bucket] || bucket.reduced))
      refuse("no backward has written the bucket's gradients since its last reduction");
  } else {
    if (reduced) refuse("the bucket's gradients are already reduced on this axis");
    need_all_contributions(instr.bucket);
    bucket.closed = true;
  }
  bucket.uncovered = 0;
  reduced = true;
}

bool Walker::wait(const gsel_instr& instr) {
  BucketFacts& bucket = buckets_[instr.bucket];
  if (!groups_[bucket.axis]->complete(bucket.index)) return false;
  if (work_of(bucket.under_way) == InstrWork::params) bucket.params = Holding::ready;
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

}  // namespace gsel
