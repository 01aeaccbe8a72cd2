// train/execute/instructions/step.cc: STEP: runs the optimizer on this rank's shard of a bucket.
#include <algorithm>

#include "base/os.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

// Sums two numbers per parameter of a bucket over the sharing axis; parameters that are whole on each rank count once.
void sum_over_parts(State& s, const ProgramBucket& bucket, std::span<double> numbers) {
  auto is_whole = [&](int32_t p) { return s.model.params()[p].shard.is_whole(); };
  if (std::ranges::all_of(bucket.params, is_whole)) return;
  for (size_t i = 0; i < bucket.params.size(); ++i)
    if (s.axis_coordinate(s.sharing_axis()) > 0 && is_whole(bucket.params[i])) numbers[2 * i] = numbers[2 * i + 1] = 0;
  allreduce_numbers(s, GSEL_INSTR_STEP, s.sharing_axis(), numbers, GSEL_SUM);
}

}  // namespace

void step_optimizer(State& s, const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  if (s.run->overflowed || !s.params.layout(b).steps) return;
  const double began = os::now_seconds();
  if (s.params.whole_gradient(b)) zero_missing_gradients(s, b);
  const StepScale scale{s.updates, 1 / (s.run->weight * s.loss_scale.value()), s.run->clip};
  const ProgramBucket& bucket = s.program().buckets[b];
  const Optimizer::SumOverOwners sum_over_owners = [&s, &bucket](std::span<double> numbers) {
    if (bucket.shards_state()) allreduce_numbers(s, GSEL_INSTR_STEP, bucket.axis, numbers, GSEL_SUM);
    sum_over_parts(s, bucket, numbers);
  };
  const BucketShard shard = s.params.shard(b);
  if (s.validation.is_open) s.step_copy->keep(b, shard);
  try {
    s.optimizer.step(*s.device, shard, scale, bucket.params, sum_over_owners);
  } catch (const Error& cause) {
    s.params.done_with(b, true);
    if (cause.code() != GSEL_ERR_CALLBACK) throw;
    throw Error(GSEL_ERR_CALLBACK, fmt::format("{}: {}", s.where_in_step(), cause.message())).about_rank(s.rank);
  }
  s.params.done_with(b, true);
  s.run->record.report.optimizer_s += os::now_seconds() - began;
}

}  // namespace gsel::execute
