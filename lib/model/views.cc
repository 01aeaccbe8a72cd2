// model/views.cc: see views.h.
#include "model/views.h"

#include "base/types.h"

namespace gsel {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 56;

// The product, if memory can be that large.
uint64_t times(uint64_t size, int64_t n, const char* kind, const std::string& name) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(size, static_cast<uint64_t>(n), &product) || product > kMaxBytes)
    fail(GSEL_ERR_NOMEM, "{} \"{}\" has {} times {} elements or bytes, more than memory can address", kind, name, size,
         n);
  return product;
}

gsel_tensor shaped_like(const Param& param, gsel_dtype dtype, void* data) {
  gsel_tensor t{data, param.n_elems, {}, 0, dtype};
  for (int64_t d : param.dims) t.dims[t.n_dims++] = d;
  return t;
}

std::vector<int64_t> with_batch(int64_t n, const std::vector<int64_t>& dims) {
  std::vector<int64_t> result{n};
  result.insert(result.end(), dims.begin(), dims.end());
  return result;
}

}  // namespace

int64_t value_elems(const Value& value, int64_t n_samples) {
  return value.is_scalar() ? 1 : static_cast<int64_t>(times(value.sample_elems, n_samples, "value", value.name));
}
uint64_t value_bytes(const Value& value, int64_t n_samples) {
  return times(value_elems(value, n_samples), static_cast<int64_t>(dtype_bytes(value.dtype)), "value", value.name);
}
std::vector<int64_t> batch_dims(const Value& value, int64_t n_samples) {
  return with_batch(n_samples, value.dims);
}
std::vector<int64_t> whole_batch_dims(const Value& value, int64_t n_samples) {
  return with_batch(n_samples, value.whole_dims);
}
uint64_t saved_bytes(const Layer& layer, int64_t n_samples) {
  return times(layer.saved_bytes_per_sample, n_samples, "layer", layer.name);
}

int64_t phase_elems(const gsel_phase& phase, int64_t n_samples) {
  return phase.elems + static_cast<int64_t>(times(phase.elems_per_sample, n_samples, "a phase of", "a layer"));
}
uint64_t phase_bytes(const gsel_phase& phase, int64_t n_samples) {
  return static_cast<uint64_t>(phase_elems(phase, n_samples)) * dtype_bytes(phase.dtype);
}

bool ring_shift(const gsel_phase& phase) {
  return phase.axis >= 0 && (phase.flags & GSEL_PHASE_RING_SHIFT);
}

gsel_tensor phase_tensor(const gsel_phase& phase, int64_t n_samples, void* data) {
  gsel_tensor t{data, phase_elems(phase, n_samples), {}, 1, phase.dtype};
  t.dims[0] = t.n_elems;
  return t;
}

gsel_tensor value_tensor(const Value& value, int64_t n_samples, void* data) {
  gsel_tensor t{data, value_elems(value, n_samples), {}, 0, value.dtype};
  if (!value.is_scalar()) t.dims[t.n_dims++] = n_samples;
  for (int64_t d : value.dims) t.dims[t.n_dims++] = d;
  return t;
}

gsel_tensor param_tensor(const Param& param, void* data) {
  return shaped_like(param, param.dtype, data);
}
gsel_tensor gradient_tensor(const Param& param, float* data) {
  return shaped_like(param, GSEL_F32, data);
}

}  // namespace gsel
