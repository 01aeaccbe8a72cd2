// program/words/part.cc: see part.h.
#include "program/words/part.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace gsel {
namespace {

constexpr int64_t kMostElems = int64_t{1} << 50;  // of all blocks of a dimension

// Cuts what stands before `mark` off the text; false where there is none.
bool take(std::string_view& text, char mark, std::string_view& head) {
  const size_t at = text.find(mark);
  if (at == text.npos) return false;
  head = text.substr(0, at);
  text.remove_prefix(at + 1);
  return true;
}

}  // namespace

std::string text_of(const Share& part) {
  return fmt::format("{}:{}-{}/{}{}", part.dim, part.begin, part.end, part.whole,
                     part.blocks == 1 ? "" : fmt::format("x{}", part.blocks));
}

Share read_part(const TextLines& lines, const Word& word, int32_t first_dim) {
  std::string_view rest = word.after_equals(), dim, begin, end;
  if (!take(rest, ':', dim) || !take(rest, '-', begin) || !take(rest, '/', end))
    lines.refuse_at(word, fmt::format("\"{}\" is not DIM:BEGIN-END/WHOLE, perhaps with xBLOCKS behind", word.text));
  Share part;
  std::string_view whole = rest;
  const bool has_blocks = take(rest, 'x', whole);
  part.dim = static_cast<int32_t>(lines.number(word, dim, first_dim, GSEL_MAX_DIMS - 1));
  part.whole = lines.number(word, whole, 1, kMostElems);
  if (has_blocks)
    part.blocks =
        static_cast<int32_t>(lines.number(word, rest, 1, std::min<int64_t>(INT32_MAX, kMostElems / part.whole)));
  part.begin = lines.number(word, begin, 0, part.whole - 1);
  part.end = lines.number(word, end, part.begin + 1, part.whole);
  return part;
}

void check_part(const TextLines& lines, const Word& word, const Share& part, int64_t amount, const char* noun,
                const char* of) {
  if (const int64_t pieces = part.size() * part.blocks; amount % pieces)
    lines.refuse_at(word, fmt::format("{}{} cannot be cut into the {} equal pieces that \"{}\" says are here",
                                      with_noun(amount, noun), of, pieces, word.text));
}

}  // namespace gsel
