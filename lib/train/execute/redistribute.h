// train/execute/redistribute.h: redistributes a value on the sharing axis (program/redistribution.h) by one collective.
// If the parts of a tensor are not contiguous in it, rows are packed part after part (train/state/packing.h). Does not
// know programs, and what counts the bytes.
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
  int32_t from = 0, to = 0;  // values
  int64_t n_samples = 0;
  const void* src = nullptr;
  void* dst = nullptr;  // may be src for `none` and `allreduce`
  void* packing = nullptr;
};

class Redistributor {
 public:
  Redistributor(std::shared_ptr<DeviceContext> device, const Model& model, int32_t ranks);

  // Learns what parts the other ranks of the axis have. A collective, once; only where there are several ranks.
  void connect(Communicator& axis);

  // The calls of the axis that it takes are made by `call`.
  using Call = std::function<void(const gsel_collective&)>;
  void run(const RedistributionJob& job, const Call& call);

  // Rows of as many elements, at distances in elements.
  struct Rows {
    int64_t dst_stride, src_stride, row, count;
  };
  void copy_rows(void* dst, const void* src, const Rows& rows, gsel_dtype dtype) const;

 private:
  // What ranks have of a tensor, as they have parts of a value along one of its dimensions.
  struct Parts {
    int32_t value;
    std::vector<ShardRows> rows;   // by coordinate
    std::vector<uint64_t> counts;  // elements
    bool contiguous;               // one after the other in it
  };
  // The parts of n samples of `tensor`, whole or as it is here. Computed once.
  const Parts& parts_of(int32_t v, int32_t tensor, bool whole, int64_t n);
  // A tensor as its parts one after the other, in `room` where they are not contiguous; and back.
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
  std::vector<std::vector<Shard>> shards_;  // by value, then coordinate; none of one that is whole
  std::map<std::tuple<int32_t, int32_t, bool, int64_t>, Parts> parts_;
};

}  // namespace gsel
