// train/query/whole_tensor.h: brings a tensor of one pipeline rank, sharded or replicated on the sharing axis, whole to
// host memory of all ranks of the replica. Does not know whether it is a value or a parameter.
#pragma once

#include <vector>

#include "train/execute/executor.h"

namespace gsel {

class WholeTensor {
 public:
  // dims: of the whole tensor. own: this rank's shard. root: the pipeline rank that has it. A collective of the sharing
  // axis if the tensor is sharded.
  WholeTensor(Executor& executor, std::vector<int64_t> dims, const Shard& own, gsel_dtype dtype, int32_t root);

  uint64_t bytes() const { return bytes_of(elems_); }
  // Bytes of scratch device memory that gather() needs; 0 if this rank has the whole tensor and no other rank needs it.
  uint64_t room_bytes() const;
  // A collective of the replica. local: this rank's shard, on the root. dst: [bytes()] of host memory.
  void gather(void* local, void* room, void* dst) const;

 private:
  uint64_t bytes_of(uint64_t elems) const;
  bool is_sharded() const { return shards_.size() > 1; }
  bool is_root() const;
  void gather_shards(const void* local, void* room) const;
  void unpack(const void* gathered, void* dst) const;

  Executor& executor_;
  const std::vector<int64_t> dims_;
  const gsel_dtype dtype_;
  const int32_t root_;
  uint64_t elems_ = 1;
  std::vector<Shard> shards_;     // by coordinate on the sharing axis; one if not sharded
  std::vector<uint64_t> counts_;  // elements of each shard, consecutive in the room
};

}  // namespace gsel
