// device/host/kernels.h: plain loops over host memory. Does not know streams and errors: kernels that do not take every
// type have a function that checks the type beforehand.
#pragma once

#include <gsel/device.h>

#include <cstdint>

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

}  // namespace gsel::host
