// train/query/state_dict.cc: see state_dict.h.
#include "train/query/state_dict.h"

#include <algorithm>
#include <utility>

#include "base/types.h"
#include "device/formulas/floats.h"
#include "program/shards.h"
#include "program/stages.h"

namespace gsel {

StatePiece StatePiece::some(int64_t from, int64_t count) const {
  StatePiece some = *this;
  some.region = region.part(from, count);
  some.first += from;
  return some;
}

StateDict::StateDict(ParamStorage& params, const DeviceContext& device, const Model& model, const Program& program,
                     const Optimizer& optimizer, std::vector<LowRankState> low_rank)
    : params_(params),
      device_(device),
      model_(model),
      program_(program),
      n_states_(optimizer.n_states()),
      has_bytes_(optimizer.has_8bit_states()),
      low_rank_(std::move(low_rank)) {
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
  add_low_rank();
}

// Each rank of the data axis has all of a parameter, since low-rank reductions sum whole gradients.
void StateDict::add_low_rank() {
  const int64_t ranks = program_.mesh.size[GSEL_AXIS_DATA],
                rank = program_.mesh.coordinate(program_.rank, GSEL_AXIS_DATA);
  for (size_t m = 0; m < low_rank_.size(); ++m) {
    const LowRankState& of = low_rank_[m];
    const Param& param = model_.params()[static_cast<size_t>(of.param)];
    const auto add = [&](const char* role, int32_t state, std::vector<int64_t> shape, Region region) {
      held_.push_back(
          {static_cast<int32_t>(tensors_.size()), std::move(region), 0, false, 0, false, static_cast<int32_t>(m)});
      tensors_.push_back({std::string(role) + ":" + param.name, of.param, state, std::move(shape)});
    };
    std::vector<int64_t> shape = param.whole_dims;
    shape.insert(shape.begin(), ranks);
    std::vector<Region::Intervals> own(shape.size());
    own.front() = {{rank, rank + 1}};
    add("low_rank_error", StateTensor::kLowRankError, shape, Region(shape, own, std::nullopt));
    shape = {of.cols, of.columns};
    add("low_rank_factor", StateTensor::kLowRankFactor, shape, Region(shape));
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

bool StateDict::is_divided(const StatePiece& piece, gsel_axis axis) const {
  const StateTensor& tensor = tensors_[static_cast<size_t>(piece.tensor)];
  if (piece.matrix >= 0) return axis == GSEL_AXIS_DATA && tensor.state == StateTensor::kLowRankError;
  if (axis == program_.mesh.sharing_axis() && !model_.params()[tensor.param].shard.is_whole()) return true;
  if (static_cast<size_t>(piece.bucket) >= program_.buckets.size()) return false;  // frozen
  const ProgramBucket& bucket = program_.buckets[piece.bucket];
  return bucket.axis == axis && (piece.is_of_shard ? bucket.divides_state() : bucket.owner >= 0);
}

// Ranks that hold the same divide it evenly: those of the data axis and of the axis that shares layers. Tied parameters
// are the first pipeline rank's that has them.
std::vector<StatePiece> StateDict::own() const {
  std::vector<StatePiece> own;
  const Mesh& mesh = program_.mesh;
  for (const StatePiece& piece : held_) {
    const StateTensor& tensor = tensors_[static_cast<size_t>(piece.tensor)];
    if (piece.is_rounded ||
        holders(program_, tensor.param).front() != mesh.coordinate(program_.rank, GSEL_AXIS_PIPELINE))
      continue;
    int64_t copies = 1, index = 0;
    for (const gsel_axis axis : {gsel_axis{GSEL_AXIS_DATA}, mesh.sharing_axis()}) {
      if (is_divided(piece, axis)) continue;
      copies *= mesh.size[axis];
      index = index * mesh.size[axis] + mesh.coordinate(program_.rank, axis);
    }
    const gsel_range range = own_range(piece, copies, index);
    if (range.begin == range.end) continue;
    own.push_back(piece.some(range.begin, range.end - range.begin));
  }
  return own;
}

// Of `copies` ranks that hold the piece. Short ones are not cut into pieces of a few elements, of which an index would
// have more than elements: some of the ranks have a piece, for each tensor others.
gsel_range StateDict::even_piece(const StatePiece& piece, int64_t copies, int64_t index) {
  constexpr int64_t kLeastElems = 1024;
  const int64_t count = piece.region.count(), pieces = std::clamp<int64_t>(count / kLeastElems, 1, copies);
  if (pieces == copies) return shard_range(count, copies, index);
  const int64_t turn = (index + piece.tensor) % copies;
  return turn < pieces ? shard_range(count, pieces, turn) : gsel_range{0, 0};
}

// Whole blocks of 8-bit states, so that a reader sees in the regions where ranks have divided a block.
gsel_range StateDict::own_range(const StatePiece& piece, int64_t copies, int64_t index) const {
  gsel_range range = even_piece(piece, copies, index);
  if (!is_in_bytes(piece)) return range;
  for (int64_t* bound : {&range.begin, &range.end})
    if (*bound > 0 && *bound < piece.region.count()) *bound = block_of(piece, *bound).begin;
  return range;
}

template <class Use>
void StateDict::with_memory(const StatePiece& piece, bool writes, Use&& use) {
  const int32_t state = tensors_[static_cast<size_t>(piece.tensor)].state;
  if (piece.matrix >= 0) {
    const LowRankState& of = low_rank_[static_cast<size_t>(piece.matrix)];
    use((state == StateTensor::kLowRankError ? of.error : of.factor) + piece.first, GSEL_F32);
    return;
  }
  if (!piece.is_of_shard) {
    const gsel_dtype dtype = params_.layout(piece.bucket).dtype;
    use(static_cast<char*>(params_.whole_params(piece.bucket)) +
            static_cast<uint64_t>(piece.first) * dtype_bytes(dtype),
        dtype);
    return;
  }
  if (open_bucket_ != piece.bucket) {
    close_bucket();
    open_ = params_.shard(piece.bucket);
    if (writes_many_) open_bucket_ = piece.bucket;
  }
  if (piece.is_rounded)
    use(static_cast<uint16_t*>(open_.rounded) + piece.first, open_.rounded_dtype);
  else
    use((state < 0 ? open_.values : static_cast<float*>(open_.states[static_cast<size_t>(state)])) + piece.first,
        GSEL_F32);
  if (!writes_many_) params_.done_with(piece.bucket, writes);
}

void StateDict::begin_writing() {
  partial_.clear();
  writes_many_ = true;
}

void StateDict::end_writing() {
  close_bucket();
  writes_many_ = false;
}

void StateDict::close_bucket() {
  if (open_bucket_ >= 0) params_.done_with(std::exchange(open_bucket_, -1), true);
}

void StateDict::read(const StatePiece& piece, float* dst) {
  if (is_in_bytes(piece)) return read_bytes(piece, dst);
  const auto count = static_cast<size_t>(piece.region.count());
  with_memory(piece, false, [&](const void* memory, gsel_dtype dtype) {
    if (dtype == GSEL_F32) return device_.copy(dst, memory, count * sizeof(float), GSEL_COPY_TO_HOST);
    std::vector<uint16_t> narrow(count);
    device_.copy(narrow.data(), memory, count * sizeof(uint16_t), GSEL_COPY_TO_HOST);
    for (size_t i = 0; i < count; ++i) dst[i] = dtype == GSEL_BF16 ? BF16{narrow[i]}.widen() : F16{narrow[i]}.widen();
  });
}

int64_t StateDict::read_own(int32_t tensor, int64_t first, int64_t count, float* dst) {
  const Region wanted = Region(tensors_[static_cast<size_t>(tensor)].shape).part(first, count);
  int64_t n = 0;
  for (const StatePiece& piece : own()) {
    if (piece.tensor != tensor) continue;
    SharedRuns runs(wanted, piece.region);
    for (auto run = runs.next(); run; run = runs.next()) {
      read(piece.some(run->second_local, run->count), dst + run->first_local);
      n += run->count;
    }
  }
  return n;
}

int64_t StateDict::write_whole(int32_t tensor, int64_t first, int64_t count, const float* src) {
  const Region given = Region(tensors_[static_cast<size_t>(tensor)].shape).part(first, count);
  int64_t n = 0;
  for (const StatePiece& piece : held_) {
    if (piece.tensor != tensor) continue;
    SharedRuns runs(given, piece.region);
    for (auto run = runs.next(); run; run = runs.next()) {
      write(piece.some(run->second_local, run->count), src + run->first_local);
      if (!piece.is_rounded) n += run->count;
    }
  }
  return n;
}

void StateDict::write(const StatePiece& piece, const float* src) {
  if (is_in_bytes(piece)) return write_bytes(piece, src);
  const auto count = static_cast<size_t>(piece.region.count());
  with_memory(piece, true, [&](void* memory, gsel_dtype dtype) {
    if (dtype == GSEL_F32) return device_.copy(memory, src, count * sizeof(float), GSEL_COPY_TO_DEVICE);
    std::vector<uint16_t> narrow(count);
    for (size_t i = 0; i < count; ++i)
      narrow[i] = dtype == GSEL_BF16 ? BF16::narrow(src[i]).bits : F16::narrow(src[i]).bits;
    device_.copy(memory, narrow.data(), count * sizeof(uint16_t), GSEL_COPY_TO_DEVICE);
  });
}

// ---- states in 8 bits -----------------------------------------------------------------------------------------------

bool StateDict::is_in_bytes(const StatePiece& piece) const {
  const int32_t state = tensors_[static_cast<size_t>(piece.tensor)].state;
  return has_bytes_ && state >= 0 && state < n_states_;
}

gsel_range StateDict::block_of(const StatePiece& piece, int64_t local) const {
  const ByteBlock block = byte_block_at(params_.runs(piece.bucket), piece.first + local);
  const int64_t begin = block.first - piece.first;
  return {std::max<int64_t>(begin, 0), std::min(begin + block.count, piece.region.count())};
}

bool StateDict::can_hold(const StatePiece& block, const float* values) const {
  uint8_t codes[kByteBlock];
  float scale = 0;
  return encode_block(tensors_[static_cast<size_t>(block.tensor)].state == 0, values, block.region.count(), codes,
                      scale);
}

template <class Use>
void StateDict::with_bytes(const StatePiece& piece, bool writes, Use&& use) {
  const BucketShard shard = params_.shard(piece.bucket);
  auto* const codes =
      static_cast<char*>(shard.states[static_cast<size_t>(tensors_[static_cast<size_t>(piece.tensor)].state)]);
  use(codes, reinterpret_cast<float*>(codes + codes_bytes(shard.count)));
  params_.done_with(piece.bucket, writes);
}

void StateDict::read_bytes(const StatePiece& piece, float* dst) {
  const int64_t count = piece.region.count(), end = piece.first + count;
  if (count == 0) return;
  const std::span<const ParamRun> runs = params_.runs(piece.bucket);
  const int64_t first_scale = byte_block_at(runs, piece.first).scale;
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  std::vector<float> scales(static_cast<size_t>(byte_block_at(runs, end - 1).scale - first_scale + 1));
  with_bytes(piece, false, [&](const char* from, const float* scales_from) {
    device_.copy(codes.data(), from + piece.first, codes.size(), GSEL_COPY_TO_HOST);
    device_.copy(scales.data(), scales_from + first_scale, scales.size() * sizeof(float), GSEL_COPY_TO_HOST);
  });
  const bool is_signed = tensors_[static_cast<size_t>(piece.tensor)].state == 0;
  for (int64_t at = piece.first; at < end;) {
    const ByteBlock block = byte_block_at(runs, at);
    const int64_t some = std::min(end, block.first + block.count) - at, local = at - piece.first;
    decode_block(is_signed, codes.data() + local, scales[static_cast<size_t>(block.scale - first_scale)], some,
                 dst + local);
    at += some;
  }
}

// Blocks of which all elements are given follow each other, and are copied to the device at once.
void StateDict::write_bytes(const StatePiece& piece, const float* src) {
  const int64_t end = piece.first + piece.region.count();
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  ByteBlock first;
  const auto store = [&](const ByteBlock& from, const uint8_t* some_codes, size_t n_codes, const float* some_scales,
                         size_t n_scales) {
    with_bytes(piece, true, [&](char* to, float* scales_to) {
      device_.copy(to + from.first, some_codes, n_codes, GSEL_COPY_TO_DEVICE);
      device_.copy(scales_to + from.scale, some_scales, n_scales * sizeof(float), GSEL_COPY_TO_DEVICE);
    });
  };
  for (int64_t at = piece.first; at < end;) {
    const ByteBlock block = byte_block_at(params_.runs(piece.bucket), at);
    const int64_t some = std::min(end, block.first + block.count) - at;
    const float* const values = src + (at - piece.first);
    at += some;
    uint8_t own[kByteBlock];
    float scale = 0;
    if (some < block.count) {
      const float* const all = collect(piece, block, at - some, some, values);
      if (!all) continue;
      encode(piece, block, all, own, scale);
      store(block, own, static_cast<size_t>(block.count), &scale, 1);
      partial_.erase({piece.bucket, tensors_[static_cast<size_t>(piece.tensor)].state, block.scale});
      continue;
    }
    if (scales.empty()) first = block;
    encode(piece, block, values, own, scale);
    codes.insert(codes.end(), own, own + block.count);
    scales.push_back(scale);
  }
  if (!scales.empty()) store(first, codes.data(), codes.size(), scales.data(), scales.size());
}

// All elements of the block, or nullptr: some are still to come.
const float* StateDict::collect(const StatePiece& piece, const ByteBlock& block, int64_t at, int64_t count,
                                const float* values) {
  PartialBlock& partial = partial_[{piece.bucket, tensors_[static_cast<size_t>(piece.tensor)].state, block.scale}];
  std::copy_n(values, count, partial.values + (at - block.first));
  partial.written += count;
  return partial.written < block.count ? nullptr : partial.values;
}

void StateDict::encode(const StatePiece& piece, const ByteBlock& block, const float* values, uint8_t* codes,
                       float& scale) const {
  const StateTensor& tensor = tensors_[static_cast<size_t>(piece.tensor)];
  if (encode_block(tensor.state == 0, values, block.count, codes, scale)) return;
  const int64_t begin = piece.region.range().begin + block.first - piece.first;
  throw Error(GSEL_ERR_MISMATCH,
              fmt::format("{}, elements {} to {}: these values have no common scale, and 8-bit states have one for "
                          "each block of {}",
                          tensor.name, begin, begin + block.count, kByteBlock));
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
