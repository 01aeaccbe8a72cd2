// train/query/whole_tensor.cc: see whole_tensor.h. Shards are gathered one after the other, and put in order on the way
// to the host, so that nothing is copied twice.
#include "train/query/whole_tensor.h"

#include "base/types.h"
#include "train/query/whole_params.h"

namespace gsel {
namespace {

// The shard of each rank of the axis.
std::vector<Shard> shards_along(Communicator& comm, const Shard& own) {
  const std::array<int64_t, 2> mine{own.begin, own.end};
  std::vector<int64_t> bounds(2 * static_cast<size_t>(comm.world_size()));
  comm.collective_on_host(
      make_collective(GSEL_COLLECTIVE_ALLGATHER, mine.data(), bounds.data(), mine.size(), GSEL_I64));
  std::vector<Shard> shards;
  for (size_t i = 0; i < bounds.size(); i += 2)
    shards.push_back({own.dim, own.blocks, bounds[i], bounds[i + 1], own.whole});
  return shards;
}

uint64_t product(const std::vector<int64_t>& dims) {
  uint64_t n = 1;
  for (int64_t d : dims) n *= static_cast<uint64_t>(d);
  return n;
}

}  // namespace

WholeTensor::WholeTensor(Executor& executor, std::vector<int64_t> dims, const Shard& own, gsel_dtype dtype,
                         int32_t root)
    : executor_(executor), dims_(std::move(dims)), dtype_(dtype), root_(root), elems_(product(dims_)) {
  const bool sharded = !own.is_whole() && executor.axis_size(executor.sharing_axis()) > 1;
  shards_ = sharded ? shards_along(executor.axis_comm(executor.sharing_axis()), own) : std::vector<Shard>{own};
  for (const Shard& shard : shards_) counts_.push_back(product(local_dims(dims_, shard)));
}

uint64_t WholeTensor::bytes_of(uint64_t elems) const {
  return elems * dtype_bytes(dtype_);
}

bool WholeTensor::is_root() const {
  return executor_.axis_coordinate(GSEL_AXIS_PIPELINE) == root_;
}

uint64_t WholeTensor::room_bytes() const {
  return is_sharded() || !is_root() ? bytes() : 0;
}

void WholeTensor::gather(void* local, void* room, void* dst) const {
  void* data = is_sharded() || !is_root() ? room : local;
  if (is_root() && is_sharded()) gather_shards(local, room);
  if (executor_.axis_size(GSEL_AXIS_PIPELINE) > 1)
    executor_.axis_comm(GSEL_AXIS_PIPELINE)
        .collective(make_collective(GSEL_COLLECTIVE_BROADCAST, data, data, elems_, dtype_, 0, root_),
                    executor_.device()->compute());
  unpack(data, dst);
}

void WholeTensor::gather_shards(const void* local, void* room) const {
  gsel_collective call = make_collective(GSEL_COLLECTIVE_ALLGATHERV, local, room, 0, dtype_);
  call.recv_counts = counts_.data();
  executor_.axis_comm(executor_.sharing_axis()).collective(call, executor_.device()->compute());
}

// Row by row of each shard; all at once where the shards in order are the whole. The gather has ended before: a driver
// may wait inside a copy to memory that is not page-locked.
void WholeTensor::unpack(const void* gathered, void* dst) const {
  executor_.wait_for_device(!WholeParams::kept_everywhere(executor_.training_program()));
  auto copy = [&](uint64_t to, uint64_t from, uint64_t elems) {
    executor_.device()->enqueue(&gsel_device_v1::copy, static_cast<void*>(static_cast<char*>(dst) + bytes_of(to)),
                                static_cast<const void*>(static_cast<const char*>(gathered) + bytes_of(from)),
                                bytes_of(elems), int32_t{GSEL_COPY_TO_HOST});
  };
  uint64_t from = 0;
  if (!is_sharded() || rows_of(dims_, shards_.front()).count == 1) {
    copy(0, 0, elems_);
  } else {
    for (const Shard& shard : shards_) {
      const ShardRows rows = rows_of(dims_, shard);
      for (int64_t row = 0; row < rows.count; ++row) {
        copy(static_cast<uint64_t>(rows.first + row * rows.stride), from, static_cast<uint64_t>(rows.length));
        from += static_cast<uint64_t>(rows.length);
      }
    }
  }
  executor_.device()->wait();
}

}  // namespace gsel
