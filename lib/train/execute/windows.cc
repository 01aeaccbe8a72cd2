// train/execute/windows.cc: memory of the arena that a bucket's whole parameters or whole gradients stand in while they
// are needed. On an axis of one rank nothing is sent, but windows open, fill and close all the same.
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

void forget_contributions(State& s, int32_t bucket) {
  for (int32_t p : s.program().buckets[bucket].params) s.run->weight_begun[p] = false;
}

}  // namespace

// ---- parameters -------------------------------------------------------------------------------------------------

void open_param_window(State& s, int32_t bucket) {
  if (s.params.whole_params(bucket)) return;
  const uint64_t offset = s.plan().param_window(s.run->position, bucket);
  if (offset == ArenaPlan::kNone)
    fail(GSEL_ERR_INTERNAL, "the parameters of bucket {} have no memory at step instruction {}", bucket,
         s.run->position);
  s.params.open_params(bucket, s.at(offset));
}

void close_param_window(State& s, int32_t bucket) {
  const BucketLayout& layout = s.params.layout(bucket);
  if (layout.whole_params) return;
  if (s.lender.moves() && s.params.whole_params(bucket))
    s.lender.poison(s.params.whole_params(bucket), layout.param_window_bytes);
  s.params.close_params(bucket);
}

// ---- gradients --------------------------------------------------------------------------------------------------

void open_gradient_window(State& s, int32_t bucket) {
  if (s.params.whole_gradient(bucket)) return;
  const uint64_t offset = s.plan().gradient_window(s.run->position, bucket);
  if (offset == ArenaPlan::kNone)
    fail(GSEL_ERR_INTERNAL, "the gradient of bucket {} has no memory at step instruction {}", bucket, s.run->position);
  s.params.open_gradient(bucket, s.at(offset));
  forget_contributions(s, bucket);
}

void close_gradient_window(State& s, int32_t b) {
  const BucketLayout& layout = s.params.layout(b);
  if (layout.whole_gradient) return;
  if (s.lender.moves()) s.lender.poison(s.params.whole_gradient(b), layout.gradient_window_bytes);
  s.params.close_gradient(b);
  forget_contributions(s, b);
}

void zero_gradient(State& s, int32_t p) {
  s.device->run(&gsel_device_v1::zero, static_cast<void*>(s.params.gradient(p)),
                sizeof(float) * static_cast<uint64_t>(s.model.params()[p].n_elems), static_cast<gsel_stream*>(nullptr));
  s.run->weight_begun[p] = true;
}

// A parameter that no sample of this rank reached has gradient zero.
void zero_missing_gradients(State& s, int32_t bucket) {
  for (int32_t p : s.program().buckets[bucket].params)
    if (!s.run->weight_begun[p]) zero_gradient(s, p);
}

}  // namespace gsel::execute
