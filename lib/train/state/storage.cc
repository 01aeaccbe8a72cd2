// train/state/storage.cc: see storage.h.
#include "train/state/storage.h"

#include <algorithm>
#include <tuple>

#include "base/foreign.h"
#include "base/random.h"
#include "base/types.h"
#include "device/formulas/floats.h"

namespace gsel {
namespace {

// To nearest, ties to even, like the device's cast.
std::vector<uint16_t> rounded(std::span<const float> values, gsel_dtype dtype) {
  std::vector<uint16_t> result(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    result[i] = dtype == GSEL_BF16 ? BF16::narrow(values[i]).bits : F16::narrow(values[i]).bits;
  return result;
}

}  // namespace

ParamStorage::ParamStorage(std::shared_ptr<DeviceContext> device, const Model& model, const Program& program,
                           const Config& config, const Optimizer& optimizer, uint64_t offload_buffer, Ledger& ledger)
    : device_(std::move(device)), model_(model), homes_(model.params().size()) {
  const std::vector<ProgramBucket> buckets = stored_buckets(program);
  const std::vector<BucketLayout> layouts = layouts_of(program, optimizer);
  if (std::ranges::any_of(layouts, [](const BucketLayout& l) { return l.offload_state || l.offload_params; }))
    offload_.emplace(device_, config.train.offload_folder);
  for (size_t b = 0; b < buckets.size(); ++b) make_block(layouts[b], buckets[b].params, ledger);
  if (offload_buffer)
    offloaded_steps_ = std::make_unique<OffloadedSteps>(device_, ledger, program, optimizer, layouts, offload_buffer,
                                                        [this](int32_t bucket) { return addresses(bucket); });
}

void ParamStorage::zero(void* data, uint64_t bytes) const {
  if (bytes) device_->enqueue(&gsel_device_v1::zero, data, bytes);
}

// Offload memory is zero from the start.
ParamStorage::Kept ParamStorage::make(bool is_offloaded, MemoryPart near, MemoryPart far, uint64_t bytes,
                                      Ledger& ledger) {
  Kept kept;
  if (is_offloaded) {
    kept.far = OffloadedArray(*offload_, ledger, far, bytes);
  } else {
    kept.near = CountedMemory(device_, ledger, near, bytes);
    zero(kept.near.data(), bytes);
  }
  return kept;
}

void ParamStorage::make_block(const BucketLayout& layout, const std::vector<int32_t>& params, Ledger& ledger) {
  Block block;
  block.layout = layout;
  block.params = params;
  block.kept_params =
      make(layout.offload_params, MemoryPart::params, MemoryPart::offload_params, layout.param_bytes, ledger);
  block.kept_gradient = CountedMemory(device_, ledger, MemoryPart::gradients, layout.gradient_bytes);
  zero(block.kept_gradient.data(), layout.gradient_bytes);
  block.master = make(layout.offload_state, MemoryPart::master, MemoryPart::offload_state, layout.master_bytes, ledger);
  for (int i = 0; i < kMostStates; ++i)
    block.states[i] =
        make(layout.offload_state, MemoryPart::state, MemoryPart::offload_state, layout.each_state_bytes[i], ledger);
  if (layout.whole_params) block.whole_params = block.kept_params.near.data();
  if (layout.whole_gradient) block.whole_gradient = static_cast<float*>(block.kept_gradient.data());

  int64_t first = 0;
  for (int32_t p : params) {
    homes_[p] = {static_cast<int32_t>(blocks_.size()), first};
    first += model_.params()[p].n_elems;
  }
  blocks_.push_back(std::move(block));
}

void ParamStorage::initialise(uint64_t seed) {
  for (Block& block : blocks_)
    if (block.layout.param_bytes) initialise_block(block, seed);
}

// Writes what this rank keeps of each parameter, chunk by chunk.
void ParamStorage::initialise_block(Block& block, uint64_t seed) {
  const Beginning to = begin_initial(block);
  std::vector<float> chunk;
  for (int32_t p : block.params) {
    const Param& param = model_.params()[p];
    const int64_t home = homes_[p].first;
    const int64_t begin = std::max(home, to.kept.begin), end = std::min(home + param.n_elems, to.kept.end);
    for (int64_t first = begin; first < end; first += kChunkElems) {
      chunk.resize(std::min(kChunkElems, end - first));
      make_initial(param, first - home, chunk, seed);
      write_initial(block, first, chunk, to);
    }
  }
  end_initial(block);
}

void ParamStorage::initialise_alike(uint64_t seed, bool is_root,
                                    const std::function<void(std::span<float>)>& broadcast) {
  auto is_broadcast = [&](int32_t p) {
    return model_.params()[p].init == GSEL_INIT_CALLBACK && model_.params()[p].shard.is_whole();
  };
  std::vector<float> chunk;
  for (Block& block : blocks_) {
    if (std::ranges::none_of(block.params, is_broadcast)) continue;
    const Beginning to = begin_initial(block);
    for (int32_t p : block.params) {
      const Param& param = model_.params()[p];
      for (int64_t first = 0; is_broadcast(p) && first < param.n_elems; first += kChunkElems) {
        chunk.resize(std::min(kChunkElems, param.n_elems - first));
        if (is_root) make_initial(param, first, chunk, seed);
        broadcast(chunk);
        write_initial(block, homes_[p].first + first, chunk, to);
      }
    }
    end_initial(block);
  }
}

ParamStorage::Beginning ParamStorage::begin_initial(Block& block) const {
  const BucketLayout& layout = block.layout;
  return {static_cast<char*>(block.kept_params.begin_use()), static_cast<char*>(block.master.begin_use()),
          layout.whole_params ? gsel_range{0, layout.padded} : layout.own};
}

void ParamStorage::end_initial(Block& block) const {
  block.kept_params.end_use(true);
  block.master.end_use(true);
}

// Writes elements of the bucket from `first` on, as far as this rank keeps them, to the rounded parameters and to the
// master copy.
void ParamStorage::write_initial(const Block& block, int64_t first, std::span<const float> values,
                                 const Beginning& to) const {
  const BucketLayout& layout = block.layout;
  auto put = [&](char* memory, const gsel_range& range, gsel_dtype dtype) {
    const int64_t from = std::max(first, range.begin), until = std::min(first + std::ssize(values), range.end);
    if (!memory || from >= until) return;
    const std::span<const float> written = values.subspan(from - first, until - from);
    const std::vector<uint16_t> narrow = dtype == GSEL_F32 ? std::vector<uint16_t>{} : rounded(written, dtype);
    device_->copy(static_cast<void*>(memory + static_cast<uint64_t>(from - range.begin) * dtype_bytes(dtype)),
                  dtype == GSEL_F32 ? static_cast<const void*>(written.data()) : narrow.data(),
                  written.size() * dtype_bytes(dtype), GSEL_COPY_TO_DEVICE);
  };
  put(to.params, to.kept, layout.dtype);
  put(to.master, layout.own, GSEL_F32);
}

uint64_t ParamStorage::kept_bytes(const Block& block, int64_t elems) const {
  return static_cast<uint64_t>(elems) * dtype_bytes(block.layout.dtype);
}

void* ParamStorage::param(int32_t p) const {
  const Block& block = blocks_[homes_[p].block];
  return block.whole_params ? static_cast<char*>(block.whole_params) + kept_bytes(block, homes_[p].first) : nullptr;
}

float* ParamStorage::gradient(int32_t p) const {
  const Block& block = blocks_[homes_[p].block];
  return block.whole_gradient ? block.whole_gradient + homes_[p].first : nullptr;
}

void ParamStorage::open_params(int32_t bucket, void* memory) {
  if (!blocks_[bucket].layout.whole_params) blocks_[bucket].whole_params = memory;
}

void ParamStorage::close_params(int32_t bucket) {
  if (!blocks_[bucket].layout.whole_params) blocks_[bucket].whole_params = nullptr;
}

void ParamStorage::open_gradient(int32_t bucket, void* memory) {
  Block& block = blocks_[bucket];
  if (block.layout.whole_gradient) return;
  block.whole_gradient = static_cast<float*>(memory);
  zero(block.whole_gradient + block.layout.elems, sizeof(float) * (block.layout.padded - block.layout.elems));
}

void ParamStorage::close_gradient(int32_t bucket) {
  if (!blocks_[bucket].layout.whole_gradient) blocks_[bucket].whole_gradient = nullptr;
}

ParamStorage::Windows ParamStorage::windows() const {
  Windows all;
  for (const Block& block : blocks_) all.emplace_back(block.whole_params, block.whole_gradient);
  return all;
}

void ParamStorage::set_windows(const Windows& windows) {
  for (size_t i = 0; i < blocks_.size(); ++i) std::tie(blocks_[i].whole_params, blocks_[i].whole_gradient) = windows[i];
}

void ParamStorage::place_shard(int32_t bucket, gsel_stream* stream) {
  Block& block = blocks_[bucket];
  if (block.layout.whole_params || !block.layout.param_bytes) return;
  if (block.layout.offload_params && offloaded_steps_) offloaded_steps_->hold(bucket, stream);
  const void* shard = block.kept_params.begin_use();
  device_->run(&gsel_device_v1::copy,
               static_cast<void*>(static_cast<char*>(block.whole_params) + kept_bytes(block, block.layout.own.begin)),
               shard, block.layout.param_bytes, int32_t{GSEL_COPY_ON_DEVICE}, stream);
  if (!block.layout.offload_params) return;
  if (stream && block.kept_params.far.ends_with_its_work()) device_->run(&gsel_device_v1::stream_wait, stream);
  block.kept_params.end_use(false);
}

float* ParamStorage::own_gradient(int32_t bucket) const {
  const Block& block = blocks_[bucket];
  if (!block.layout.steps) return nullptr;
  auto* kept = static_cast<float*>(block.kept_gradient.data());
  return block.layout.whole_gradient ? kept + block.layout.own.begin : kept;
}

BucketShard ParamStorage::shard(int32_t bucket) {
  settle_steps(bucket);
  Block& block = blocks_[bucket];
  block.kept_params.begin_use();
  if (block.layout.dtype != GSEL_F32) block.master.begin_use();
  for (Kept& state : block.states) state.begin_use();
  return addresses(bucket);
}

void ParamStorage::done_with(int32_t bucket, bool written) {
  Block& block = blocks_[bucket];
  block.kept_params.end_use(written);
  block.master.end_use(written);
  for (Kept& state : block.states) state.end_use(written);
}

BucketShard ParamStorage::addresses(int32_t bucket) const {
  const Block& block = blocks_[bucket];
  const BucketLayout& layout = block.layout;
  auto* params = static_cast<char*>(block.kept_params.data());
  if (layout.whole_params) params += kept_bytes(block, layout.own.begin);
  BucketShard shard;
  shard.count = layout.own_elems();
  if (layout.dtype == GSEL_F32) {
    shard.values = reinterpret_cast<float*>(params);
  } else {
    shard.values = static_cast<float*>(block.master.data());
    shard.rounded = params;
    shard.rounded_dtype = layout.dtype;
  }
  shard.gradient = own_gradient(bucket);
  for (int i = 0; i < kMostStates; ++i) shard.states[i] = block.states[i].data();
  shard.runs = layout.runs;
  return shard;
}

// ---- steps ---------------------------------------------------------------------------------------------------------

void ParamStorage::begin_step() {
  if (offloaded_steps_) offloaded_steps_->begin_step();
}

ParamStorage::Stepped ParamStorage::shard_to_step(int32_t bucket) {
  const bool in_pieces = offloaded_steps_ && offloaded_steps_->has(bucket);
  if (in_pieces) return {addresses(bucket), offloaded_steps_->launch_of(bucket)};
  return {shard(bucket), {}};
}

void ParamStorage::done_stepping(int32_t bucket) {
  if (!offloaded_steps_ || !offloaded_steps_->has(bucket)) done_with(bucket, true);
}

std::vector<gsel_stream*> ParamStorage::offload_streams() const {
  if (!offloaded_steps_) return {};
  const std::array<gsel_stream*, 2> streams = offloaded_steps_->streams();
  return {streams.begin(), streams.end()};
}

uint64_t ParamStorage::offload_bytes_in() const {
  return (offload_ ? offload_->bytes_in : 0) + (offloaded_steps_ ? offloaded_steps_->bytes_in() : 0);
}
uint64_t ParamStorage::offload_bytes_out() const {
  return (offload_ ? offload_->bytes_out : 0) + (offloaded_steps_ ? offloaded_steps_->bytes_out() : 0);
}

// ---- initial values of parameters ----------------------------------------------------------------------------------

namespace {

// Elements [first, first + chunk.size()) of the whole parameter.
void fill_run(const Param& p, uint64_t key, int64_t first, std::span<float> chunk, uint64_t seed) {
  switch (p.init) {
    case GSEL_INIT_ZEROS:
      std::ranges::fill(chunk, 0.0f);
      return;
    case GSEL_INIT_ONES:
      std::ranges::fill(chunk, 1.0f);
      return;
    case GSEL_INIT_NORMAL:
      for (size_t i = 0; i < chunk.size(); ++i)
        chunk[i] = static_cast<float>(p.init_scale) * random_normal(key, static_cast<uint64_t>(first) + i);
      return;
    default: {
      std::string thrown;
      const gsel_status status = call_foreign(
          [&] { return p.init_fn(chunk.data(), first, static_cast<int64_t>(chunk.size()), seed, p.init_user_data); },
          GSEL_ERR_CALLBACK, thrown);
      if (status)
        fail(GSEL_ERR_CALLBACK, "the initialiser of parameter \"{}\" failed: {}", p.name, reason_of(status, thrown));
    }
  }
}

}  // namespace

// Fills a split parameter run by run, in the order of the whole.
void make_initial(const Param& p, int64_t first, std::span<float> values, uint64_t seed) {
  const uint64_t key = derive_key(derive_key(seed, "initial values"), p.name);
  const ShardRows rows = rows_of(p.whole_dims, p.shard);
  for (int64_t done = 0, count = std::ssize(values); done < count;) {
    const int64_t row = (first + done) / rows.length, column = (first + done) % rows.length;
    const int64_t n = std::min(rows.length - column, count - done);
    fill_run(p, key, rows.first + row * rows.stride + column, values.subspan(done, n), seed);
    done += n;
  }
}

}  // namespace gsel
