// train/state/step_copy.cc: see step_copy.h. The arrays of a bucket are consecutive in its copy.
#include "train/state/step_copy.h"

#include "base/align.h"
#include "base/types.h"

namespace gsel {
namespace {

// An array of a shard, in device or offload memory.
struct Array {
  void* data;
  uint64_t bytes;
};

// In the order of the copy. Without a shard only the sizes are set.
std::vector<Array> arrays_of(const BucketLayout& layout, bool with_gradient, const BucketShard& shard) {
  const auto elems = static_cast<uint64_t>(layout.own_elems());
  std::vector<Array> arrays{{shard.values, elems * sizeof(float)}};
  if (layout.dtype != GSEL_F32) arrays.push_back({shard.rounded, elems * dtype_bytes(layout.dtype)});
  for (int i = 0; i < kMostStates; ++i)
    if (layout.each_state_bytes[i]) arrays.push_back({shard.states[i], layout.each_state_bytes[i]});
  if (with_gradient) arrays.push_back({shard.gradient, elems * sizeof(float)});
  return arrays;
}

}  // namespace

uint64_t step_copy_bytes(const BucketLayout& layout, bool with_gradient) {
  if (!layout.steps) return 0;
  uint64_t bytes = 0;
  for (const Array& array : arrays_of(layout, with_gradient, {})) bytes += round_up(array.bytes, kTensorAlign);
  return bytes;
}

StepCopy::StepCopy(std::shared_ptr<DeviceContext> device, const std::vector<BucketLayout>& layouts,
                   const std::string& offload_folder, Ledger& ledger)
    : device_(std::move(device)) {
  for (const BucketLayout& layout : layouts) {
    Copy& entry = copies_.emplace_back();
    entry.layout = layout;
    if (layout.offload_state && !offload_) offload_.emplace(device_, offload_folder);
    if (layout.offload_state)
      entry.far = OffloadedArray(*offload_, ledger, MemoryPart::offload_state, layout.copy_bytes);
    else
      entry.near = CountedMemory(device_, ledger, MemoryPart::step_copy, layout.copy_bytes);
  }
}

void StepCopy::copy(const Copy& entry, const BucketShard& shard, char* kept, bool back) const {
  for (const Array& array : arrays_of(entry.layout, entry.layout.copies_gradient, shard)) {
    void *to = back ? array.data : kept, *from = back ? kept : array.data;
    if (array.bytes) device_->copy(to, from, array.bytes, GSEL_COPY_ON_DEVICE);
    kept += round_up(array.bytes, kTensorAlign);
  }
}

void StepCopy::keep(int32_t bucket, const BucketShard& shard) {
  Copy& entry = copies_[bucket];
  void* memory = entry.near.data() ? entry.near.data() : entry.far.begin_use();
  copy(entry, shard, static_cast<char*>(memory), false);
  entry.far.end_use(true);
  entry.kept = true;
}

void StepCopy::put_back(int32_t bucket, const BucketShard& shard) {
  Copy& entry = copies_[bucket];
  void* memory = entry.near.data() ? entry.near.data() : entry.far.begin_use();
  copy(entry, shard, static_cast<char*>(memory), true);
  entry.far.end_use(false);
  entry.kept = false;
}

void StepCopy::drop() {
  for (Copy& entry : copies_) entry.kept = false;
}

}  // namespace gsel
