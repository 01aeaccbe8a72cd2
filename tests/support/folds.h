// support/folds.h: what a fold in a given order must give, for tests that look inside: numbers in the type they are
// computed in, folded two at a time by support/reference.h, level by level where the order is a tree. Refuses to be
// fast.
#pragma once

#include <vector>

#include "device/host/reduce/kernels.h"
#include "support/reference.h"

using gsel::host::Fold;
using Buffer = std::vector<char>;
using Buffers = std::vector<Buffer>;

inline uint64_t next_random(uint64_t& state) {  // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Any bits at all; in the wider floating point types every other number between 1 and 2, so that sums round.
inline void fill(Buffer& bytes, gsel_dtype dtype, uint64_t& state) {
  for (char& c : bytes) c = static_cast<char>(next_random(state));
  const size_t element = gsel_dtype_bytes(dtype);
  if (dtype < GSEL_F16 || element == 1) return;
  const unsigned top = dtype == GSEL_F64 ? 0x3ff0 : dtype == GSEL_F16 ? 0x3c00 : 0x3f80;
  const unsigned kept = dtype == GSEL_F64 ? 0x000f : dtype == GSEL_F16 ? 0x03ff : 0x007f;
  for (size_t end = element; end <= bytes.size(); end += 2 * element) {
    const unsigned low = static_cast<unsigned char>(bytes[end - 2]), high = static_cast<unsigned char>(bytes[end - 1]);
    const unsigned word = ((high << 8 | low) & (kept | 0x8000)) | top;
    bytes[end - 2] = static_cast<char>(word), bytes[end - 1] = static_cast<char>(word >> 8);
  }
}

inline bool is_integer(gsel_dtype dtype) {
  return dtype <= GSEL_U64;
}

inline std::vector<const void*> pointers(const Buffers& buffers) {
  std::vector<const void*> all;
  for (const Buffer& b : buffers) all.push_back(b.data());
  return all;
}

inline gsel_dtype computed_in(gsel_dtype dtype) {
  return reference_small(dtype) ? GSEL_F32 : dtype;
}

inline Buffer widened(gsel_dtype dtype, const Buffer& in, size_t count) {
  const reference_format* small = reference_small(dtype);
  if (!small) return in;
  Buffer out(count * sizeof(float));
  for (size_t i = 0; i < count; ++i)
    reinterpret_cast<float*>(out.data())[i] = reference_widen(small, reference_bits(small, in.data(), i));
  return out;
}

inline Buffer narrowed(gsel_dtype dtype, const Buffer& in, size_t count) {
  const reference_format* small = reference_small(dtype);
  if (!small) return in;
  Buffer out(count * gsel_dtype_bytes(dtype));
  for (size_t i = 0; i < count; ++i) reference_put(small, out.data(), i, reinterpret_cast<const float*>(in.data())[i]);
  return out;
}

inline void multiply(gsel_dtype dtype, Buffer& x, double factor, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (dtype == GSEL_F32)
      reinterpret_cast<float*>(x.data())[i] *= static_cast<float>(factor);
    else
      reinterpret_cast<double*>(x.data())[i] *= factor;
}

// Not associative, not commutative, on the bytes of any type.
inline int32_t mangle(void* accumulated, const void* next, size_t count, gsel_dtype dtype, void*) {
  auto* a = static_cast<uint8_t*>(accumulated);
  const auto* b = static_cast<const uint8_t*>(next);
  for (size_t i = 0; i < count * gsel_dtype_bytes(dtype); ++i) a[i] = static_cast<uint8_t>(a[i] * 3 + b[i] * 5 + 1);
  return 0;
}

inline void fold_two(gsel_dtype dtype, gsel_op op, Buffer& a, const Buffer& b, size_t count) {
  const void* in[] = {a.data(), b.data()};
  if (op == GSEL_OP_USER)
    mangle(a.data(), b.data(), count, dtype, nullptr);
  else
    reference_fold(dtype, op, 2, in, a.data(), count);
}

// Pairs of neighbours, level by level; an odd one goes up as it is.
inline Buffer by_tree(gsel_dtype dtype, gsel_op op, Buffers level, size_t count) {
  while (level.size() > 1) {
    Buffers above;
    for (size_t q = 0; q < level.size(); q += 2) {
      if (q + 1 < level.size()) fold_two(dtype, op, level[q], level[q + 1], count);
      above.push_back(level[q]);
    }
    level = above;
  }
  return level[0];
}

inline Buffer by_ranks(gsel_dtype dtype, gsel_op op, Buffers level, size_t count) {
  for (size_t q = 1; q < level.size(); ++q) fold_two(dtype, op, level[0], level[q], count);
  return level[0];
}

inline Buffer defined(const Fold& fold, const Buffers& inputs, size_t count) {
  if (inputs.size() == 1 && fold.op != GSEL_SCALED_SUM) return inputs[0];
  const bool user = fold.op == GSEL_OP_USER;
  const gsel_dtype wide = user ? fold.dtype : computed_in(fold.dtype);
  const gsel_op op = fold.op == GSEL_AVG || fold.op == GSEL_SCALED_SUM ? GSEL_SUM : fold.op;
  Buffers numbers;
  for (const Buffer& in : inputs) numbers.push_back(user ? in : widened(fold.dtype, in, count));
  if (fold.op == GSEL_SCALED_SUM)
    for (size_t q = 0; q < numbers.size(); ++q) multiply(wide, numbers[q], fold.factors[q], count);
  Buffer sum = fold.order == GSEL_ORDER_TREE ? by_tree(wide, op, numbers, count) : by_ranks(wide, op, numbers, count);
  if (user) return sum;
  if (fold.op == GSEL_AVG && !is_integer(wide)) {
    const auto n = static_cast<double>(inputs.size());
    for (size_t i = 0; i < count; ++i)
      if (wide == GSEL_F32)
        reinterpret_cast<float*>(sum.data())[i] /= static_cast<float>(n);
      else
        reinterpret_cast<double*>(sum.data())[i] /= n;
  }
  if (fold.op == GSEL_AVG && is_integer(wide)) {  // order is of no meaning to wrapped sums
    const auto in = pointers(inputs);
    reference_fold(wide, GSEL_AVG, static_cast<int32_t>(inputs.size()), in.data(), sum.data(), count);
  }
  if (!is_integer(wide)) {  // one NaN
    const void* one[] = {sum.data()};
    reference_fold(wide, GSEL_SUM, 1, one, sum.data(), count);
  }
  return narrowed(fold.dtype, sum, count);
}
