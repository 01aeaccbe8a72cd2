// device/host/kernels.h: kernels over host memory. Does not know streams and errors: the caller has checked the
// arguments, and kernels that do not take every type have a function that checks the type. No result depends on the
// width of vectors.
#pragma once

#include <gsel/device.h>

#include <cstdint>

#include "device/host/isa/vector_loops.h"

namespace gsel::host {

bool can_cast(gsel_dtype dtype);  // integers, f32, f64, f16, bf16

// Floating-point types round to nearest even; conversions to integers truncate and saturate, and NaN becomes 0.
void cast(void* dst, gsel_dtype dst_dtype, const void* src, gsel_dtype src_dtype, uint64_t count);

// f32 and f64.
template <class T>
void scale(T* dst, double factor, uint64_t count);
// Types of 8 and 16 bits (device/formulas/floats.h): computed in f32, then rounded once to nearest even.
template <class T>
void scale_narrow(T* dst, double factor, uint64_t count);
// f32 and f64.
template <class T>
void add(T* dst, const T* src, uint64_t count);
// Eight interleaved double sums that are added in order: the same result on every run and processor.
template <class T>
double sum_squares(const T* src, uint64_t count);

// ---- f32 and 16-bit floating-point types, by floats.h ---------------------------------------------------------------

// [count] each, without overlap. T: F16 or BF16.
template <class T>
void widen(Isa isa, float* dst, const T* src, uint64_t count);
template <class T>
void narrow(Isa isa, T* dst, const float* src, uint64_t count);

// ---- low-rank steps -------------------------------------------------------------------------------------------------

void low_rank_step(const gsel_low_rank_step& step);

// Makes n_columns columns of n elements orthonormal, as GSEL_LOW_RANK_LEFT does.
void make_orthonormal(float* columns, int64_t n, int64_t n_columns, uint64_t key);

// ---- optimizer steps ------------------------------------------------------------------------------------------------
// Elements are independent, except within blocks of 8-bit state, so a step gives the same bits for any division of its
// range and any instruction set.

// All kinds except ADAMW_8BIT.
void elementwise_step(Isa isa, const gsel_optimizer_step& step);

// ADAMW_8BIT. A moment has one byte per element, and one scale, the largest magnitude, per block of kStateBlock. A step
// decodes a block, updates it as AdamW in f32, and encodes it again; the parameter is updated before the encoding.
void byte_state_step(Isa isa, const gsel_optimizer_step& step);

constexpr uint64_t kStateBlock = 256;

}  // namespace gsel::host
