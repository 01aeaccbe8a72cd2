// train/execute/redistribute.h: redistributes a value on the sharing axis (program/redistribution.h) by one collective.
// Shards that are not contiguous in a tensor are packed (train/state/packing.h). Does not know programs, nor who counts
// the bytes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "comm/communicator.h"
#include "device/device.h"
#include "model/model.h"
#include "train/state/packing.h"

namespace gsel {

struct RedistributionJob {
  Redistribution redistribution = Redistribution::none;
  int32_t from = 0, to = 0;  // value ids
  int64_t n_samples = 0;
  const void* src = nullptr;
  void* dst = nullptr;  // may equal src for `none` and `allreduce`
  void* packing = nullptr;
};

class Redistributor {
 public:
  Redistributor(std::shared_ptr<DeviceContext> device, const Model& model, int32_t ranks);

  // Exchanges the shards of all ranks of the axis. A collective, once; only if there are several ranks.
  void connect(Communicator& axis);

  // call: makes the collectives on the axis.
  using Call = std::function<void(const gsel_collective&)>;
  void run(const RedistributionJob& job, const Call& call);

  // Rows of `row` elements; strides in elements.
  struct Rows {
    int64_t dst_stride, src_stride, row, count;
  };
  void copy_rows(void* dst, const void* src, const Rows& rows, gsel_dtype dtype) const;

 private:
  // A tensor divided into the ranks' shards of a value.
  struct Parts {
    int32_t value;
    std::vector<ShardRows> rows;   // by coordinate
    std::vector<uint64_t> counts;  // elements
    bool contiguous;               // each shard, so that no packing is needed
  };
  // The shards of n samples of `tensor`, whole or local. Cached.
  const Parts& parts_of(int32_t v, int32_t tensor, bool whole, int64_t n);
  // cut: packs the shards of a tensor in `room`, or returns the tensor if they are contiguous. join: the reverse.
  const void* cut(const Parts& parts, const void* tensor, void* room) const;
  void join(const Parts& parts, const void* room, void* tensor) const;

  void copy(void* dst, const void* src, uint64_t bytes) const;
  void gather(const RedistributionJob& job, const Call& call);
  void scatter(const RedistributionJob& job, const Call& call);
  void take_slice(const RedistributionJob& job) const;
  void exchange(const RedistributionJob& job, const Call& call);

  const std::shared_ptr<DeviceContext> device_;
  const Model& model_;
  const int32_t ranks_;
  std::vector<std::vector<Shard>> shards_;  // by value, then coordinate; empty for whole values
  std::map<std::tuple<int32_t, int32_t, bool, int64_t>, Parts> parts_;
};

}  // namespace gsel
