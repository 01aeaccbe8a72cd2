// model/views.h: sizes of a value and of a layer's saved bytes for a number of samples, and tensors over their memory.
#pragma once

#include "model/model.h"

namespace gsel {

// Elements and bytes of a value for n samples; GSEL_ERR_NOMEM when no memory can be that large.
int64_t value_elems(const Value& value, int64_t n_samples);
uint64_t value_bytes(const Value& value, int64_t n_samples);
// Dimensions of n samples of this rank's shard of a value, and of the whole value: n, then those of a sample.
std::vector<int64_t> batch_dims(const Value& value, int64_t n_samples);
std::vector<int64_t> whole_batch_dims(const Value& value, int64_t n_samples);
// Bytes a layer keeps from forward to backward.
uint64_t saved_bytes(const Layer& layer, int64_t n_samples);
// Elements and bytes of a phase's reduction buffer.
int64_t phase_elems(const gsel_phase& phase, int64_t n_samples);
uint64_t phase_bytes(const gsel_phase& phase, int64_t n_samples);
// Whether the phase is a ring shift.
bool ring_shift(const gsel_phase& phase);
gsel_tensor phase_tensor(const gsel_phase& phase, int64_t n_samples, void* data);

// A view of n samples of a value at `data`.
gsel_tensor value_tensor(const Value& value, int64_t n_samples, void* data);
// A view of a parameter in the dtype of its callbacks, or of its gradient.
gsel_tensor param_tensor(const Param& param, void* data);
gsel_tensor gradient_tensor(const Param& param, float* data);

}  // namespace gsel
