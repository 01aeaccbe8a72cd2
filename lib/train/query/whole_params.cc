// train/query/whole_params.cc: see whole_params.h.
#include "train/query/whole_params.h"

#include <algorithm>

#include "base/align.h"
#include "base/types.h"
#include "program/shards.h"
#include "program/stages.h"
#include "train/query/whole_tensor.h"

namespace gsel {
namespace {

bool is_divided(const Program& program, const ProgramBucket& bucket) {
  return bucket.axis >= 0 && program.mesh.size[bucket.axis] > 1;
}

}  // namespace

WholeParams::WholeParams(Executor& executor, const Model& model, const Program& program)
    : executor_(executor), params_(executor.params()), model_(model), program_(program) {}

WholeParams::~WholeParams() {
  close();
}

// Exact values of 16-bit parameters are their master copies, which are sharded like the optimizer's state.
bool WholeParams::kept_everywhere(const Program& program) {
  return program.mesh.size[GSEL_AXIS_PIPELINE] == 1 && program.mesh.sharing_size() == 1 &&
         std::ranges::none_of(program.buckets, [&](const ProgramBucket& bucket) {
           const bool has_master = program.params[bucket.params.front()].dtype != GSEL_F32;
           return is_divided(program, bucket) &&
                  (bucket.shards_param() || bucket.owner >= 0 || (bucket.shards_state() && has_master));
         });
}

// Frozen parameters are in buckets after the program's; all ranks of their pipeline coordinate keep them whole.
bool WholeParams::is_kept(int32_t b) const {
  if (static_cast<size_t>(b) >= program_.buckets.size()) return true;
  const ProgramBucket& bucket = program_.buckets[b];
  return !bucket.shards_param() && (bucket.owner < 0 || !is_divided(program_, bucket));
}

void* WholeParams::take(uint64_t bytes) {
  const uint64_t size = round_up(bytes, kTensorAlign);
  CountedMemory& arena = executor_.arena();
  if (taken_ + size <= arena.bytes()) {
    void* memory = arena.at(taken_);
    taken_ += size;
    return memory;
  }
  beside_.emplace_back(executor_.device(), executor_.ledger(), MemoryPart::staging, size);
  return beside_.back().data();
}

void WholeParams::close() {
  for (int32_t b : open_) params_.close_params(b);
  open_.clear();
  beside_.clear();
  taken_ = 0;
}

// In place: each rank's shard, or the owner's bucket, is already at its position.
void WholeParams::gather(int32_t b, void* whole, gsel_dtype dtype) {
  const ProgramBucket& bucket = program_.buckets[b];
  if (!is_divided(program_, bucket)) return;
  Communicator& comm = executor_.axis_comm(bucket.axis);
  const std::vector<int64_t> bounds = shard_bounds(program_, b);
  if (bucket.owner >= 0) {
    comm.collective(make_collective(GSEL_COLLECTIVE_BROADCAST, whole, whole, static_cast<uint64_t>(bounds.back()),
                                    dtype, 0, bucket.owner),
                    executor_.device()->compute());
    return;
  }
  std::vector<uint64_t> counts;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) counts.push_back(static_cast<uint64_t>(bounds[i + 1] - bounds[i]));
  const char* own =
      static_cast<char*>(whole) + static_cast<uint64_t>(own_shard(program_, b).begin) * dtype_bytes(dtype);
  gsel_collective call = make_collective(GSEL_COLLECTIVE_ALLGATHERV, own, whole, 0, dtype);
  call.recv_counts = counts.data();
  comm.collective(call, executor_.device()->compute());
}

void WholeParams::make_whole(int32_t b) {
  if (is_kept(b) || std::ranges::find(open_, b) != open_.end()) return;
  const BucketLayout& layout = params_.layout(b);
  if (!layout.whole_params) {
    params_.open_params(b, take(layout.param_window_bytes));
    params_.place_shard(b, executor_.device()->compute());
  }
  open_.push_back(b);
  gather(b, params_.whole_params(b), layout.dtype);
}

// The whole bucket in f32, from each rank's shard or from its owner. own: nullptr if another rank owns it.
float* WholeParams::gather_own(int32_t b, const float* own) {
  const BucketLayout& layout = params_.layout(b);
  const ProgramBucket& bucket = program_.buckets[b];
  auto* whole = static_cast<float*>(take(sizeof(float) * static_cast<uint64_t>(layout.padded)));
  if (own)
    executor_.device()->copy(whole + layout.own.begin, static_cast<const void*>(own),
                             sizeof(float) * static_cast<uint64_t>(layout.own_elems()), GSEL_COPY_ON_DEVICE);
  if (bucket.divides_state()) gather(b, whole, GSEL_F32);
  return whole;
}

float* WholeParams::gather_master(int32_t b) {
  if (!params_.layout(b).steps) return gather_own(b, nullptr);
  float* whole = gather_own(b, params_.shard(b).values);
  params_.done_with(b, false);
  return whole;
}

// This coordinate's shard of the parameter (pipeline and sharing axis) as f32 in device memory.
float* WholeParams::exact(int32_t p) {
  const int32_t b = params_.bucket_of(p);
  const gsel_dtype dtype = params_.layout(b).dtype;
  if (dtype == GSEL_F32) {
    make_whole(b);
    return static_cast<float*>(params_.param(p));
  }
  const Param& param = model_.params()[p];
  if (param.trainable()) return gather_master(b) + params_.first_of(p);
  const auto elems = static_cast<uint64_t>(param.n_elems);
  void* cast = take(sizeof(float) * elems);
  executor_.device()->enqueue(&gsel_device_v1::cast, cast, gsel_dtype{GSEL_F32},
                              static_cast<const void*>(params_.param(p)), dtype, elems);
  return static_cast<float*>(cast);
}

// The first of the pipeline ranks that hold the parameter sends it to the others.
void WholeParams::read(int32_t p, float* dst) {
  close();
  const Param& param = model_.params()[p];
  const int32_t root = holders(program_, p).front();
  const WholeTensor whole(executor_, param.whole_dims, param.shard, GSEL_F32, root);
  float* local = executor_.axis_coordinate(GSEL_AXIS_PIPELINE) == root ? exact(p) : nullptr;
  whole.gather(local, take(whole.room_bytes()), dst);
  close();
}

// The gradient of a bucket that this rank steps is kept between steps.
void WholeParams::read_gradient(int32_t p, float* dst) {
  close();
  const Param& param = model_.params()[p];
  const int32_t root = holders(program_, p).front();
  const WholeTensor whole(executor_, param.whole_dims, param.shard, GSEL_F32, root);
  float* local = nullptr;
  if (executor_.axis_coordinate(GSEL_AXIS_PIPELINE) == root) {
    const int32_t b = params_.bucket_of(p);
    local = gather_own(b, params_.layout(b).steps ? params_.own_gradient(b) : nullptr) + params_.first_of(p);
  }
  whole.gather(local, take(whole.room_bytes()), dst);
  close();
}

}  // namespace gsel
