// train/execute/redistribute.h: redistributes a value on the sharing axis (program/redistribution.h) by one collective.
// The call, and how shards that are not contiguous in a tensor are packed (train/state/packing.h), are resolved once
// for each program. Does not know programs, nor who counts the bytes.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"
#include "model/model.h"
#include "train/state/packing.h"

namespace gsel {

// A redistribution of some samples of a value: all but the memory. The call refers to the counts.
struct ResolvedRedistribution {
  ResolvedRedistribution() = default;
  ResolvedRedistribution(ResolvedRedistribution&&) = default;
  ResolvedRedistribution& operator=(ResolvedRedistribution&&) = default;

  Redistribution redistribution = Redistribution::none;
  gsel_dtype dtype = GSEL_F32;
  uint64_t bytes = 0;  // of the source
  ShardRows slice;     // of the source, for Redistribution::slice
  gsel_collective call{};
  std::vector<uint64_t> send_counts, recv_counts;
  // By coordinate: the shards of the source, which are packed before the call, and those of the result, which are
  // unpacked after it. Empty: they are contiguous.
  std::vector<ShardRows> packed, unpacked;
  uint64_t received_at = 0;  // offset of the received shards in the packing memory
};

class Redistributor {
 public:
  Redistributor(std::shared_ptr<DeviceContext> device, const Model& model, int32_t ranks);

  // Exchanges the shards of all ranks of the axis. A collective, once; only if there are several ranks.
  void connect(Communicator& axis);
  // For n samples of value `from`, which becomes value `to`. After connect.
  ResolvedRedistribution resolve(Redistribution redistribution, int32_t from, int32_t to, int64_t n) const;

  struct Buffers {
    const void* src;
    void* dst;  // may equal src for `none` and `allreduce`
    void* packing;
  };
  // call: makes the collective on the axis.
  using Call = std::function<void(const gsel_collective&)>;
  void run(const ResolvedRedistribution& how, const Buffers& buffers, const Call& call) const;

 private:
  struct Shards {
    std::vector<ShardRows> rows;   // by coordinate; empty: contiguous
    std::vector<uint64_t> counts;  // elements
  };
  // A tensor of these dimensions, divided into the ranks' shards of value v.
  Shards divide(const std::vector<int64_t>& dims, int32_t v) const;

  void copy(void* dst, const void* src, uint64_t bytes) const;
  void copy_rows(void* dst, int64_t dst_stride, const void* src, int64_t src_stride, const ShardRows& rows,
                 gsel_dtype dtype) const;
  // Copies shards from a tensor to packing memory, one after the other, or back.
  void pack(const std::vector<ShardRows>& shards, const void* tensor, void* packed, gsel_dtype dtype) const;
  void unpack(const std::vector<ShardRows>& shards, const void* packed, void* tensor, gsel_dtype dtype) const;

  const std::shared_ptr<DeviceContext> device_;
  const Model& model_;
  const int32_t ranks_;
  std::vector<std::vector<Shard>> shards_;  // by value, then coordinate; empty for whole values
};

}  // namespace gsel
