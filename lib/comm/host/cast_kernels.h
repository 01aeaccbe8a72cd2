// comm/host/cast_kernels.h: conversion between f32 and the 16-bit floating point types, as floats.h defines it.
#pragma once

#include <cstdint>

#include "comm/floats.h"
#include "comm/shm/reduce/kernels.h"

namespace gsel::host {

// [count] each, not overlapping. T is F16 or BF16.
template <class T>
void widen(shm::Isa isa, float* dst, const T* src, uint64_t count);
template <class T>
void narrow(shm::Isa isa, T* dst, const float* src, uint64_t count);

}  // namespace gsel::host
