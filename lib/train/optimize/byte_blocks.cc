// train/optimize/byte_blocks.cc: see byte_blocks.h. A part of a block may lack the element that its scale came from,
// and a first moment of -scale is stored as another value. So the scale is found: some code times the scale is the
// largest value.
#include "train/optimize/byte_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "device/formulas/byte_state.h"

namespace gsel {
namespace {

constexpr CodeValues kSignedBytes = code_values<Signed, true>();
constexpr CodeValues kUnsignedBytes = code_values<Unsigned, false>();

const float* values_of_codes(bool is_signed) {
  return (is_signed ? kSignedBytes : kUnsignedBytes).of;
}

bool encode_with(bool is_signed, const float* values, int64_t count, float scale, uint8_t* codes) {
  const float* const of = values_of_codes(is_signed);
  for (int64_t i = 0; i < count; ++i) {
    const float x = values[i] / scale;
    codes[i] = is_signed ? signed_code(x) : unsigned_code(x);
    if (of[codes[i]] * scale != values[i]) return false;
  }
  return true;
}

// The bits of positive floats are in their order.
float moved(float x, int32_t units) {
  return float_of(bits_of(x) + static_cast<uint32_t>(units));
}

}  // namespace

int64_t first_byte_block(const ParamRun& run) {
  return std::min(run.count, kByteBlock - run.param_first % kByteBlock);
}

int64_t byte_blocks(const ParamRun& run) {
  return (run.param_first % kByteBlock + run.count + kByteBlock - 1) / kByteBlock;
}

ByteBlock byte_block_at(std::span<const ParamRun> runs, int64_t element) {
  int64_t scales = 0;
  for (const ParamRun& run : runs) {
    if (element < run.first + run.count) {
      if (element < run.first) break;
      const int64_t skipped = run.param_first % kByteBlock, at = (element - run.first + skipped) / kByteBlock;
      const int64_t begin = std::max<int64_t>(0, at * kByteBlock - skipped),
                    end = std::min(run.count, (at + 1) * kByteBlock - skipped);
      return {run.first + begin, end - begin, scales + at};
    }
    scales += byte_blocks(run);
  }
  fail(GSEL_ERR_INTERNAL, "element {} of a shard is padding, which has no 8-bit state", element);
}

void decode_block(bool is_signed, const uint8_t* codes, float scale, int64_t count, float* values) {
  const float* const of = values_of_codes(is_signed);
  for (int64_t i = 0; i < count; ++i) values[i] = of[codes[i]] * scale;
}

bool encode_block(bool is_signed, const float* values, int64_t count, uint8_t* codes, float& scale) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return false;
    largest = std::max(largest, std::abs(values[i]));
  }
  if (largest == 0) {
    std::memset(codes, 0, static_cast<size_t>(count));
    scale = 0;
    return encode_with(is_signed, values, count, 1, codes);
  }
  const float* const of = values_of_codes(is_signed);
  for (int i = 0; i < 256; ++i) {
    const float of_code = of[is_signed ? 128 - i : i == 0 ? 1 : 256 - i];  // from 1 down
    if (!(of_code > 0)) break;
    for (const int32_t units : {0, 1, -1, 2, -2}) {  // what a product and a quotient are rounded by
      scale = moved(largest / of_code, units);
      if (!std::isfinite(scale) || bits_of(of_code * scale) != bits_of(largest)) continue;
      if (encode_with(is_signed, values, count, scale, codes)) return true;
    }
  }
  return false;
}

}  // namespace gsel
