// device/host/cast_kernels.h: conversion between f32 and the 16-bit floating point types, as floats.h defines it.
#pragma once

#include <cstdint>

#include "device/formulas/floats.h"
#include "device/host/reduce/kernels.h"

namespace gsel::host {

// [count] each, not overlapping. T is F16 or BF16.
template <class T>
void widen(Isa isa, float* dst, const T* src, uint64_t count);
template <class T>
void narrow(Isa isa, T* dst, const float* src, uint64_t count);

}  // namespace gsel::host
