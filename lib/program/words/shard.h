// program/words/shard.h: the text form of the part that a rank of the sharing axis has of a tensor:
// DIM:BEGIN-END/WHOLE, and xBLOCKS behind it if the dimension has several blocks. Printing and reading are side by
// side, so that they agree.
#pragma once

#include <string>

#include "base/shard.h"
#include "program/words/lines.h"

namespace gsel {

std::string text_of(const Shard& shard);
// `word` is part=...; first_dim: the least that can be split.
Shard read_shard(const TextLines& lines, const Word& word, int32_t first_dim);
// Refused at the word unless `amount`, of elements or bytes, is made of as many equal pieces as the part.
void check_shard(const TextLines& lines, const Word& word, const Shard& shard, int64_t amount, const char* noun,
                 const char* of = "");

}  // namespace gsel
