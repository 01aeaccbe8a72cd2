// train/state/step_copy.h: a copy of what a rank steps, as it was before an optimistic step: values, the 16-bit
// parameters, and the optimizer's state, bit for bit; and gradients if the optimizer may overwrite them. The copy lies
// in the same kind of memory as the optimizer's state. Does not know why a step is undone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/memory/offload.h"
#include "train/state/layout.h"

namespace gsel {

class StepCopy {
 public:
  // Memory for a copy of each bucket that is stepped here. The ledger must live longer. GSEL_ERR_NOMEM, those of
  // OffloadMemory.
  StepCopy(std::shared_ptr<DeviceContext> device, const std::vector<BucketLayout>& layouts,
           const std::string& offload_folder, Ledger& ledger);
  StepCopy(const StepCopy&) = delete;
  StepCopy& operator=(const StepCopy&) = delete;

  // Before a bucket is stepped.
  void keep(int32_t bucket, const BucketShard& shard);
  // Whether there is a copy of this bucket that was not put back or dropped; puts it back.
  bool keeps(int32_t bucket) const { return copies_[bucket].kept; }
  void put_back(int32_t bucket, const BucketShard& shard);
  void drop();

  uint64_t offload_bytes_in() const { return offload_ ? offload_->bytes_in : 0; }
  uint64_t offload_bytes_out() const { return offload_ ? offload_->bytes_out : 0; }

 private:
  struct Copy {
    CountedMemory near;
    OffloadedArray far;
    BucketLayout layout;
    bool kept = false;
  };
  void copy(const Copy& entry, const BucketShard& shard, char* kept, bool back) const;

  std::shared_ptr<DeviceContext> device_;
  std::optional<OffloadMemory> offload_;  // before what lies in it
  std::vector<Copy> copies_;              // by bucket
};

// Bytes of the copy of a bucket that is laid out so; 0 where it is not stepped.
uint64_t step_copy_bytes(const BucketLayout& layout, bool with_gradient);

}  // namespace gsel
