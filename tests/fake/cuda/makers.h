// fake/cuda/makers.h: what makes a launch of a kernel that shim.h has compiled for the host, from a grid and the
// parameters as cuLaunchKernel gets them. Behind shim.h, the kernels, and a `here` for each struct that they take.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "machine.h"

namespace fake_cuda {

using Maker = std::function<Launch(unsigned blocks, unsigned threads, void** params)>;

inline Access reads(const void* from, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(from);
  return {begin, from ? begin + bytes : begin, false};
}
inline Access writes(void* to, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(to);
  return {begin, to ? begin + bytes : begin, true};
}
// Of n elements.
template <class T>
Access read(const T* from, int64_t n) {
  return reads(from, static_cast<uint64_t>(n) * sizeof(T));
}
template <class T>
Access written(T* to, int64_t n) {
  return writes(to, static_cast<uint64_t>(n) * sizeof(T));
}

using All = std::vector<Access>;

template <class... Args, size_t... I>
std::tuple<Args...> unpacked(void** params, std::index_sequence<I...>) {
  return {*static_cast<Args*>(params[I])...};
}

// Where work finds what a parameter points to.
template <class T>
T* here(T* memory) {
  return static_cast<T*>(Machine::get().here(memory));
}
template <class T>
requires(!std::is_pointer_v<T>) T here(T value) {
  return value;
}

// A kernel without barriers runs its threads one after the other.
template <class... Args, class Touched>
Maker maker(void (*kernel)(Args...), Touched touched, bool has_barriers = false) {
  return [=](unsigned blocks, unsigned threads, void** params) {
    const auto args = unpacked<Args...>(params, std::index_sequence_for<Args...>());
    Launch launch;
    launch.accesses = std::apply(touched, args);
    launch.work = [=] {
      const auto body = [&] { std::apply([&](const auto&... each) { kernel(here(each)...); }, args); };
      gridDim.x = blocks;
      blockDim.x = threads;
      for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
        if (has_barriers)
          Block::run(threads, body);
        else
          for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) body();
    };
    return launch;
  };
}

// The kernels of examples/gpt, in gpt_kernels.cc, and those of its exact model, in gpt_exact_kernels.cc.
const std::map<std::string, Maker>& gpt_makers();
const std::map<std::string, Maker>& gpt_exact_makers();

}  // namespace fake_cuda
