// bench_data.cc: see bench_data.h.
#include "bench_data.h"

#include <algorithm>
#include <cstring>

namespace gsel::cli {
namespace {

constexpr uint64_t kPeriod = 1009;

uint64_t scattered(uint64_t a, uint64_t b) {
  uint64_t hash = a * 0x9e3779b97f4a7c15u ^ (b + 1) * 0xc2b2ae3d27d4eb4fu;
  hash = (hash ^ (hash >> 31)) * 0xbf58476d1ce4e5b9u;
  return hash ^ (hash >> 29);
}

bool is_float(gsel_dtype dtype) {
  return dtype == GSEL_F16 || dtype == GSEL_BF16 || dtype == GSEL_F32 || dtype == GSEL_F64 || dtype == GSEL_F8E4M3 ||
         dtype == GSEL_F8E5M2;
}

// A whole number from 0 to 8 as a float with the given exponent bias and mantissa bits.
uint64_t float_bits(uint64_t value, int bias, int mantissa) {
  if (value == 0) return 0;
  int power = 0;
  while (value >> (power + 1)) ++power;
  const uint64_t fraction = value - (uint64_t{1} << power);
  return static_cast<uint64_t>(power + bias) << mantissa | fraction << (mantissa - power);
}

// The bits of a small number in `dtype`; integers are truncated.
uint64_t bits_of(int64_t value, gsel_dtype dtype) {
  const auto number = static_cast<uint64_t>(value);
  switch (dtype) {
    case GSEL_F16:
      return float_bits(number, 15, 10);
    case GSEL_BF16:
      return float_bits(number, 127, 7);
    case GSEL_F32:
      return float_bits(number, 127, 23);
    case GSEL_F64:
      return float_bits(number, 1023, 52);
    case GSEL_F8E4M3:
      return float_bits(number, 7, 3);
    case GSEL_F8E5M2:
      // float_bits supports powers up to the mantissa bits; the only larger value is 8.
      return value == 8 ? uint64_t{18} << 2 : float_bits(number, 15, 2);
    default:
      return number;
  }
}

int64_t input(bool reduces, gsel_op op, uint64_t rank, uint64_t i, uint64_t ranks) {
  const bool first = i % ranks == rank, second = i / 3 % ranks == rank, next = (i + 1) % ranks == rank;
  if (!reduces) return static_cast<int64_t>(scattered(rank, i) % 9);
  switch (op) {
    case GSEL_SUM:
      return first + 2 * second;
    case GSEL_PROD:
      return int64_t{first ? 2 : 1} * (second && i % 2 ? 2 : 1);
    case GSEL_AVG:  // an excess in one rank is balanced by another
      return 2 + static_cast<int64_t>(i % 2) + (first ? 1 : 0) - (next ? 1 : 0);
    default:
      return static_cast<int64_t>(scattered(rank, i) % 8);
  }
}

int64_t fold(gsel_op op, int64_t a, int64_t b) {
  switch (op) {
    case GSEL_PROD:
      return a * b;
    case GSEL_MIN:
      return std::min(a, b);
    case GSEL_MAX:
      return std::max(a, b);
    case GSEL_BAND:
      return a & b;
    case GSEL_BOR:
      return a | b;
    case GSEL_BXOR:
      return a ^ b;
    default:
      return a + b;
  }
}

// The bitwise operation with the same effect on 0 and 1.
gsel_op on_bits(gsel_op op) {
  if (op == GSEL_SUM || op == GSEL_MAX) return GSEL_BOR;
  return op == GSEL_PROD || op == GSEL_MIN ? GSEL_BAND : op;
}

// The wrapped sum divided by the number of ranks, rounded towards zero.
int64_t average(int64_t sum, int64_t ranks, gsel_dtype dtype) {
  if (dtype == GSEL_I8) sum = static_cast<int8_t>(sum);
  if (dtype == GSEL_U8) sum = static_cast<uint8_t>(sum);
  return sum / ranks;
}

}  // namespace

BenchData::BenchData(gsel_dtype dtype, bool reduces, gsel_op op, int32_t ranks)
    : element_(gsel_dtype_bytes(dtype)), inputs_(static_cast<size_t>(ranks), Pattern(kPeriod * element_)) {
  const auto put = [&](Pattern& pattern, uint64_t i, int64_t value) {
    const uint64_t bits = bits_of(value, dtype);
    std::memcpy(pattern.data() + i * element_, &bits, element_);  // assumes a little-endian host
  };
  reduced_.resize(kPeriod * element_);
  const bool is_bool = dtype == GSEL_BOOL;
  for (uint64_t i = 0; i < kPeriod; ++i) {
    int64_t all = 0;
    for (size_t rank = 0; rank < inputs_.size(); ++rank) {
      const int64_t value = input(reduces, op, rank, i, inputs_.size()) & (is_bool ? 1 : -1);
      put(inputs_[rank], i, value);
      all = rank == 0 ? value : fold(is_bool ? on_bits(op) : op, all, value);
    }
    if (op == GSEL_AVG) all = is_float(dtype) ? all / ranks : average(all, ranks, dtype);
    put(reduced_, i, all);
  }
}

void BenchData::fill(void* to, int32_t rank, uint64_t begin, uint64_t count) const {
  auto* at = static_cast<unsigned char*>(to);
  while (count > 0) {
    const uint64_t from = begin % kPeriod, n = std::min(count, kPeriod - from);
    std::memcpy(at, pattern(rank).data() + from * element_, n * element_);
    at += n * element_;
    begin += n;
    count -= n;
  }
}

uint64_t BenchData::wrong(const void* got, int32_t rank, uint64_t begin, uint64_t count) const {
  const auto* at = static_cast<const unsigned char*>(got);
  uint64_t bad = 0;
  while (count > 0) {
    const uint64_t from = begin % kPeriod, n = std::min(count, kPeriod - from);
    const unsigned char* expected = pattern(rank).data() + from * element_;
    if (std::memcmp(at, expected, n * element_) != 0)
      for (uint64_t i = 0; i < n; ++i) bad += std::memcmp(at + i * element_, expected + i * element_, element_) != 0;
    at += n * element_;
    begin += n;
    count -= n;
  }
  return bad;
}

}  // namespace gsel::cli
