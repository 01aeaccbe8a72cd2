// program/words/words.h: the pieces of the text form of programs that printing, parsing and messages share. What is
// printed and parsed stands together so that both agree.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/shard.h"
#include "program/program.h"
#include "program/words/lines.h"

namespace gsel {

// One instruction: "forward layer=embed mb=0".
std::string to_text(const Program& program, const gsel_instr& instr);
// "rank 1, step instruction 12 (line 40): forward layer=embed mb=0".
std::string where(const Program& program, bool in_setup, size_t position);

// ---- words for attributes ----

inline constexpr std::string_view kProgramMagic = "gsel-program 1";

struct FlagWord {
  std::string_view word;
  uint32_t flag;
};
inline constexpr std::array kShardWords{FlagWord{"state", GSEL_BUCKET_SHARD_STATE},
                                        FlagWord{"gradient", GSEL_BUCKET_SHARD_GRADIENT},
                                        FlagWord{"param", GSEL_BUCKET_SHARD_PARAM}};
inline constexpr std::array kOffloadWords{FlagWord{"state", GSEL_BUCKET_OFFLOAD_STATE},
                                          FlagWord{"param", GSEL_BUCKET_OFFLOAD_PARAM}};
// By GSEL_COMPRESS_*.
inline constexpr std::array<std::string_view, 4> kCompressWords{"none", "f16", "bf16", "low_rank"};
// By Placement.
inline constexpr std::array<std::string_view, 4> kPlacementWords{"replicate", "copy", "shard", "partial"};

// ---- a tensor's shard: DIM:BEGIN-END/WHOLE, followed by xBLOCKS if the dimension has several blocks ----

std::string text_of(const Shard& shard);
// word: part=...; first_dim: the first dim that can be split.
Shard read_shard(const TextLines& lines, const Word& word, int32_t first_dim);
// Refuses the word unless `amount` elements or bytes divide evenly into the shard's positions.
void check_shard(const TextLines& lines, const Word& word, const Shard& shard, int64_t amount, const char* noun,
                 const char* of = "");

}  // namespace gsel
