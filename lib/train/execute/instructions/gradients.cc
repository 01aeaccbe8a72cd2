// train/execute/instructions/gradients.cc: ALLREDUCE, REDUCE and REDUCE_SCATTER: a bucket's whole gradient.
#include "train/execute/instructions.h"

namespace gsel::execute {

void allreduce_gradients(State& s, const gsel_instr& instr) {
  zero_missing_gradients(s, instr.bucket);
  if (s.axis_size(instr.axis) == 1) return;
  float* data = s.params.whole_gradient(instr.bucket);
  const auto elems = static_cast<uint64_t>(s.params.layout(instr.bucket).elems);
  BucketState& bucket = s.buckets[instr.bucket];
  if (!bucket.compressor) {
    post(s, instr, make_collective(GSEL_COLLECTIVE_ALLREDUCE, data, data, elems, GSEL_F32, GSEL_SUM));
    return;
  }
  begin_async(s, instr, GSEL_COLLECTIVE_ALLREDUCE);
  bucket.compressor->begin(s.axis_comm(instr.axis), data, s.step, s.loss_scale.value(), s.comm_stream->get());
  end_async(s, instr);
}

void reduce_gradients(State& s, const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  open_gradient_window(s, b);
  zero_missing_gradients(s, b);
  if (s.axis_size(instr.axis) == 1) return finish_collective(s, b, instr.kind);
  float* data = s.params.whole_gradient(b);
  const auto elems = static_cast<uint64_t>(s.params.layout(b).elems);
  post(s, instr, make_collective(GSEL_COLLECTIVE_REDUCE, data, data, elems, GSEL_F32, GSEL_SUM, instr.peer));
}

// Into the own part of the whole gradient where that is kept, else into the shard.
void reduce_scatter_gradients(State& s, const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  BucketState& bucket = s.buckets[b];
  const BucketLayout& layout = s.params.layout(b);
  open_gradient_window(s, b);
  zero_missing_gradients(s, b);
  const float* whole = s.params.whole_gradient(b);
  float* result = s.params.own_gradient(b);
  // Where the shard already holds the sum of earlier micro-batches the plan has memory for this one's.
  if (void* apart = s.at(s.plan().reduced(s.run->position, b))) result = bucket.reduced = static_cast<float*>(apart);
  if (s.axis_size(instr.axis) == 1) {
    const float* own = whole + layout.own.begin;
    if (result != own)
      s.copy(result, own, sizeof(float) * static_cast<uint64_t>(layout.own_elems()), GSEL_COPY_ON_DEVICE);
    return finish_collective(s, b, instr.kind);
  }
  gsel_collective call = make_collective(GSEL_COLLECTIVE_REDUCE_SCATTER, whole, result,
                                         static_cast<uint64_t>(layout.own_elems()), GSEL_F32, GSEL_SUM);
  if (!bucket.shard_counts.empty()) {
    call.kind = GSEL_COLLECTIVE_REDUCE_SCATTERV;
    call.recv_counts = bucket.shard_counts.data();
  }
  post(s, instr, call);
}

}  // namespace gsel::execute
