// train/storage.cc: memory of parameters; views of values. See storage.h.
#include "train/storage.h"

#include <algorithm>

#include "base/dtype.h"
#include "base/foreign.h"
#include "base/random.h"

namespace gsel {
namespace {

constexpr int64_t kChunkElems = 1 << 16;
constexpr uint64_t kMaxBytes = uint64_t{1} << 56;

void fill_chunk(const Param& p, uint64_t key, int64_t first, std::vector<float>& chunk, uint64_t seed) {
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
        fail(GSEL_ERR_CALLBACK, "the initialiser of parameter \"{}\" failed: {}", p.name,
             thrown.empty() ? gsel_status_name(status) : thrown);
    }
  }
}

// A product of sizes that memory can hold.
uint64_t times(uint64_t size, int64_t n, const char* kind, const std::string& name) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(size, static_cast<uint64_t>(n), &product) || product > kMaxBytes)
    fail(GSEL_ERR_NOMEM, "{} \"{}\" has {} times {} elements or bytes, more than memory can address", kind, name, size,
         n);
  return product;
}

}  // namespace

int64_t value_elems(const Value& value, int64_t n_samples) {
  return value.is_scalar() ? 1 : static_cast<int64_t>(times(value.sample_elems, n_samples, "value", value.name));
}
uint64_t value_bytes(const Value& value, int64_t n_samples) {
  return times(value_elems(value, n_samples), static_cast<int64_t>(dtype_bytes(value.dtype)), "value", value.name);
}
uint64_t saved_bytes(const Layer& layer, int64_t n_samples) {
  return times(layer.saved_bytes_per_sample, n_samples, "layer", layer.name);
}

gsel_tensor value_tensor(const Value& value, int64_t n_samples, void* data) {
  gsel_tensor t{data, value_elems(value, n_samples), {}, 0, value.dtype};
  if (!value.is_scalar()) t.dims[t.n_dims++] = n_samples;
  for (int64_t d : value.dims) t.dims[t.n_dims++] = d;
  return t;
}

gsel_tensor param_tensor(const Param& param, float* data) {
  gsel_tensor t{data, param.n_elems, {}, 0, param.dtype};
  for (int64_t d : param.dims) t.dims[t.n_dims++] = d;
  return t;
}

ParamStorage::ParamStorage(std::shared_ptr<Backend> backend, const Model& model, const Program& program, int n_states)
    : backend_(std::move(backend)), homes_(model.params().size()) {
  for (const auto& bucket : program.buckets) blocks_.push_back(make_block(model, bucket, true, n_states));
  std::vector<int32_t> frozen;
  for (size_t p = 0; p < model.params().size(); ++p)
    if (!model.params()[p].trainable()) frozen.push_back(static_cast<int32_t>(p));
  if (!frozen.empty()) blocks_.push_back(make_block(model, frozen, false, 0));
}

ParamStorage::Block ParamStorage::make_block(const Model& model, const std::vector<int32_t>& params, bool trained,
                                             int n_states) {
  Block block;
  for (int32_t p : params) {
    const Param& param = model.params()[p];
    homes_[p] = {static_cast<int32_t>(blocks_.size()), block.elems};
    const uint32_t flags = param.flags & (GSEL_PARAM_NO_DECAY | GSEL_PARAM_NO_CLIP);
    if (!block.segments.empty() && block.segments.back().flags == flags)
      block.segments.back().count += param.n_elems;
    else
      block.segments.push_back({block.elems, param.n_elems, flags});
    block.elems += param.n_elems;
  }
  const uint64_t bytes = static_cast<uint64_t>(block.elems) * sizeof(float);
  block.params = Memory(backend_, bytes);
  if (trained) block.gradients = Memory(backend_, bytes);
  for (int i = 0; i < n_states; ++i) {
    block.states[i] = Memory(backend_, bytes);
    backend_->run(&gsel_backend_v1::zero, block.states[i].data(), bytes, static_cast<gsel_stream*>(nullptr));
  }
  return block;
}

float* ParamStorage::at(Memory Block::*memory, int32_t p) const {
  auto* base = static_cast<float*>((blocks_[homes_[p].block].*memory).data());
  return base ? base + homes_[p].first : nullptr;
}

void ParamStorage::initialise(const Model& model, uint64_t seed) {
  const uint64_t init_key = derive_key(seed, "initial values");
  std::vector<float> chunk;
  for (size_t i = 0; i < model.params().size(); ++i) {
    const Param& p = model.params()[i];
    const uint64_t key = derive_key(init_key, p.name);
    for (int64_t first = 0; first < p.n_elems; first += kChunkElems) {
      chunk.resize(std::min(kChunkElems, p.n_elems - first));
      fill_chunk(p, key, first, chunk, seed);
      backend_->run(&gsel_backend_v1::copy, static_cast<void*>(param(static_cast<int32_t>(i)) + first),
                    static_cast<const void*>(chunk.data()), uint64_t{chunk.size() * sizeof(float)},
                    int32_t{GSEL_COPY_TO_DEVICE}, static_cast<gsel_stream*>(nullptr));
    }
  }
}

}  // namespace gsel
