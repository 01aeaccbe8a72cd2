// fake/cuda/same_abi.h: whether two declarations of a function pass the same things, at compile time: what a double
// declares for itself beside what the vendor's header declares.
#pragma once

#include <cstddef>
#include <type_traits>

namespace {

// What a call passes: enums as int, pointers to anything as a pointer, structs by their size.
template <class T>
struct Abi {
  using Plain = std::remove_cv_t<T>;
  static constexpr int kKind = std::is_pointer_v<Plain>     ? 1
                               : std::is_enum_v<Plain>      ? 2
                               : std::is_same_v<Plain, int> ? 2
                               : std::is_integral_v<Plain>  ? 3
                               : std::is_class_v<Plain>     ? 4
                                                            : 5;
  static constexpr size_t kBytes = sizeof(Plain);
};
template <class A, class B>
constexpr bool is_same_abi = Abi<A>::kKind == Abi<B>::kKind&& Abi<A>::kBytes == Abi<B>::kBytes;

template <class A, class B>
constexpr bool is_same_call = false;
template <class R, class... A, class S, class... B>
constexpr bool is_same_call<R(A...), S(B...)> = [] {
  if constexpr (sizeof...(A) != sizeof...(B))
    return false;
  else
    return is_same_abi<R, S> && (is_same_abi<A, B> && ...);
}();

}  // namespace
