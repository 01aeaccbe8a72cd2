// program/words/words.cc: see words.h.
#include "program/words/words.h"

#include <algorithm>

#include "base/axis.h"
#include "base/error.h"
#include "base/text.h"

namespace gsel {

// ---- instructions --------------------------------------------------------------------------------------------------

std::string to_text(const Program& program, const gsel_instr& instr) {
  const InstrForm* form = form_of(instr.kind);
  if (!form) return fmt::format("unknown kind={}", instr.kind);
  std::string text = form->word;
  if (form->layer) text += " layer=" + program.layers[instr.layer].name;
  if (form->value) text += " value=" + program.values[instr.value].name;
  if (form->microbatch) text += fmt::format(" mb={}", instr.microbatch);
  if (form->bucket) text += fmt::format(" bucket={}", instr.bucket);
  if (form->axis) text += fmt::format(" axis={}", axis_name(instr.axis));
  if (form->peer) text += fmt::format(" {}={}", form->peer, instr.peer);
  if (instr.flags & GSEL_INSTR_GRADIENT) text += " gradient";
  if (instr.flags & GSEL_INSTR_OPTIMISTIC) text += " optimistic";
  return text;
}

std::string where(const Program& program, bool in_setup, size_t position) {
  const gsel_instr& instr = (in_setup ? program.setup : program.step)[position];
  const size_t line = (in_setup ? 0 : program.setup.size()) + position;
  return fmt::format("rank {}, {} instruction {}{}: {}", program.rank, in_setup ? "setup" : "step", position,
                     line < program.lines.size() ? fmt::format(" (line {})", program.lines[line]) : "",
                     to_text(program, instr));
}

// ---- shards --------------------------------------------------------------------------------------------------------

namespace {

constexpr int64_t kMostElems = int64_t{1} << 50;  // over all blocks of a dimension

// Splits off the text before `mark`; false if there is no mark.
bool take(std::string_view& text, char mark, std::string_view& head) {
  const size_t at = text.find(mark);
  if (at == text.npos) return false;
  head = text.substr(0, at);
  text.remove_prefix(at + 1);
  return true;
}

}  // namespace

std::string text_of(const Shard& shard) {
  return fmt::format("{}:{}-{}/{}{}", shard.dim, shard.begin, shard.end, shard.whole,
                     shard.blocks == 1 ? "" : fmt::format("x{}", shard.blocks));
}

Shard read_shard(const TextLines& lines, const Word& word, int32_t first_dim) {
  std::string_view rest = word.after_equals(), dim, begin, end;
  if (!take(rest, ':', dim) || !take(rest, '-', begin) || !take(rest, '/', end))
    lines.refuse_at(
        word, fmt::format("\"{}\" is no shard; expected DIM:BEGIN-END/WHOLE or DIM:BEGIN-END/WHOLExBLOCKS", word.text));
  Shard shard;
  std::string_view whole = rest;
  const bool has_blocks = take(rest, 'x', whole);
  shard.dim = static_cast<int32_t>(lines.number(word, dim, first_dim, GSEL_MAX_DIMS - 1));
  shard.whole = lines.number(word, whole, 1, kMostElems);
  if (has_blocks)
    shard.blocks =
        static_cast<int32_t>(lines.number(word, rest, 1, std::min<int64_t>(INT32_MAX, kMostElems / shard.whole)));
  shard.begin = lines.number(word, begin, 0, shard.whole - 1);
  shard.end = lines.number(word, end, shard.begin + 1, shard.whole);
  return shard;
}

void check_shard(const TextLines& lines, const Word& word, const Shard& shard, int64_t amount, const char* noun,
                 const char* of) {
  if (const int64_t pieces = shard.size() * shard.blocks; amount % pieces)
    lines.refuse_at(word, fmt::format("{}{} cannot be cut into the {} equal pieces that \"{}\" says are here",
                                      with_noun(amount, noun), of, pieces, word.text));
}

}  // namespace gsel
