// program/words/attributes.h: words of the text form for attributes of a program, used by printing and parsing.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "program/program.h"

namespace gsel {

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

}  // namespace gsel
