// train/state/step_copy.h: a bitwise copy of what an optimistic step changes on a rank: values, 16-bit parameters, and
// optimizer state; and gradients if the optimizer may overwrite them. The copy is in the same kind of memory as the
// optimizer state. Does not know why a step is undone.
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
  // Allocates a copy for each bucket stepped here. The ledger must outlive it. GSEL_ERR_NOMEM, errors of OffloadMemory.
  StepCopy(std::shared_ptr<DeviceContext> device, const std::vector<BucketLayout>& layouts,
           const std::string& offload_folder, Ledger& ledger);
  StepCopy(const StepCopy&) = delete;
  StepCopy& operator=(const StepCopy&) = delete;

  // Copies a bucket before it is stepped.
  void keep(int32_t bucket, const BucketShard& shard);
  // Whether a copy is kept; put_back restores it.
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
  std::optional<OffloadMemory> offload_;  // before its arrays in copies_
  std::vector<Copy> copies_;              // by bucket
};

// Bytes of a bucket's copy; 0 if the bucket is not stepped.
uint64_t step_copy_bytes(const BucketLayout& layout, bool with_gradient);

}  // namespace gsel
