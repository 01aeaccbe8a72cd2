// device/host/cast_kernels.h: conversion between f32 and 16-bit floating-point types by floats.h.
#pragma once

#include <cstdint>

#include "device/host/isa/isa.h"

namespace gsel::host {

// [count] each, without overlap. T: F16 or BF16.
template <class T>
void widen(Isa isa, float* dst, const T* src, uint64_t count);
template <class T>
void narrow(Isa isa, T* dst, const float* src, uint64_t count);

}  // namespace gsel::host
