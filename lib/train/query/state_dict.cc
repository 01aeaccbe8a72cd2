// train/query/state_dict.cc: see state_dict.h.
#include "train/query/state_dict.h"

#include <algorithm>

#include "base/dtype.h"
#include "device/formulas/floats.h"
#include "program/shards.h"
#include "program/stages.h"

namespace gsel {

StatePart StatePart::some(int64_t from, int64_t count) const {
  StatePart some = *this;
  some.region = region.part(from, count);
  some.first += from;
  return some;
}

StateDict::StateDict(ParamStorage& params, const DeviceContext& device, const Model& model, const Program& program,
                     const Optimizer& optimizer)
    : params_(params), device_(device), model_(model), program_(program), n_states_(optimizer.n_states()) {
  for (size_t p = 0; p < model.params().size(); ++p) {
    const Param& param = model.params()[p];
    std::vector<int32_t>& tensors = tensor_of_.emplace_back();
    for (int32_t state = -1; state < (param.trainable() ? n_states_ : 0); ++state) {
      const std::string role = state < 0 ? "param" : optimizer.state_name(state);
      tensors.push_back(static_cast<int32_t>(tensors_.size()));
      tensors_.push_back({role + ":" + param.name, static_cast<int32_t>(p), state, param.whole_dims});
    }
  }
  const std::vector<ProgramBucket> buckets = stored_buckets(program);
  for (size_t b = 0; b < buckets.size(); ++b) {
    const auto bucket = static_cast<int32_t>(b);
    if (b < program.buckets.size())
      add_bucket(bucket);
    else
      add_params(bucket, buckets[b].params, false);
  }
}

Region StateDict::local_region(int32_t p) const {
  const Param& param = model_.params()[p];
  return Region(param.whole_dims, param.shard);
}

void StateDict::add_params(int32_t bucket, const std::vector<int32_t>& params, bool is_rounded) {
  for (int32_t p : params)
    held_.push_back({tensor_of_[p].front(), local_region(p), bucket, false, params_.first_of(p), is_rounded});
}

void StateDict::add_runs(int32_t bucket, int32_t state, bool is_rounded) {
  for (const ParamRun& run : params_.runs(bucket))
    held_.push_back({tensor_of_[run.param][static_cast<size_t>(state + 1)],
                     local_region(run.param).part(run.param_first, run.count), bucket, true, run.first, is_rounded});
}

void StateDict::add_bucket(int32_t bucket) {
  const BucketLayout& layout = params_.layout(bucket);
  if (!layout.steps) return;  // another rank has all
  const bool has_master = layout.dtype != GSEL_F32;
  if (layout.whole_params) add_params(bucket, program_.buckets[bucket].params, has_master);
  if (has_master || !layout.whole_params) add_runs(bucket, -1, false);
  if (has_master && !layout.whole_params) add_runs(bucket, -1, true);
  for (int32_t state = 0; state < n_states_; ++state) add_runs(bucket, state, false);
}

bool StateDict::is_divided(const StatePart& part, gsel_axis axis) const {
  const StateTensor& tensor = tensors_[static_cast<size_t>(part.tensor)];
  if (axis == program_.mesh.sharing_axis() && !model_.params()[tensor.param].shard.is_whole()) return true;
  if (static_cast<size_t>(part.bucket) >= program_.buckets.size()) return false;  // frozen
  const ProgramBucket& bucket = program_.buckets[part.bucket];
  return bucket.axis == axis && (part.is_of_shard ? bucket.divides_state() : bucket.owner >= 0);
}

// Ranks that hold the same divide it evenly: those of the data axis and of the axis that shares layers. Tied parameters
// are the first pipeline rank's that has them.
std::vector<StatePart> StateDict::own() const {
  std::vector<StatePart> own;
  const Mesh& mesh = program_.mesh;
  for (const StatePart& part : held_) {
    const StateTensor& tensor = tensors_[static_cast<size_t>(part.tensor)];
    if (part.is_rounded ||
        holders(program_, tensor.param).front() != mesh.coordinate(program_.rank, GSEL_AXIS_PIPELINE))
      continue;
    int64_t copies = 1, index = 0;
    for (const gsel_axis axis : {gsel_axis{GSEL_AXIS_DATA}, mesh.sharing_axis()}) {
      if (is_divided(part, axis)) continue;
      copies *= mesh.size[axis];
      index = index * mesh.size[axis] + mesh.coordinate(program_.rank, axis);
    }
    const gsel_range range = shard_range(part.region.count(), copies, index);
    if (range.begin == range.end) continue;
    own.push_back(part.some(range.begin, range.end - range.begin));
  }
  return own;
}

template <class Use>
void StateDict::with_memory(const StatePart& part, bool writes, Use&& use) {
  const int32_t state = tensors_[static_cast<size_t>(part.tensor)].state;
  if (!part.is_of_shard) {
    const gsel_dtype dtype = params_.layout(part.bucket).dtype;
    use(static_cast<char*>(params_.whole_params(part.bucket)) + static_cast<uint64_t>(part.first) * dtype_bytes(dtype),
        dtype);
    return;
  }
  const BucketShard shard = params_.shard(part.bucket);
  if (part.is_rounded) {
    use(static_cast<uint16_t*>(shard.rounded) + part.first, shard.rounded_dtype);
    params_.done_with(part.bucket, writes);
    return;
  }
  use((state < 0 ? shard.values : static_cast<float*>(shard.states[static_cast<size_t>(state)])) + part.first,
      GSEL_F32);
  params_.done_with(part.bucket, writes);
}

void StateDict::read(const StatePart& part, float* dst) {
  const auto count = static_cast<size_t>(part.region.count());
  with_memory(part, false, [&](const void* memory, gsel_dtype dtype) {
    if (dtype == GSEL_F32) return device_.copy(dst, memory, count * sizeof(float), GSEL_COPY_TO_HOST);
    std::vector<uint16_t> narrow(count);
    device_.copy(narrow.data(), memory, count * sizeof(uint16_t), GSEL_COPY_TO_HOST);
    for (size_t i = 0; i < count; ++i) dst[i] = dtype == GSEL_BF16 ? BF16{narrow[i]}.widen() : F16{narrow[i]}.widen();
  });
}

int64_t StateDict::read_own(int32_t tensor, int64_t first, int64_t count, float* dst) {
  const Region wanted = Region(tensors_[static_cast<size_t>(tensor)].shape).part(first, count);
  int64_t n = 0;
  for (const StatePart& part : own()) {
    if (part.tensor != tensor) continue;
    SharedRuns runs(wanted, part.region);
    for (auto run = runs.next(); run; run = runs.next()) {
      read(part.some(run->second_local, run->count), dst + run->first_local);
      n += run->count;
    }
  }
  return n;
}

int64_t StateDict::write_whole(int32_t tensor, int64_t first, int64_t count, const float* src) {
  const Region given = Region(tensors_[static_cast<size_t>(tensor)].shape).part(first, count);
  int64_t n = 0;
  for (const StatePart& part : held_) {
    if (part.tensor != tensor) continue;
    SharedRuns runs(given, part.region);
    for (auto run = runs.next(); run; run = runs.next()) {
      write(part.some(run->second_local, run->count), src + run->first_local);
      if (!part.is_rounded) n += run->count;
    }
  }
  return n;
}

void StateDict::write(const StatePart& part, const float* src) {
  const auto count = static_cast<size_t>(part.region.count());
  with_memory(part, true, [&](void* memory, gsel_dtype dtype) {
    if (dtype == GSEL_F32) return device_.copy(memory, src, count * sizeof(float), GSEL_COPY_TO_DEVICE);
    std::vector<uint16_t> narrow(count);
    for (size_t i = 0; i < count; ++i)
      narrow[i] = dtype == GSEL_BF16 ? BF16::narrow(src[i]).bits : F16::narrow(src[i]).bits;
    device_.copy(memory, narrow.data(), count * sizeof(uint16_t), GSEL_COPY_TO_DEVICE);
  });
}

// Each element is one rank's, and zero bits on the others, so that sums of the bits are these.
void read_together(Communicator& comm, StateDict& state, int32_t tensor, int64_t first, int64_t count, float* dst) {
  constexpr int64_t kChunkElems = int64_t{1} << 22;
  std::vector<float> chunk;
  for (int64_t done = 0; done < count; done += kChunkElems) {
    const int64_t some = std::min(kChunkElems, count - done);
    chunk.assign(static_cast<size_t>(some), 0.0f);
    state.read_own(tensor, first + done, some, chunk.data());
    comm.collective_on_host(make_collective(GSEL_COLLECTIVE_ALLREDUCE, chunk.data(), chunk.data(),
                                            static_cast<uint64_t>(some), GSEL_U32, GSEL_SUM, 0));
    if (dst) std::ranges::copy(chunk, dst + done);
  }
}

}  // namespace gsel
