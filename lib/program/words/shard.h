// program/words/shard.h: the text form of a tensor's shard: DIM:BEGIN-END/WHOLE, followed by xBLOCKS if the dimension
// has several blocks. Printing and parsing are in one file so that they agree.
#pragma once

#include <string>

#include "base/shard.h"
#include "program/words/lines.h"

namespace gsel {

std::string text_of(const Shard& shard);
// word: part=...; first_dim: the first dim that can be split.
Shard read_shard(const TextLines& lines, const Word& word, int32_t first_dim);
// Refuses the word unless `amount` elements or bytes divide evenly into the shard's positions.
void check_shard(const TextLines& lines, const Word& word, const Shard& shard, int64_t amount, const char* noun,
                 const char* of = "");

}  // namespace gsel
