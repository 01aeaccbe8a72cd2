// train/optimize/byte_blocks.h: 8-bit optimizer state: where its blocks are, and their values as f32 and back. Blocks
// are counted from the beginning of the parameter, or of the rank's shard of it under tensor parallelism. Where ranks
// divide a parameter, a block may be split between two ranks; each piece then has its own scale.
#pragma once

#include <cstdint>
#include <span>

#include "train/optimize/optimizer.h"

namespace gsel {

constexpr int64_t kByteBlock = 256;  // elements, see gsel/device.h

constexpr int64_t codes_bytes(int64_t count) {
  return (count + 3) / 4 * 4;
}

// Blocks of a run, and elements of the first one.
int64_t byte_blocks(const ParamRun& run);
int64_t first_byte_block(const ParamRun& run);

// A block, or the part of it that a run has.
struct ByteBlock {
  int64_t first = 0, count = 0;  // elements of the shard
  int64_t scale = 0;             // index
};
// The one with this element of the shard.
ByteBlock byte_block_at(std::span<const ParamRun> runs, int64_t element);

// is_signed: a first moment.
void decode_block(bool is_signed, const uint8_t* codes, float scale, int64_t count, float* values);
// A scale and codes that have exactly these values. False if no scale fits: the values come from two scales, or are not
// finite.
bool encode_block(bool is_signed, const float* values, int64_t count, uint8_t* codes, float& scale);

}  // namespace gsel
